//! `terral container`: places with an owner, and who may do what there.
//!
//! Not here: what a container allows, which is the server's.

use std::collections::BTreeSet;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
use terral_client::{
    Bounded, Client, Container, ContainerName, Entry, ErrorKind, Operations, Party, Principal,
    Quota, Setting,
};

use crate::cap::operations;
use crate::instances::{Which, name_of, place};
use crate::members::Hosts;
use crate::report::{self, note};
use crate::shown::{add_name, tame_name};
use crate::units::{self, parse_bytes};

/// What the run's own is called.
const DEFAULT: &str = "default";

/// Says who of those who log in may do what, and where
#[derive(Args)]
#[command(after_help = "\
A container is a place, with what is below, that has an owner and a list. Who has logged in (terral
login) may do there what his line in the list of principals says and the innermost container allows
him: its owner everything, else what his entry says, else what those of his groups say (nothing if
one of them is denied), else what the entry of `others` says, else nothing. Groups are in the list
of principals, as `group staff = key:alice gss:bob`. What is in no other container is in `default`,
where everybody may what his line says until a list is set. The server's user, and what he hands on
(terral cap get), is not asked.

Operations are read, write, create, remove, list. Who is bound to a place changes no container.

A container may have a quota (--quota): no more bytes, or files, than that, whoever makes them, the
server's user too; more is EDQUOT. What is in a container further in counts for it, too. Not where
each user has a server (`terral serve --users`).

Examples:
  terral container create results --at /terral/results --owner key:alice --allow key:pilot=read,list
  terral container list
  terral container set results --allow token:wf-7=read,list,write,create --deny key:pilot
  terral container set default --allow others=read,list --allow group:staff=read,list,write
  terral container set results --quota 10GiB,100000files
  terral cap get --container results --allow read,list -o results.cap
  terral container rm results")]
pub struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Makes a container of a place
    Create(Create),
    /// Shows all, and who may what
    List(List),
    /// Shows one
    Show(Show),
    /// Says who may what there, and who may nothing
    Set(Set),
    /// Ends one; its files stay, and are the enclosing container's
    Rm(Rm),
}

