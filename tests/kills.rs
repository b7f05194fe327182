//! The programs of every day while the server is killed under them, and killed themselves in the
//! middle of their work: what they print and leave is as on tmpfs, and nothing stays behind.
#![allow(clippy::print_stdout)] // Seeds are said.
#![cfg(not(loom))]

mod beside;
mod descendants;
mod random;

use std::process::{Command, Stdio};
use std::time::Duration;

use beside::{built, compiled, on_path, program, run, run_while};
use descendants::kill_servers;
use random::Random;
use rustix::process::Signal;

/// Runs a script so many times, each in a directory of its own, so that servers have time to die.
fn same_though_servers_die(interpreter: &str, name: &str, rounds: u32, needed: &[&str]) {
    if !needed.iter().all(|program| on_path(program)) {
        return;
    }
    let script = program("everyday").join(name);
    again_though_servers_die(&format!("{interpreter} {}", script.display()), name, rounds);
}

/// The same of a command.
fn again_though_servers_die(command: &str, name: &str, rounds: u32) {
    let mut random = Random::new(name);
    let once = format!("mkdir $round && cd $round && {command}");
    let script = format!("for round in $(seq {rounds}); do ({once}) || exit 1; done");
    let mut life_ms = || 20 + random.below(300);
    let beside = run_while(&script, |run, over| kill_servers(run, over, &mut life_ms));
    beside.assert_same();
    beside.assert_served(10);
    let restarts = beside.summary["restarts"].as_u64();
    assert!(restarts.is_some_and(|restarts| restarts >= 1), "{}", beside.summary);
}

#[test]
fn servers_die_under_tar() {
    same_though_servers_die("sh", "archives.sh", 8, &["tar"]);
}

#[test]
fn servers_die_under_git() {
    same_though_servers_die("sh", "git.sh", 2, &["git"]);
}

#[test]
fn servers_die_under_make() {
    same_though_servers_die("bash", "make.sh", 2, &["make", "gcc"]);
}

#[test]
fn servers_die_under_sort_and_other_tools() {
    same_though_servers_die("sh", "tools.sh", 2, &["bc", "look"]);
}

#[test]
fn servers_die_under_python() {
    same_though_servers_die("/usr/bin/python3", "files.py", 8, &["python3"]);
}

#[test]
fn servers_die_under_maps() {
    if on_path("gcc") {
        let home = tempfile::tempdir().expect("directory");
        let maps = compiled("maps", home.path());
        again_though_servers_die(&format!("{} .", maps.display()), "maps", 8);
    }
}

#[test]
fn a_server_killed_as_the_run_ends_is_no_matter() {
    let mut killed = 0;
    for round in 0..40 {
        let (home, to) = (tempfile::tempdir(), tempfile::tempdir());
        let (home, to) = (home.expect("directory"), to.expect("directory"));
        let done = home.path().join("done");
        let script = format!("echo kept > \"$TERRAL_DIR/a\"; : > {}", done.display());
        let mut command = Command::new(built("terral"));
        command.args(["run", "--json", "--to"]).arg(to.path()).args(["--", "sh", "-c", &script]);
        let run = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("terral");
        let pid = run.id();
        while !done.exists() {
            std::thread::sleep(Duration::from_micros(100));
        }
        std::thread::sleep(Duration::from_micros(round * 120));
        if let Some(server) = descendants::server(pid) {
            descendants::send(server, Signal::KILL);
            killed += 1;
        }
        let output = run.wait_with_output().expect("it ends");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "round {round}: {errors}");
        let names = std::fs::read_dir(to.path()).expect("lists").flatten();
        let names: Vec<_> = names.map(|entry| entry.file_name()).collect();
        assert_eq!(names, ["a"], "round {round}: {errors}");
        assert_eq!(std::fs::read(to.path().join("a")).expect("arrived"), b"kept\n");
        let user = rustix::process::geteuid().as_raw();
        let left = std::fs::read_dir(format!("/dev/shm/terral-{user}")).into_iter().flatten();
        let ours = format!("run-{pid}-");
        let mut left = left.flatten();
        let left = left.find(|entry| entry.file_name().to_string_lossy().starts_with(&ours));
        if let Some(left) = left {
            let files = std::fs::read_dir(left.path()).into_iter().flatten().flatten();
            let files: Vec<_> = files.map(|entry| entry.file_name()).collect();
            panic!("round {round}: {files:?} left; {errors}");
        }
    }
    assert!(killed > 5, "only {killed} servers were there to be killed");
}

#[test]
fn killed_programs_leave_what_they_had_done() {
    if !["bash", "git", "tar", "sort", "python3"].iter().all(|program| on_path(program)) {
        return;
    }
    let beside = run(&format!("bash {}", program("everyday/killed.sh").display()));
    beside.assert_served(500);
    let server = &beside.summary["server"];
    assert_eq!(server["open"], 0, "descriptions of the dead: {server}");
    // What has arrived stays in memory, too, in pages.
    let bytes =
        |field: &str| server.pointer(field).and_then(|bytes| bytes.as_u64()).expect("is said");
    let (used, arrived) = (bytes("/memory_used_bytes"), bytes("/drain/bytes"));
    assert!(used <= 2 * arrived + (32 << 20), "memory has leaked: {server}");
    let mut git = Command::new("git");
    git.arg("-C").arg(beside.ours.path().join("r")).args(["fsck", "--full", "--strict"]);
    let found = git.env("HOME", "/nonexistent").output().expect("git runs");
    assert!(found.status.success(), "{}", String::from_utf8_lossy(&found.stderr));
    // What programs saw last is what has arrived.
    let mut sums = Command::new("sha256sum");
    sums.args(["--quiet", "-c", "sums"]).current_dir(beside.ours.path());
    let sums = sums.output().expect("sha256sum runs");
    assert!(sums.status.success(), "{}", String::from_utf8_lossy(&sums.stdout));
}
