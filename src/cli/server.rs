//! A server of our own: `terral serve` in a process of its own, started again if it dies.
//!
//! Invariants: it is in a process group of its own, so that Ctrl-C does not reach it; it never sees
//! the preload library; what it says is in `server-says` of the instance until it is ready.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal};
use terral_client::{Client, ErrorKind};
use terral_server::Listing;

use crate::instances;
use crate::report::{code, note};

mod watching;

use watching::{Watched, watch};

/// The library that serves programs.
pub const LIBRARY: &str = "libterral_preload.so";
/// What a server says while it starts.
const SAYS: &str = "server-says";
/// Most that is read of it.
const SAYS_MAX: usize = 64 << 10;
/// A server that was told to leave may finish what it is writing for so long.
const LEAVE: Duration = Duration::from_secs(1);
/// One that is alone has come up by then.
const COMES_UP: Duration = Duration::from_secs(60);
/// Most starts of one that is to leave.
const STARTS_MAX: u32 = 20;

/// How to start it.
#[derive(Clone)]
pub struct Start {
    /// The directory of the instance; it exists.
    pub instance: PathBuf,
    /// The permanent directory, for a new instance.
    pub target: Option<PathBuf>,
    /// Memory bound, for a new instance.
    pub memory_bytes: u64,
    /// The directory for what does not fit, for an instance that has none.
    pub spill: Option<PathBuf>,
    /// Memory to keep ready for writers.
    pub ready_bytes: Option<u64>,
    /// By what others than its user are known, by absolute paths.
    pub principals: Option<Listing>,
    /// What it is of a partition, if not alone.
    pub part: Option<Part>,
    /// Whether it finishes by itself once we are gone.
    pub ends_with_us: bool,
    /// Each of several users has a server, this one among them; for a new instance.
    pub among_users: bool,
}

/// What a server is of a partition.
#[derive(Clone)]
pub enum Part {
    /// The first; others may come.
    First {
        /// Where it listens.
        listen: SocketAddr,
        /// Over which interface they come, if it matters.
        interface: Option<String>,
        /// Whether they encrypt.
        encrypted: bool,
    },
    /// One of a pool, into which it finds by itself.
    OfPool {
        /// By these words.
        words: Vec<OsString>,
        /// Over which interface others come, if it matters.
        interface: Option<String>,
    },
    /// One that was invited.
    Invited {
        /// The file that has the invitation.
        invitation: PathBuf,
        /// Where it listens; 0 is any that is free.
        port: u16,
        /// Over which interface they come, if it matters.
        interface: Option<String>,
    },
}

impl Part {
    fn arguments(&self) -> Vec<OsString> {
        let (mut arguments, interface): (Vec<OsString>, _) = match self {
            Part::First { listen, interface, encrypted } => {
                let mut arguments = vec![format!("--listen={listen}").into()];
                arguments.extend((!encrypted).then(|| "--no-encryption".into()));
                (arguments, interface)
            }
            Part::OfPool { words, interface } => (words.clone(), interface),
            Part::Invited { invitation, port, interface } => {
                let listen = format!("--listen={port}");
                (vec!["--join".into(), invitation.into(), listen.into()], interface)
            }
        };
        arguments.extend(interface.iter().map(|name| format!("--interface={name}").into()));
        arguments
    }
}

/// A running server.
pub struct Server {
    instance: PathBuf,
    watched: Arc<Watched>,
    watcher: JoinHandle<()>,
}

impl Start {
    /// The process, and where it says why it cannot: it may remove an instance that is of no use.
    fn spawn(&self) -> Result<(Child, File)> {
        let program = std::env::current_exe().context("terral: own path")?;
        let says = self.instance.join(SAYS);
        let mut how = File::options();
        let how = how.read(true).write(true).create(true).truncate(true);
        let says = how.open(&says).with_context(|| says.display().to_string())?;
        let said = says.try_clone().context("what the server says")?;
        let mut command = Command::new(program);
        command.arg("serve").arg("--instance-directory").arg(&self.instance);
        if let Some(target) = &self.target {
            command.arg("--to").arg(target);
        }
        command.arg("--memory").arg(self.memory_bytes.to_string());
        if let Some(spill) = &self.spill {
            command.arg("--spill").arg(spill);
        }
        if let Some(ready) = self.ready_bytes {
            command.arg("--ready").arg(ready.to_string());
        }
        if let Some(principals) = &self.principals {
            command.arg("--principals").arg(&principals.principals);
            if let Some(keytab) = &principals.keytab {
                command.arg("--keytab").arg(&keytab.file).arg("--service").arg(&keytab.service);
            }
        }
        command.args(self.part.iter().flat_map(Part::arguments));
        command.args(self.among_users.then_some("--among-users"));
        if self.ends_with_us {
            command.arg("--launcher").arg(std::process::id().to_string());
        }
        // Ourselves under `terral run`, its library would put back what is only removed.
        command.env_remove("LD_PRELOAD").env("TERRAL_INSTANCE", "").env_remove("TERRAL_PREFIX");
        command.env_remove("TERRAL_SPREAD");
        command.current_dir("/").process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(says);
        Ok((command.spawn().context("starting the server")?, said))
    }

