//! A run over several machines as `terral bench --hosts` uses one: `terral run`, and processes on
//! each machine that were started as a launcher starts its own, with what the run's programs have
//! in their environment.
//!
//! Invariants: who does not answer is an error, not a hang, and Ctrl-C is one, too; when it is
//! dropped its processes end, then the run. Not here: what they do (`bench_peer`), and what is
//! compared.

use std::ffi::OsString;
use std::io::BufReader;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::bench_peer::{Did, Duty, Says, Seen, Told};
use crate::entrance;
use crate::remote;
use crate::signals::Signals;
use crate::words::{hear, speak};

/// What takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(180);
/// One that was told to end has so long.
const GOING: Duration = Duration::from_secs(5);
/// A run that was told to end has so long.
const END: Duration = Duration::from_secs(60);
/// How often one looks for Ctrl-C.
const LOOK: Duration = Duration::from_millis(100);
/// What is said of an operation when it is over takes less.
const AFTERWARDS: Duration = Duration::from_millis(30);

/// What a run's programs have in their environment.
pub type Environment = Vec<(String, String)>;

fn own_program() -> Result<PathBuf> {
    std::env::current_exe().context("terral: own path")
}

/// A process on a machine.
pub struct Peer {
    host: String,
    child: Child,
    stdin: Option<ChildStdin>,
    said: Receiver<Says>,
    signals: Signals,
    /// It is killed if it has not gone so long after it was told to.
    goes_within: Duration,
}

impl Peer {
    /// Starts one.
    pub fn start(mut command: Command, host: &str, signals: &Signals) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut child = command.spawn().with_context(|| format!("{host}: a process there"))?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().context("a process's output")?;
        let (says, said) = channel();
        std::thread::spawn(move || {
            let mut stdout = BufReader::new(stdout);
            while let Some(one) = hear(&mut stdout) {
                let _ = says.send(one);
            }
        });
        let (host, signals) = (host.to_owned(), signals.clone());
        Ok(Peer { host, child, stdin, said, signals, goes_within: GOING })
    }

    /// On this machine, or by what reaches another one.
    fn on(host: Option<&str>, around: &Environment, options: &[OsString]) -> Result<Command> {
        let program = own_program()?;
        let Some(host) = host else {
            let mut command = Command::new(program);
            command.arg("bench-peer").args(options).envs(around.iter().cloned());
            return Ok(command);
        };
        let mut line: Vec<OsString> = vec!["env".into()];
        line.extend(around.iter().map(|(name, value)| format!("{name}={value}").into()));
        line.extend([program.into_os_string(), "bench-peer".into()]);
        line.extend(options.iter().cloned());
        remote::command(host, entrance::command_line(&line))
    }

    fn hear(&self) -> Result<Says> {
        let begin = Instant::now();
        let host = &self.host;
        loop {
            match self.said.recv_timeout(LOOK) {
                Ok(said) => return Ok(said),
                Err(RecvTimeoutError::Disconnected) => bail!("{host}: a process there has gone"),
                Err(RecvTimeoutError::Timeout) => {}
            }
            ensure!(self.signals.count() == 0, "a signal came");
            ensure!(begin.elapsed() < PATIENCE, "{host}: a process there does not answer");
        }
    }

    /// What it has in its environment, once it is there.
    pub fn here(&self) -> Result<Environment> {
        match self.hear()? {
            Says::Here(around) => Ok(around),
            other => bail!("{}: a process there says {other:?}", self.host),
        }
    }

    fn tell(&self, told: &Told) -> Result<()> {
        let mut stdin = self.stdin.as_ref().context("a process's input")?;
        speak(&mut stdin, told).with_context(|| format!("{}: a process there", self.host))
    }

    fn is_ready(&self) -> Result<()> {
        match self.hear()? {
            Says::Ready => Ok(()),
            Says::Did(Did { failure: Some(why), .. }) => bail!("{}: {why}", self.host),
            other => bail!("{}: a process there says {other:?}", self.host),
        }
    }

    fn did(&self) -> Result<Did> {
        match self.hear()? {
            Says::Did(Did { failure: Some(why), .. }) => bail!("{}: {why}", self.host),
            Says::Did(did) => Ok(did),
            other => bail!("{}: a process there says {other:?}", self.host),
        }
    }

    /// Has it do something alone.
    pub fn does(&self, duty: Duty) -> Result<Did> {
        let mut all = together([(self, duty)])?;
        all.pop().context("one duty")
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.stdin = None;
        if outwait(&mut self.child, self.goes_within).is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn outwait(child: &mut Child, bound: Duration) -> Option<ExitStatus> {
    let begin = Instant::now();
    loop {
        match child.try_wait() {
            Ok(None) if begin.elapsed() < bound => std::thread::sleep(Duration::from_millis(2)),
            Ok(ended) => return ended,
            Err(_) => return None,
        }
    }
}

/// Has processes do things at once, each its own; what came of each.
pub fn together<'p>(duties: impl IntoIterator<Item = (&'p Peer, Duty)>) -> Result<Vec<Did>> {
    let duties: Vec<(&Peer, Duty)> = duties.into_iter().collect();
    for (peer, duty) in &duties {
        peer.tell(&Told::Do(duty.clone()))?;
    }
    duties.iter().try_for_each(|(peer, _)| peer.is_ready())?;
    duties.iter().try_for_each(|(peer, _)| peer.tell(&Told::Go))?;
    duties.iter().map(|(peer, _)| peer.did()).collect()
}

