//! `terral recover`: brings to the permanent directory what a server that is gone left in memory.
//!
//! Invariant: only with the claim of an instance; one that somebody else brings is waited for.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::{Value, json};
use terral_client::{Client, Status};

use crate::claim::{self, Claim, Purpose, Standing};
use crate::debt::{causes, debt};
use crate::instances;
use crate::progress::{self, Ending};
use crate::report::{self, code, note, say};
use crate::server::{Server, Start};
use crate::signals::Signals;
use crate::staging;
use crate::units::{bytes, parse_duration, plural};

/// Somebody else who brings an instance is looked after this often.
const POLL: Duration = Duration::from_millis(50);

/// Brings what servers that are gone left in memory to its permanent directory
#[derive(Args)]
#[command(after_help = "\
After a batch system, or you, killed program, server and launcher at once, their data is still in
memory. This starts a server on it, brings it to the directory it was meant for, and frees the
memory. It ends with 74 if something could not be brought: that stays in memory. What another
`terral recover` is bringing is waited for.

Examples:
  terral recover
  terral recover run-4711-0a3f
  terral recover --forget run-4711-0a3f    (its data is lost)")]
pub struct Arguments {
    /// Free the memory without bringing anything: what is only there is lost
    #[arg(long, requires = "names")]
    forget: bool,
    /// Bring, and wait, for so long at most (30, 90s, 10m, 2h); the rest stays in memory
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    wait_timeout: Option<Duration>,
    /// A list of objects, one for each instance
    #[arg(long)]
    json: bool,
    /// Instances; all whose server is gone if none is named
    #[arg(value_name = "NAME", value_parser = instances::parser())]
    names: Vec<PathBuf>,
}

/// What became of an instance.
pub enum Done {
    /// Its server says so; whether all is there.
    Brought(Box<Status>, bool),
    /// Its data was given up.
    Forgotten,
    /// This process did it meanwhile.
    ByAnother(u32),
}

/// Recovers.
pub fn main(arguments: &Arguments) -> Result<u8> {
    let paths: Vec<PathBuf> = if arguments.names.is_empty() {
        let all = instances::all().into_iter().map(|found| found.path);
        let owed = |path: &PathBuf| {
            matches!(claim::standing(path), Standing::Left | Standing::Brought)
                || terral_server::is_dying(path)
        };
        all.filter(owed).collect()
    } else {
        arguments.names.iter().map(|name| instances::locate(name.as_os_str())).collect()
    };
    if paths.is_empty() && !arguments.json {
        say("nothing to recover");
    }
    let signals = Signals::listen()?;
    let mut worst = 0;
    let mut told = Vec::new();
    for path in &paths {
        let name = instances::name_of(path);
        let done = match arguments.forget {
            true => forget(path),
            false => recover(path, &signals, arguments.wait_timeout),
        };
        match done {
            Ok(done) => {
                match &done {
                    Done::Brought(_, false) => worst = worst.max(code::OWED),
                    Done::Brought(status, true) => {
                        let directory = status.backing.as_deref().map(Path::new);
                        if let Some(why) = staging::remains(directory, path) {
                            say(why);
                            worst = worst.max(code::FAILED);
                        }
                    }
                    _ => {}
                }
                told.push(tell(&name, &done, arguments.json));
            }
            Err(error) => {
                say(format_args!("{name}: {error:#}"));
                told.push(json!({ "instance": name, "error": format!("{error:#}") }));
                worst = worst.max(code::FAILED);
            }
        }
    }
    if arguments.json {
        report::json(&told)?;
    }
    Ok(worst)
}

/// Takes charge of an instance without a server.
fn claimed(path: &Path) -> Result<Option<Claim>> {
    if !instances::is_one(path) {
        bail!("no such instance: `terral status` shows those there are");
    }
    let Some(claim) = Claim::take(path, Purpose::Bring)? else { return Ok(None) };
    claim::outwait_dying(path);
    if terral_server::is_served(path) {
        bail!("its server runs and brings its data by itself: `terral wait` waits for that");
    }
    Ok(Some(claim))
}

