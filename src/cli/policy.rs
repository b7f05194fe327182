//! `terral policy`: what holds for files of a run over several machines, by their paths.
//!
//! Not here: what it means for them (`terral_server`).

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use serde_json::json;
use terral_client::{
    Client, Consistency, ErrorKind, Layout, LayoutPolicy, Membership, Other, Placement, STRIPE_UNIT,
};
use terral_server::Standing;

use crate::instances::{Which, name_of, place};
use crate::members::{Hosts, is_in};
use crate::report::{self, note};
use crate::units::{bytes, parse_bytes};

/// So long it is waited for members that can be reached to go by it.
const KNOWN: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(20);

/// Says when other machines see what is written to files, and where new ones are created
#[derive(Args)]
#[command(after_help = "\
Of a run over several machines. consistency=strict, which holds for all other files: what is written
is seen by all machines at once. consistency=commit: what a machine writes to a file that was made
on another one stays in its own memory, and all others see it once that machine has closed the file,
synced it (fsync), or taken or given back a lock of it. Programs that write disjoint parts of one
file and close it before others read it, as checkpoints do, need not wait at each write. It holds
for files that are opened from then on.

layout=here, which holds for all other files: a new file is created on the machine whose program
creates it. layout=one:HOST: on that one (by its host, or its number). layout=least-loaded: on the
one that has more memory free, of two chosen at random. There its bytes are once it is closed.
layout=stripe[:N[:SIZE]]: once it is closed its parts of SIZE bytes (2MiB, or a multiple of it) lie
round over N of the machines that keep files, or all, and who reads it has each from where that is;
not where the run has a permanent directory. While any pattern says so, all programs of the run ask
their server before they change names. Layouts are not for where each user has a server (`terral
serve --users`).

A pattern is a path as programs see it, or relative to that place; `*` and `?` are anything but
`/`, `**` is any number of directories, [abc] one of these. The last one set that matches a file
of its kind counts. Policies are set where the run began.

Examples:
  terral policy set 'checkpoints/*' consistency=commit
  terral policy set '/terral/**/*.h5' consistency=commit
  terral policy set 'out/**' layout=least-loaded
  terral policy set 'out/field.*' layout=stripe:4:8MiB
  terral policy list
  terral policy unset 'checkpoints/*'")]
pub struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Files that match a pattern are so from now on, if they are opened anew, or created
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
    /// consistency=commit or strict; layout=here, least-loaded, one:HOST or stripe[:N[:SIZE]]
    #[arg(value_parser = said, value_name = "consistency=HOW|layout=WHERE")]
    said: Said,
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

/// What is said of files.
#[derive(Clone, Debug, PartialEq)]
enum Said {
    Consistency(Consistency),
    Here,
    LeastLoaded,
    One(String),
    /// Over so many, or all; chunks of each part.
    Stripe(u16, u32),
}

fn said(text: &str) -> Result<Said, String> {
    if let Some(how) = text.strip_prefix("layout=stripe") {
        return stripe(how);
    }
    let on = text.strip_prefix("layout=one:").filter(|host| !host.is_empty());
    match (text, on) {
        ("consistency=commit", _) => Ok(Said::Consistency(Consistency::Commit)),
        ("consistency=strict", _) => Ok(Said::Consistency(Consistency::Strict)),
        ("layout=here", _) => Ok(Said::Here),
        ("layout=least-loaded", _) => Ok(Said::LeastLoaded),
        (_, Some(host)) => Ok(Said::One(host.into())),
        _ => {
            let layouts = "here|least-loaded|one:HOST|stripe[:N[:SIZE]]";
            Err(format!("it is consistency=commit|strict or layout={layouts}"))
        }
    }
}

/// What comes after `stripe`: nothing, `:N`, or `:N:SIZE`.
fn stripe(how: &str) -> Result<Said, String> {
    let mut words = how.split(':');
    let (before, count, size) = (words.next(), words.next(), words.next());
    if before != Some("") || words.next().is_some() {
        return Err("it is layout=stripe[:N[:SIZE]]".into());
    }
    let count = count.map_or(Ok(0), str::parse::<u16>);
    let count = count.map_err(|_| "over how many machines: a number, or 0 for all".to_owned())?;
    let size = size.map_or(Ok(STRIPE_UNIT), parse_bytes).map_err(|error| error.to_string())?;
    let chunks = u32::try_from(size / STRIPE_UNIT).ok();
    match chunks.filter(|chunks| *chunks > 0 && size.is_multiple_of(STRIPE_UNIT)) {
        Some(chunks) => Ok(Said::Stripe(count, chunks)),
        None => Err(format!("parts are a multiple of {}", bytes(STRIPE_UNIT))),
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
        What::Set(Set { pattern, said, which }) => set(which, pattern, Some(said))?,
        What::Unset(Unset { pattern, which }) => set(which, pattern, None)?,
        What::List(List { which, json }) => list(which, *json)?,
    }
    Ok(0)
}

