//! `terral stop`: everything to the permanent directory, and the server's end.

use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use serde_json::json;
use terral_client::{Client, ErrorKind, Status};

use crate::debt::debt;
use crate::instances::{Which, name_of};
use crate::progress::Progress;
use crate::report::{self, code, failure, note};
use crate::units::parse_duration;

/// The server is looked at so often.
const POLL: Duration = Duration::from_millis(50);

/// Ends a server once all it has is in the permanent directory
#[derive(Args)]
#[command(after_help = "\
Waits for the programs that use the server, too. Ends with 74 if something stays owed: that is kept
in memory, and `terral recover` brings it.

One of several servers leaves the others in order: they go on with all files, and nobody waits for
it. The first, which lets the others in, is refused as long as others are in: they leave before;
that of a pool hands over to another one (`terral serve --control`).

Examples:
  terral stop
  terral stop --instance default --timeout 10m
  terral stop --now    (what is owed stays in memory)")]
pub struct Arguments {
    #[command(flatten)]
    which: Which,
    /// End it at once; what is owed stays in memory
    #[arg(long, conflicts_with = "timeout")]
    now: bool,
    /// Of several servers without a permanent directory: leave the others though only this one's
    /// memory has some files; they are lost
    #[arg(long, conflicts_with = "now")]
    lose: bool,
    /// Wait for so long at most (30, 90s, 10m, 2h), then end it at once
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    timeout: Option<Duration>,
    /// One object at the end
    #[arg(long)]
    json: bool,
}

/// Stops it.
pub fn main(arguments: &Arguments) -> Result<u8> {
    let client = arguments.which.observe()?;
    let path = client.instance();
    let limit = if arguments.now { Some(Duration::ZERO) } else { arguments.timeout };
    let last = end(&client, limit, arguments.lose)?;
    let name = name_of(path);
    let owed = path.join("log").exists();
    if arguments.json {
        report::json(&json!({ "instance": name, "owed": owed, "server": last }))?;
    }
    let to = last.backing.as_deref().unwrap_or("a permanent directory");
    if owed {
        let debt = debt(&last.drain);
        let what = format!("{name}: ended with {debt} not yet in {to}: `terral recover {name}`");
        return Err(failure(code::OWED, what));
    }
    if !arguments.json {
        note(format_args!("{name}: ended; all is in {to}"));
    }
    Ok(0)
}

/// Waits until the server has ended; gives what it said last.
fn end(client: &Client, limit: Option<Duration>, loses: bool) -> Result<Status> {
    let (begin, mut progress) = (Instant::now(), Progress::new());
    let mut last = client.status()?;
    let mut told = None;
    while terral_server::is_served(client.instance()) {
        let late = limit.is_some_and(|limit| begin.elapsed() >= limit);
        match ask(client, (late, loses), &mut told) {
            Ok(status) => last = status,
            Err(error) if error.kind == ErrorKind::Unreachable => {}
            Err(error) if error.kind == ErrorKind::Unanswered && !late => progress.is_silent(None),
            Err(error) => return Err(error.into()),
        }
        progress.update(&last, last.sessions);
        std::thread::sleep(POLL);
    }
    progress.clear();
    Ok(last)
}

/// Has it end, soon or at once; one that was started again is told again.
fn ask(
    client: &Client,
    (late, loses): (bool, bool),
    told: &mut Option<(u64, bool)>,
) -> terral_client::Result<Status> {
    let status = client.status()?;
    let wish = (status.starts, late);
    if *told != Some(wish) {
        if late { client.leave() } else { client.stop(loses) }?;
        *told = Some(wish);
    }
    Ok(status)
}
