//! The list of principals: who is who, by what he proves it, and what he may at most. A line each,
//! as `authorized_keys` has them; `#` begins a comment.
//!
//! ```text
//! pilot     read,list below=/results for=8h  key ssh-ed25519 AAAAC3Nza… pilot@login
//! issuer    https://tokens.example audience=https://store.example keys=/etc/terral/keys.json
//! workflow  all                              token https://tokens.example wf-7
//! alice     read,list                        gss alice@EXAMPLE.ORG
//! group     staff =                          key:pilot gss:alice
//! ```
//!
//! Invariants: no key, subject or ticket's name is listed twice, so one proof means one line; who
//! is in a group is on a line. Not here: reading the file (`shell::listed`).

use std::collections::{BTreeMap, BTreeSet};

use terral_format::wire::capability::{Operations, Principal};
use terral_format::wire::containers::{GROUPS_BYTES_MAX, GROUPS_MAX, Group};
use terral_format::wire::principal::PrincipalName;
use terral_format::{Error, ErrorKind, Result, frame};

use crate::authority::ticket_names::TicketNames;
use crate::authority::token_keys::{self, TokenKey};

/// What a credential is good for unless the line says something else, seconds.
const LIFETIME_S: u64 = 8 * 3600;
/// And at most.
const LIFETIME_MAX_S: u64 = 30 * 24 * 3600;
/// Stands for any subject of an issuer.
const ANYBODY: &str = "*";
/// Most lines that say something.
const LINES_MAX: usize = 4096;

/// What a principal may at most, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// What.
    pub operations: Operations,
    /// At this path, or below; empty: everywhere.
    pub below: Vec<u8>,
    /// So long at a time, seconds.
    pub lifetime_s: u64,
}

/// By what a principal proves who he is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum By {
    /// By this public key.
    Key([u8; 32]),
    /// By a token of this issuer that names this subject.
    Token { issuer: String, subject: String },
    /// By a ticket of Kerberos.
    Gss(TicketNames),
}

#[derive(Clone, Debug)]
struct Listed {
    name: PrincipalName,
    terms: Terms,
    by: By,
}

/// Who may issue tokens.
#[derive(Clone)]
pub struct Issuer {
    /// As tokens name him.
    pub url: String,
    /// Whom his tokens must be for.
    pub audience: String,
    /// Where his keys are: a file, or a directory of them.
    pub keys_at: String,
    /// What he signs with.
    pub keys: Vec<TokenKey>,
}

/// Who is who.
#[derive(Clone, Default)]
pub struct Principals {
    listed: Vec<Listed>,
    issuers: Vec<Issuer>,
    groups: BTreeMap<PrincipalName, Vec<Principal>>,
}

impl Listed {
    /// As whom he is known.
    fn principal(&self) -> Principal {
        match self.by {
            By::Key(_) => Principal::Key(self.name),
            By::Token { .. } => Principal::Token(self.name),
            By::Gss(_) => Principal::Gss(self.name),
        }
    }
}

fn refuse(why: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, why)
}

/// The words of a line; what is in double quotes is one, or a part of one.
fn words(line: &str) -> Result<Vec<String>> {
    let (mut words, mut word, mut begun, mut quoted) = (Vec::new(), String::new(), false, false);
    for character in line.chars() {
        match character {
            '"' => (begun, quoted) = (true, !quoted),
            '#' if !quoted && !begun => break,
            blank if blank.is_whitespace() && !quoted => {
                if std::mem::take(&mut begun) {
                    words.push(std::mem::take(&mut word));
                }
            }
            other => {
                begun = true;
                word.push(other);
            }
        }
    }
    if quoted {
        return Err(refuse("a quotation mark is missing"));
    }
    if begun {
        words.push(word);
    }
    Ok(words)
}

/// `read,list`, or `all`.
fn operations(said: &str) -> Result<Operations> {
    let known = "operations are all, or some of read,write,create,remove,list,admin";
    let one = |word| Operations::of_word(word).ok_or_else(|| refuse(format!("{word:?}: {known}")));
    match said {
        "all" => Ok(Operations::ALL),
        _ => said.split(',').try_fold(Operations(0), |all, word| Ok(all.and(one(word)?))),
    }
}