fn set(which: &Which, pattern: &str, said: Option<&Said>) -> Result<()> {
    let client = which.observe()?;
    let name = name_of(client.instance());
    let placed = String::from_utf8(place(Path::new(pattern))?)?;
    let status = client.status()?;
    let Some(partition) = status.partition else {
        match said {
            None => bail!("{pattern}: no such policy"),
            Some(Said::One(host)) => bail!("{name}: one machine, and {host} is none of it"),
            Some(Said::Consistency(_)) => {
                note(format_args!("{name}: one machine, where all see at once what is written"));
            }
            Some(_) => note(format_args!("{name}: one machine, where all files are")),
        }
        return Ok(());
    };
    if partition.me != partition.control {
        let control = Hosts::of(client.instance()).name(partition.control);
        bail!("{name}: only {control} sets policies: ask there, where the run began");
    }
    let stripes = matches!(said, Some(Said::Stripe(..)));
    if let Some(backing) = status.backing.filter(|_| stripes) {
        bail!("{name}: files are brought to {backing} whole, and not striped before");
    }
    let layout = |layout| client.set_layout(&placed, Some(layout));
    let done = match said {
        Some(Said::Consistency(how)) => client.set_policy(&placed, Some(*how)),
        Some(Said::Here) => layout(Layout::Here),
        Some(Said::LeastLoaded) => layout(Layout::LeastLoaded),
        Some(Said::Stripe(count, chunks)) => {
            layout(Layout::Stripe { count: *count, chunks: *chunks })
        }
        Some(Said::One(host)) => {
            let hosts = Hosts::of(client.instance());
            let member = hosts.member(host, |it| is_in(it, &partition))?;
            layout(Layout::One(member.with_context(|| format!("{host}: no machine of this run"))?))
        }
        None => unset(&client, &placed),
    };
    match done {
        Err(error) if error.kind == ErrorKind::NotFound => bail!("{pattern}: no such policy"),
        Err(error) if error.kind == ErrorKind::Invalid => bail!("{}", error.context),
        done => done?,
    }
    await_all(&client)
}

/// Nothing is said of such files any more, of neither kind.
fn unset(client: &Client, pattern: &str) -> terral_client::Result<()> {
    let done = [client.set_policy(pattern, None), client.set_layout(pattern, None)];
    let missing = |done: &terral_client::Result<()>| {
        done.as_ref().is_err_and(|error| error.kind == ErrorKind::NotFound)
    };
    let [one, other] = done;
    if missing(&one) {
        other
    } else if missing(&other) {
        one
    } else {
        one.and(other)
    }
}

/// Waits until all that can be reached go by it, and says who does not.
pub fn await_all(client: &Client) -> Result<()> {
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
    let client = which.observe()?;
    let hosts = Hosts::of(client.instance());
    let partition = client.status()?.partition;
    let (policies, placement) = partition.map(|it| (it.policies, it.placement)).unwrap_or_default();
    let Placement { layouts, .. } = placement;
    let layout = |layout| match layout {
        Layout::Here => "here".to_owned(),
        Layout::LeastLoaded => "least-loaded".to_owned(),
        Layout::One(member) => {
            let host = hosts.host(member).map_or(member.number().to_string(), str::to_owned);
            format!("one:{host}")
        }
        Layout::Stripe { count, chunks } => {
            let size = (u64::from(chunks) * STRIPE_UNIT) >> 20;
            format!("stripe:{count}:{size}MiB")
        }
    };
    if as_json {
        let laid =
            layouts.iter().map(|one| json!({"pattern": one.pattern, "layout": layout(one.layout)}));
        let all = policies.iter().map(|policy| json!(policy)).chain(laid);
        return report::json(&all.collect::<Vec<_>>());
    }
    let mut text = String::new();
    for policy in policies {
        let how = word(policy.consistency);
        text += &format!("{}  consistency={how}\n", crate::shown::tame(&policy.pattern));
    }
    for LayoutPolicy { pattern, layout: of } in &layouts {
        text += &format!("{}  layout={}\n", crate::shown::tame(pattern), layout(*of));
    }
    std::io::Write::write_all(&mut std::io::stdout().lock(), text.as_bytes())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Consistency, Said, said};

    #[test]
    fn what_is_said_of_files_is_one_of_few_words() {
        assert_eq!(said("consistency=commit"), Ok(Said::Consistency(Consistency::Commit)));
        assert_eq!(said("consistency=strict"), Ok(Said::Consistency(Consistency::Strict)));
        assert!(said("commit").is_err() && said("consistency=").is_err());
        assert_eq!(said("layout=here"), Ok(Said::Here));
        assert_eq!(said("layout=least-loaded"), Ok(Said::LeastLoaded));
        assert_eq!(said("layout=one:node7"), Ok(Said::One("node7".into())));
        assert_eq!(said("layout=stripe"), Ok(Said::Stripe(0, 1)));
        assert_eq!(said("layout=stripe:3"), Ok(Said::Stripe(3, 1)));
        assert_eq!(said("layout=stripe:3:8MiB"), Ok(Said::Stripe(3, 4)));
        for wrong in ["layout=one:", "layout=stripes", "layout=stripe:x", "layout=stripe:2:1MiB"] {
            assert!(said(wrong).is_err(), "{wrong}");
        }
    }
}
