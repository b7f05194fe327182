//! One process of a benchmark: does the passes it is told to on standard input, one at a time, and
//! says when each began and ended.
//!
//! Invariants: between the two clock readings of a pass lie only the calls that are measured and a
//! loop around them.

use std::hint::black_box;
use std::io::{BufRead, Write};
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};
use terral_client::checkpoints::Checkpoints;
use terral_client::objects::{Container, ObjectId};
use terral_client::{Client, ErrorKind, File, OpenHow, access, read_capability};

use crate::bench_place::{Handle, Locking, Place};

/// One process of `terral bench`
#[derive(Args)]
pub struct Arguments {
    /// Work through the client library on this instance
    #[arg(long, conflicts_with = "directory")]
    client_of: Option<PathBuf>,
    /// Work with POSIX calls in this directory
    #[arg(long)]
    directory: Option<PathBuf>,
    /// Compute until standard input ends
    #[arg(long)]
    spin: bool,
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
    /// Opens `count` files for reading and closes them.
    OpenMany,
    /// Asks for the attributes of `count` files.
    StatMany,
    /// Gives `count` files another name: [`renamed`].
    RenameMany,
    /// Removes `count` files.
    RemoveMany,
    /// Makes `count` directories.
    MakeDirectories,
    /// Removes `count` directories.
    RemoveDirectories,
    /// `count` times one step with a lock.
    Lock(Locking),
    /// Creates and closes `count` objects in a container.
    CreateObjects,
    /// Opens a file `count` times, each time by a session that presents a capability, and keeps it:
    /// the name says instance, file of the capability, and file.
    Hold,
    /// Reads by each of those sessions, of which none may any more; then they end.
    Refused,
    /// Writes an object of a checkpoint, of which the name says directory and attempt, and `count`
    /// the step.
    Dump,
    /// One step with a tree of directories and small files.
    Tree(Step),
    /// Computes for `count` steps.
    Compute,
    /// Four times: a new file, then `count` steps of computing.
    Checkpoints,
    /// `count` times: makes a file, writes it, asks for the attributes of another; each call is
    /// timed. [`KEPT`] of the files stay.
    Calls,
}

/// What is done with all of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// Makes directories and files in them, with `bytes` in each.
    Make,
    /// Asks for the attributes of each.
    Stat,
    /// Reads each file.
    Read,
    /// Gives each another name: [`renamed`].
    Rename,
    /// Removes each.
    Remove,
}

/// Files in each directory of a tree; with the directory itself, twenty names.
pub const FILES: u64 = 19;

/// The other name that what is called so gets.
pub fn renamed(name: &str) -> String {
    format!("{name}r")
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
    /// Of [`Work::Calls`]: the 99.9th percentile of what a create, a write, a stat took.
    #[serde(default)]
    pub late_ns: [u64; 3],
    /// Why it failed, if it did.
    pub failure: Option<String>,
}