/// A path from the root of what is served, as names have it.
///
/// # Errors
/// [`ErrorKind::Invalid`] if it does not begin with a slash, or climbs.
pub fn place(said: &str) -> Result<Vec<u8>> {
    let inside = said.strip_prefix('/').ok_or_else(|| refuse("a place begins with /"))?;
    let parts: Vec<&str> = inside.split('/').filter(|part| !part.is_empty()).collect();
    if parts.iter().any(|part| matches!(*part, "." | "..")) || inside.contains('\0') {
        return Err(refuse("a place has no . and no .. in it"));
    }
    Ok(parts.join("/").into_bytes())
}

/// `90s`, `10m`, `8h`, `7d`.
fn lifetime(said: &str) -> Result<u64> {
    let how = || refuse("for=TIME is 1s to 30d: 90s, 10m, 8h, 7d");
    let unit = said.chars().next_back().ok_or_else(how)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 24 * 3600,
        _ => return Err(how()),
    };
    let count: u64 = said[..said.len() - 1].parse().map_err(|_| how())?;
    let whole = count.checked_mul(seconds).ok_or_else(how)?;
    if (1..=LIFETIME_MAX_S).contains(&whole) { Ok(whole) } else { Err(how()) }
}

fn key(words: &[String]) -> Result<By> {
    let key = ssh_key::PublicKey::from_openssh(&words.join(" "))
        .map_err(|_| refuse("after key comes a public key, as in a .pub file of ssh-keygen"))?;
    let one = key.key_data().ed25519().ok_or_else(|| {
        refuse(format!("a key of the kind {}: only ssh-ed25519 is read", key.algorithm()))
    })?;
    Ok(By::Key(one.0))
}

fn by(words: &[String]) -> Result<By> {
    match words.split_first().map(|(word, rest)| (word.as_str(), rest)) {
        Some(("key", rest)) => key(rest),
        Some(("token", [issuer, subject])) => {
            Ok(By::Token { issuer: issuer.clone(), subject: subject.clone() })
        }
        Some(("token", _)) => Err(refuse("after token come an issuer and a subject, or *")),
        Some(("gss", [name])) => TicketNames::read(name).map(By::Gss),
        Some(("gss", _)) => Err(refuse("after gss comes one name: NAME@REALM, or *@REALM")),
        _ => Err(refuse("it says by what: key KEY, token ISSUER SUBJECT, or gss NAME@REALM")),
    }
}

fn listed(words: &[String]) -> Result<Listed> {
    let [name, allowed, rest @ ..] = words else {
        return Err(refuse("a line is NAME OPERATIONS [below=PATH] [for=TIME] key|token|gss …"));
    };
    let (name, operations) = (PrincipalName::new(name)?, operations(allowed)?);
    let mut terms = Terms { operations, below: Vec::new(), lifetime_s: LIFETIME_S };
    let mut rest = rest;
    while let [word, more @ ..] = rest {
        match word.split_once('=') {
            Some(("below", path)) => terms.below = place(path)?,
            Some(("for", time)) => terms.lifetime_s = lifetime(time)?,
            _ => break,
        }
        rest = more;
    }
    Ok(Listed { name, terms, by: by(rest)? })
}

fn issuer(words: &[String]) -> Result<Issuer> {
    let how = || refuse("an issuer is: issuer URL audience=AUDIENCE keys=PATH");
    let [url, rest @ ..] = words else { return Err(how()) };
    let (mut audience, mut keys_at) = (None, None);
    for word in rest {
        match word.split_once('=').ok_or_else(how)? {
            ("audience", said) if !said.is_empty() => audience = Some(said.to_owned()),
            ("keys", path) if path.starts_with('/') => keys_at = Some(path.to_owned()),
            ("keys", _) => return Err(refuse("keys=PATH is an absolute path")),
            _ => return Err(how()),
        }
    }
    let (audience, keys_at) = audience.zip(keys_at).ok_or_else(how)?;
    Ok(Issuer { url: url.clone(), audience, keys_at, keys: Vec::new() })
}

