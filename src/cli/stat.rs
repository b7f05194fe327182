//! `terral stat`: a file's attributes, and where its bytes are safe now.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use serde_json::json;
use terral_client::{Consistency, Kind, STRIPE_UNIT, Safety, Status, Stripe};
use terral_server::Member;

use crate::debt::{owed, time_left};
use crate::instances::{Which, place};
use crate::members::Hosts;
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
    let hosts = Hosts::of(client.instance());
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
            let text = text(&tame_name(&placed), &safety, &status, &hosts);
            std::io::stdout().lock().write_all(text.as_bytes())?;
        }
    }
    Ok(0)
}

fn text(path: &str, safety: &Safety, status: &Status, hosts: &Hosts) -> String {
    let home = elsewhere(safety, status).map(|home| hosts.name(home));
    let at = &safety.attributes;
    let kind = match at.kind {
        Kind::File => "file",
        Kind::Directory => "directory",
        Kind::Symlink => "symbolic link",
        Kind::Fifo => "FIFO",
        Kind::Socket => "socket",
    };
    let mut rows = Vec::new();
    if !safety.heard && at.changed_ns == 0 {
        rows.push(("size", "not known on this machine".into()));
    } else {
        rows.push(("size", format!("{} ({} bytes)", bytes(at.size), count(at.size))));
        rows.push((
            "is",
            format!(
                "{kind}, mode {:04o}, owner {}, group {}, links {}, inode {}",
                at.mode, at.uid, at.gid, at.links, at.ino.0
            ),
        ));
        rows.push((
            "times",
            format!(
                "modified {} UTC, read {}, changed {}",
                time(at.modified_ns),
                time(at.accessed_ns),
                time(at.changed_ns)
            ),
        ));
    }
    rows.push(("safe", safe(path, safety, status, home.as_deref())));
    rows.extend(home.iter().map(|home| ("home", home_says(home, safety))));
    if at.kind == Kind::File && safety.heard {
        let (memory, file_owes) = (bytes(safety.memory_bytes), bytes(safety.owed_bytes));
        rows.push(("memory", format!("{memory}, {file_owes} of it owed")));
    }
    if !safety.parts.is_empty() {
        let part = |(with, most): &(_, u64)| {
            format!("{} at most with {}", bytes(*most), hosts.name(*with))
        };
        let parts: Vec<String> = safety.parts.iter().map(part).collect();
        let until = if safety.stripe.is_some() { "" } else { " until they are here" };
        rows.push(("parts", format!("{}: lost with it{until}", parts.join(", "))));
    }
    if let Some(Stripe { over, chunks }) = &safety.stripe {
        let over: Vec<String> = over.iter().map(|member| hosts.name(*member)).collect();
        let part = bytes(u64::from(*chunks) * STRIPE_UNIT);
        rows.push(("layout", format!("striped over {}, in parts of {part}", over.join(", "))));
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
    let who = if status.partition.is_some() { "here owed" } else { "all owe" };
    rows.push((who, owed(&status.drain)));
    let rows: Vec<String> =
        rows.iter().map(|(title, row)| format!("  {title:<9} {}\n", tame(row))).collect();
    format!("{}\n{}", if path.is_empty() { "." } else { path }, rows.concat())
}

/// The other machine that has the file.
fn elsewhere(safety: &Safety, status: &Status) -> Option<Member> {
    let me = status.partition.as_ref().map(|partition| partition.me);
    safety.home.filter(|home| Some(*home) != me)
}

fn home_says(home: &str, safety: &Safety) -> String {
    match safety.heard {
        true => format!("{home}: it made this, and says all of the above"),
        false => format!("{home} made it and does not answer: this is as last heard of it"),
    }
}

fn safe(path: &str, safety: &Safety, status: &Status, home: Option<&str>) -> String {
    let lost = match home {
        None => "not a reboot".to_owned(),
        Some(home) => format!("not the loss of {home}"),
    };
    match (&status.backing, safety.in_backing) {
        _ if !safety.heard => "not known".into(),
        _ if safety.attributes.kind == Kind::Socket => "nowhere else: sockets stay here".into(),
        (Some(backing), true) => format!("in {backing}/{path}, as it is now"),
        (Some(backing), false) => format!(
            "in memory only, until it is in {backing}: survives programs and servers, {lost}"
        ),
        (None, _) => format!("in memory only: survives programs and servers, {lost}"),
    }
}
