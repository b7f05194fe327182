//! One run over several machines: `terral run --hosts`, and what it starts on each of the others
//! (`terral host`, hidden): a server that joins, is started again if it dies, and ends with the
//! run.
//!
//! Invariants: an invitation goes through a pipe, and is never among arguments; a machine on which
//! the launcher's word ends the run ends it at once, and one that only lost the launcher serves on
//! as long as programs use it. Not here: how servers find each other (`server`, `network`).

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::ToSocketAddrs;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use terral_client::{Client, Status};
use terral_server::EVERYWHERE;

use crate::command::{Surroundings, execute};
use crate::instances;
use crate::partition;
use crate::report::{code, failure, note, say};
use crate::search::Place;
use crate::server::{self, Part, Server, Start};
use crate::signals::Signals;
use crate::summary::calls;
use crate::units::{parse_bytes, plural};

/// How other machines are reached, unless `TERRAL_RSH` says otherwise.
const RSH: &str = "ssh -o BatchMode=yes";
/// The others have so long to come.
const COMING: Duration = Duration::from_secs(60);
/// They have so long to go.
const GOING: Duration = Duration::from_secs(20);
/// Who has lost the launcher goes when no program has used it for so long.
const ORPHANED: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);
/// How often a machine looks whether it was told to end by a signal, or has lost the launcher.
const LOOK: Duration = Duration::from_millis(200);
/// What the launcher says when the run is over.
const END: &str = "end";

/// What a run over several machines is given.
pub struct Wanted<'a> {
    /// The others, and perhaps this one.
    pub hosts: &'a [String],
    /// The name of the instances, if it is to have one.
    pub instance: Option<&'a Path>,
    /// Most memory on each.
    pub memory: Option<u64>,
    /// Kept ready on each.
    pub ready: Option<u64>,
    /// Whether servers encrypt what they say to each other.
    pub encrypted: bool,
    /// The program and its arguments.
    pub command: &'a [OsString],
}

/// Serves one machine of a run, until the launcher says that it is over
#[derive(Args)]
pub struct Arguments {
    /// Name of the instance
    #[arg(long, value_parser = instances::parser())]
    name: PathBuf,
    /// Most memory for file contents
    #[arg(long, value_parser = parse_bytes)]
    memory: Option<u64>,
    /// Memory kept ready
    #[arg(long, value_parser = parse_bytes)]
    ready: Option<u64>,
}

// The launcher's side.

/// Another machine of the run.
struct Machine {
    host: String,
    child: Child,
    /// Closed, or told: it ends.
    stdin: Option<ChildStdin>,
    /// A line when it serves, or none: it has ended.
    serves: mpsc::Receiver<String>,
}

/// One word of a command line that a shell reads.
fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:=,+@%".contains(letter);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

impl Machine {
    /// Has a server started there, which will join.
    fn start(host: &str, name: &str, wanted: &Wanted<'_>, invitation: &str) -> Result<Self> {
        let program = std::env::current_exe().context("terral: own path")?;
        let mut line = vec![quoted(&program.to_string_lossy()), "host".into(), "--name".into()];
        line.push(quoted(name));
        for (option, bytes) in [("--memory", wanted.memory), ("--ready", wanted.ready)] {
            line.extend(bytes.iter().flat_map(|bytes| [option.into(), bytes.to_string()]));
        }
        let shell = std::env::var("TERRAL_RSH").unwrap_or_else(|_| RSH.into());
        let mut words = shell.split_whitespace();
        let first = words.next().context("TERRAL_RSH is empty")?;
        let mut command = Command::new(first);
        command.args(words).arg(host).arg(line.join(" "));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // Ctrl-C is for COMMAND: the others end when that has.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn().with_context(|| format!("{host}: {shell}"))?;
        let mut stdin = child.stdin.take();
        if let Some(stdin) = &mut stdin {
            // One that has ended already is seen to have.
            let _ = writeln!(stdin, "{invitation}");
        }
        let (said, serves) = mpsc::channel();
        if let Some(stdout) = child.stdout.take() {
            std::thread::spawn(move || {
                let lines = BufReader::new(stdout.take(64 << 10)).lines().map_while(Result::ok);
                lines.for_each(|line| drop(said.send(line)));
            });
        }
        Ok(Machine { host: host.into(), child, stdin, serves })
    }

    /// Whether it still serves.
    fn has_ended(&mut self) -> bool {
        self.child.try_wait().map_or(true, |status| status.is_some())
    }

    /// Says that the run is over.
    fn tell(&mut self) {
        if let Some(mut stdin) = self.stdin.take() {
            let _ = writeln!(stdin, "{END}");
        }
    }

