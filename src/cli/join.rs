//! `terral join`, hidden: what a program of a run that spreads starts where no server of that run
//! is (`preload`). It waits until one is there, which the first of them starts, in a process of its
//! own that stays for the run.
//!
//! Invariants: one process of a machine starts a server, and who comes meanwhile waits for it, or
//! fails as it does; the wait is bounded; the process that stays keeps nothing of the program that
//! began it: neither descriptors nor session nor directory. Not here: what the server is told
//! (`host`), and who lets it in (`door`).

use std::ffi::OsString;
use std::fs::File;
use std::io::ErrorKind::{ConnectionReset, UnexpectedEof};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use terral_client::Client;
use terral_network::tcp::Private;

use crate::door::is_in;
use crate::instances;
use crate::members::this;
use crate::report::{code, failure};
use crate::same::Build;
use crate::server;
use crate::ticket::Ticket;
use crate::words::{Admission, Knock, Report, hear, speak};

/// What is between the two is so long on its way, at most.
const PATIENCE: Duration = Duration::from_secs(10);
/// Who is sent away tries again for so long.
const CROWD: Duration = Duration::from_secs(5);
/// Nobody waits longer for a server.
const COMING: Duration = Duration::from_secs(90);
/// A server that is up has so long to be in.
const REACHING: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);
/// The file by which who starts a server keeps others from it, until it is in; the instance's name
/// follows. Programs look for it, too (`preload/joining`).
const TURN: &str = ".joining-";
/// Nobody reads any more why somebody has failed so long ago.
const OLD: Duration = Duration::from_secs(600);
/// What the process that stays says once programs may begin.
const IN: &str = "in";

/// Has a server of a run on this machine
#[derive(Args)]
pub struct Arguments {
    /// The run's instance
    instance: PathBuf,
    /// Its ticket
    ticket: PathBuf,
    /// Be the process that stays
    #[arg(long)]
    stay: bool,
}

/// Joins.
pub fn main(arguments: &Arguments) -> Result<u8> {
    let Arguments { instance, ticket, stay } = arguments;
    if *stay {
        return stay_for(instance, ticket);
    }
    wait_for(instance, ticket).map(|()| 0).map_err(|error| {
        let (host, name) = (this(), instances::name_of(instance));
        failure(
            code::FAILED,
            format!(
                "{host}: no server of the run {name} is here, and none could join it: {error:#} \
                 (terral run --hosts {host},… starts them before COMMAND)"
            ),
        )
    })
}

/// Whether programs of this machine can begin.
fn is_ready(instance: &Path) -> bool {
    let status = || Client::observe(instance)?.status();
    terral_server::is_served(instance)
        && status().is_ok_and(|status| {
            let me = status.partition.as_ref().map(|partition| partition.me);
            me.is_none_or(|me| is_in(&status, me))
        })
}

/// Who waits for whom, and why the last one has failed.
struct Turn(File);

fn now_ms() -> u128 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.tv_sec.unsigned_abs() as u128 * 1000 + now.tv_nsec.unsigned_abs() as u128 / 1_000_000
}

fn turn_of(instance: &Path) -> PathBuf {
    instances::base().join(format!("{TURN}{}", instances::name_of(instance)))
}

