//! Processes of this very test program in another role: a server or a client that can be stopped
//! and killed for real. A test file that uses this has a test named `role`, which plays the role.
#![allow(dead_code)] // Each test file uses its part.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use terral_client::Client;
use terral_server::{Keytab, Listing, Options};

/// Environment variable that names the role.
pub const ROLE: &str = "TERRAL_TEST_ROLE";
const INSTANCE: &str = "TERRAL_TEST_INSTANCE";
const BACKING: &str = "TERRAL_TEST_BACKING";
/// Environment variable with the directory that a server spills to.
pub const SPILL: &str = "TERRAL_TEST_SPILL";

/// Environment variable with the list of principals of a server.
pub const PRINCIPALS: &str = "TERRAL_TEST_PRINCIPALS";

/// Environment variable with the keys of that server for Kerberos.
pub const KEYTAB: &str = "TERRAL_TEST_KEYTAB";

fn listing() -> Option<Listing> {
    let keytab =
        std::env::var_os(KEYTAB).map(|file| Keytab { file: file.into(), service: "terral".into() });
    std::env::var_os(PRINCIPALS).map(|principals| Listing { principals: principals.into(), keytab })
}

/// A process that is killed when dropped.
pub struct Process(pub Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    /// Sends a signal. Who is stopped has stopped when this returns, all of its threads: on a busy
    /// machine they go on for a while.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.0);
        kill_process(pid, signal).expect("a child can be signalled");
        let begin = Instant::now();
        while signal == Signal::STOP && !self.has_stopped() {
            assert!(begin.elapsed() < Duration::from_secs(60), "it does not stop");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Whether all of its threads are stopped, or have ended (proc(5)).
    fn has_stopped(&self) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.0.id())).expect("threads");
        let mut states = threads.flatten().map(|thread| {
            let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next())
        });
        states.all(|state| matches!(state, None | Some('T' | 't' | 'Z' | 'X')))
    }

    /// Kills it at once and waits for its end.
    pub fn kill(&mut self) {
        self.0.kill().expect("a child can be killed");
        self.0.wait().expect("a child can be waited for");
    }
}

/// This program again, as `role` on `instance`.
pub fn command(role: &str, instance: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("own path"));
    command.args(["--exact", "role", "--nocapture"]);
    command.env(ROLE, role).env(INSTANCE, instance);
    command
}

/// Starts this program again as `role` on `instance`.
pub fn start(role: &str, instance: &Path, backing: Option<&Path>) -> Process {
    let mut command = command(role, instance);
    command.stdout(Stdio::null());
    if let Some(backing) = backing {
        command.env(BACKING, backing);
    }
    Process(command.spawn().expect("starts"))
}

/// Starts a server process, or starts it again, and waits until it answers.
pub fn start_server(instance: &Path, backing: Option<&Path>) -> Process {
    let server = start("server", instance, backing);
    let begin = Instant::now();
    while Client::connect(instance).is_err() {
        assert!(begin.elapsed() < Duration::from_secs(60), "the server does not start");
        std::thread::sleep(Duration::from_millis(1));
    }
    server
}

/// Where an instance is put.
pub struct Home(tempfile::TempDir);

impl Home {
    /// A place in memory.
    pub fn new() -> Self {
        Home(tempfile::tempdir_in("/dev/shm").expect("room"))
    }

    /// What it is in.
    pub fn above(&self) -> &Path {
        self.0.path()
    }

    /// The instance there.
    pub fn instance(&self) -> PathBuf {
        self.0.path().join("instance")
    }
}

/// An instance without a permanent directory, and its server.
pub struct Bench {
    home: Home,
    /// Killed when dropped.
    pub server: Process,
}

impl Bench {
    /// A new one.
    pub fn new() -> Self {
        let home = Home::new();
        let server = start_server(&home.instance(), None);
        Bench { home, server }
    }

    /// The instance.
    pub fn instance(&self) -> PathBuf {
        self.home.instance()
    }

    /// Kills the server and starts it again.
    pub fn restart(&mut self) {
        self.server.kill();
        self.server = start_server(&self.instance(), None);
    }
}

/// What a test file calls a role, and who plays it on an instance.
pub type Role = (&'static str, fn(&Path));

/// Plays the role this process was started for, a server with so much memory or one of these; in
/// the test run itself it does nothing.
pub fn play(memory_mib: u64, roles: &[Role]) {
    let Some((role, instance)) = role() else { return };
    match roles.iter().find(|(name, _)| *name == role) {
        Some((_, plays)) => plays(&instance),
        None if role == "server" => serve(&instance, memory_mib),
        None => panic!("no role {role}"),
    }
}

/// Which role this process plays, and on which instance; `None` in the test run itself.
pub fn role() -> Option<(String, PathBuf)> {
    let role = std::env::var(ROLE).ok()?;
    Some((role, std::env::var_os(INSTANCE)?.into()))
}

fn serve(instance: &Path, memory_mib: u64) {
    let options = Options {
        instance: instance.into(),
        backing: std::env::var_os(BACKING).map(Into::into),
        memory_bytes: memory_mib << 20,
        spill: std::env::var_os(SPILL).map(Into::into),
        ready_bytes: None,
        partition: None,
        listen: terral_server::EVERYWHERE,
        principals: listing(),
        pool: None,
        launcher: None,
        among_users: false,
    };
    terral_server::serve(&options).expect("serves");
}
