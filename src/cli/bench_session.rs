//! Everyday programs, unchanged, on tmpfs and on Terral in turn: where each has its directory, how
//! one is started and timed.
//!
//! Invariants: a program that fails, says anything or does not end is an error; what is compared
//! was timed in the same round. Not here: which programs.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::bench_figure::Effort;
use crate::bench_host::{Bed, Face, Host};
use crate::bench_report::{Bound, Fact, Spread};
use crate::program;

/// A program that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(300);

/// What is compared.
const FACES: [Face; 2] = [Face::Tmpfs, Face::Preload];

/// Both places, and a server for one of them.
pub struct Session<'a> {
    host: &'a Host,
    bed: Bed,
}

/// Seconds in each place, by round.
pub struct Times {
    tmpfs: Vec<f64>,
    terral: Vec<f64>,
}

impl<'a> Session<'a> {
    /// Starts the server.
    ///
    /// # Errors
    /// If one of these programs is not installed.
    pub fn new(host: &'a Host, programs: &[&str]) -> Result<Self> {
        for name in programs {
            program::find(name.as_ref())?;
        }
        Ok(Session { host, bed: Bed::start(host, None)? })
    }

    /// Starts a server with that much memory.
    pub fn with_memory(host: &'a Host, memory_bytes: u64) -> Result<Self> {
        Ok(Session { host, bed: Bed::with_memory(host, None, memory_bytes, None)? })
    }

    /// A path in the place of a face.
    pub fn path(&self, face: Face, name: &str) -> PathBuf {
        self.host.root(face).join(name)
    }

    /// A program that finds the files of a face.
    pub fn command(&self, face: Face, program: &str, arguments: &[&str]) -> Result<Command> {
        let mut command = self.host.command(Path::new(program), face, Some(&self.bed))?;
        command.args(arguments);
        Ok(command)
    }

    /// Runs it; seconds it took.
    pub fn run(&self, mut command: Command) -> Result<f64> {
        let says = self.host.aside("says");
        let output = File::create(&says).with_context(|| says.display().to_string())?;
        let errors = output.try_clone().context("standard error")?;
        command.stdin(Stdio::null()).stdout(output).stderr(errors).process_group(0);
        let shown = format!("{command:?}");
        let begin = Instant::now();
        let mut child = command.spawn().with_context(|| shown.clone())?;
        wait(&mut child).with_context(|| shown.clone())?;
        let took = begin.elapsed().as_secs_f64();
        let status = child.wait().with_context(|| shown.clone())?;
        let said = std::fs::read(&says).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        let last = said.lines().next_back().unwrap_or_default();
        ensure!(status.success() && said.is_empty(), "{shown}: {status}: {last}");
        Ok(took)
    }

    /// Runs it in the place of a face.
    pub fn run_in(&self, face: Face, program: &str, arguments: &[&str]) -> Result<f64> {
        self.run(self.command(face, program, arguments)?)
    }

    /// Has Terral itself say that it has a file: that it served what ran.
    pub fn check(&self, name: &str) -> Result<()> {
        let found = self.bed.client.stat(name.as_bytes());
        found.with_context(|| format!("Terral did not serve {name}")).map(drop)
    }

    /// Something in each place once.
    pub fn each(&self, mut what: impl FnMut(Face) -> Result<()>) -> Result<()> {
        FACES.into_iter().try_for_each(|face| what(face).with_context(|| face.name()))
    }

    /// Something in each place, round after round, in turn. The first round is not counted: it
    /// fills caches for the others.
    pub fn rounds(
        &self,
        effort: &Effort,
        mut what: impl FnMut(Face) -> Result<f64>,
    ) -> Result<Times> {
        let mut times = Times { tmpfs: Vec::new(), terral: Vec::new() };
        for round in 0..effort.rounds + 1 {
            let mut faces = FACES;
            if !round.is_multiple_of(2) {
                faces.reverse();
            }
            for face in faces {
                let took = what(face).with_context(|| face.name())?;
                let side = if face.is_terral() { &mut times.terral } else { &mut times.tmpfs };
                if round > 0 {
                    side.push(took);
                }
            }
        }
        Ok(times)
    }
}

impl Times {
    fn note(&self) -> String {
        let of = |times: &[f64]| {
            let spread = Spread::of(times.iter().map(|seconds| seconds * 1e3));
            format!("{:.2} ({:.2}–{:.2})", spread.median, spread.min, spread.max)
        };
        format!("{} against {} ms, {} rounds", of(&self.terral), of(&self.tmpfs), self.tmpfs.len())
    }

    /// Times as long as on tmpfs, at most `most`.
    pub fn longer(&self, name: &str, most: f64) -> Fact {
        let ratios = self.terral.iter().zip(&self.tmpfs).map(|(own, tmpfs)| own / tmpfs);
        let ratio = Spread::of(ratios).median;
        Fact::new(name, ratio, "× the time", Some(Bound::AtMost(most))).note(self.note())
    }

    /// Times as quick as on tmpfs, at least `least`.
    pub fn quicker(&self, name: &str, least: f64) -> Fact {
        let ratios = self.terral.iter().zip(&self.tmpfs).map(|(own, tmpfs)| tmpfs / own);
        let ratio = Spread::of(ratios).median;
        Fact::new(name, ratio, "× tmpfs", Some(Bound::AtLeast(least))).note(self.note())
    }

    /// Milliseconds longer, fewer than `most`.
    pub fn extra_ms(&self, name: &str, most: f64) -> Fact {
        let extra = self.terral.iter().zip(&self.tmpfs).map(|(own, tmpfs)| (own - tmpfs) * 1e3);
        let extra = Spread::of(extra).median;
        Fact::new(name, extra, "ms", Some(Bound::Below(most))).note(self.note())
    }
}

/// Returns when the child has ended, or with an error when its group had to be killed.
fn wait(child: &mut Child) -> Result<()> {
    let pid = Pid::from_child(child);
    let descriptor = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
    let begin = Instant::now();
    loop {
        let left = PATIENCE.saturating_sub(begin.elapsed());
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: 0 };
        let mut descriptors = [PollFd::new(&descriptor, PollFlags::IN)];
        match rustix::event::poll(&mut descriptors, Some(&timeout)) {
            Ok(0) if begin.elapsed() >= PATIENCE => break,
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
    // It is our child and not reaped, so the group is its own.
    let _ = rustix::process::kill_process_group(pid, Signal::KILL);
    let _ = child.wait();
    bail!("does not end; killed after {} s", PATIENCE.as_secs())
}

/// Makes a tree of `count` small files under `root`, a hundred to a directory.
pub fn small_files(root: &Path, count: u64) -> Result<()> {
    let text: Vec<u8> =
        (0..4096u32).map(|at| b'a' + (at.wrapping_mul(7919) >> 7) as u8 % 26).collect();
    for at in 0..count {
        let directory = root.join(format!("d{}", at / 100));
        if at.is_multiple_of(100) {
            std::fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
        }
        let path = directory.join(format!("f{at}"));
        let length = at.wrapping_mul(2_654_435_761) as usize % text.len();
        let begin = format!("{at}\n");
        let content = [begin.as_bytes(), &text[..length]].concat();
        std::fs::write(&path, content).with_context(|| path.display().to_string())?;
    }
    Ok(())
}