/// Where, and how it is told.
#[derive(Args)]
struct Change {
    #[command(flatten)]
    which: Which,
    /// One object: which machines have not answered
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
#[command(after_help = "\
The place need not be there yet. It is compared as a name: what a link there leads to is elsewhere.

Example:
  terral container create results --at /terral/results --owner key:alice --allow others=list")]
struct Create {
    /// Its name: 1 to 64 of a to z, 0 to 9 and . _ -
    #[arg(value_parser = ContainerName::new)]
    name: ContainerName,
    /// The place; as programs see it, or relative to /terral
    #[arg(long, value_name = "PATH")]
    at: PathBuf,
    /// Whose it is: key:NAME, token:NAME, gss:NAME, or a user's number [default: who creates it]
    #[arg(long, value_name = "WHO")]
    owner: Option<Principal>,
    /// What somebody may there: key:NAME=read,list; group:NAME=list is all of a group, others=list
    /// all who have no entry
    #[arg(long, value_name = "WHO=OPERATIONS", value_parser = entry)]
    allow: Vec<Entry>,
    /// No more than so many bytes of files, and files: 10GiB; 100000files; 10GiB,100000files
    #[arg(long, value_name = "QUOTA", value_parser = quota)]
    quota: Option<Quota>,
    #[command(flatten)]
    change: Change,
}

#[derive(Args)]
#[command(after_help = "\
Example:
  terral container list --json | jq '.[] | {name, entries}'")]
struct List {
    #[command(flatten)]
    which: Which,
    /// An array with one object for each
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
#[command(after_help = "\
Example:
  terral container show results")]
struct Show {
    /// Which
    #[arg(value_parser = ContainerName::new)]
    name: ContainerName,
    #[command(flatten)]
    which: Which,
    /// One object; a path that is no UTF-8 is in `place_bytes` as well
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
#[command(after_help = "\
It takes the place of what was said of those who are named (each in a group, if that is), and
changes nothing for anybody else.
When it is over, nobody begins anything there that he may not, also in files that he has open, on
any machine; what a program has mapped, it has. A machine that does not answer is named, and the
exit status is 1: who has logged in waits there until it does.

A quota that is below what is used takes nothing away: it lets nothing grow, and nothing come. It is
said by the server's user, or by who owns what is around the container. Over several machines
each has an equal part of it.

Examples:
  terral container set results --allow token:wf-7=read,list,write,create
  terral container set results --deny key:pilot --deny others
  terral container set results --quota 10GiB,100000files
  terral container set default --allow others=read,list")]
struct Set {
    /// Which
    #[arg(value_parser = ContainerName::new)]
    name: ContainerName,
    /// What somebody may there: key:NAME=read,list; group:NAME=list is all of a group, others=list
    /// all who have no entry
    #[arg(long, value_name = "WHO=OPERATIONS", value_parser = entry)]
    #[arg(required_unless_present_any = ["deny", "quota", "no_quota"])]
    allow: Vec<Entry>,
    /// Who may nothing there, whatever others may: key:NAME, token:NAME, gss:NAME, group:NAME,
    /// others
    #[arg(long, value_name = "WHO")]
    deny: Vec<Party>,
    /// No more than so many bytes of files, and files: 10GiB; 100000files; 10GiB,100000files
    #[arg(long, value_name = "QUOTA", value_parser = quota)]
    quota: Option<Quota>,
    /// Any number of both
    #[arg(long, conflicts_with = "quota")]
    no_quota: bool,
    #[command(flatten)]
    change: Change,
}

#[derive(Args)]
#[command(after_help = "\
Of `default` the list ends: everybody may what his line in the list of principals says.

Example:
  terral container rm results")]
struct Rm {
    /// Which
    #[arg(value_parser = ContainerName::new)]
    name: ContainerName,
    #[command(flatten)]
    change: Change,
}

fn entry(said: &str) -> Result<Entry, String> {
    let (who, may) = said.split_once('=').ok_or("it is WHO=OPERATIONS, as key:pilot=read,list")?;
    let who = who.parse::<Party>().map_err(|error| error.context)?;
    let may = operations(may)?;
    match may.contain(Operations::ADMIN) {
        true => Err("admin is the owner's: no entry gives it".into()),
        false => Ok(Entry { who, may }),
    }
}

/// `10GiB`, `100000files`, or both.
fn quota(said: &str) -> Result<Quota, String> {
    let mut quota = Quota::NONE;
    for part in said.split(',') {
        let twice = match part.strip_suffix("files") {
            Some(number) => {
                let number = number.trim().replace('_', "");
                let number = number.parse().map_err(|_| format!("{part}: a number of files"))?;
                quota.files.replace(number).is_some()
            }
            None => {
                let bytes = parse_bytes(part).map_err(|error| error.to_string())?;
                quota.bytes.replace(bytes).is_some()
            }
        };
        if twice {
            return Err("bytes, files, or both: each once".into());
        }
    }
    Ok(quota)
}

/// Does it.
pub fn main(arguments: &Arguments) -> Result<u8> {
    match &arguments.what {
        What::Create(Create { name, at, owner, allow, quota, change }) => {
            let (name, place) = (name.clone(), place(at)?);
            let (owner, entries) = (*owner, allow.clone());
            let quota = quota.unwrap_or(Quota::NONE);
            set(change, &[Setting::Create { name, place, owner, entries, quota }])
        }
        What::Set(Set { name, allow, deny, quota, no_quota, change }) => {
            let denied = deny.iter().map(|who| Entry { who: *who, may: Operations(0) });
            let entries: Vec<Entry> = allow.iter().copied().chain(denied).collect();
            let list = Setting::Set { name: name.clone(), entries: entries.clone() };
            let quota = quota.or(no_quota.then_some(Quota::NONE));
            let quota = quota.map(|quota| Setting::Bound(name.clone(), quota));
            let list = (!entries.is_empty()).then_some(list);
            set(change, &list.into_iter().chain(quota).collect::<Vec<_>>())
        }
        What::Rm(Rm { name, change }) => set(change, &[Setting::Remove(name.clone())]),
        What::List(arguments) => list(arguments).map(|()| 0),
        What::Show(arguments) => show(arguments).map(|()| 0),
    }
}

fn set(change: &Change, settings: &[Setting]) -> Result<u8> {
    let client = change.which.observe()?;
    let (mut deaf, mut container) = (BTreeSet::new(), "");
    for setting in settings {
        deaf.extend(client.set_container(setting)?);
        container = setting.name().as_str();
    }
    let hosts = Hosts::of(client.instance());
    let deaf: Vec<String> = deaf.into_iter().map(|member| hosts.name(member)).collect();
    if change.json {
        let instance = name_of(client.instance());
        report::json(&json!({ "instance": instance, "container": container, "silent": deaf }))?;
    } else {
        for name in &deaf {
            note(format_args!(
                "{name}: does not answer: who has logged in waits there until it does"
            ));
        }
    }
    Ok(u8::from(!deaf.is_empty()))
}

/// One, and whether anything was said of it.
struct Known {
    container: Container,
    is_set: bool,
    bounded: Option<Bounded>,
}

/// All of them, the run's own first.
fn known(client: &Client) -> Result<Vec<Known>> {
    let (mut all, bounded) = client.containers_with_quotas()?;
    let of = |name: &ContainerName| bounded.iter().find(|one| one.name == *name).cloned();
    let own = all.iter().position(|one| one.name.is_default()).map(|at| all.remove(at));
    let (is_set, owner) = (own.is_some(), std::fs::metadata(client.instance())?.uid());
    let container = own.map_or_else(
        || {
            let name = ContainerName::new(DEFAULT)?;
            let (place, owner, entries) = (Vec::new(), Principal::User(owner), Vec::new());
            Ok::<_, terral_client::Error>(Container { name, place, owner, entries })
        },
        Ok,
    )?;
    let known = |(container, is_set): (Container, bool)| {
        let bounded = of(&container.name);
        Known { container, is_set, bounded }
    };
    let others = all.into_iter().map(|container| (container, true));
    Ok(std::iter::once((container, is_set)).chain(others).map(known).collect())
}

fn described(known: &Known) -> Value {
    let Container { name, place, owner, entries } = &known.container;
    let entry =
        |entry: &Entry| (entry.who.to_string(), json!(entry.may.words().collect::<Vec<_>>()));
    let entries: Map<String, Value> = entries.iter().map(entry).collect();
    let object = json!({
        "name": name.as_str(),
        "place": null,
        "owner": owner.to_string(),
        "entries": known.is_set.then_some(entries),
        "quota": known.bounded.as_ref().map(|one| json!({
            "bytes": one.quota.bytes,
            "files": one.quota.files,
            "used_bytes": one.used.bytes,
            "used_files": one.used.files,
        })),
    });
    add_name(object, "place", place)
}

/// `1.20 of 10.0 GiB`, as people see it.
fn used(Bounded { quota, used, .. }: &Bounded) -> String {
    let bytes =
        quota.bytes.map(|most| format!("{} of {}", units::bytes(used.bytes), units::bytes(most)));
    let files = quota
        .files
        .map(|most| format!("{} of {} files", units::count(used.files), units::count(most)));
    bytes.into_iter().chain(files).collect::<Vec<_>>().join(", ")
}

fn words(may: Operations) -> String {
    let words: Vec<&str> = may.words().collect();
    if words.is_empty() { "nothing".into() } else { words.join(",") }
}

fn list(arguments: &List) -> Result<()> {
    let all = known(&arguments.which.observe()?)?;
    if arguments.json {
        return report::json(&all.iter().map(described).collect::<Vec<_>>());
    }
    let rows: Vec<[String; 4]> = all.iter().map(row).collect();
    let wide = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let [name, place, owner] = [0, 1, 2].map(wide);
    let line = |row: &[String; 4]| {
        let [a, b, c, d] = row;
        format!("{a:name$}  {b:place$}  {c:owner$}  {d}\n")
    };
    let text: String = rows.iter().map(line).collect();
    Ok(std::io::stdout().lock().write_all(text.as_bytes())?)
}

fn row(known: &Known) -> [String; 4] {
    let Container { name, place, owner, entries } = &known.container;
    let entry = |entry: &Entry| format!("{}={}", entry.who, words(entry.may));
    let list = match (known.is_set, entries.is_empty()) {
        (false, _) => "everybody as his line says".into(),
        (true, true) => "nobody else".into(),
        (true, false) => entries.iter().map(entry).collect::<Vec<_>>().join(" "),
    };
    let list = match &known.bounded {
        Some(bounded) => format!("{list}; {}", used(bounded)),
        None => list,
    };
    [name.to_string(), format!("/{}", tame_name(place)), owner.to_string(), list]
}

fn show(arguments: &Show) -> Result<()> {
    let client = arguments.which.observe()?;
    let found = known(&client)?.into_iter().find(|one| one.container.name == arguments.name);
    let missing = || {
        let context = format!("container {}", arguments.name);
        terral_client::Error::new(ErrorKind::NotFound, context)
    };
    let known = found.ok_or_else(missing)?;
    if arguments.json {
        return report::json(&described(&known));
    }
    let Container { name, place, owner, entries } = &known.container;
    let mut rows = vec![
        ("container".to_owned(), name.to_string()),
        ("place".to_owned(), format!("/{}", tame_name(place))),
        ("owner".to_owned(), owner.to_string()),
    ];
    rows.extend(entries.iter().map(|entry| (entry.who.to_string(), words(entry.may))));
    if !known.is_set {
        rows.push(("others".to_owned(), "as their lines say".to_owned()));
    }
    rows.extend(known.bounded.iter().map(|one| ("quota".to_owned(), used(one))));
    let wide = rows.iter().map(|(what, _)| what.len()).max().unwrap_or(0);
    let text: String = rows.iter().map(|(what, is)| format!("{what:wide$}  {is}\n")).collect();
    Ok(std::io::stdout().lock().write_all(text.as_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::{Bounded, ContainerName, Operations, Quota, entry, quota, used, words};

    #[test]
    fn quotas_are_bytes_files_or_both() {
        let both = Quota { bytes: Some(10 << 30), files: Some(100_000) };
        assert_eq!(quota("10GiB,100000files"), Ok(both));
        assert_eq!(quota("100_000files,10G"), Ok(both));
        assert_eq!(quota("7files"), Ok(Quota { bytes: None, files: Some(7) }));
        assert_eq!(quota("0"), Ok(Quota { bytes: Some(0), files: None }));
        for none in ["", "files", "1GiB,", "1GiB,2GiB", "3files,4files", "-1", "xfiles"] {
            assert!(quota(none).is_err(), "{none}");
        }
        let name = ContainerName::new("a").expect("is one");
        let shown = |quota| used(&Bounded { name: name.clone(), quota, used: Default::default() });
        assert_eq!(shown(both), "0 B of 10.0 GiB, 0 of 100,000 files");
        assert_eq!(shown(Quota { bytes: None, files: Some(7) }), "0 of 7 files");
    }

    #[test]
    fn entries_are_said_by_who_and_what() {
        let one = entry("key:pilot=read,list").expect("is one");
        assert_eq!((one.who.to_string(), words(one.may)), ("key:pilot".into(), "read,list".into()));
        assert_eq!(words(Operations(0)), "nothing");
        for none in ["key:pilot", "1000=read", "key:pilot=", "others=admin", "others=all"] {
            assert!(entry(none).is_err(), "{none}");
        }
    }
}
