//! `terral serve --users`: users' servers that die, as they start or later, are started again, and
//! bring what they owe. Needs root, and a mount namespace, in which the users have names.
#![cfg(not(loom))]
#![allow(clippy::print_stdout)] // What is skipped is said.

mod all_users;
mod beside;

use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use all_users::{ALICE, BOB, Machine, gives, is_root, text};
use rustix::process::{Pid, Signal, kill_process};

/// A machine where alice has a file that others read.
fn with_file(test: &str) -> Machine {
    let machine = Machine::begin_known(test, &[("alice", ALICE, "/bin/sh")]);
    machine.done(ALICE, "chmod 711 /terral/alice; echo one > /terral/alice/f");
    machine.done(ALICE, "chmod 644 /terral/alice/f");
    machine
}

/// Another user has it, and does not wait for long.
fn is_read_soon(machine: &Machine) {
    let begin = Instant::now();
    assert_eq!(machine.done(BOB, "cat /terral/alice/f"), "one\n");
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
}

/// All end, and it is in the permanent directory.
fn brings_all(machine: Machine) {
    let home = machine.end();
    assert_eq!(fs::read_to_string(home.path().join("dir/alice/f")).expect("there"), "one\n");
}

#[test]
fn one_that_is_killed_as_it_starts_is_an_error_or_comes_all_the_same() {
    if !is_root() {
        return;
    }
    let machine = Machine::begin_known("killed", &[("alice", ALICE, "/bin/sh")]);
    gives(&machine, ("alice", ALICE, 0o755));
    machine.done(BOB, "true");
    let killing = Killing::begin(&machine.name, ALICE);
    std::thread::scope(|threads| {
        let begin = Instant::now();
        let waits = threads.spawn(|| machine.sh(BOB, "cat /terral/alice/data"));
        // His other requests go on.
        machine.done(BOB, "echo mine > /terral/bob/f && cat /terral/bob/f");
        std::thread::sleep(Duration::from_secs(3));
        drop(killing);
        let said = waits.join().expect("runs");
        // One that was there already, and was killed with all it had, only it could say.
        let refusals = ["not permitted", "Input/output error"];
        let is_refused = refusals.iter().any(|why| text(&said).contains(why));
        assert!(said.status.success() || is_refused, "{}", text(&said));
        assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
    });
    // It is tried again, by itself or as somebody needs it, less and less often.
    let (begin, is) = (Instant::now(), format!("of {ALICE}\n"));
    while text(&machine.sh(BOB, "cat /terral/alice/data")) != is {
        assert!(begin.elapsed() < Duration::from_secs(30), "it does not come");
        std::thread::sleep(Duration::from_millis(500));
    }
    // Nothing is left of those that were not to be: no process of root's waits to be reaped.
    let children = format!("/proc/{0}/task/{0}/children", machine.server.id());
    let zombies = fs::read_to_string(children).unwrap_or_default();
    let is_dead = |pid: &&str| {
        let status = fs::read_to_string(Path::new("/proc").join(pid).join("status"));
        status.is_ok_and(|status| status.contains("State:\tZ"))
    };
    assert_eq!(zombies.split_whitespace().filter(is_dead).count(), 0, "{zombies}");
    machine.end();
}

/// What bob reads of hers, and sees of all.
const LISTED: &str = "one\n/terral/alice\n/terral/all\n/terral/bob\n";

/// Kills a user's processes as they come, until that is dropped.
struct Killing(Arc<AtomicBool>, Option<JoinHandle<()>>);

