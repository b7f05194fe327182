//! `terral status`: how the servers of this user are.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};
use terral_client::{Client, Member, MemberAnswer, Membership, Other, PoolStatus, Status};
use terral_server::{Standing, Verdict};

use crate::debt::{causes, owed};
use crate::everyone;
use crate::instances::{self, Which};
use crate::lost;
use crate::members::{Hosts, is_in, this};
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
    /// Again every second, until Ctrl-C; waits for a server if none is there
    #[arg(long)]
    watch: bool,
}

/// An instance and what its server says; nothing if it is gone.
struct Answer {
    name: String,
    path: PathBuf,
    to: Option<String>,
    status: Option<Status>,
    /// All machines, where there are several.
    members: Vec<MemberAnswer>,
}

fn ask(name: String, path: &Path, served: bool) -> Answer {
    let to = instances::target(path).map(|to| to.display().to_string());
    let path = path.to_owned();
    let mut answer = Answer { name, path, to, status: None, members: Vec::new() };
    // A server that goes while it is asked is gone.
    if let Some(client) = served.then(|| Client::observe(&answer.path).ok()).flatten() {
        let _ = answer.is_served(&client);
    }
    answer
}

impl Answer {
    fn is_served(&mut self, client: &Client) -> terral_client::Result<()> {
        self.status = Some(client.status()?);
        self.members = client.everywhere(false)?;
        Ok(())
    }
}