/// `group NAME = WHO…`; what has no such sign is a principal of that name.
fn group(words: &[String]) -> Option<Result<Group>> {
    match words {
        [word, name, sign, members @ ..] if word == "group" && sign == "=" => {
            Some(members_of(name, members))
        }
        _ => None,
    }
}

fn members_of(name: &str, said: &[String]) -> Result<Group> {
    let one = |who: &String| match (who.starts_with("group:"), who.parse()) {
        (true, _) => Err(refuse(format!("{who}: a group within a group"))),
        (_, Ok(one)) if !matches!(one, Principal::User(_)) => Ok(one),
        _ => Err(refuse(format!("{who}: in a group are key:NAME, token:NAME and gss:NAME"))),
    };
    let name = PrincipalName::new(name)?;
    let mut members = said.iter().map(one).collect::<Result<Vec<Principal>>>()?;
    if members.is_empty() {
        return Err(refuse(format!("group {}: nobody is in it", name.as_str())));
    }
    members.sort_unstable();
    if let Some(twice) = members.windows(2).find(|two| two[0] == two[1]) {
        return Err(refuse(format!("group {}: {} twice", name.as_str(), twice[0])));
    }
    Ok(Group { name, members })
}

impl Principals {
    /// What a text says. Keys of issuers come later ([`Principals::give_keys`]).
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`], with the line.
    pub fn read(text: &str) -> Result<Self> {
        let mut all = Principals::default();
        for (at, line) in text.lines().enumerate() {
            let added = words(line).and_then(|words| all.add(&words));
            added.map_err(|error| refuse(format!("line {}: {}", at + 1, error.context)))?;
        }
        let named = |by: &By| match by {
            By::Token { issuer, .. } => all.issuer(issuer).is_none().then(|| issuer.clone()),
            By::Key(_) | By::Gss(_) => None,
        };
        if let Some(unknown) = all.listed.iter().find_map(|listed| named(&listed.by)) {
            return Err(refuse(format!("{unknown}: there is no issuer line for it")));
        }
        all.check_groups().map(|()| all)
    }

    /// Whoever is in a group is on a line; all are said in one frame.
    fn check_groups(&self) -> Result<()> {
        let people: BTreeSet<Principal> = self.listed.iter().map(Listed::principal).collect();
        for Group { name, members } in self.groups() {
            if let Some(strange) = members.iter().find(|one| !people.contains(one)) {
                return Err(refuse(format!("group {}: no line is for {strange}", name.as_str())));
            }
        }
        match frame::encode(&self.groups())?.len() <= GROUPS_BYTES_MAX {
            true => Ok(()),
            false => Err(refuse(format!("groups: more than {} KiB", GROUPS_BYTES_MAX >> 10))),
        }
    }

    /// The groups, in order.
    pub fn groups(&self) -> Vec<Group> {
        let group = |(name, members): (&PrincipalName, &Vec<Principal>)| Group {
            name: *name,
            members: members.clone(),
        };
        self.groups.iter().map(group).collect()
    }

    fn add_group(&mut self, Group { name, members }: Group) -> Result<()> {
        if self.groups.len() >= GROUPS_MAX {
            return Err(refuse(format!("more than {GROUPS_MAX} groups")));
        }
        match self.groups.insert(name, members) {
            Some(_) => Err(refuse("the same group as on a line before")),
            None => Ok(()),
        }
    }

    fn add(&mut self, words: &[String]) -> Result<()> {
        if self.listed.len() + self.issuers.len() >= LINES_MAX {
            return Err(refuse(format!("more than {LINES_MAX} lines")));
        }
        if let Some(group) = group(words) {
            return self.add_group(group?);
        }
        match words.split_first() {
            None => {}
            Some((word, rest)) if word == "issuer" => {
                let issuer = issuer(rest)?;
                if self.issuer(&issuer.url).is_some() {
                    return Err(refuse("the same issuer as on a line before"));
                }
                self.issuers.push(issuer);
            }
            Some(_) => {
                let listed = listed(words)?;
                if self.listed.iter().any(|known| known.by == listed.by) {
                    return Err(refuse("the same key, subject or name as on a line before"));
                }
                self.listed.push(listed);
            }
        }
        Ok(())
    }

    /// Where keys of issuers are to be found.
    pub fn key_places(&self) -> Vec<String> {
        self.issuers.iter().map(|issuer| issuer.keys_at.clone()).collect()
    }

    /// What is found at one of these places.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if no key that can be used is in it.
    pub fn give_keys(&mut self, place: &str, bytes: &[u8]) -> Result<()> {
        let keys = token_keys::read(bytes)?;
        let here = self.issuers.iter_mut().filter(|issuer| issuer.keys_at == place);
        here.for_each(|issuer| issuer.keys.extend(keys.iter().cloned()));
        Ok(())
    }

    /// Who issues tokens under this name.
    pub fn issuer(&self, url: &str) -> Option<&Issuer> {
        self.issuers.iter().find(|issuer| issuer.url == url)
    }

    /// Who has this key, and what he may.
    pub fn by_key(&self, key: &[u8; 32]) -> Option<(PrincipalName, &Terms)> {
        self.find(|by| matches!(by, By::Key(own) if own == key))
    }

    /// Who is this subject of an issuer, and what he may: a line of his own, or one for all.
    pub fn by_token(&self, url: &str, subject: &str) -> Option<(PrincipalName, &Terms)> {
        let line = |named: &str| {
            self.find(|by| {
                matches!(by, By::Token { issuer, subject } if issuer == url && subject == named)
            })
        };
        line(subject).filter(|_| subject != ANYBODY).or_else(|| line(ANYBODY))
    }

    /// Who is whom Kerberos knows by this name, and what he may: a line of his own, or one for all
    /// of his realm.
    pub fn by_gss(&self, name: &str) -> Option<(PrincipalName, &Terms)> {
        let own = self.find(|by| matches!(by, By::Gss(one) if one.is(name)));
        own.or_else(|| self.find(|by| matches!(by, By::Gss(all) if all.covers(name))))
    }

    fn find(&self, is: impl Fn(&By) -> bool) -> Option<(PrincipalName, &Terms)> {
        let found = self.listed.iter().find(|listed| is(&listed.by))?;
        Some((found.name, &found.terms))
    }
}

#[cfg(test)]
mod tests {
    use super::{LIFETIME_S, Operations, Principals, Terms, place};
    use proptest::prelude::proptest;

    const KEY: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIMX6YY4+zwlt1cICaHRrNn/FIfOuWtr2VvmZdrqqqqqq me";

    fn refused(text: &str, why: &str) {
        let error = Principals::read(text).map(drop).expect_err(text);
        assert!(error.context.contains(why), "{text}: {}", error.context);
    }

    #[test]
    fn a_line_says_who_and_what_he_may() {
        let text = format!(
            "# who is who\n\n  pilot read,list below=\"/a b//c/\" for=2h key {KEY}  # his laptop\n\
             issuer https://i audience=here keys=/k\nwork all token https://i w-7\n\
             guest list token https://i *\n"
        );
        let all = Principals::read(&text).expect("is one");
        let key = ssh_key::PublicKey::from_openssh(KEY).expect("is one");
        let (name, terms) = all.by_key(&key.key_data().ed25519().expect("is").0).expect("is there");
        let operations = Operations::READ.and(Operations::LIST);
        let expected = Terms { operations, below: b"a b/c".to_vec(), lifetime_s: 7200 };
        assert_eq!((name.as_str(), terms), ("pilot", &expected));
        assert!(all.by_key(&[0; 32]).is_none());
        let named =
            |subject| all.by_token("https://i", subject).map(|(name, _)| name.as_str().to_owned());
        assert_eq!(named("w-7").as_deref(), Some("work"));
        assert_eq!((named("x"), named("*")), (Some("guest".into()), Some("guest".into())));
        assert!(all.by_token("https://j", "w-7").is_none());
        let (_, work) = all.by_token("https://i", "w-7").expect("is there");
        assert_eq!((work.operations, work.lifetime_s), (Operations::ALL, LIFETIME_S));
        assert_eq!(all.key_places(), ["/k"]);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        refused("\npilot", "line 2: a line is NAME");
        refused(&format!("a/b read key {KEY}"), "name of a principal");
        refused(&format!("a raed key {KEY}"), "\"raed\"");
        refused(&format!("a read below=x key {KEY}"), "begins with /");
        refused(&format!("a read below=/x/../y key {KEY}"), "no ..");
        refused(&format!("a read for=0s key {KEY}"), "for=TIME");
        refused(&format!("a read for=31d key {KEY}"), "for=TIME");
        refused(&format!("a read for=\u{e4} key {KEY}"), "for=TIME");
        refused("a read key ssh-ed25519 AAAA", "a public key");
        refused("a read password x", "by what");
        refused("a read token https://i s", "no issuer line");
        refused("a read gss alice", "NAME@REALM");
        refused("a read gss a@R b@R", "one name");
        refused("a read gss a@R\nb all gss a@R", "line 2: the same");
        refused("issuer https://i audience=a", "an issuer is");
        refused("issuer https://i audience=a keys=k", "absolute");
        refused(&format!("a read key {KEY}\nb all key {KEY}"), "line 2: the same key");
        refused("a read \"key", "quotation");
    }

    #[test]
    fn a_group_is_of_those_that_have_lines() {
        let text = format!(
            "group staff = gss:alice key:pilot\npilot read key {KEY}\nalice all gss a@R\n\
             group all gss b@R"
        );
        let all = Principals::read(&text).expect("is one");
        let groups: Vec<(String, Vec<String>)> = all
            .groups()
            .iter()
            .map(|group| {
                let members = group.members.iter().map(ToString::to_string).collect();
                (group.name.as_str().to_owned(), members)
            })
            .collect();
        assert_eq!(groups, [("staff".into(), vec!["key:pilot".into(), "gss:alice".into()])]);
        assert_eq!(all.by_gss("b@R").expect("is there").0.as_str(), "group", "a principal's name");
    }

    #[test]
    fn what_is_no_group_is_said_with_its_line() {
        let line = format!("a read key {KEY}\n");
        let refused = |group: &str, why| refused(&format!("{line}{group}"), why);
        refused("group g =", "line 2: group g: nobody is in it");
        refused("group g/h = key:a", "line 2: name of a principal");
        refused(&format!("group {} = key:a", "x".repeat(65)), "line 2: name of a principal");
        refused("group g = group:h", "line 2: group:h: a group within a group");
        refused("group g = 1000", "line 2: 1000: in a group are");
        refused("group g = others", "line 2: others: in a group are");
        refused("group g = key:\u{e4}", "in a group are");
        refused("group g = key:a key:a", "line 2: group g: key:a twice");
        refused("group g = key:a\ngroup g = key:a", "line 3: the same group");
        refused("group g = key:a gss:a", "group g: no line is for gss:a");
        let many: String = (0..=256).map(|at| format!("group g{at} = key:a\n")).collect();
        refused(&many, "line 258: more than 256 groups");
        let lines: String = (0..2200).map(|at| format!("{at:0>60} read gss u{at}@R\n")).collect();
        let members: String = (0..2200).map(|at| format!(" gss:{at:0>60}")).collect();
        refused(&format!("{lines}group g ={members}"), "groups: more than 128 KiB");
    }

    #[test]
    fn a_ticket_means_its_own_line_before_that_of_its_realm() {
        let list = "all list gss *@A\nalice read gss alice@A\nguest list gss bob@B";
        let all = Principals::read(list).expect("is one");
        let who = |name: &str| all.by_gss(name).map(|(name, _)| name.as_str().to_owned());
        assert_eq!(who("alice@A").as_deref(), Some("alice"));
        assert_eq!(who("bob@A").as_deref(), Some("all"));
        assert_eq!(who("bob@B").as_deref(), Some("guest"));
        assert_eq!(who("alice@B"), None);
    }

    #[test]
    fn a_place_has_one_form() {
        assert_eq!(place("/").as_deref(), Ok(&b""[..]));
        assert_eq!(place("//a//b/").as_deref(), Ok(&b"a/b"[..]));
        for none in ["", "a", "/..", "/a/./b", "/a\0"] {
            assert!(place(none).is_err(), "{none:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(
            text in "[ -~\n\"#=ä]{0,200}",
            line in "[a-z=/, \"0-9]{0,60}",
        ) {
            let _ = Principals::read(&text);
            let _ = Principals::read(&format!("pilot {line} key {KEY}"));
        }
    }
}
