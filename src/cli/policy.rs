//! `terral policy`: what holds for files of a run over several machines, by their paths.
//!
//! Not here: what it means for them (`terral_server`).

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use serde_json::json;
use terral_client::{Client, Consistency, ErrorKind, Membership, Other};
use terral_server::Standing;

use crate::instances::{Which, name_of, place};
use crate::members::Hosts;
use crate::report::{self, note};

/// So long it is waited for members that can be reached to go by it.
const KNOWN: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(20);

/// Says when other machines see what is written to files
#[derive(Args)]
#[command(after_help = "\
Of a run over several machines. consistency=strict, which holds for all other files: what is written
is seen by all machines at once. consistency=commit: what a machine writes to a file that was made
on another one stays in its own memory, and all others see it once that machine has closed the file,
synced it (fsync), or taken or given back a lock of it. Programs that write disjoint parts of one
file and close it before others read it, as checkpoints do, need not wait at each write. It holds
for files that are opened from then on.

A pattern is a path as programs see it, or relative to that place; `*` and `?` are anything but
`/`, `**` is any number of directories, [abc] one of these. The last one set that matches a file
counts. Policies are set where the run began.

Examples:
  terral policy set 'checkpoints/*' consistency=commit
  terral policy set '/terral/**/*.h5' consistency=commit
  terral policy list
  terral policy unset 'checkpoints/*'")]
pub struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Files that match a pattern are so from now on, if they are opened anew
    Set(Set),
    /// Nothing is said of such files any more
    Unset(Unset),
    /// Shows what was set, in this order: the last one that matches counts
    List(List),
}

#[derive(Args)]
struct Set {
    /// Of paths
    pattern: String,
    /// consistency=commit or consistency=strict
    #[arg(value_parser = consistency, value_name = "consistency=HOW")]
    consistency: Consistency,
    #[command(flatten)]
    which: Which,
}

#[derive(Args)]
struct Unset {
    /// As it was set
    pattern: String,
    #[command(flatten)]
    which: Which,
}

#[derive(Args)]
struct List {
    #[command(flatten)]
    which: Which,
    /// A list of objects
    #[arg(long)]
    json: bool,
}

fn consistency(said: &str) -> Result<Consistency, String> {
    match said {
        "consistency=commit" => Ok(Consistency::Commit),
        "consistency=strict" => Ok(Consistency::Strict),
        _ => Err("it is consistency=commit or consistency=strict".into()),
    }
}

fn word(consistency: Consistency) -> &'static str {
    match consistency {
        Consistency::Strict => "strict",
        Consistency::Commit => "commit",
    }
}

/// Does it.
pub fn main(arguments: &Arguments) -> Result<u8> {
    match &arguments.what {
        What::Set(Set { pattern, consistency, which }) => {
            set(which, pattern, Some(*consistency))?;
        }
        What::Unset(Unset { pattern, which }) => set(which, pattern, None)?,
        What::List(List { which, json }) => list(which, *json)?,
    }
    Ok(0)
}

fn set(which: &Which, pattern: &str, consistency: Option<Consistency>) -> Result<()> {
    let client = which.observe()?;
    let name = name_of(client.instance());
    let placed = String::from_utf8(place(Path::new(pattern))?)?;
    let Some(partition) = client.status()?.partition else {
        if consistency.is_none() {
            bail!("{pattern}: no such policy");
        }
        note(format_args!("{name}: one machine, where all see at once what is written"));
        return Ok(());
    };
    if partition.me != partition.control {
        let control = Hosts::of(client.instance()).name(partition.control);
        bail!("{name}: only {control} sets policies: ask there, where the run began");
    }
    match client.set_policy(&placed, consistency) {
        Err(error) if error.kind == ErrorKind::NotFound => bail!("{pattern}: no such policy"),
        Err(error) if error.kind == ErrorKind::Invalid => bail!("{}", error.context),
        done => done?,
    }
    await_all(&client)
}

/// Waits until all that can be reached go by it, and says who does not.
fn await_all(client: &Client) -> Result<()> {
    let begin = Instant::now();
    let is_behind = |one: &&Other| {
        let is_in = matches!(one.seat.standing, Standing::In(_)) && !one.seat.addresses.is_empty();
        is_in && !one.current
    };
    loop {
        let Some(Membership { members, .. }) = client.status()?.partition else { return Ok(()) };
        let behind: Vec<&Other> = members.iter().filter(is_behind).collect();
        if behind.is_empty() {
            return Ok(());
        }
        if begin.elapsed() > KNOWN || !behind.iter().any(|one| one.connected) {
            let hosts = Hosts::of(client.instance());
            for one in behind {
                let name = hosts.name(one.seat.member);
                note(format_args!("{name}: does not answer: it goes by this once it does"));
            }
            return Ok(());
        }
        std::thread::sleep(LOOK);
    }
}

fn list(which: &Which, as_json: bool) -> Result<()> {
    let partition = which.observe()?.status()?.partition;
    let policies = partition.map(|partition| partition.policies).unwrap_or_default();
    if as_json {
        let one = |policy| json!(policy);
        return report::json(&policies.iter().map(one).collect::<Vec<_>>());
    }
    let mut text = String::new();
    for policy in policies {
        let how = word(policy.consistency);
        text += &format!("{}  consistency={how}\n", crate::shown::tame(&policy.pattern));
    }
    std::io::Write::write_all(&mut std::io::stdout().lock(), text.as_bytes())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Consistency, consistency};

    #[test]
    fn how_files_are_consistent_is_one_of_two_words() {
        assert_eq!(consistency("consistency=commit"), Ok(Consistency::Commit));
        assert_eq!(consistency("consistency=strict"), Ok(Consistency::Strict));
        assert!(consistency("commit").is_err() && consistency("consistency=").is_err());
    }
}