fn ask_all(which: &Which) -> Result<Vec<Answer>> {
    if which.named().is_some() {
        let path = which.path()?;
        let client = which.observe()?;
        let mut answer = ask(instances::name_of(&path), &path, false);
        answer.is_served(&client)?;
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
    let hosts = Hosts::of(&answer.path);
    let machine = |(member, host): (Member, &str)| json!({"member": member, "host": host});
    let machines: Vec<Value> = hosts.all().map(machine).collect();
    json!({
        "instance": answer.name, "path": answer.path, "to": answer.to,
        "served": answer.status.is_some(), "status": answer.status, "members": answer.members,
        "machines": machines,
    })
}

/// Shows it.
pub fn main(arguments: &Arguments) -> Result<u8> {
    if arguments.watch {
        return watch(arguments);
    }
    let answers = ask_all(&arguments.which)?;
    show(&answers, arguments.json)?;
    let served = answers.iter().any(|answer| answer.status.is_some());
    Ok(if served { 0 } else { code::NO_SERVER })
}

/// Again and again; a server that is not there yet, or not any more, is waited for.
fn watch(arguments: &Arguments) -> Result<u8> {
    loop {
        let answers = ask_all(&arguments.which);
        let mut out = std::io::stdout().lock();
        if !arguments.json && out.is_terminal() {
            write!(out, "\x1b[H\x1b[2J")?;
        }
        drop(out);
        match answers {
            Ok(answers) => show(&answers, arguments.json)?,
            Err(_) if arguments.json => show(&[], true)?,
            Err(error) => {
                let mut out = std::io::stdout().lock();
                writeln!(out, "{error:#}\nwaiting for a server; Ctrl-C ends this")?;
                out.flush()?;
            }
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}

fn show(answers: &[Answer], json: bool) -> Result<()> {
    if json {
        return report::json(&answers.iter().map(as_json).collect::<Vec<_>>());
    }
    let shown: Vec<String> = answers.iter().map(text).collect();
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", shown.join("\n"))?;
    Ok(out.flush()?)
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
    let hosts = Hosts::of(&answer.path);
    let (mut rows, all) = (rows(status, &hosts), everyone::rows(&answer.members, &hosts));
    let after = rows.iter().position(|(title, _)| *title == "machines").map_or(0, |at| at + 1);
    rows.splice(after..after, all);
    for (title, row) in rows {
        let _ = write!(text, "\n  {title:<9} {row}");
    }
    text
}

/// Who of the servers of several machines this is, and who is not there.
fn machines(partition: &Membership, hosts: &Hosts) -> String {
    let all = partition.members.len();
    let removed = |member: &&Other| matches!(member.seat.standing, Standing::Removed { .. });
    let has_left = |member: &Other| match member.seat.standing {
        Standing::Removed { verdict, .. } => verdict == Verdict::Left,
        Standing::In(_) => false,
    };
    let named = |member: &Other| hosts.name(member.seat.member);
    // Who was invited and never came is no news.
    let came = |member: &&Other| !has_left(member) || !member.seat.addresses.is_empty();
    let out = partition.members.iter().filter(removed).filter(came);
    let (left, out): (Vec<&Other>, Vec<&Other>) = out.partition(|member| has_left(member));
    let [left, out] = [left, out].map(|all| all.into_iter().map(named).collect::<Vec<_>>());
    let gone = partition.members.iter().filter(|member| !member.connected && !removed(member));
    let gone: Vec<String> = gone.map(named).collect();
    let encrypted = if partition.encrypted { "encrypted" } else { "not encrypted" };
    let mut text = format!("{} of {all}, {encrypted}", partition.me);
    let _ = write!(
        text,
        ", {} and {} sent",
        plural(partition.sent.frames, "frame", "frames"),
        bytes(partition.sent.bytes)
    );
    if !gone.is_empty() {
        let _ = write!(text, "; no connection to {}", gone.join(", "));
    }
    if !left.is_empty() {
        let _ = write!(text, "; left: {}", left.join(", "));
    }
    if !out.is_empty() {
        let _ = write!(text, "; removed: {}", out.join(", "));
    }
    text
}

/// Which pool it is, and how its registry is.
fn of_pool(pool: &PoolStatus) -> String {
    let PoolStatus { name, registry, generation, .. } = pool;
    let mut text = format!("{name}, generation {generation}, ");
    let _ = match pool.away_ms {
        None => write!(text, "kept in {registry}"),
        Some(ms) => {
            let (since, why) = (duration(Duration::from_millis(ms)), pool.why.as_deref());
            write!(text, "{registry} away for {since} ({})", why.unwrap_or("no answer"))
        }
    };
    if pool.unkept {
        text.push_str("; not all that was decided is there yet");
    }
    text
}

fn name_of(member: Member, partition: &Membership, hosts: &Hosts) -> String {
    if member == partition.me { this() } else { hosts.name(member) }
}

/// Which servers say who is in, and nothing else, if any do.
fn authority(partition: &Membership, hosts: &Hosts) -> Option<String> {
    let known = partition.authorities.iter().filter(|it| is_in(**it, partition));
    let all: Vec<String> = known.map(|it| name_of(*it, partition, hosts)).collect();
    (!all.is_empty()).then(|| format!("{} (authn, authz)", all.join(", ")))
}

/// Which machines keep bytes of new files, if not all do.
fn storage(partition: &Membership, hosts: &Hosts) -> Option<String> {
    let known = partition.placement.storage.as_ref()?;
    let named = |it: &Member| name_of(*it, partition, hosts);
    let stores = known.iter().filter(|it| is_in(**it, partition)).map(named);
    let stores: Vec<String> = stores.collect();
    match stores.is_empty() {
        true => Some("no machine that keeps new files is left: terral role HOST storage".into()),
        false => Some(format!("new files are kept by {}", stores.join(", "))),
    }
}

fn rows(status: &Status, hosts: &Hosts) -> Vec<(&'static str, String)> {
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
    if let Some(spill) = &status.spill {
        rows.push(("spilled", format!("{} in {spill}", bytes(status.spilled_bytes))));
    }
    if let Some(partition) = &status.partition {
        rows.push(("machines", machines(partition, hosts)));
        rows.extend(partition.pool.as_ref().map(|pool| ("pool", of_pool(pool))));
        rows.extend(authority(partition, hosts).map(|row| ("authority", row)));
        rows.extend(storage(partition, hosts).map(|row| ("storage", row)));
        rows.extend(lost::rows(&partition.losses));
    }
    rows.push(("names", format!("{} known, {} open", count(status.files), count(status.open))));
    let now = plural(status.sessions.into(), "process", "processes");
    let ever = count(totals.sessions);
    rows.push(("programs", format!("{now} now, {ever} so far: {}", calls(totals))));
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
    rows.extend(causes(drain).into_iter().map(|cause| ("failing", cause)));
    rows.extend(drain.conflicts.iter().map(|conflict| ("conflict", conflict.clone())));
    rows.extend(status.warnings.iter().map(|warning| ("warning", warning.clone())));
    rows
}
