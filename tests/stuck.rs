//! What cannot be done now waits for itself, and for what depends on it: everything else goes on,
//! nobody goes round and round, and it is done when it can be.
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod fault;
mod files;
mod process;
mod vandal;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fault::Fault;
use files::open;
use rustix::process::Signal;
use terral_client::{Client, Drain};
use vandal::Vandal;

#[test]
fn role() {
    process::play(256, &[]);
}

struct Bench {
    home: tempfile::TempDir,
    to: tempfile::TempDir,
    server: process::Process,
    client: Client,
}

impl Bench {
    fn new() -> Self {
        let home = tempfile::tempdir_in("/dev/shm").expect("room");
        let to = tempfile::tempdir().expect("directory");
        std::fs::create_dir(to.path().join("here")).expect("makes");
        let instance = home.path().join("instance");
        let server = process::start_server(&instance, Some(&to.path().join("here")));
        let client = Client::connect(&instance).expect("connects");
        Bench { home, to, server, client }
    }

    fn instance(&self) -> PathBuf {
        self.home.path().join("instance")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.to.path().join("here").join(name)
    }

    fn move_away(&self, away: bool) {
        let (here, there) = (self.to.path().join("here"), self.to.path().join("away"));
        let (from, to) = if away { (&here, &there) } else { (&there, &here) };
        std::fs::rename(from, to).expect("moves");
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let file = open(&self.client, name);
        file.write_at(bytes, 0).expect("writes");
        file.close();
    }

    fn drain(&self) -> Drain {
        Client::observe(&self.instance()).and_then(|c| c.status()).expect("status").drain
    }

    fn wait(&self, what: &str, is: impl Fn(&Drain) -> bool) {
        let begin = Instant::now();
        while !is(&self.drain()) {
            assert!(begin.elapsed() < Duration::from_secs(60), "never {what}: {:?}", self.drain());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn flushed(&self) {
        self.client.flush().expect("flushes");
        self.wait("arrived", |drain| drain.owed_files == 0 && drain.owed_names == 0);
    }

    /// Processor time of the server so far.
    fn busy(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.server.0.id()));
        let stat = stat.expect("it lives");
        let fields: Vec<&str> = stat.rsplit(')').next().expect("fields").split(' ').collect();
        let ticks: u64 = [12, 13].map(|at| fields[at].parse::<u64>().expect("ticks")).iter().sum();
        Duration::from_millis(ticks * 10)
    }
}

impl Bench {
    fn is_idle(&self) {
        let (before, begin) = (self.busy(), Instant::now());
        std::thread::sleep(Duration::from_secs(2));
        let busy = self.busy() - before;
        assert!(busy < begin.elapsed() / 4, "{busy:?} of processor time while it waits");
    }
}

fn exists(instance: &Path, name: &str) -> bool {
    let client = Client::observe(instance).expect("observes");
    client.stat(name.as_bytes()).is_ok()
}

