//! `terral wait`: until the permanent directory has a path, or everything, as it is now.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use serde_json::json;
use terral_client::{Client, Kind, Status};
use terral_server::Member;

use crate::debt::{first_cause, owed};
use crate::everyone::{self, Debt};
use crate::instances::{Which, place};
use crate::members::Hosts;
use crate::progress::{Progress, status_if_answered};
use crate::report::{self, code, failure};
use crate::units::parse_duration;

const POLL: Duration = Duration::from_millis(50);

/// Waits until files are in the permanent directory
#[derive(Args)]
#[command(after_help = "\
Files that are open are brought too; a new one is published, under its name, when it is closed, so
waiting for one that stays open waits until then. Of a run over several machines all are waited for.
Ends with 0 when all is there, 74 after --wait-timeout.

Examples:
  terral wait
  terral wait /terral/restart.1000 && rm -f old-restart
  terral wait --wait-timeout 10m results/")]
pub struct Arguments {
    #[command(flatten)]
    which: Which,
    /// Give up after so long (30, 90s, 10m, 2h)
    #[arg(long, alias = "timeout", value_name = "TIME", value_parser = parse_duration)]
    wait_timeout: Option<Duration>,
    /// One object at the end
    #[arg(long)]
    json: bool,
    /// Files or directories; everything if none is given
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
}

/// Waits.
pub fn main(arguments: &Arguments) -> Result<u8> {
    let client = arguments.which.observe()?;
    let mut places: Vec<Vec<u8>> = Vec::new();
    for path in &arguments.paths {
        let placed = place(path)?;
        files_below(&client, &placed, &mut places)?;
    }
    let hosts = Hosts::of(client.instance());
    let begin = Instant::now();
    let mut progress = Progress::new();
    let (mut told, mut hasten, mut rested) = (None, true, false);
    loop {
        let status = status_if_answered(&client, Client::flush, &mut told, &mut progress)?;
        let late = arguments.wait_timeout.is_some_and(|limit| begin.elapsed() >= limit);
        let Some(status) = status else {
            if late {
                return Err(failure(code::OWED, "the server does not answer"));
            }
            continue;
        };
        // Who waits for files asks where those are; the others are only to begin.
        let debt = match arguments.paths.is_empty() || hasten {
            true => everyone::debt(&client, &status, hasten)?,
            false => Debt::of(&status),
        };
        // Who was not heard is told again.
        hasten = !debt.silent.is_empty();
        let name = |member: &Member| hosts.name(*member);
        debt.silent.iter().for_each(|member| progress.is_silent(Some(&name(member))));
        // What one gives back to another that has said so already is owed there.
        let rests = debt.is_paid && (rested || status.partition.is_none());
        let done =
            if arguments.paths.is_empty() { rests } else { all_there(&client, &mut places)? };
        rested = debt.is_paid;
        let status = Status { drain: debt.drain.clone(), ..status };
        let seconds = begin.elapsed().as_secs_f64();
        if done || late {
            progress.clear();
            if arguments.json {
                let told = json!({ "done": done, "seconds": seconds, "drain": status.drain });
                report::json(&told)?;
            }
            if done {
                return Ok(0);
            }
            let failures = first_cause(&status.drain).map(|cause| format!(": {cause}"));
            let (owed, failures) = (owed(&status.drain), failures.unwrap_or_default());
            let silent: Vec<String> = debt.silent.iter().map(name).collect();
            let why = match silent.as_slice() {
                all if !all.is_empty() && arguments.paths.is_empty() => {
                    format!("not known what {} owes, as there is no answer", all.join(", "))
                }
                _ => format!("still owed: {owed}{failures}"),
            };
            return Err(failure(code::OWED, why));
        }
        if std::io::stderr().is_terminal() || !status.drain.failures.is_empty() {
            progress.update(&status, 0);
        }
        std::thread::sleep(POLL);
    }
}

/// The files of a path, which may be a directory.
fn files_below(client: &Client, path: &[u8], files: &mut Vec<Vec<u8>>) -> Result<()> {
    match client.stat(path)?.kind {
        Kind::Directory => {}
        // It is nowhere else, and never will be.
        Kind::Socket => return Ok(()),
        _ => {
            files.push(path.to_vec());
            return Ok(());
        }
    }
    for name in client.list(path)? {
        let below = crate::instances::join(path, &name.name);
        match name.kind {
            Kind::File => files.push(below),
            Kind::Directory => files_below(client, &below, files)?,
            Kind::Symlink | Kind::Fifo | Kind::Socket => {}
        }
    }
    Ok(())
}

/// Drops files that are there from the list; whether none is left.
fn all_there(client: &Client, files: &mut Vec<Vec<u8>>) -> Result<bool> {
    while let Some(path) = files.last() {
        match client.safety(path) {
            Ok(safety) if safety.in_backing && safety.owed_bytes == 0 => {}
            Ok(_) => return Ok(false),
            // Removed meanwhile: nothing is owed for it.
            Err(error) if error.kind == terral_client::ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
        files.pop();
    }
    Ok(true)
}
