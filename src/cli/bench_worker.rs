//! One process of a benchmark: does the passes it is told to on standard input, one at a time, and
//! says when each began and ended.
//!
//! Invariants: between the two clock readings of a pass lie only the calls that are measured and a
//! loop around them; the POSIX face goes through libc, so that the preload library can stand in.

use std::fs::OpenOptions;
use std::hint::black_box;
use std::io::{BufRead, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};
use terral_client::{Client, File, OpenHow, access};

/// One process of `terral bench`
#[derive(Args)]
pub struct Arguments {
    /// Work through the client library on this instance
    #[arg(long, conflicts_with = "directory")]
    client_of: Option<PathBuf>,
    /// Work with POSIX calls in this directory
    #[arg(long)]
    directory: Option<PathBuf>,
}

/// What one pass does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Work {
    /// Creates a file and writes it from its begin to its end.
    New,
    /// Writes an existing file from its begin to its end.
    Overwrite,
    /// Makes an empty file.
    Touch,
    /// Writes one's own part of a shared file, which is in one piece.
    Segmented,
    /// Writes every n-th transfer of a shared file.
    Strided,
    /// Reads a file from its begin to its end.
    Read,
    /// Compares a file of one's own with what must be in it.
    CheckOwn,
    /// Compares a segmented file with what must be in it.
    CheckSegmented,
    /// Compares a strided file with what must be in it.
    CheckStrided,
    /// Removes a file.
    Remove,
    /// Creates, fills and closes `count` files.
    CreateMany,
    /// Asks for the attributes of `count` files.
    StatMany,
    /// Removes `count` files.
    RemoveMany,
    /// Computes for `count` steps.
    Compute,
    /// Four times: a new file, then `count` steps of computing.
    Checkpoints,
}

/// One pass, as the conductor tells it to each of its workers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pass {
    /// What to do.
    pub work: Work,
    /// Name of the file, or the begin of the names.
    pub name: String,
    /// Bytes per process.
    pub bytes: u64,
    /// Bytes per call.
    pub transfer: u64,
    /// Number of this process.
    pub process: u64,
    /// How many there are.
    pub processes: u64,
    /// Files or steps.
    pub count: u64,
}

/// What came of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Done {
    /// `CLOCK_MONOTONIC` before the first call, nanoseconds.
    pub begin_ns: u64,
    /// The same after the last.
    pub end_ns: u64,
    /// Processor time of this process in between.
    pub cpu_ns: u64,
    /// Why it failed, if it did.
    pub failure: Option<String>,
}

/// Checkpoints of [`Work::Checkpoints`].
pub const CHECKPOINTS: u64 = 4;

/// Nanoseconds of `CLOCK_MONOTONIC`: the same in all processes.
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Nanoseconds that a thread has run, from its `schedstat` file.
pub fn ran_ns(schedstat: &str) -> u64 {
    let text = std::fs::read_to_string(schedstat).unwrap_or_default();
    text.split_ascii_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(0)
}

/// Where files are.
enum Place {
    Directory(PathBuf),
    Terral(Client),
}

enum Handle {
    Posix(std::fs::File),
    Terral(File),
}

fn how(access: u64, create: bool) -> OpenHow {
    let access = access as u8;
    OpenHow { access, create, exclusive: create, mode: 0o600, ..OpenHow::default() }
}

impl Place {
    fn create(&self, name: &str) -> Result<Handle> {
        Ok(match self {
            Place::Directory(at) => {
                let mut options = OpenOptions::new();
                Handle::Posix(options.write(true).create_new(true).open(at.join(name))?)
            }
            Place::Terral(client) => {
                Handle::Terral(client.open(name.as_bytes(), how(access::WRITE, true))?)
            }
        })
    }

    fn open(&self, name: &str, write: bool) -> Result<Handle> {
        Ok(match self {
            Place::Directory(at) => {
                let mut options = OpenOptions::new();
                Handle::Posix(options.read(!write).write(write).open(at.join(name))?)
            }
            Place::Terral(client) => {
                let access = if write { access::WRITE } else { access::READ };
                Handle::Terral(client.open(name.as_bytes(), how(access, false))?)
            }
        })
    }