/// Removes what those left behind who have failed before.
fn sweep() {
    for entry in std::fs::read_dir(instances::base()).into_iter().flatten().flatten() {
        let age = || entry.metadata().ok()?.modified().ok()?.elapsed().ok();
        let is_one = entry.file_name().as_encoded_bytes().starts_with(TURN.as_bytes());
        if is_one
            && age().is_some_and(|age| age > OLD)
            && terral_server::hold(&entry.path()).is_ok_and(|held| held.is_some())
        {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Removes what one left behind who was killed before all was done.
fn clear(instance: &Path) {
    let turn = turn_of(instance);
    if turn.exists() && terral_server::hold(&turn).is_ok_and(|held| held.is_some()) {
        let _ = std::fs::remove_file(turn);
    }
}

impl Turn {
    /// `None` once the server is there.
    fn take(instance: &Path, begin: Instant) -> Result<Option<Turn>> {
        instances::make(&instances::base())?;
        loop {
            if is_ready(instance) {
                clear(instance);
                return Ok(None);
            }
            if let Some(file) = terral_server::hold(&turn_of(instance))? {
                sweep();
                return Ok(Some(Turn(file)));
            }
            if begin.elapsed() > COMING {
                bail!("another process has begun to start one, {} s ago", COMING.as_secs());
            }
            std::thread::sleep(POLL.max(begin.elapsed() / 20));
        }
    }

    /// Why who came before has failed, if that was after this moment.
    fn failed_since(&self, began_ms: u128) -> Option<String> {
        let mut text = String::new();
        (&self.0).take(4096).read_to_string(&mut text).ok()?;
        let (at, why) = text.split_once(' ')?;
        (at.parse::<u128>().ok()? >= began_ms).then(|| why.to_owned())
    }

    fn has_failed(&self, why: &str) {
        let text = format!("{} {why}", now_ms());
        let _ = self.0.set_len(0).and_then(|()| self.0.write_all_at(text.as_bytes(), 0));
    }
}

/// Waits until a server is there.
fn wait_for(instance: &Path, ticket: &Path) -> Result<()> {
    if instance.parent() != Some(&instances::base()) {
        let user = rustix::process::geteuid().as_raw();
        bail!("{}: not of user {user}, who is here", instance.display());
    }
    let (begin, began_ms) = (Instant::now(), now_ms());
    let Some(turn) = Turn::take(instance, begin)? else { return Ok(()) };
    if is_ready(instance) {
        // Another was faster, and this turn is one too many.
        let _ = std::fs::remove_file(turn_of(instance));
        return Ok(());
    }
    if let Some(why) = turn.failed_since(began_ms) {
        bail!("{why}");
    }
    // One is started again, or ends.
    while terral_server::is_claimed(instance) && begin.elapsed() < COMING {
        if is_ready(instance) {
            let _ = std::fs::remove_file(turn_of(instance));
            return Ok(());
        }
        std::thread::sleep(POLL);
    }
    start(instance, ticket, &turn, begin).inspect_err(|why| turn.has_failed(&format!("{why:#}")))
}

/// Starts the process that stays, and waits until it says that programs can begin. It holds the
/// turn so long, too, as its standard input.
fn start(instance: &Path, ticket: &Path, turn: &Turn, begin: Instant) -> Result<()> {
    let mut command = Command::new(std::env::current_exe().context("terral: own path")?);
    command.arg("join").arg("--stay").arg(instance).arg(ticket).current_dir("/");
    command.stdin(turn.0.try_clone()?).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().context("starting the process that stays")?;
    let Some(stdout) = child.stdout.take() else { bail!("no pipe") };
    let (says, said) = mpsc::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = BufReader::new(stdout).read_line(&mut line);
        let _ = says.send(read.map(|_| line));
    });
    let left = COMING.saturating_sub(begin.elapsed());
    match said.recv_timeout(left) {
        Ok(Ok(line)) if line.trim_end() == IN => Ok(()),
        Ok(Ok(line)) if !line.trim_end().is_empty() => bail!("{}", line.trim_end()),
        Ok(_) => bail!("its process was killed as it came up"),
        Err(_) => bail!(
            "it is not up after {} s: it may be bringing what an earlier run left here: `terral \
             status`",
            COMING.as_secs()
        ),
    }
}

/// Becomes the process that stays: it is to the launcher what ssh is where that has begun.
fn stay_for(instance: &Path, ticket: &Path) -> Result<u8> {
    // Neither Ctrl-C nor the end of a step's processes is meant for it.
    let _ = rustix::process::setsid();
    let done = serve(instance, ticket);
    if let Err(error) = &done {
        tell(&format!("{error:#}"));
    }
    // Who waits reads why.
    Ok(if done.is_ok() { 0 } else { code::NOT_STARTED })
}

/// Says how it stands to who waits, if anybody still does.
fn tell(what: &str) {
    let mut out = std::io::stdout().lock();
    let line = what.lines().next().unwrap_or("it has failed");
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn serve(instance: &Path, ticket: &Path) -> Result<()> {
    let library = server::preload_library()?;
    let build = Build::ours(&library)?;
    let mut private = dial(&Ticket::read(ticket)?)?;
    let mut from = BufReader::new(private.stream.try_clone()?);
    speak(&mut private.stream, &Knock { host: this(), build: build.id })?;
    private.stream.set_read_timeout(Some(PATIENCE))?;
    let words = match hear(&mut from) {
        Some(Admission::Serve(words)) => words,
        Some(Admission::Refused(why)) => bail!("the run refuses it: {why}"),
        None => bail!("the run's terral does not answer"),
    };
    private.stream.set_read_timeout(None)?;
    let mut words: Vec<OsString> = words.into_iter().map(OsString::from_vec).collect();
    words.extend(["--library".into(), library.into()]);
    let served = attend(instance, &words, &mut private.stream);
    private.close();
    served
}

/// Dials; once more where so many come at once that some were sent away.
fn dial(ticket: &Ticket) -> Result<Private> {
    let begin = Instant::now();
    loop {
        match dial_all(ticket) {
            Err((true, _)) if begin.elapsed() < CROWD => std::thread::sleep(CROWD / 10),
            Err((_, why)) => bail!(
                "the run's terral is not reached ({why}): is a firewall between (--listen PORT), \
                 or has the run ended?"
            ),
            Ok(private) => return Ok(private),
        }
    }
}

/// Tries all addresses at once; which way it is does not matter. Why none opens, and whether
/// somebody was there who sent it away.
fn dial_all(ticket: &Ticket) -> Result<Private, (bool, String)> {
    let (opens, opened) = mpsc::channel();
    for at in ticket.addresses.clone() {
        let (opens, secret) = (opens.clone(), ticket.secret());
        std::thread::spawn(move || {
            let _ = opens.send((at, Private::dial(at, &secret, PATIENCE)));
        });
    }
    drop(opens);
    let (mut was_sent_away, mut why) = (false, Vec::new());
    while let Ok((at, opened)) = opened.recv() {
        let error = match opened {
            Ok(private) => return Ok(private),
            Err(error) => error,
        };
        was_sent_away |= [UnexpectedEof, ConnectionReset].contains(&error.kind());
        why.push(format!("{at}: {error}"));
    }
    Err((was_sent_away, why.join("; ")))
}

/// Has `terral` serve this machine with these words, and carries what it says.
fn attend(instance: &Path, words: &[OsString], to: &mut UnixStream) -> Result<()> {
    let mut command = Command::new(std::env::current_exe().context("terral: own path")?);
    command.args(words).stdin(OwnedFd::from(to.try_clone()?)).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::null()).spawn().context("starting it")?;
    let Some(stdout) = child.stdout.take() else { bail!("no pipe") };
    let mut why = "its `terral` has ended".to_owned();
    let mut has_served = false;
    for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
        match serde_json::from_slice(&line) {
            Ok(Report::Serves) => {
                has_served = true;
                let instance = instance.to_owned();
                std::thread::spawn(move || say_when_ready(&instance));
            }
            Ok(Report::Failed(reason)) => why = reason,
            _ => {}
        }
        // The launcher may be gone, and it serves on all the same.
        let _ = to.write_all(&[&line[..], b"\n"].concat());
    }
    let _ = child.wait();
    if has_served { Ok(()) } else { Err(anyhow::anyhow!(why)) }
}

/// Lets programs begin once this machine's server is in, and others start one when it is gone.
fn say_when_ready(instance: &Path) {
    let begin = Instant::now();
    while !is_ready(instance) {
        if begin.elapsed() > REACHING {
            tell(
                "no connection between its server and that of the run's first machine: is a \
                 firewall between them? (--listen PORT)",
            );
            return;
        }
        std::thread::sleep(POLL);
    }
    let _ = std::fs::remove_file(turn_of(instance));
    tell(IN);
    if let Ok(nothing) = File::options().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(&nothing);
        let _ = rustix::stdio::dup2_stdout(&nothing);
    }
}