    /// Whether this process of ours serves the instance and can be reached, where `before` is what
    /// a server that is gone left.
    fn is_up(&self, child: &Child, before: Option<(u64, i64, i64)>) -> bool {
        let now = self.socket();
        let known = terral_server::server_pid(&self.instance) == Some(child.id());
        known && now.is_some() && now != before
    }

    /// How long it may take: one that comes into a pool may wait for that, and says why.
    fn patience(&self) -> Duration {
        if self.is_of_pool() { COMES_UP * 3 } else { COMES_UP }
    }

    /// What tells one start's socket from another's.
    fn socket(&self) -> Option<(u64, i64, i64)> {
        let found = std::fs::symlink_metadata(self.instance.join("socket")).ok()?;
        Some((found.ino(), found.ctime(), found.ctime_nsec()))
    }

    /// Whether it finds into a pool by itself, for which it may wait.
    fn is_of_pool(&self) -> bool {
        matches!(self.part, Some(Part::OfPool { .. }))
    }

    /// Starts it, unless it `is_over` before it is up.
    fn start(&self, is_over: impl Fn() -> bool) -> Result<Child> {
        let before = self.socket();
        let (mut child, said) = self.spawn()?;
        let (begin, mut shown) = (Instant::now(), 0);
        loop {
            if self.is_up(&child, before) {
                return Ok(child);
            }
            let news = if self.is_of_pool() { unshown(&said, &mut shown) } else { String::new() };
            if let Some(status) = child.try_wait().context("server")? {
                return Err(Ended::of(&said, status).into());
            }
            // What it says as it ends is why it has.
            news.lines().for_each(|line| note(without_name(line)));
            let waited = begin.elapsed();
            let over = is_over();
            if waited > self.patience() || over {
                // Nobody can use it, and whatever it holds is in memory.
                let _ = child.kill();
                let _ = child.wait();
                ensure!(!over, "told to end before the server was there");
                bail!("{}: the server does not come up", self.instance.display());
            }
            std::thread::sleep(pause(waited));
        }
    }
}

/// Why a server ended as it started.
#[derive(Debug)]
enum Ended {
    /// Its partition goes on without it: it is not to be started again.
    Removed(String),
    /// It says that it cannot, now or at all.
    Cannot(String),
    /// It has died, or its memory is of no use; what it has said last.
    Died(ExitStatus, String),
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Died(status, why) if why.is_empty() => {
                write!(f, "the server ended with {status} as it started")
            }
            Ended::Removed(why) | Ended::Cannot(why) | Ended::Died(_, why) => {
                write!(f, "server: {why}")
            }
        }
    }
}

impl std::error::Error for Ended {}

impl Ended {
    fn of(said: &File, status: ExitStatus) -> Self {
        let (why, is) = (last_word(said), status.code());
        if is == Some(code::REMOVED.into()) {
            return Ended::Removed(why);
        }
        match is == Some(code::NOT_STARTED.into()) && !why.is_empty() {
            true => Ended::Cannot(why),
            false => Ended::Died(status, why),
        }
    }
}

fn without_name(line: &str) -> &str {
    line.strip_prefix("terral: ").unwrap_or(line)
}

/// Whole lines that a server has said since it was looked last.
fn unshown(said: &File, shown: &mut u64) -> String {
    let mut says = vec![0; SAYS_MAX];
    let bytes = said.read_at(&mut says, *shown).unwrap_or_default();
    let end = says[..bytes].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    *shown += end as u64;
    String::from_utf8_lossy(&says[..end]).into_owned()
}

/// The last that a server has said.
fn last_word(said: &File) -> String {
    let mut says = vec![0; SAYS_MAX];
    let bytes = said.read_at(&mut says, 0).unwrap_or_default();
    let says = String::from_utf8_lossy(&says[..bytes]);
    without_name(says.lines().next_back().unwrap_or_default()).to_owned()
}

/// How long to sleep before the next look, by who has waited so long for a server's begin or end:
/// they take a few milliseconds of a run that has nothing to do.
fn pause(waited: Duration) -> Duration {
    Duration::from_micros(if waited < Duration::from_millis(20) { 100 } else { 1000 })
}

impl Server {
    /// Starts it and returns when clients can connect.
    ///
    /// # Errors
    /// What the server said, if it ended instead.
    pub fn start(start: Start) -> Result<Self> {
        Server::start_unless(start, || false)
    }

    /// The same, for as long as it is not over: for one that may wait for its pool.
    ///
    /// # Errors
    /// As those of [`Server::start`].
    pub fn start_unless(start: Start, is_over: impl Fn() -> bool) -> Result<Self> {
        let child = start.start(is_over)?;
        let watched = Arc::new(Watched::default());
        watched.pid.store(child.id(), Ordering::SeqCst);
        let (of_watcher, instance) = (watched.clone(), start.instance.clone());
        let watcher = std::thread::spawn(move || watch(&start, child, &of_watcher));
        Ok(Server { instance, watched, watcher })
    }