    fn stat(&self, name: &str) -> Result<()> {
        match self {
            Place::Directory(at) => std::fs::metadata(at.join(name)).map(|_| ())?,
            Place::Terral(client) => client.stat(name.as_bytes()).map(|_| ())?,
        }
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<()> {
        match self {
            Place::Directory(at) => std::fs::remove_file(at.join(name))?,
            Place::Terral(client) => client.unlink(name.as_bytes())?,
        }
        Ok(())
    }
}

impl Handle {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        match self {
            Handle::Posix(file) => file.write_all(bytes)?,
            Handle::Terral(file) => ensure!(file.write(bytes)? == bytes.len(), "a short write"),
        }
        Ok(())
    }

    fn write_at(&mut self, bytes: &[u8], offset: u64) -> Result<()> {
        match self {
            Handle::Posix(file) => file.write_all_at(bytes, offset)?,
            Handle::Terral(file) => {
                ensure!(file.write_at(bytes, offset)? == bytes.len(), "a short write");
            }
        }
        Ok(())
    }

    fn read(&mut self, into: &mut [u8]) -> Result<usize> {
        Ok(match self {
            Handle::Posix(file) => file.read(into)?,
            Handle::Terral(file) => file.read(into)?,
        })
    }

    fn close(self) {
        match self {
            Handle::Posix(file) => drop(file),
            Handle::Terral(file) => file.close(),
        }
    }
}

/// What process `process` writes with each call.
fn pattern(length: usize, process: u64) -> Vec<u8> {
    let byte = |at: usize| ((at as u32).wrapping_mul(2_654_435_761) >> 16) as u8;
    (0..length).map(|at| byte(at) ^ (process as u8).wrapping_mul(37)).collect()
}

