//! Runs that were killed with their servers, and the instances that they left. Not here: what
//! becomes of those.
#![allow(dead_code)] // Each test file uses its part.

use std::fs;
use std::path::PathBuf;
use std::process::Child;

use rustix::process::Signal;

use crate::descendants;
use crate::launched::{terral, until};
use crate::random::Random;

/// A directory of the test, and the permanent one in it.
pub struct Home(pub tempfile::TempDir);

impl Home {
    pub fn new() -> Home {
        let home = Home(tempfile::tempdir().expect("directory"));
        fs::create_dir(home.to()).expect("makes");
        home
    }

    pub fn to(&self) -> PathBuf {
        self.path("to")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn has(&self, name: &str) -> String {
        fs::read_to_string(self.to().join(name)).unwrap_or_else(|error| format!("{name}: {error}"))
    }

    /// Runs a script under these arguments, and kills it, its server and its launcher when it has
    /// done it; the name of the instance that is left.
    pub fn leave(&self, arguments: &[&str], script: &str) -> String {
        let done = self.path("done");
        let _ = fs::remove_file(&done);
        let script = format!("{script}; : > {}; exec sleep 100", done.display());
        let mut command = terral();
        command.arg("run").arg("--to").arg(self.to()).args(arguments);
        let mut run = command.args(["--", "sh", "-c", &script]).spawn().expect("starts");
        until("the script's end", || done.exists());
        let instance = instance_of(run.id()).expect("a server");
        kill_all(&mut run, &mut Random(1));
        instance
    }
}

/// The instance that a run's server serves.
pub fn instance_of(run: u32) -> Option<String> {
    let server = descendants::server(run)?;
    let line = fs::read(format!("/proc/{server}/cmdline")).ok()?;
    let mut words = line.split(|byte| *byte == 0);
    words.find(|word| *word == b"--instance-directory")?;
    let path = String::from_utf8(words.next()?.to_vec()).ok()?;
    Some(path.rsplit('/').next()?.to_owned())
}

pub fn is_left(instance: &str) -> bool {
    directory_of(instance).join("log").exists()
}

pub fn directory_of(instance: &str) -> PathBuf {
    let user = rustix::process::geteuid().as_raw();
    PathBuf::from(format!("/dev/shm/terral-{user}/{instance}"))
}

/// Kills a run, its server and its programs, in any order, and whatever was started meanwhile.
pub fn kill_all(run: &mut Child, random: &mut Random) {
    let mut tree = Vec::new();
    // None of them sees another one go, and none is made meanwhile.
    while tree.len() < descendants::of(run.id()).len() {
        tree = descendants::of(run.id());
        tree.iter().for_each(|pid| descendants::send(*pid, Signal::STOP));
    }
    for at in (1..tree.len()).rev() {
        tree.swap(at, random.below(at as u64 + 1) as usize);
    }
    tree.iter().for_each(|pid| descendants::send(*pid, Signal::KILL));
    run.wait().expect("was killed");
}
