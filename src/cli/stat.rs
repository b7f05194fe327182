//! `terral stat`: a file's attributes, and where its bytes are safe now.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use serde_json::json;
use terral_client::{Consistency, Kind, Safety, Status};

use crate::debt::{owed, time_left};
use crate::instances::{Which, place};
use crate::report;
use crate::shown::{add_name, tame, tame_name};
use crate::units::{bytes, count, time};

/// Shows a file's attributes, where its bytes are safe, and what is still owed
#[derive(Args)]
#[command(after_help = "\
Example:
  terral stat /terral/dump.melt
  terral stat --json restart.1000 | jq .safety.in_backing")]
pub struct Arguments {
    #[command(flatten)]
    which: Which,
    /// One object for each file; a path that is no UTF-8 is in `path_bytes` as well, with %XX for
    /// what is not ASCII
    #[arg(long)]
    json: bool,
    /// As the program sees it, or relative to that place
    #[arg(required = true, value_name = "FILE")]
    paths: Vec<PathBuf>,
}

/// Shows it.
pub fn main(arguments: &Arguments) -> Result<u8> {
    let client = arguments.which.observe()?;
    for path in &arguments.paths {
        let placed = place(path)?;
        let safety = client.safety(&placed)?;
        let status = client.status()?;
        if arguments.json {
            let left_ms = time_left(&status.drain).map(|left| left.as_millis() as u64);
            let found = json!({
                "safety": safety, "drain": status.drain, "drain_left_ms": left_ms,
                "backing": status.backing,
            });
            report::json(&add_name(found, "path", &placed))?;
        } else {
            let text = text(&tame_name(&placed), &safety, &status);
            std::io::stdout().lock().write_all(text.as_bytes())?;
        }
    }
    Ok(0)
}

fn text(path: &str, safety: &Safety, status: &Status) -> String {
    let at = &safety.attributes;
    let kind = match at.kind {
        Kind::File => "file",
        Kind::Directory => "directory",
        Kind::Symlink => "symbolic link",
        Kind::Fifo => "FIFO",
        Kind::Socket => "socket",
    };
    let mut rows = vec![
        ("size", format!("{} ({} bytes)", bytes(at.size), count(at.size))),
        (
            "is",
            format!(
                "{kind}, mode {:04o}, owner {}, group {}, links {}, inode {}",
                at.mode, at.uid, at.gid, at.links, at.ino.0
            ),
        ),
        (
            "times",
            format!(
                "modified {} UTC, read {}, changed {}",
                time(at.modified_ns),
                time(at.accessed_ns),
                time(at.changed_ns)
            ),
        ),
        ("safe", safe(path, safety, status)),
    ];
    if at.kind == Kind::File {
        let (memory, file_owes) = (bytes(safety.memory_bytes), bytes(safety.owed_bytes));
        rows.push(("memory", format!("{memory}, {file_owes} of it owed")));
    }
    if !safety.parts.is_empty() {
        let part = |(with, most): &(_, u64)| format!("{} at most with {with}", bytes(*most));
        let parts: Vec<String> = safety.parts.iter().map(part).collect();
        rows.push(("parts", format!("{}: lost with it until they are here", parts.join(", "))));
    }
    if safety.consistency == Consistency::Commit {
        let owed = bytes(safety.uncommitted_bytes);
        rows.push((
            "writes",
            format!("by commit: others see them once committed; {owed} here are not"),
        ));
    }
    if safety.open_for_writing {
        rows.push(("open", "for writing".into()));
    }
    rows.extend(safety.failure.iter().map(|failure| ("failing", failure.clone())));
    rows.push(("all owe", owed(&status.drain)));
    let rows: Vec<String> =
        rows.iter().map(|(title, row)| format!("  {title:<9} {}\n", tame(row))).collect();
    format!("{}\n{}", if path.is_empty() { "." } else { path }, rows.concat())
}

fn safe(path: &str, safety: &Safety, status: &Status) -> String {
    match (&status.backing, safety.in_backing) {
        _ if safety.attributes.kind == Kind::Socket => "nowhere else: sockets stay here".into(),
        (Some(backing), true) => format!("in {backing}/{path}, as it is now"),
        (Some(backing), false) => format!(
            "in memory only, until it is in {backing}: survives programs and servers, not a reboot"
        ),
        (None, _) => "in memory only: survives programs and servers, not a reboot".into(),
    }
}