/// Brings one instance's data.
fn recover(path: &Path, signals: &Signals, limit: Option<Duration>) -> Result<Done> {
    let begin = Instant::now();
    let left = || limit.map(|limit| limit.saturating_sub(begin.elapsed()));
    let mut waited_for = None;
    let claim = loop {
        if waited_for.is_some() && !path.join("log").exists() {
            return Ok(Done::ByAnother(waited_for.unwrap_or_default()));
        }
        if let Some(claim) = claimed(path)? {
            break claim;
        }
        let holder = claim::holder(path).map_or(0, |(pid, _)| pid);
        match claim::standing(path) {
            Standing::Held => bail!(
                "process {holder} is in charge of it and brings its data: `terral wait` waits"
            ),
            Standing::Brought if waited_for != Some(holder) => {
                waited_for = Some(holder);
                let name = instances::name_of(path);
                say(format_args!("{name}: process {holder} is bringing it; waiting for that"));
            }
            _ => {}
        }
        if signals.count() > 0 || left().is_some_and(|left| left.is_zero()) {
            bail!("process {holder} is still bringing it");
        }
        std::thread::sleep(POLL);
    };
    // Were it to end with us, it would take an instance without permanent directory with it.
    let ends_with_us = instances::target(path).is_some();
    let instance = path.to_path_buf();
    // Nobody will write.
    let ready_bytes = Some(0);
    let (target, spill) = (None, None);
    let start = Start {
        instance,
        target,
        memory_bytes: 0,
        spill,
        ready_bytes,
        principals: None,
        part: None,
        ends_with_us,
        among_users: false,
    };
    bring(start, &claim, signals, left())
}

/// Starts a server on what the claim is for, and waits until that is brought.
///
/// # Errors
/// If it cannot be started, or has no permanent directory.
pub fn bring(
    start: Start,
    claim: &Claim,
    signals: &Signals,
    limit: Option<Duration>,
) -> Result<Done> {
    let path = start.instance.clone();
    let server = Server::start(start)?;
    let client = Client::observe(&path)?;
    if client.status()?.backing.is_none() {
        claim.becomes(Purpose::Stay)?;
        bail!("has no permanent directory; its server runs now: `terral get` fetches its files");
    }
    let paid_off = progress::pay_off(&client, signals, limit);
    match paid_off.context("its data is still in memory")? {
        Ending::Paid(status) => {
            server.dismiss(&client)?;
            Ok(Done::Brought(status, true))
        }
        Ending::Broken(status) => {
            server.dismiss_soon(&client)?;
            Ok(Done::Brought(status, !path.join("log").exists()))
        }
    }
}

fn forget(path: &Path) -> Result<Done> {
    let Some(_claim) = claimed(path)? else {
        let holder = claim::holder(path).map_or(0, |(pid, _)| pid);
        bail!("process {holder} is in charge of it");
    };
    terral_server::end(path)?;
    Ok(Done::Forgotten)
}

fn tell(name: &str, done: &Done, quiet: bool) -> Value {
    match done {
        Done::Forgotten => {
            if !quiet {
                say(format_args!("{name}: forgotten"));
            }
            json!({ "instance": name, "forgotten": true })
        }
        Done::ByAnother(pid) => {
            if !quiet {
                say(format_args!("{name}: process {pid} has brought it, or given it up"));
            }
            json!({ "instance": name, "paid": true, "by": pid })
        }
        Done::Brought(status, paid) => {
            if !quiet {
                say_brought(name, status, *paid);
            }
            json!({ "instance": name, "paid": paid, "status": status })
        }
    }
}

fn say_brought(name: &str, status: &Status, paid: bool) {
    let drain = &status.drain;
    let to = status.backing.as_deref().unwrap_or_default();
    let files = plural(drain.files, "file", "files");
    if paid {
        let brought = bytes(drain.bytes);
        note(format_args!("{name}: {files}, {brought} brought to {to}; all is there now"));
    } else {
        let owed = debt(drain);
        say(format_args!("{name}: {owed} still to bring to {to}: kept in memory"));
    }
    for conflict in &drain.conflicts {
        say(format_args!("{name}: conflict: {conflict}"));
    }
    for warning in &status.warnings {
        say(format_args!("{name}: warning: {warning}"));
    }
    for cause in causes(drain).into_iter().filter(|_| !paid) {
        say(format_args!("{name}: {cause}"));
    }
}
