//! What servers of a pool leave for each other in a registry that outlives them: which partition
//! there is, who is there, who wants to be let in, and what its control has decided.
//!
//! Invariant: nothing of it is a secret: who comes makes a key, and gives the public half of it.
//! Not here: the registry (`registry`), and who writes what (`server`, `cli`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::containers::{Container, ContainerName, Group, Quota};
use super::placement::{Layout, Role};
use super::roster::{Invitation, Key, Roster, Rule, Verdict};
use crate::frame;
use crate::ids::Member;
use crate::{Error, ErrorKind, Result};

/// Version of all that is written there.
pub const POOL: u16 = 7;
/// Longest name of a pool, bytes.
pub const NAME_MAX: usize = 64;

/// The part of what is kept that is the text of the control's list of principals.
pub const PRINCIPALS: &str = "principals";

/// The part that says who is in, with the version of all that is said beside it. It is written
/// last: who reads a version of it reads all that is of that version, or of a later one.
pub const MEMBERS: &str = "members";

/// What may name a pool: letters, digits, `-`, `_`, `.`, the first of them no dot.
pub fn is_name(text: &str) -> bool {
    let may = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !text.is_empty() && text.len() <= NAME_MAX && !text.starts_with('.') && text.bytes().all(may)
}

/// Names of keys of one pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys(String);

impl Keys {
    /// Those of this pool.
    pub fn of(pool: &str) -> Self {
        Keys(format!("/terral/{pool}/"))
    }

    /// What all begin with.
    pub fn all(&self) -> &str {
        &self.0
    }

    /// A [`Generation`]. It stays.
    pub fn generation(&self) -> String {
        format!("{}generation", self.0)
    }

    /// A [`Lost`], for as long as somebody waits for that. Begins as the generation's, so that both
    /// are looked at at once.
    pub fn lost(&self) -> String {
        format!("{}generation.lost", self.0)
    }

    /// Is there as long as the control is, and says on which machine.
    pub fn control(&self) -> String {
        format!("{}control", self.0)
    }

    /// What those begin with that say that a [`Server`] is there, as long as it is.
    pub fn servers(&self) -> String {
        format!("{}servers/", self.0)
    }

    /// Those of one generation.
    pub fn servers_of(&self, generation: u64) -> String {
        format!("{}servers/{generation}.", self.0)
    }

    /// Of one.
    pub fn server(&self, generation: u64, member: Member) -> String {
        format!("{}{}", self.servers_of(generation), member.number())
    }

    /// What those begin with by which somebody asks to be let in: a [`Wanted`].
    pub fn wanted(&self) -> String {
        format!("{}wanted/", self.0)
    }

    /// The same, to come as an authority: not all who may ask for one may ask for that.
    pub fn wanted_by_authority(&self) -> String {
        format!("{}wanted.authority/", self.0)
    }

    /// What both begin with, and nothing else.
    pub fn all_wanted(&self) -> String {
        format!("{}wanted", self.0)
    }

    /// What those begin with that answer it, with the same end: an [`Invited`].
    pub fn invited(&self) -> String {
        format!("{}invited/", self.0)
    }

    /// What those begin with that have a part of what was decided. They stay.
    pub fn kept(&self) -> String {
        format!("{}kept/", self.0)
    }

    /// Parts of what was decided, by their names, of these keys and what they say.
    pub fn parts<'k>(
        &self,
        entries: impl Iterator<Item = (&'k str, &'k [u8])>,
    ) -> BTreeMap<String, Vec<u8>> {
        let kept = self.kept();
        let part = |(key, value): (&str, &[u8])| {
            Some((key.strip_prefix(&kept)?.to_owned(), value.to_vec()))
        };
        entries.filter_map(part).collect()
    }
}

/// A machine, as long as it is up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Its name.
    pub host: String,
    /// What it is called by itself (machine-id(5)); empty if it has nothing of the kind.
    pub id: String,
    /// Another one after each boot.
    pub boot: String,
    /// Whose servers are meant.
    pub user: u32,
    /// Whether each user has one of his own there.
    pub users: bool,
}

/// How far a partition of a pool is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// Its control is about to begin it.
    Claimed,
    /// It was begun, and has this number.
    Begun(u128),
    /// Its control has ended, and nothing is left.
    Ended,
}

