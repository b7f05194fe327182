//! What `terral bench --hosts` measures on: runs over the same machines, encrypted and not, with a
//! permanent directory and without; a server that is alone; processes that know nothing of Terral.
//!
//! Invariants: all of it ends and is removed when it is dropped. Not here: what is measured.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::bench_crew::{How, Peer, Run, on_each};
use crate::bench_host::{Bed, Face, Host};
use crate::bench_peer::{Blocks, Duty, Names};
use crate::instances::PREFIX;
use crate::signals::Signals;

/// A directory that nobody has changed for so long is at rest, and goes to who changes it next.
pub const CALM: Duration = Duration::from_millis(1300);
/// What was removed takes memory for less.
const SETTLES: Duration = Duration::from_secs(10);
/// Processes of a run on each machine: a second one reads what the first has read.
const EACH: usize = 2;

/// A server that is no member of anything, and a process that uses it. The process ends first.
pub struct Alone {
    /// The process.
    pub peer: Peer,
    bed: Bed,
}

impl Alone {
    /// Starts both.
    pub fn start(host: &Host, to: Option<PathBuf>, signals: &Signals) -> Result<Self> {
        let bed = Bed::start(host, to)?;
        let program = std::env::current_exe().context("terral: own path")?;
        let mut command = host.command(&program, Face::Preload, Some(&bed))?;
        command.arg("bench-peer");
        let peer = Peer::start(command, "this machine", signals)?;
        peer.here()?;
        Ok(Alone { peer, bed })
    }

    /// Nanoseconds the server's threads have run.
    pub fn ran_ns(&self) -> u64 {
        self.bed.ran_ns()
    }
}

/// How much is done.
#[derive(Clone, Copy, Debug)]
pub struct Much {
    /// Rounds that count.
    pub rounds: usize,
    /// Blocks of 1 MiB a process.
    pub blocks: u64,
    /// Names a process.
    pub names: u64,
    /// Small calls.
    pub trips: u64,
}

impl Much {
    /// Bytes a process.
    pub fn bytes(&self) -> u64 {
        self.blocks << 20
    }
}

/// Where, and how much.
pub struct Cluster<'a> {
    /// This machine's directories.
    pub host: &'a Host,
    /// The other machines.
    pub others: &'a [String],
    /// Most memory of a server.
    pub memory_bytes: u64,
    /// How much is done.
    pub much: Much,
    /// Whether Ctrl-C was pressed.
    pub signals: &'a Signals,
}

impl Cluster<'_> {
    /// How a run begins.
    pub fn how<'h>(&'h self, encrypted: bool, to: Option<&'h Path>) -> How<'h> {
        How { others: self.others, memory_bytes: self.memory_bytes, encrypted, to }
    }

    /// A run whose programs are processes on all machines.
    pub fn run(&self, encrypted: bool) -> Result<Run> {
        Run::start(&self.how(encrypted, None), EACH, |_| Vec::new(), self.signals)
    }

    /// The same, with a permanent directory.
    pub fn run_to(&self, to: &Path) -> Result<Run> {
        std::fs::create_dir_all(to).with_context(|| to.display().to_string())?;
        Run::start(&self.how(true, Some(to)), EACH, |_| Vec::new(), self.signals).with_context(
            || {
                format!(
                    "with a permanent directory (--to must name one that all see: {})",
                    to.display()
                )
            },
        )
    }

    /// A server alone.
    pub fn alone(&self, to: Option<PathBuf>) -> Result<Alone> {
        Alone::start(self.host, to, self.signals)
    }

    /// A process on each machine that knows nothing of Terral.
    pub fn plain(&self) -> Result<Vec<Peer>> {
        let peers = on_each(self.others, &Vec::new(), 1, |_| Vec::new(), self.signals)?;
        Ok(peers.into_iter().flatten().collect())
    }

    /// How many machines there are.
    pub fn machines(&self) -> usize {
        1 + self.others.len()
    }

    /// Does something so many times; the first time is not counted, as it makes what exists once.
    pub fn rounds<T>(&self, mut what: impl FnMut(u64) -> Result<T>) -> Result<Vec<T>> {
        let all = (0..=self.much.rounds as u64).map(&mut what);
        let mut all: Vec<T> = all.collect::<Result<_>>()?;
        all.remove(0);
        Ok(all)
    }

    /// Waits until there is room for another round: a file that was removed takes memory until no
    /// server has it open any more, and that is some seconds for one that another machine used.
    pub fn settle(&self, run: &Run) -> Result<()> {
        let begin = Instant::now();
        loop {
            let used = run.look()?.iter().map(|seen| seen.used_bytes).max().unwrap_or(0);
            if used <= self.memory_bytes / 2 || begin.elapsed() > SETTLES {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// A whole file, in order.
    pub fn whole(&self, name: &str, seed: u64) -> Blocks {
        Blocks { path: path(name), seed, first: 0, step: 1, count: self.much.blocks }
    }

    /// Many files.
    pub fn names(&self, stem: &str) -> Names {
        Names { stem: path(stem), count: self.much.names }
    }
}

/// A path that Terral serves.
pub fn path(name: &str) -> String {
    format!("{PREFIX}/{name}")
}

/// Bytes in nanoseconds, as GB/s.
pub fn rate(bytes: u64, ns: u64) -> f64 {
    bytes as f64 / ns.max(1) as f64
}

/// So many in nanoseconds, a second.
pub fn per_second(count: u64, ns: u64) -> f64 {
    count as f64 * 1e9 / ns.max(1) as f64
}

/// Nanoseconds for bytes, as s/GiB.
pub fn seconds_per_gib(ns: u64, bytes: u64) -> f64 {
    ns as f64 / 1e9 / (bytes as f64 / (1u64 << 30) as f64)
}

/// Has a directory made that all see.
pub fn directory(peer: &Peer, name: &str) -> Result<()> {
    peer.does(Duty::Directory(path(name))).map(drop)
}