/// Files of [`Work::Calls`] that are there at a time.
const KEPT: u64 = 1000;

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
    /// See [`Done::late_ns`].
    late_ns: [u64; 3],
    /// See [`Work::Hold`].
    held: Vec<(Client, File)>,
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

    /// `count` names: directories, and files in them.
    fn tree(&mut self, pass: &Pass, step: Step) -> Result<()> {
        for at in 0..pass.count / (FILES + 1) {
            let old = format!("{}.{at}", pass.name);
            let new = renamed(&old);
            let name = if step == Step::Remove { &new } else { &old };
            if step == Step::Make {
                self.place.make_directory(name)?;
            }
            for file in 0..FILES {
                self.leaf(&format!("{name}/f{file}"), pass, step)?;
            }
            match step {
                Step::Stat => self.place.stat(name)?,
                Step::Rename => self.place.rename(&old, &new)?,
                Step::Remove => self.place.remove_directory(name)?,
                Step::Make | Step::Read => {}
            }
        }
        Ok(())
    }

    fn leaf(&mut self, name: &str, pass: &Pass, step: Step) -> Result<()> {
        match step {
            Step::Make => self.sequential(self.place.create(name)?, pass),
            Step::Stat => self.place.stat(name),
            Step::Read => self.read(&Pass { name: name.to_owned(), ..pass.clone() }),
            Step::Rename => self.place.rename(name, &renamed(name)),
            Step::Remove => self.place.remove(&renamed(name)),
        }
    }

    fn checkpoints(&self, pass: &Pass) -> Result<()> {
        for at in 0..CHECKPOINTS {
            self.sequential(self.place.create(&format!("{}.{at}", pass.name))?, pass)?;
            compute(pass.count);
        }
        Ok(())
    }

    fn client(&self) -> Result<&Client> {
        match &self.place {
            Place::Terral(client) => Ok(client),
            Place::Directory(_) => bail!("objects: through the client library only"),
        }
    }

    fn create_objects(&self, pass: &Pass) -> Result<()> {
        let container = Container::open(self.client()?, pass.name.as_bytes())?;
        for at in 0..pass.count {
            let id = ObjectId(u128::from(pass.process) << 64 | u128::from(at));
            container.create_object(id)?.close()?;
        }
        Ok(())
    }

    fn hold(&mut self, pass: &Pass) -> Result<()> {
        let mut said = pass.name.split(':').map(PathBuf::from);
        let [instance, capability, file] = std::array::from_fn(|_| said.next().unwrap_or_default());
        let capability = read_capability(&capability)?;
        for _ in 0..pass.count {
            let client = Client::connect_with(&instance, Some(capability.clone()))?;
            let how = OpenHow { access: access::READ as u8, ..OpenHow::default() };
            let file = client.open(file.as_os_str().as_encoded_bytes(), how)?;
            file.read_at(&mut [0], 0)?;
            self.held.push((client, file));
        }
        Ok(())
    }

    fn refused(&mut self) -> Result<()> {
        for (_, file) in &self.held {
            let read = file.read_at(&mut [0], 0).map_err(|error| error.kind);
            ensure!(read == Err(ErrorKind::Unauthorized), "it was revoked: {read:?}");
        }
        self.held.clear();
        Ok(())
    }

    fn dump(&self, pass: &Pass) -> Result<()> {
        let (directory, attempt) = pass.name.split_once(':').context("no attempt")?;
        let all = Checkpoints::open(self.client()?, directory.as_bytes(), usize::MAX, 0o755)?;
        let checkpoint = all.join(pass.count, attempt.parse()?)?;
        let object = checkpoint.create(pass.process as u32, pass.process * pass.bytes)?;
        for at in 0..pass.bytes / pass.transfer {
            object.write(&self.buffer, at * pass.transfer)?;
        }
        Ok(object.close()?)
    }

    fn calls(&mut self, pass: &Pass) -> Result<()> {
        let name = |at: u64| format!("{}.{at}", pass.name);
        let mut took: [Vec<u64>; 3] = Default::default();
        for at in 0..pass.count {
            let mut last = now_ns();
            let mut note = |kind: usize| {
                let now = now_ns();
                took[kind].push(now - std::mem::replace(&mut last, now));
            };
            let mut file = self.place.create(&name(at))?;
            note(0);
            file.write(&self.buffer)?;
            note(1);
            self.place.stat(&name(at.saturating_sub(KEPT / 2)))?;
            note(2);
            file.close();
            if at >= KEPT {
                self.place.remove(&name(at - KEPT))?;
            }
        }
        self.late_ns = took.map(|mut took| {
            took.sort_unstable();
            took.get(took.len() * 999 / 1000).copied().unwrap_or(0)
        });
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
            Work::OpenMany => {
                self.many(pass, |place, name| place.open(name, false).map(Handle::close))
            }
            Work::StatMany => self.many(pass, Place::stat),
            Work::RenameMany => {
                let to = renamed(&pass.name);
                (0..pass.count).try_for_each(|at| {
                    self.place.rename(&format!("{}.{at}", pass.name), &format!("{to}.{at}"))
                })
            }
            Work::RemoveMany => self.many(pass, Place::remove),
            Work::MakeDirectories => self.many(pass, Place::make_directory),
            Work::RemoveDirectories => self.many(pass, Place::remove_directory),
            Work::Lock(how) => self.place.lock_many(&pass.name, how, process as u8, pass.count),
            Work::CreateObjects => self.create_objects(pass),
            Work::Hold => self.hold(pass),
            Work::Refused => self.refused(),
            Work::Dump => self.dump(pass),
            Work::Tree(step) => self.tree(pass, step),
            Work::Compute => {
                compute(pass.count);
                Ok(())
            }
            Work::Checkpoints => self.checkpoints(pass),
            Work::Calls => self.calls(pass),
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
        let failure = worked.err().map(|error| format!("{error:#}"));
        Done { begin_ns, end_ns, cpu_ns, late_ns: self.late_ns, failure }
    }
}

/// Works until standard input ends: a pass → `ready`; a time to begin at → [`Done`].
pub fn main(arguments: &Arguments) -> Result<u8> {
    if arguments.spin {
        std::thread::spawn(|| compute(u64::MAX));
        std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
        return Ok(0);
    }
    let place = match (&arguments.client_of, &arguments.directory) {
        (Some(instance), _) => Place::Terral(Client::connect(instance)?),
        (None, Some(directory)) => {
            // Under the preload library the first call connects: not while measuring.
            std::fs::metadata(directory).with_context(|| directory.display().to_string())?;
            Place::Directory(directory.clone())
        }
        (None, None) => bail!("bench-worker: nowhere to work"),
    };
    let mut worker = Worker { place, buffer: Vec::new(), late_ns: [0; 3], held: Vec::new() };
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