/// How a run is started.
#[derive(Clone, Copy)]
pub struct How<'a> {
    /// The other machines.
    pub others: &'a [String],
    /// Most memory on each.
    pub memory_bytes: u64,
    /// Whether servers encrypt what they say to each other.
    pub encrypted: bool,
    /// The permanent directory, if it has one.
    pub to: Option<&'a Path>,
}

/// A run, and the processes on its machines. These end first.
pub struct Run {
    /// By machine, this one first; some on each.
    pub peers: Vec<Vec<Peer>>,
    /// `terral run`, which ends when its command's input does.
    run: Peer,
}

/// What servers did meanwhile.
#[derive(Clone, Copy, Debug, Default)]
pub struct Meanwhile {
    /// Frames between machines that ask, answer or tell something.
    pub operations: u64,
    /// Bytes of all frames.
    pub bytes: u64,
    /// Processor time of the servers.
    pub ran_ns: u64,
}

fn run_command(how: &How<'_>) -> Result<Command> {
    let program = own_program()?;
    let mut command = Command::new(&program);
    command.args(["--quiet", "run", "--hosts", &how.others.join(",")]);
    command.args(["--memory", &how.memory_bytes.to_string()]);
    command.args((!how.encrypted).then_some("--no-encryption"));
    command.args(how.to.iter().flat_map(|to| ["--to".as_ref(), to.as_os_str()]));
    command.arg("--").arg(&program).args(["bench-peer", "--hold"]);
    // What a run around this one has given.
    for name in ["TERRAL_INSTANCE", "TERRAL_PREFIX", "TERRAL_DIR", "TERRAL_CWD"] {
        command.env_remove(name);
    }
    Ok(command)
}

/// Processes on each machine, this one first; those of a machine have these options.
pub fn on_each(
    others: &[String],
    around: &Environment,
    each: usize,
    options: impl Fn(usize) -> Vec<OsString>,
    signals: &Signals,
) -> Result<Vec<Vec<Peer>>> {
    let hosts = std::iter::once(None).chain(others.iter().map(|host| Some(host.as_str())));
    let peers = hosts.enumerate().map(|(at, host)| {
        let one = || {
            let command = Peer::on(host, around, &options(at))?;
            Peer::start(command, host.unwrap_or("this machine"), signals)
        };
        (0..each).map(|_| one()).collect()
    });
    let peers: Vec<Vec<Peer>> = peers.collect::<Result<_>>()?;
    peers.iter().flatten().try_for_each(|peer| peer.here().map(drop))?;
    Ok(peers)
}

impl Run {
    /// Starts a run whose programs are `each` processes on each machine.
    pub fn start(
        how: &How<'_>,
        each: usize,
        options: impl Fn(usize) -> Vec<OsString>,
        signals: &Signals,
    ) -> Result<Self> {
        let mut run = Peer::start(run_command(how)?, "terral run", signals)?;
        run.goes_within = END;
        let around = run.here().context("the run over these machines did not begin")?;
        let peers = on_each(how.others, &around, each, options, signals)?;
        Ok(Run { peers, run })
    }

    /// The first process of a machine.
    pub fn on(&self, machine: usize) -> &Peer {
        &self.peers[machine][0]
    }

    /// The first process of each machine.
    pub fn firsts(&self) -> impl Iterator<Item = &Peer> {
        self.peers.iter().map(|on| &on[0])
    }

    /// How the servers of all machines are, this one's first.
    pub fn look(&self) -> Result<Vec<Seen>> {
        self.firsts().map(|peer| Ok(peer.does(Duty::Look)?.seen)).collect()
    }

    /// Does something, and says what the servers did meanwhile.
    pub fn meanwhile<T>(&self, what: impl FnOnce() -> Result<T>) -> Result<(T, Meanwhile)> {
        std::thread::sleep(AFTERWARDS);
        let before = self.look()?;
        let done = what()?;
        std::thread::sleep(AFTERWARDS);
        let after = self.look()?;
        let grown = |of: fn(&Seen) -> u64| {
            let pairs = before.iter().zip(&after);
            pairs.map(|(before, after)| of(after).saturating_sub(of(before))).sum()
        };
        let meanwhile = Meanwhile {
            operations: grown(|seen| seen.operations),
            bytes: grown(|seen| seen.bytes),
            ran_ns: grown(|seen| seen.ran_ns),
        };
        Ok((done, meanwhile))
    }

    /// Ends it.
    ///
    /// # Errors
    /// If it does not end well.
    pub fn end(self) -> Result<()> {
        let Run { peers, mut run } = self;
        drop(peers);
        run.stdin = None;
        match outwait(&mut run.child, END) {
            Some(status) if status.success() => Ok(()),
            Some(status) => bail!("the run over these machines: {status}"),
            None => bail!("the run over these machines does not end"),
        }
    }
}