/// The partition that a pool has now. Whoever writes anything as its control does so on condition
/// that this is as he knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Generation {
    /// Counts them.
    pub number: u64,
    /// The machine of its control.
    pub by: Machine,
    /// Of the claim; nobody else has it.
    pub token: u128,
    /// How far it is.
    pub stage: Stage,
    /// Which member its control is.
    pub control: Member,
    /// Those before, in order; grows each time that another one takes over.
    pub replaced: Vec<Replaced>,
}

impl Generation {
    /// Whether this was so before something that is known to have come after it: what has it is
    /// older than it should be.
    pub fn is_before(&self, known: &Generation) -> bool {
        let same = (self.number, self.token) == (known.number, known.token);
        self.number < known.number || same && self.replaced.len() < known.replaced.len()
    }
}

/// A control of this partition that is none any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replaced {
    /// Which member it was.
    pub member: Member,
    /// Why it was removed; `None`: it was not, it has handed over.
    pub verdict: Option<Verdict>,
}

/// Somebody knows that the control is lost, and waits for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// Of which [`Generation`].
    pub token: u128,
    /// Which member it was.
    pub member: Member,
    /// What is known of it.
    pub verdict: Verdict,
}

/// A server that is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// Where.
    pub machine: Machine,
    /// The name of its instance there.
    pub instance: String,
    /// Of which [`Generation`].
    pub generation: u64,
    /// Which member of that.
    pub member: Member,
    /// Whether it is about to leave: it will not be the control.
    pub leaves: bool,
}

/// Somebody wants to be let in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// Where he is.
    pub machine: Machine,
    /// By what he will prove who he is.
    pub key: Key,
    /// What he is for; `None`: as all that come, and of which nothing was said.
    pub role: Option<Role>,
}

/// What he is answered: an invitation without a secret, as he has that himself, or why not.
pub type Invited = std::result::Result<Invitation, String>;

/// As it is written down.
///
/// # Errors
/// None, of what this program has made.
pub fn write<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    frame::write(&mut bytes, POOL, &frame::encode(value)?);
    Ok(bytes)
}

/// What was written down under a key.
///
/// # Errors
/// [`ErrorKind::Malformed`], [`ErrorKind::Corrupt`], [`ErrorKind::Version`]; with the key.
pub fn read<T: for<'de> Deserialize<'de>>(key: &str, bytes: &[u8]) -> Result<T> {
    let of_key = |error: Error| Error { context: format!("{key}: {}", error.context), ..error };
    let found = frame::read(bytes).map_err(of_key)?;
    let payload = found.of(POOL).map_err(of_key)?;
    match found.rest {
        [] => frame::decode(payload).map_err(of_key),
        _ => Err(Error::new(ErrorKind::Malformed, format!("{key}: bytes left over"))),
    }
}

/// What a control has decided, in parts that are each of one size that a registry takes.
///
/// # Errors
/// None, of what this program has made.
pub fn parts(rule: &Rule) -> Result<BTreeMap<&'static str, Vec<u8>>> {
    Ok(BTreeMap::from([
        (MEMBERS, write(&rule.roster)?),
        ("keys", write(&rule.certificates)?),
        ("policies", write(&rule.policies)?),
        ("placement", write(&rule.placement)?),
        ("revoked", write(&rule.revoked)?),
        ("containers", write(&rule.containers)?),
        ("quotas", write(&rule.quotas)?),
        ("groups", write(&rule.groups)?),
        ("authorities", write(&rule.authorities)?),
        ("answers", write(&rule.answers)?),
    ]))
}

fn part<T: Default + for<'de> Deserialize<'de>>(
    parts: &BTreeMap<String, Vec<u8>>,
    name: &str,
) -> Result<T> {
    parts.get(name).map_or(Ok(T::default()), |bytes| read(name, bytes))
}

/// All that a control has decided: what is below [`Keys::kept`], by the names of parts. Who says so
/// is not in it.
///
/// # Errors
/// Those of [`read`]: who cannot read all of it must not go on without.
pub fn rule(parts: &BTreeMap<String, Vec<u8>>) -> Result<Rule> {
    Ok(Rule {
        roster: part(parts, MEMBERS)?,
        certificates: part(parts, "keys")?,
        policies: part(parts, "policies")?,
        revoked: part(parts, "revoked")?,
        containers: part(parts, "containers")?,
        quotas: part(parts, "quotas")?,
        placement: part(parts, "placement")?,
        groups: part(parts, "groups")?,
        control: None,
        authorities: part(parts, "authorities")?,
        answers: part(parts, "answers")?,
    })
}