    /// Waits until it has gone, or is not waited for any longer.
    fn outwait(&mut self, until: Instant) {
        while !self.has_ended() {
            if Instant::now() > until {
                say(format_args!("{}: does not end: look there for `terral host`", self.host));
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            std::thread::sleep(POLL);
        }
    }
}

/// Whether a name is this machine's.
fn is_this(host: &str) -> bool {
    let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let short = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
    host == "localhost" || host == own || short(host) == short(&own)
}

/// An address of a host, or of none.
fn is_known(host: &str) -> bool {
    host.parse::<std::net::IpAddr>().is_ok() || (host, 0).to_socket_addrs().is_ok()
}

/// Runs.
///
/// # Errors
/// If a machine does not come; COMMAND's status is given otherwise.
pub fn run(
    wanted: &Wanted<'_>,
    around: impl FnOnce(PathBuf) -> Result<Surroundings>,
) -> Result<u8> {
    let not_started = |error: anyhow::Error| failure(code::NOT_STARTED, format!("{error:#}"));
    let begin = Instant::now();
    let signals = Signals::listen().map_err(not_started)?;
    let instance = wanted.instance.map(|name| instances::locate(name.as_os_str()));
    let instance = instance.unwrap_or_else(|| instances::base().join(instances::fresh_name()));
    let around = around(instance.clone()).map_err(not_started)?;
    let Place { memory_bytes, claim: _claim, .. } =
        partition::place(&instance, wanted.memory).map_err(not_started)?;
    let part = Part::First { listen: EVERYWHERE, encrypted: wanted.encrypted };
    let server = Server::start(start(&instance, memory_bytes, wanted.ready, part));
    let server = server.map_err(|error| {
        server::remove_unused(&instance);
        not_started(error)
    })?;
    let client = Client::observe(&instance)?;
    let mut others = Vec::new();
    let came = invite_all(wanted, &client, &instance, &mut others)
        .and_then(|()| await_all(&client, &mut others, &signals));
    if let Err(error) = came {
        end_all(&mut others);
        server.dismiss(&client)?;
        return Err(not_started(error));
    }
    note(format_args!(
        "{} in {} ms: their memory is one {}, and goes with this run",
        plural(1 + others.len() as u64, "machine", "machines"),
        begin.elapsed().as_millis(),
        around.prefix.display()
    ));
    let ended = execute(&around, wanted.command, &signals);
    let gone: Vec<String> =
        others.iter_mut().filter_map(|one| one.has_ended().then(|| one.host.clone())).collect();
    if !gone.is_empty() {
        say(format_args!("{}: gone; what only its memory had is lost", gone.join(", ")));
    }
    if let Ok(status) = client.status() {
        note(format_args!("on this machine: {}", calls(&status.totals)));
    }
    end_all(&mut others);
    server.dismiss(&client)?;
    let ended = ended?;
    ended.watch.seen(&instance).lines().for_each(say);
    Ok(ended.code)
}

fn start(instance: &Path, memory_bytes: u64, ready_bytes: Option<u64>, part: Part) -> Start {
    Start {
        instance: instance.into(),
        target: None,
        memory_bytes,
        spill: None,
        ready_bytes,
        part: Some(part),
        ends_with_us: true,
    }
}

fn invite_all(
    wanted: &Wanted<'_>,
    client: &Client,
    instance: &Path,
    others: &mut Vec<Machine>,
) -> Result<()> {
    let name = instances::name_of(instance);
    let hosts: Vec<&String> = wanted.hosts.iter().filter(|host| !is_this(host)).collect();
    for (at, host) in hosts.iter().enumerate() {
        if hosts[..at].contains(host) {
            bail!("--hosts: {host} is named twice");
        }
        if host.is_empty() || host.starts_with('-') {
            bail!("--hosts: '{host}' is no host");
        }
    }
    for host in hosts {
        let invitation = invitation(client)?;
        others.push(Machine::start(host, &name, wanted, &invitation)?);
    }
    Ok(())
}

/// The server listens a moment after it can be asked.
fn invitation(client: &Client) -> Result<String> {
    let begin = Instant::now();
    loop {
        match client.invite() {
            Err(error) if error.kind == terral_client::ErrorKind::Busy => {}
            invitation => return Ok(invitation?),
        }
        if begin.elapsed() > COMING {
            bail!("the server does not listen");
        }
        std::thread::sleep(POLL);
    }
}

fn present(status: &Status) -> usize {
    let members = status.partition.iter().flat_map(|partition| &partition.members);
    members.filter(|member| member.connected && !member.seat.addresses.is_empty()).count()
}

/// Waits until each serves its machine, and all are in.
fn await_all(client: &Client, others: &mut [Machine], signals: &Signals) -> Result<()> {
    let begin = Instant::now();
    let mut waits = vec![true; others.len()];
    loop {
        for (one, waits) in others.iter_mut().zip(&mut waits) {
            *waits &= one.serves.try_recv().is_err();
            if *waits && one.has_ended() {
                let host = &one.host;
                let unknown = if is_known(host) { "" } else { "no such host is known here; " };
                bail!(
                    "{host}: no server came up there ({unknown}what it said is above; terral must \
                     be at the same path there, and TERRAL_RSH or ssh get there without a question)"
                );
            }
        }
        let waiting = !waits.iter().all(|waits| !waits);
        if !waiting && present(&client.status()?) == 1 + others.len() {
            return Ok(());
        }
        if signals.count() > 0 {
            bail!("a signal came before all machines did");
        }
        if begin.elapsed() > COMING {
            let late = others.iter().zip(&waits).filter(|(_, waits)| **waits);
            let late: Vec<&str> = late.map(|(one, _)| one.host.as_str()).collect();
            if late.is_empty() {
                bail!("a machine does not reach this one: is a firewall between them? (--listen)");
            }
            bail!("{}: no server came up there in {} s", late.join(", "), COMING.as_secs());
        }
        std::thread::sleep(POLL);
    }
}

fn end_all(others: &mut [Machine]) {
    others.iter_mut().for_each(Machine::tell);
    let until = Instant::now() + GOING;
    others.iter_mut().for_each(|one| one.outwait(until));
}

// The other machines' side.

/// Serves.
pub fn host(arguments: &Arguments) -> Result<u8> {
    let signals = Signals::listen()?;
    let mut stdin = BufReader::new(std::io::stdin());
    let mut invitation = String::new();
    stdin.read_line(&mut invitation).context("standard input")?;
    let instance = instances::locate(arguments.name.as_os_str());
    let Place { memory_bytes, claim: _claim, .. } = partition::place(&instance, arguments.memory)?;
    let file = partition::keep_invitation(&instance, &invitation)?;
    let server =
        Server::start(start(&instance, memory_bytes, arguments.ready, Part::Invited(file)));
    let server = server.inspect_err(|_| server::remove_unused(&instance))?;
    let client = Client::observe(&instance)?;
    writeln!(std::io::stdout().lock(), "serves")?;
    let (told, word) = mpsc::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        let _ = stdin.read_line(&mut line);
        let _ = told.send(line.trim() == END);
    });
    let mut unused: Option<Instant> = None;
    let mut orphaned = false;
    loop {
        match word.recv_timeout(LOOK) {
            Ok(true) => break,
            Ok(false) => orphaned = true,
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            // It was told once.
            Err(mpsc::RecvTimeoutError::Disconnected) => std::thread::sleep(LOOK),
        }
        if signals.count() > 0 || !instance.join("log").exists() {
            break;
        }
        if orphaned {
            let used = client.status().is_ok_and(|status| status.sessions > 0);
            unused = if used { None } else { unused.or(Some(Instant::now())) };
            if unused.is_some_and(|since| since.elapsed() > ORPHANED) {
                break;
            }
        }
    }
    server.dismiss(&client)?;
    Ok(0)
}

/// Names separated by commas.
///
/// # Errors
/// If one is none.
pub fn parse_host(text: &str) -> Result<String, String> {
    let strange = |letter: char| letter.is_whitespace() || letter.is_control();
    if text.is_empty() || text.starts_with('-') || text.contains(strange) {
        return Err("no name of a host".into());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{is_this, parse_host, quoted};

    #[test]
    fn a_word_stays_one_for_a_shell() {
        assert_eq!(quoted("/usr/bin/terral"), "/usr/bin/terral");
        for word in ["", "a b", "it's", "$HOME", "a;b", "*"] {
            let line = format!("printf %s {}", quoted(word));
            let said = std::process::Command::new("sh").args(["-c", &line]).output();
            assert_eq!(said.expect("a shell").stdout, word.as_bytes());
        }
    }

    #[test]
    fn hosts_are_names_and_one_may_be_this() {
        assert!(parse_host("node-7.cluster").is_ok() && parse_host("10.0.0.1").is_ok());
        assert!(["", "-oProxyCommand=x", "a b"].iter().all(|bad| parse_host(bad).is_err()));
        assert!(is_this("localhost") && !is_this("surely-another"));
    }
}