impl Killing {
    fn begin(name: &str, user: u32) -> Killing {
        let (over, name) = (Arc::new(AtomicBool::new(false)), name.to_owned());
        let until = over.clone();
        let thread = std::thread::spawn(move || {
            while !until.load(Ordering::SeqCst) {
                for (pid, _) in all_users::processes_of(&name, user) {
                    let pid = rustix::process::Pid::from_raw(pid as i32).expect("one");
                    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        Killing(over, Some(thread))
    }
}

impl Drop for Killing {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
        self.1.take().into_iter().for_each(|thread| thread.join().expect("runs"));
    }
}

#[test]
fn a_server_that_was_killed_is_started_again_and_brings_what_it_owes() {
    if !is_root() {
        return;
    }
    let machine = with_file("again");
    assert_eq!(machine.done(BOB, "cat /terral/alice/f"), "one\n");
    machine.kill(ALICE, "host");
    machine.kill(ALICE, "--instance-directory");
    is_read_soon(&machine);
    brings_all(machine);
}

#[test]
fn one_that_is_killed_as_all_end_is_begun_once_more_and_brings_what_it_owes() {
    if !is_root() {
        return;
    }
    let machine = Machine::begin_known("last", &[("alice", ALICE, "/bin/sh")]);
    // Nothing of it is in the permanent directory as long as it is open.
    let holds = "exec 3> /terral/alice/f; echo one >&3; echo there; sleep 600";
    let mut command = machine.terral(ALICE);
    command.args(["run", "-q", "--instance", &machine.name, "--", "sh", "-c", holds]);
    let mut writes = command.stdout(Stdio::piped()).process_group(0).spawn().expect("runs");
    let mut said = [0; 6];
    writes.stdout.as_mut().expect("piped").read_exact(&mut said).expect("says");
    assert_eq!(&said, b"there\n");
    machine.kill(ALICE, " host ");
    machine.kill(ALICE, "--instance-directory");
    let group = rustix::process::Pid::from_child(&writes);
    rustix::process::kill_process_group(group, Signal::KILL).expect("it runs");
    writes.wait().expect("ends");
    brings_all(machine);
}

#[test]
fn one_whose_server_has_died_too_often_is_begun_anew() {
    if !is_root() {
        return;
    }
    let machine = with_file("often");
    let of = |what: &str| -> Vec<u32> {
        let all = machine.processes(ALICE);
        all.iter().filter(|(_, line)| line.contains(what)).map(|(pid, _)| *pid).collect()
    };
    // Who starts it again lives on, and has it die as it starts: it gives up.
    let (first, begin) = (of(" host "), Instant::now());
    assert_eq!(first.len(), 1);
    while of(" host ") == first {
        assert!(begin.elapsed() < all_users::PATIENCE, "it waits for a server that never comes");
        for pid in of("--instance-directory") {
            let pid = rustix::process::Pid::from_raw(pid as i32).expect("one");
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    is_read_soon(&machine);
    brings_all(machine);
}

#[test]
fn one_that_its_user_ends_stays_so_until_he_comes() {
    if !is_root() {
        return;
    }
    let machine = Machine::begin_known("ends", &[("alice", ALICE, "/bin/sh")]);
    gives(&machine, ("alice", ALICE, 0o755));
    machine.done(ALICE, "echo one > /terral/alice/f; chmod 644 /terral/alice/f");
    for (pid, line) in machine.processes(ALICE) {
        let pid = rustix::process::Pid::from_raw(pid as i32).expect("one");
        if line.contains(" host ") {
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("runs");
        }
    }
    let begin = Instant::now();
    while !machine.processes(ALICE).is_empty() {
        assert!(begin.elapsed() < all_users::PATIENCE, "{:?}", machine.processes(ALICE));
        std::thread::sleep(Duration::from_millis(50));
    }
    std::thread::sleep(Duration::from_secs(3));
    assert!(machine.processes(ALICE).is_empty(), "nobody needs it");
    assert_eq!(machine.done(ALICE, "cat /terral/alice/f"), "one\n");
    assert_eq!(machine.done(BOB, "cat /terral/alice/f"), "one\n");
    machine.end();
}

#[test]
fn what_a_server_owes_that_has_died_is_said_in_the_end() {
    if !is_root() {
        return;
    }
    let mut machine = Machine::begin_known("owes", &[("alice", ALICE, "/bin/sh")]);
    machine.done(ALICE, "echo one > /terral/alice/f");
    let killing = Killing::begin(&machine.name, ALICE);
    // It was tried again.
    std::thread::sleep(Duration::from_secs(4));
    let pid = rustix::process::Pid::from_child(&machine.server);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    let ended = machine.server.wait().expect("ends");
    drop(killing);
    // The last one may have been faster than who kills it.
    let arrived = fs::read_to_string(machine.dir("alice/f")).is_ok_and(|text| text == "one\n");
    assert!(ended.code() == Some(74) || ended.success() && arrived, "{ended}, {arrived}");
}

#[test]
fn when_all_of_roots_is_killed_the_next_one_goes_on_with_each_users() {
    if !is_root() {
        return;
    }
    let mut machine = with_file("roots");
    assert_eq!(machine.done(BOB, "cat /terral/alice/f; ls -d /terral/*"), LISTED);
    for pid in [machine.server.id()].into_iter().chain(machine.roots_server()) {
        let _ = kill_process(Pid::from_raw(pid as i32).expect("one"), Signal::KILL);
    }
    machine.server.wait().expect("ends");
    machine.begin_again();
    assert_eq!(machine.done(BOB, "cat /terral/alice/f; ls -d /terral/*"), LISTED);
    machine.done(ALICE, "echo two >> /terral/alice/f");
    assert_eq!(machine.done(BOB, "cat /terral/alice/f"), "one\ntwo\n");
    let home = machine.end();
    assert_eq!(fs::read_to_string(home.path().join("dir/alice/f")).expect("there"), "one\ntwo\n");
}

#[test]
fn what_a_user_has_brought_himself_since_is_known_and_he_begins_anew() {
    if !is_root() {
        return;
    }
    let mut machine = with_file("recovered");
    machine.crash();
    let mut recovers = machine.terral(ALICE);
    let recovered = recovers.args(["recover", &machine.name]).output().expect("runs");
    assert!(recovered.status.success(), "{}", text(&recovered));
    assert!(!machine.instance(ALICE).exists(), "nothing of hers is left");
    machine.begin_again();
    is_read_soon(&machine);
    machine.done(ALICE, "test \"$(cat /terral/alice/f)\" = one");
    brings_all(machine);
}

#[test]
fn of_whom_nothing_is_known_any_more_it_is_said_in_the_end() {
    if !is_root() {
        return;
    }
    let mut machine = with_file("unknown");
    machine.crash();
    let kept = machine.instance(0).join(format!("user-{ALICE}"));
    fs::write(&kept, "no such thing").expect("root may");
    machine.begin_again();
    let ended = machine.ended();
    assert_eq!(ended.code(), Some(74), "{ended}");
}