/// Who is in, as far as that was written down.
///
/// # Errors
/// Those of [`read`].
pub fn roster(parts: &BTreeMap<String, Vec<u8>>) -> Result<Roster> {
    part(parts, MEMBERS)
}

/// What of that holds for whatever partition the pool has next. Who was a member, and what was
/// revoked of capabilities that nobody has any more, is over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inherited {
    /// All containers.
    pub containers: Vec<Container>,
    /// Their quotas.
    pub quotas: Vec<(ContainerName, Quota)>,
    /// Who is in which group.
    pub groups: Vec<Group>,
    /// What holds for files by their paths; where new ones are created does where that names no
    /// member.
    pub rule: Rule,
    /// As far as revocations were counted.
    pub epoch: u64,
}

/// Of what is below [`Keys::kept`], by the names of parts.
///
/// # Errors
/// Those of [`rule`].
pub fn inherited(parts: &BTreeMap<String, Vec<u8>>) -> Result<Inherited> {
    let Rule { policies, revoked, containers, quotas, mut placement, groups, .. } = rule(parts)?;
    placement.storage = None;
    placement.layouts.retain(|one| !matches!(one.layout, Layout::One(_)));
    let epoch = revoked.iter().map(|one| one.epoch).max().unwrap_or(0);
    let rule = Rule { policies, placement, ..Rule::default() };
    Ok(Inherited { containers, quotas, groups, rule, epoch })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::{any, prop, proptest};

    use super::{Generation, Machine, Stage, inherited, is_name, parts, read, write};
    use crate::ErrorKind;
    use crate::ids::Member;
    use crate::wire::roster::{Policy, Rule};

    fn generation() -> Generation {
        let by =
            Machine { host: "a".into(), id: "i".into(), boot: "b".into(), user: 7, users: false };
        let (stage, control) = (Stage::Begun(5), Member::LEAST);
        Generation { number: 3, by, token: 9, stage, control, replaced: Vec::new() }
    }

    #[test]
    fn what_is_written_is_read_and_what_was_cut_off_is_not() {
        let bytes = write(&generation()).expect("encodes");
        assert_eq!(read::<Generation>("k", &bytes), Ok(generation()));
        for end in 0..bytes.len() {
            let error = read::<Generation>("k", &bytes[..end]).expect_err("cut off");
            assert!(error.context.starts_with("k: "), "{error}");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert_eq!(
            read::<Generation>("k", &longer).expect_err("longer").kind,
            ErrorKind::Malformed
        );
    }

    #[test]
    fn what_holds_by_path_is_inherited_and_a_part_that_cannot_be_read_is_not_left_out() {
        let mut rule = Rule::default();
        let pattern = "*.dat".to_owned();
        rule.policies.push(Policy { pattern, consistency: Default::default() });
        let named = parts(&rule).expect("encodes").into_iter();
        let mut all: BTreeMap<String, _> = named.map(|(name, of)| (name.to_owned(), of)).collect();
        assert_eq!(inherited(&all).expect("whole").rule.policies, rule.policies);
        all.get_mut("containers").expect("is one").truncate(5);
        inherited(&all).expect_err("containers are not what they were");
    }

    #[test]
    fn a_pool_has_a_name_that_is_one_word() {
        assert!(["a", "cfd-2026", "A_b.c"].into_iter().all(is_name));
        assert!(!["", ".", "..", ".a", "a/b", "a b", "ä", "a\n"].into_iter().any(is_name));
        assert!(!is_name(&"x".repeat(65)));
    }

    proptest! {
        #[test]
        fn whatever_is_there_ends_nothing(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = read::<Generation>("k", &bytes);
            let mut framed = Vec::new();
            crate::frame::write(&mut framed, super::POOL, &bytes);
            let _ = read::<Generation>("k", &framed);
            let _ = read::<super::Invited>("k", &framed);
            let _ = read::<super::Wanted>("k", &framed);
            let _ = inherited(&BTreeMap::from([("containers".to_owned(), framed)]));
        }
    }
}
