//! `terral status`: how the servers of this user are.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};
use terral_client::{Client, Drain, Status};

use crate::instances::{self, Which};
use crate::report::{self, code};
use crate::summary::calls;
use crate::units::{bytes, count, duration, plural, rate};

/// Shows servers: memory, what programs did, what is still owed to the permanent directory
#[derive(Args)]
#[command(after_help = "\
Ends with 69 if no server runs.

Examples:
  terral status
  terral status --watch
  terral status --json | jq '.[].status.drain.owed_bytes'")]
pub struct Arguments {
    #[command(flatten)]
    which: Which,
    /// A list of objects, one for each instance
    #[arg(long)]
    json: bool,
    /// Again every second, until Ctrl-C
    #[arg(long)]
    watch: bool,
}

/// An instance and what its server says; nothing if it is gone.
struct Answer {
    name: String,
    path: String,
    to: Option<String>,
    status: Option<Status>,
}

fn ask(name: String, path: &Path, served: bool) -> Answer {
    // A server that goes while it is asked is gone.
    let status = served.then(|| Client::connect(path).and_then(|client| client.status()).ok());
    let to = instances::target(path).map(|to| to.display().to_string());
    Answer { name, path: path.display().to_string(), to, status: status.flatten() }
}

fn ask_all(which: &Which) -> Result<Vec<Answer>> {
    if which.named().is_some() {
        let path = which.path()?;
        let client = which.connect()?;
        let mut answer = ask(instances::name_of(&path), &path, false);
        answer.status = Some(client.status()?);
        return Ok(vec![answer]);
    }
    let all = instances::all();
    if all.is_empty() {
        // Says that none is there and what to do.
        which.path()?;
    }
    Ok(all.into_iter().map(|found| ask(found.name, &found.path, found.served)).collect())
}

fn as_json(answer: &Answer) -> Value {
    json!({
        "instance": answer.name, "path": answer.path, "to": answer.to,
        "served": answer.status.is_some(), "status": answer.status,
    })
}

/// Shows it.
pub fn main(arguments: &Arguments) -> Result<u8> {
    loop {
        let answers = ask_all(&arguments.which)?;
        if arguments.json {
            report::json(&answers.iter().map(as_json).collect::<Vec<_>>())?;
        } else {
            let shown: Vec<String> = answers.iter().map(text).collect();
            let mut out = std::io::stdout().lock();
            if arguments.watch && std::io::stdout().is_terminal() {
                write!(out, "\x1b[H\x1b[2J")?;
            }
            writeln!(out, "{}", shown.join("\n"))?;
        }
        if !arguments.watch {
            let served = answers.iter().any(|answer| answer.status.is_some());
            return Ok(if served { 0 } else { code::NO_SERVER });
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}

fn text(answer: &Answer) -> String {
    let name = &answer.name;
    let to = answer.to.as_deref().unwrap_or("no permanent directory");
    let Some(status) = &answer.status else {
        return format!("{name}: server gone; its data for {to}: `terral recover {name}`");
    };
    let to = status.backing.as_deref().unwrap_or(to);
    let mut text = format!(
        "{name}: for {to}, process {}, up {}",
        status.pid,
        duration(Duration::from_millis(status.uptime_ms))
    );
    if status.starts > 1 {
        let _ = write!(text, ", start {} on this memory", status.starts);
    }
    for (title, row) in rows(status) {
        let _ = write!(text, "\n  {title:<9} {row}");
    }
    text
}

fn rows(status: &Status) -> Vec<(&'static str, String)> {
    let (totals, drain) = (&status.totals, &status.drain);
    let mut rows = vec![(
        "memory",
        format!(
            "{} used of {}, {} ready for writers",
            bytes(status.memory_used_bytes),
            bytes(status.memory_bound_bytes),
            bytes(status.memory_warm_bytes)
        ),
    )];
    rows.push(("names", format!("{} known, {} open", count(status.files), count(status.open))));
    // One of them asks for this status.
    let now = u64::from(status.sessions.saturating_sub(1));
    let ever = totals.sessions.saturating_sub(1);
    rows.push((
        "programs",
        format!("{} now, {} so far: {}", plural(now, "process", "processes"), ever, calls(totals)),
    ));
    let moved = |sum: u64, ns: u64| format!("{} at {}", bytes(sum), rate(sum, ns as f64 / 1e9));
    if totals.writes > 0 {
        rows.push(("wrote", moved(totals.written_bytes, totals.write_ns)));
    }
    if totals.reads > 0 {
        rows.push(("read", moved(totals.read_bytes, totals.read_ns)));
    }
    rows.push(("owed", owed(drain)));
    if drain.bytes > 0 {
        let speed = moved(drain.bytes, drain.busy_ms.max(1) * 1_000_000);
        let files = plural(drain.files, "file", "files");
        let verified = bytes(drain.verified_bytes);
        rows.push(("drained", format!("{files}, {speed}, {verified} verified")));
    }
    rows.extend(drain.failures.iter().map(|failure| ("failing", failure.clone())));
    rows.extend(drain.conflicts.iter().map(|conflict| ("conflict", conflict.clone())));
    rows
}

/// The debt in words.
pub fn owed(drain: &Drain) -> String {
    if !is_owed(drain) {
        let settled = drain.settled || drain.files == 0;
        return if settled { "nothing" } else { "nothing; not yet made safe on disk" }.into();
    }
    let mut text = format!(
        "{} in {}, {}, oldest {}",
        bytes(drain.owed_bytes),
        plural(drain.owed_files, "file", "files"),
        plural(drain.owed_names, "name operation", "name operations"),
        duration(Duration::from_millis(drain.oldest_ms))
    );
    if let Some(left) = time_left(drain) {
        let _ = write!(text, ", about {} to go", duration(left));
    }
    text
}

/// Whether the permanent directory lacks anything.
pub fn is_owed(drain: &Drain) -> bool {
    drain.owed_bytes + drain.owed_files + drain.owed_names > 0
}

/// How long the debt takes at the rate seen so far.
pub fn time_left(drain: &Drain) -> Option<Duration> {
    let known = drain.bytes > 0 && drain.busy_ms > 0 && drain.owed_bytes > 0;
    let left_ms = || drain.owed_bytes as f64 * drain.busy_ms as f64 / drain.bytes as f64;
    known.then(|| Duration::from_millis(left_ms() as u64))
}
