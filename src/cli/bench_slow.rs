//! A permanent directory that is slow, as a file server over the network may be: behind a `bindfs`.
//!
//! Not here: what is measured with it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::bench_host::Host;
use crate::bench_worker::now_ns;

/// How long it may take to be mounted.
const PATIENCE: Duration = Duration::from_secs(10);
/// While it stalls it does not answer for so long, and then does for the shorter one.
const STALL: (Duration, Duration) = (Duration::from_secs(1), Duration::from_millis(2));

/// A directory behind a `bindfs`.
pub struct Slow {
    daemon: Child,
    /// Where it is.
    pub at: PathBuf,
}

impl Slow {
    /// Mounts one, with these options of `bindfs`.
    ///
    /// # Errors
    /// If it is not installed, or cannot mount here.
    pub fn mount(host: &Host, options: &[&str]) -> Result<Self> {
        let made = now_ns();
        let [of, at] = ["of", "at"].map(|name| host.disk.join(format!("slow-{name}-{made}")));
        for path in [&of, &at] {
            std::fs::create_dir(path).with_context(|| path.display().to_string())?;
        }
        let mut bindfs = Command::new("bindfs");
        bindfs.arg("-f").args(options).arg(of).arg(&at).stderr(Stdio::null());
        let mut slow = Slow { daemon: bindfs.spawn().context("bindfs")?, at };
        let begin = Instant::now();
        while !slow.is_mounted(host)? {
            let ended = slow.daemon.try_wait().context("bindfs")?.is_some();
            ensure!(!ended && begin.elapsed() < PATIENCE, "bindfs cannot mount here");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(slow)
    }

    fn is_mounted(&self, host: &Host) -> Result<bool> {
        let device = |path: &Path| -> Result<u64> {
            Ok(std::os::unix::fs::MetadataExt::dev(&path.metadata().context("bindfs")?))
        };
        Ok(device(&self.at)? != device(&host.disk)?)
    }

    fn signal(&self, signal: Signal) {
        // One that has ended answers nobody either.
        let _ = kill_process(Pid::from_child(&self.daemon), signal);
    }

    /// Does something while each call takes it a second.
    pub fn stalling<T>(&self, act: impl FnOnce() -> T) -> T {
        let over = AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                while !over.load(Ordering::SeqCst) {
                    self.signal(Signal::STOP);
                    std::thread::park_timeout(STALL.0);
                    self.signal(Signal::CONT);
                    std::thread::sleep(STALL.1);
                }
            });
            let done = act();
            over.store(true, Ordering::SeqCst);
            done
        })
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        self.signal(Signal::CONT);
        let _ = Command::new("umount").arg("-l").arg(&self.at).status();
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}