/// Steps of arithmetic that no compiler shortens.
fn compute(steps: u64) {
    let mut state = 1u64;
    for _ in 0..steps {
        state = black_box(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
}

/// A process with its memory touched.
struct Worker {
    place: Place,
    buffer: Vec<u8>,
}

impl Worker {
    fn prepare(&mut self, pass: &Pass) {
        self.buffer = pattern(pass.transfer as usize, pass.process);
    }

    fn sequential(&self, mut file: Handle, pass: &Pass) -> Result<()> {
        for _ in 0..pass.bytes / pass.transfer {
            file.write(&self.buffer)?;
        }
        file.close();
        Ok(())
    }

    fn shared(&self, pass: &Pass, first: u64, step: u64) -> Result<()> {
        let mut file = self.place.open(&pass.name, true)?;
        for at in 0..pass.bytes / pass.transfer {
            file.write_at(&self.buffer, (first + at * step) * pass.transfer)?;
        }
        file.close();
        Ok(())
    }

    fn read(&mut self, pass: &Pass) -> Result<()> {
        let mut file = self.place.open(&pass.name, false)?;
        let mut total = 0;
        loop {
            match file.read(&mut self.buffer)? {
                0 => break,
                count => total += count as u64,
            }
        }
        file.close();
        ensure!(total == pass.bytes, "{}: {total} bytes of {}", pass.name, pass.bytes);
        Ok(())
    }

    /// `owner` says which process must have written a transfer.
    fn check(&mut self, pass: &Pass, total: u64, owner: impl Fn(u64) -> u64) -> Result<()> {
        let expected: Vec<Vec<u8>> =
            (0..pass.processes).map(|process| pattern(self.buffer.len(), process)).collect();
        let mut file = self.place.open(&pass.name, false)?;
        for at in 0..total / pass.transfer {
            let mut filled = 0;
            while filled < self.buffer.len() {
                match file.read(&mut self.buffer[filled..])? {
                    0 => bail!("{}: ends in transfer {at}", pass.name),
                    count => filled += count,
                }
            }
            if self.buffer != expected[owner(at) as usize] {
                bail!("{}: WRONG BYTES in transfer {at} of {}", pass.name, pass.transfer);
            }
        }
        ensure!(file.read(&mut self.buffer)? == 0, "{}: too long", pass.name);
        file.close();
        Ok(())
    }

    fn create_many(&self, pass: &Pass) -> Result<()> {
        for at in 0..pass.count {
            let mut file = self.place.create(&format!("{}.{at}", pass.name))?;
            if pass.bytes > 0 {
                file.write(&self.buffer)?;
            }
            file.close();
        }
        Ok(())
    }

    fn many(&self, pass: &Pass, what: impl Fn(&Place, &str) -> Result<()>) -> Result<()> {
        (0..pass.count).try_for_each(|at| what(&self.place, &format!("{}.{at}", pass.name)))
    }

    fn checkpoints(&self, pass: &Pass) -> Result<()> {
        for at in 0..CHECKPOINTS {
            self.sequential(self.place.create(&format!("{}.{at}", pass.name))?, pass)?;
            compute(pass.count);
        }
        Ok(())
    }

    fn work(&mut self, pass: &Pass) -> Result<()> {
        let own = pass.bytes / pass.transfer.max(1);
        let (process, processes) = (pass.process, pass.processes);
        match pass.work {
            Work::New => self.sequential(self.place.create(&pass.name)?, pass),
            Work::Overwrite => self.sequential(self.place.open(&pass.name, true)?, pass),
            Work::Touch => self.place.create(&pass.name).map(Handle::close),
            Work::Segmented => self.shared(pass, process * own, 1),
            Work::Strided => self.shared(pass, process, processes),
            Work::Read => self.read(pass),
            Work::CheckOwn => self.check(pass, pass.bytes, |_| process),
            Work::CheckSegmented => self.check(pass, pass.bytes * processes, |at| at / own),
            Work::CheckStrided => self.check(pass, pass.bytes * processes, |at| at % processes),
            Work::Remove => self.place.remove(&pass.name),
            Work::CreateMany => self.create_many(pass),
            Work::StatMany => self.many(pass, Place::stat),
            Work::RemoveMany => self.many(pass, Place::remove),
            Work::Compute => {
                compute(pass.count);
                Ok(())
            }
            Work::Checkpoints => self.checkpoints(pass),
        }
    }

    fn pass(&mut self, pass: &Pass, at_ns: u64) -> Done {
        let cpu = ran_ns("/proc/self/schedstat");
        while now_ns() < at_ns {
            std::hint::spin_loop();
        }
        let waited = ran_ns("/proc/self/schedstat").saturating_sub(cpu);
        let begin_ns = now_ns();
        let worked = self.work(pass);
        let end_ns = now_ns();
        let cpu_ns = ran_ns("/proc/self/schedstat").saturating_sub(cpu + waited);
        Done { begin_ns, end_ns, cpu_ns, failure: worked.err().map(|error| format!("{error:#}")) }
    }
}

/// Works until standard input ends: a pass → `ready`; a time to begin at → [`Done`].
pub fn main(arguments: &Arguments) -> Result<u8> {
    let place = match (&arguments.client_of, &arguments.directory) {
        (Some(instance), _) => Place::Terral(Client::connect(instance)?),
        (None, Some(directory)) => {
            // Under the preload library the first call connects: not while measuring.
            std::fs::metadata(directory).with_context(|| directory.display().to_string())?;
            Place::Directory(directory.clone())
        }
        (None, None) => bail!("bench-worker: nowhere to work"),
    };
    let mut worker = Worker { place, buffer: Vec::new() };
    let mut lines = std::io::stdin().lock().lines();
    let mut out = std::io::stdout().lock();
    while let Some(pass) = lines.next() {
        let pass: Pass = serde_json::from_str(&pass?)?;
        worker.prepare(&pass);
        writeln!(out, "ready")?;
        out.flush()?;
        let Some(at_ns) = lines.next() else { break };
        let done = worker.pass(&pass, at_ns?.parse()?);
        writeln!(out, "{}", serde_json::to_string(&done)?)?;
        out.flush()?;
    }
    Ok(0)
}