#[test]
fn a_removal_that_must_wait_holds_up_no_other_change() {
    for dies in [false, true] {
        let mut bench = Bench::new();
        let instance = bench.instance();
        let vandal = Vandal::new(&instance);
        bench.client.make_directory(b"d", 0o755).expect("makes");
        // Who has asked a few times defers.
        for i in 0..20 {
            bench.write(&format!("d/early-{i}"), b"x");
            bench.client.unlink(format!("d/early-{i}").as_bytes()).expect("unlinks");
        }
        let bytes = vec![7; 1_000_000];
        let reader = Client::connect(&instance).expect("connects");
        bench.write("d/open", &bytes);
        bench.flushed();
        let file = open(&reader, "d/open");
        let ino = reader.stat(b"d/open").expect("is there").ino;
        let second = Client::connect(&instance).expect("connects");
        open(&second, "d/before").close();
        for i in 0..20 {
            open(&second, &format!("d/second-{i}")).close();
        }

        // The name goes; then the drain has had the file, and it is evicted; then DIR is away.
        bench.server.signal(Signal::STOP);
        vandal.backed(&instance, ino, 0);
        bench.client.unlink(b"d/open").expect("is promised at once");
        vandal.backed(&instance, ino, bytes.len() as u64);
        vandal.evict(&instance, ino);
        bench.move_away(true);
        bench.server.signal(Signal::CONT);

        bench.wait("shown", |drain| drain.failures.iter().any(|why| why.contains("here")));
        for i in 0..50 {
            open(&second, &format!("d/new-{i}")).close();
        }
        second.unlink(b"d/new-7").expect("unlinks");
        second.unlink(b"d/before").expect("unlinks");
        let begin = Instant::now();
        while !exists(&instance, "d/new-49") || exists(&instance, "d/before") {
            assert!(begin.elapsed() < Duration::from_secs(60), "others wait for it");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(!exists(&instance, "d/new-7") && exists(&instance, "d/new-8"));
        assert!(bench.drain().owed_names > 0, "it is owed");
        bench.is_idle();

        if dies {
            bench.server.kill();
        }
        bench.move_away(false);
        if dies {
            bench.server = process::start_server(&instance, None);
        }
        let begin = Instant::now();
        while bench.path("d/open").exists() {
            assert!(begin.elapsed() < Duration::from_secs(60), "it is not removed");
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut seen = vec![0; bytes.len()];
        assert_eq!(file.read_at(&mut seen, 0).expect("reads"), seen.len());
        assert!(seen == bytes, "who has it open reads it");
        file.close();
        bench.client.finish().expect("finishes");
        bench.wait("settled", |drain| drain.settled);
        assert!(bench.path("d/new-49").exists() && !bench.path("d/new-7").exists());
    }
}

/// A server to which each look at this name in the permanent directory fails, from its start on.
fn failing_server(instance: &Path, name: &str) -> process::Process {
    let server = process::command("server", instance);
    let mut strace = Command::new("strace");
    // The server is the child, and its tracer is not.
    strace.args(["-D", "-f", "-qq", "-o", "/dev/null", "-P", name, "-e", "trace=openat2"]);
    strace.args(["-e", "inject=openat2:error=EIO"]).arg(server.get_program());
    strace.args(server.get_args()).stdout(Stdio::null());
    for (name, value) in server.get_envs() {
        strace.env(name, value.expect("a value"));
    }
    let server = process::Process(strace.spawn().expect("strace"));
    let begin = Instant::now();
    while Client::connect(instance).is_err() {
        assert!(begin.elapsed() < Duration::from_secs(60), "the server does not start");
        std::thread::sleep(Duration::from_millis(1));
    }
    server
}

#[test]
fn a_file_that_cannot_be_looked_at_holds_up_no_other() {
    let mut bench = Bench::new();
    bench.write("hit", &[1; 100_000]);
    // Killed between the word that it is published and its name.
    let Some(fault) = Fault::kill_at(&bench.server, "renameat,renameat2", 1) else { return };
    bench.client.flush().expect("flushes");
    let _ = bench.server.0.wait();
    drop(fault);
    assert!(!bench.path("hit").exists(), "it was not killed there");
    bench.server = failing_server(&bench.instance(), "hit");
    bench.write("other", &[2; 5_000_000]);
    bench.client.make_directory(b"d", 0o755).expect("makes");
    bench.client.flush().expect("flushes");
    let begin = Instant::now();
    while !bench.path("other").exists() || !bench.path("d").exists() {
        assert!(begin.elapsed() < Duration::from_secs(60), "others wait: {:?}", bench.drain());
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!bench.path("hit").exists());
    let failures = bench.drain().failures;
    assert!(failures.iter().any(|why| why.contains("nput/output error")), "{failures:?}");
    bench.server.kill();
    bench.server = process::start_server(&bench.instance(), None);
    bench.client.finish().expect("finishes");
    bench.wait("settled", |drain| drain.settled);
    assert!(std::fs::read(bench.path("hit")).expect("arrived") == [1; 100_000]);
    assert!(std::fs::read(bench.path("other")).expect("arrived") == [2; 5_000_000]);
}
