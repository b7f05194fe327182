//! A directory that another process serves, a `bindfs` (FUSE): it can be stopped, as a file server
//! over the network may be, or be slow.
#![allow(clippy::print_stdout)] // What is skipped is said.
#![allow(dead_code)] // Each test file uses its part.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::process::Process;

/// One.
pub struct Served {
    daemon: Process,
    at: PathBuf,
}

impl Served {
    /// `of`, at `at`, with these options. `None`, and a line that says so, if that cannot be had.
    pub fn mount(of: &Path, at: &Path, options: &[&str]) -> Option<Self> {
        let mut bindfs = Command::new("bindfs");
        bindfs.args(["-f", "-o", "attr_timeout=0,entry_timeout=0,negative_timeout=0"]);
        bindfs.args(options);
        let Ok(mut daemon) = bindfs.arg(of).arg(at).stderr(Stdio::null()).spawn() else {
            println!("skipped: bindfs is not installed");
            return None;
        };
        let device =
            |path: &Path| std::os::unix::fs::MetadataExt::dev(&path.metadata().expect("is"));
        let begin = Instant::now();
        while device(at) == device(of) {
            let ended = daemon.try_wait().expect("a child can be waited for").is_some();
            if ended || begin.elapsed() > Duration::from_secs(60) {
                println!("skipped: bindfs cannot mount here");
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Some(Served { daemon: Process(daemon), at: at.into() })
    }

    /// Sends its process a signal; it has stopped when one that stops it was sent.
    pub fn signal(&self, signal: Signal) {
        self.daemon.signal(signal);
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.daemon.0.id()
    }

    /// Where it is.
    pub fn at(&self) -> &Path {
        &self.at
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.signal(Signal::CONT);
        let _ = Command::new("umount").arg("-l").arg(&self.at).status();
    }
}