    /// How often it was started again.
    pub fn restarts(&self) -> u32 {
        self.watched.restarts.load(Ordering::SeqCst)
    }

    /// Whether it has ended, as somebody told it to.
    pub fn has_ended(&self) -> bool {
        self.watcher.is_finished()
    }

    /// Whether it died so often as it started that it is not started again: what it had is in its
    /// memory.
    pub fn is_given_up(&self) -> bool {
        self.watched.given_up.load(Ordering::SeqCst)
    }

    /// Why it has ended, which nobody told it to: its partition goes on without it.
    pub fn removed(&self) -> Option<String> {
        self.watched.removed.get().cloned()
    }

    /// Tells it to leave, which removes an instance that owes nothing, and waits until it has: one
    /// that is killed before is started again for that.
    ///
    /// # Errors
    /// If it refuses.
    pub fn dismiss(self, client: &Client) -> Result<()> {
        for _ in 0..STARTS_MAX {
            let starts = self.restarts();
            match client.leave() {
                // It has left, or the next one will be told.
                Err(error) if error.kind == ErrorKind::Unreachable => {}
                told => told?,
            }
            let begin = Instant::now();
            while self.restarts() == starts && !self.watcher.is_finished() {
                std::thread::sleep(pause(begin.elapsed()));
            }
            if self.watcher.is_finished() {
                break;
            }
        }
        let instance = self.instance.clone();
        self.join();
        instances::tidy(&instance);
        Ok(())
    }

    /// Tells it to leave, and waits until it has, not for long: it may be in the middle of a large
    /// file, and whatever it has not done is in memory.
    ///
    /// # Errors
    /// If it refuses.
    pub fn dismiss_soon(self, client: &Client) -> Result<()> {
        self.may_end();
        match client.leave() {
            // One that is stopped is not waited for, and one that has ended need not be told.
            Err(error) if error.may_retry() => {}
            told => told?,
        }
        let begin = Instant::now();
        while !self.watcher.is_finished() {
            let pid = Pid::from_raw(self.watched.pid.load(Ordering::SeqCst) as i32);
            if let (true, Some(pid)) = (begin.elapsed() > LEAVE, pid) {
                // It is our child and not reaped, or this does nothing.
                let _ = rustix::process::kill_process(pid, Signal::KILL);
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.join();
        Ok(())
    }

    /// Ends it as if it were killed: a member that owes nothing stays one, with its memory, for the
    /// next one to go on with.
    pub fn abandon(self) {
        self.may_end();
        if let Some(pid) = Pid::from_raw(self.watched.pid.load(Ordering::SeqCst) as i32) {
            // It is our child and not reaped, or this does nothing.
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        self.join();
    }

    /// From now on it may end.
    fn may_end(&self) {
        self.watched.expected_to_end.store(true, Ordering::SeqCst);
    }

    /// Waits until it has ended.
    fn join(self) {
        self.may_end();
        // The watcher does not panic; and if it did, there is nothing left to wait for.
        let _ = self.watcher.join();
    }
}

/// Removes an instance's directory in which no server ever came up.
pub fn remove_unused(instance: &Path) {
    if !instance.join("log").exists() && !instances::is_foreign(instance) {
        let _ = terral_server::remove(instance);
    }
}

/// The preload library that belongs to this program.
///
/// # Errors
/// If it is not where it is installed or built.
pub fn preload_library() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("TERRAL_PRELOAD").map(PathBuf::from) {
        if path.is_absolute() && path.is_file() {
            return Ok(path);
        }
        bail!("TERRAL_PRELOAD={}: not the absolute path of a library", path.display());
    }
    let program = std::env::current_exe().context("terral: own path")?;
    let home = program.parent().unwrap_or(Path::new("/"));
    for place in ["../lib/terral", "../lib", "."] {
        if let Ok(found) = home.join(place).join(LIBRARY).canonicalize() {
            return Ok(found);
        }
    }
    bail!(
        "{LIBRARY}: not beside {}: build it (cargo build --release -p terral-preload) or say where \
         it is with TERRAL_PRELOAD=PATH",
        program.display()
    )
}

/// `LD_PRELOAD` with `library` before what is there, in place of another one of ours.
pub fn preload_list(library: &Path, inherited: Option<OsString>) -> OsString {
    let mut list = OsString::from(library);
    let inherited = inherited.unwrap_or_default();
    let entries = inherited.as_bytes().split(|byte| matches!(byte, b':' | b' '));
    for entry in entries.filter(|entry| !entry.is_empty()).map(OsStr::from_bytes) {
        if Path::new(entry).file_name() != Some(OsStr::new(LIBRARY)) {
            list.push(":");
            list.push(entry);
        }
    }
    list
}
