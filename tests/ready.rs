//! Memory is ready before the first write, and costs nothing otherwise. Needs the release build.
#![cfg(not(loom))]

mod beside;
mod descendants;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

const PATIENCE: Duration = Duration::from_secs(300);
const SEGMENT: u64 = 64 << 20;

/// `terral run --json` with these options, of a shell script.
fn run(to: &Path, options: &[&str], script: &str) -> Command {
    let mut command = Command::new(beside::built("terral"));
    command.args(["run", "--json", "--to"]).arg(to).args(options).args(["--", "sh", "-c", script]);
    command.stdin(Stdio::null());
    command
}

/// What the last line of the output says, if that is JSON.
fn said(output: &Output) -> serde_json::Value {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}: {errors}", output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(text.lines().next_back().unwrap_or_default()).expect("JSON")
}

/// Bytes of memory that the segments of an instance take.
fn taken(instance: &Path) -> u64 {
    let entries = fs::read_dir(instance).into_iter().flatten().flatten();
    let segments = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("seg-"));
    segments.filter_map(|entry| Some(entry.metadata().ok()?.blocks() * 512)).sum()
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "not within five minutes: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A program that only computes, with the instance that serves it.
struct Computing {
    run: Child,
    instance: PathBuf,
    _home: tempfile::TempDir,
}

impl Computing {
    fn start(options: &[&str]) -> Self {
        let home = tempfile::tempdir().expect("directory");
        let note = home.path().join("instance");
        let script = format!(
            "echo $TERRAL_INSTANCE > {0}.new; mv {0}.new {0}; exec sleep 300",
            note.display()
        );
        let mut command = run(&home.path().join("to"), options, &script);
        let run = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
        wait_until("the program begins", || note.exists());
        let instance = fs::read_to_string(&note).expect("reads").trim().into();
        Computing { run, instance, _home: home }
    }

    fn server(&self) -> i32 {
        descendants::server(self.run.id()).expect("a server")
    }

    /// Bytes of memory that are ready, as its server says, if that answers.
    fn warm(&self) -> Option<u64> {
        let mut status = Command::new(beside::built("terral"));
        status.args(["status", "--json", "--instance"]).arg(&self.instance);
        let output = status.output().expect("runs");
        let answers = output.status.success();
        answers.then(|| said(&output).pointer("/0/status/memory_warm_bytes")?.as_u64()).flatten()
    }

    /// Ends the program, and with it all.
    fn end(mut self) {
        let all = descendants::of(self.run.id());
        let name = |pid: &i32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let sleeps: Vec<i32> = all.into_iter().filter(|pid| name(pid).trim() == "sleep").collect();
        assert_eq!(sleeps.len(), 1, "the program computes");
        descendants::send(sleeps[0], Signal::KILL);
        self.run.wait().expect("ends");
        assert!(!self.instance.exists(), "nothing is left");
    }
}

/// Processor time of all threads of a process, clock ticks.
fn ticks(pid: i32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
    after
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(|field| field.parse::<u64>().expect("ticks"))
        .sum()
}

#[test]
fn memory_is_ready_before_a_program_that_computes_first_writes() {
    let program = Computing::start(&["--memory", "512M"]);
    wait_until("an eighth of the bound is ready", || taken(&program.instance) == SEGMENT);
    program.end();
}

#[test]
fn as_much_is_ready_as_is_asked_for_and_status_says_so() {
    let program = Computing::start(&["--memory", "1G", "--ready", "128M"]);
    wait_until("what was asked for is ready", || program.warm() == Some(2 * SEGMENT));
    assert_eq!(taken(&program.instance), 2 * SEGMENT, "and no more");
    program.end();
}

#[test]
fn with_ready_0_nothing_is_prepared() {
    let program = Computing::start(&["--memory", "1G", "--ready", "0"]);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(taken(&program.instance), 0);
    program.end();
}

#[test]
fn what_was_taken_by_writers_is_made_ready_again() {
    let home = tempfile::tempdir().expect("directory");
    let script = "head -c 100000000 /dev/zero > $TERRAL_DIR/big; \
        while [ $(du -cm $TERRAL_INSTANCE/seg-* | tail -n 1 | cut -f 1) -lt 192 ]; \
        do sleep 0.1; done";
    let child = run(home.path(), &["--memory", "1G", "--ready", "64M"], script)
        .stdout(Stdio::null())
        .spawn()
        .expect("starts");
    let mut child = child;
    wait_until("64 MiB are ready beside 100 MB that are used", || {
        child.try_wait().expect("waits").is_some_and(|status| {
            assert!(status.success(), "{status}");
            true
        })
    });
}

#[test]
fn a_server_that_is_ready_uses_no_processor() {
    let program = Computing::start(&["--memory", "512M"]);
    wait_until("all is ready", || taken(&program.instance) == SEGMENT);
    let server = program.server();
    let all = descendants::of(server as u32);
    assert_eq!(all.len(), 2, "the server, and the process that prepares memory");
    let used = || all.iter().map(|pid| ticks(*pid)).collect::<Vec<u64>>();
    wait_until("three seconds at rest", || {
        let before = used();
        std::thread::sleep(Duration::from_secs(3));
        used() == before
    });
    program.end();
}

#[test]
fn the_process_that_prepares_ends_with_a_server_that_is_killed_and_the_next_one_goes_on() {
    let program = Computing::start(&["--memory", "1G", "--ready", "192M"]);
    let server = program.server();
    wait_until("memory is being prepared", || descendants::of(server as u32).len() == 2);
    let preparer = descendants::of(server as u32)[1];
    descendants::send(server, Signal::KILL);
    wait_until("it ends, too", || !Path::new(&format!("/proc/{preparer}")).exists());
    wait_until("the next server comes", || {
        descendants::server(program.run.id()).is_some_and(|next| next != server)
    });
    wait_until("it answers", || program.warm().is_some());
    wait_until("it makes the rest ready", || program.warm() == Some(3 * SEGMENT));
    assert_eq!(taken(&program.instance), 3 * SEGMENT, "and no more");
    program.end();
}

#[test]
fn a_server_that_nobody_uses_prepares_nothing() {
    let home = tempfile::tempdir().expect("directory");
    let instance = tempfile::tempdir_in("/dev/shm").expect("directory");
    let name = instance.path().join("instance");
    let mut command = Command::new(beside::built("terral"));
    command.args(["serve", "--memory", "1G", "--to"]).arg(home.path()).arg("--name").arg(&name);
    let mut server = command.stderr(Stdio::null()).spawn().expect("starts");
    wait_until("it serves", || name.join("socket").exists());
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(taken(&name), 0);
    descendants::send(server.id() as i32, Signal::TERM);
    assert!(server.wait().expect("ends").success());
}
