//! `terral serve --users`: a user who never came has a server started as others look at what their
//! bits let them use of his; few of them, and for nobody who is no user. Needs root, and a mount
//! namespace, in which the users have names.
#![cfg(not(loom))]
#![allow(clippy::print_stdout)] // What is skipped is said.

mod all_users;
mod beside;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use all_users::{ALICE, BOB, Machine, is_root, set, text};

/// The first of many users, who have names.
const MANY: u32 = 42_000;

/// Puts a directory of a user's there, with a file.
fn gives(machine: &Machine, (name, owner, mode): (&str, u32, u32)) {
    let path = machine.dir(name);
    fs::create_dir_all(&path).expect("makes");
    fs::write(path.join("data"), format!("of {owner}\n")).expect("writes");
    set(&path.join("data"), owner, 0o644);
    set(&path, owner, mode);
}

/// What root's server has written down of starts.
fn starts(machine: &Machine) -> String {
    let audit = fs::read_to_string(machine.instance(0).join("audit")).unwrap_or_default();
    audit
        .lines()
        .filter(|line| line.contains("\"started\""))
        .map(|line| format!("{line}\n"))
        .collect()
}

/// The same, once there is something: it is written a moment after.
fn first_starts(machine: &Machine) -> String {
    let begin = Instant::now();
    loop {
        let written = starts(machine);
        if !written.is_empty() || begin.elapsed() > all_users::PATIENCE {
            return written;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// How many processes there are of servers of these users.
fn servers(machine: &Machine, users: std::ops::Range<u32>) -> usize {
    users.filter(|user| !machine.processes(*user).is_empty()).count()
}

#[test]
fn what_a_user_has_is_read_though_he_never_came() {
    if !is_root() {
        return;
    }
    let machine = Machine::begin_known("never", &[("alice", ALICE, "/bin/sh")]);
    gives(&machine, ("alice", ALICE, 0o755));
    assert!(machine.processes(ALICE).is_empty());
    assert_eq!(machine.done(BOB, "cat /terral/alice/data"), format!("of {ALICE}\n"));
    assert!(!machine.processes(ALICE).is_empty());
    let written = first_starts(&machine);
    let line = format!("\"owner\":{ALICE},\"for\":{BOB}}}");
    assert!(written.lines().count() == 1 && written.contains(&line), "{written}");
    // It is hers, and she goes on with it.
    machine.done(ALICE, "echo new > /terral/alice/new && chmod 644 /terral/alice/new");
    assert_eq!(machine.done(BOB, "cat /terral/alice/new"), "new\n");
    // Root, for a backup, by the same door.
    assert_eq!(machine.done(0, "cat /terral/alice/data"), format!("of {ALICE}\n"));
    machine.end();
}

#[test]
fn nobodys_server_is_started_for_what_the_bits_do_not_let_one_use() {
    if !is_root() {
        return;
    }
    let users = [("alice", ALICE, "/bin/sh"), ("carol", MANY, "/usr/sbin/nologin")];
    let machine = Machine::begin_known("bitless", &users);
    gives(&machine, ("alice", ALICE, 0o700));
    gives(&machine, ("shut/alice", ALICE, 0o755));
    set(&machine.dir("shut"), 0, 0o700);
    for script in ["cat /terral/alice/data", "ls /terral/alice", "ls -l /terral/shut/alice"] {
        machine.denied(BOB, script);
    }
    assert!(machine.processes(ALICE).is_empty() && starts(&machine).is_empty());
    // Nor for who is no user, or the system's, or may not log in: it is said why.
    gives(&machine, ("carol", MANY, 0o755));
    gives(&machine, ("daemon", 1, 0o755));
    gives(&machine, ("stranger", MANY + 1, 0o755));
    for (name, why) in [("carol", "may not log in"), ("daemon", "UID_MIN"), ("stranger", "no user")]
    {
        machine.denied(BOB, &format!("cat /terral/{name}/data"));
        let told = starts(&machine);
        // Of one asker it is written once a minute.
        let is_first = name == "carol";
        assert!(told.contains(why) == is_first && told.lines().count() == 1, "{name}: {told}");
    }
    for user in [ALICE, MANY, MANY + 1] {
        assert!(machine.processes(user).is_empty(), "{user}");
    }
    machine.end();
}

#[test]
fn a_thousand_looks_of_one_user_start_few_servers_and_keep_nobody_waiting() {
    if !is_root() {
        return;
    }
    let names: Vec<String> = (0..40).map(|at| format!("user{at}")).collect();
    let mut users: Vec<(&str, u32, &str)> =
        names.iter().enumerate().map(|(at, name)| (&**name, MANY + at as u32, "/bin/sh")).collect();
    users.push(("alice", ALICE, "/bin/sh"));
    let mut machine = Machine::begin_known("many", &users);
    for (name, user, _) in &users {
        gives(&machine, (name, *user, 0o755));
    }
    let eve = MANY + 100;
    machine.more.push(eve);
    let all = "for n in $(seq 25); do ls -ld /terral/user* & done; wait";
    let said = std::thread::scope(|threads| {
        let looks = threads.spawn(|| machine.sh(eve, all));
        // Others have theirs meanwhile.
        let begin = Instant::now();
        assert_eq!(machine.done(BOB, "cat /terral/alice/data"), format!("of {ALICE}\n"));
        machine.done(BOB, "echo mine > /terral/bob/f");
        assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
        text(&looks.join().expect("runs"))
    });
    assert!(said.contains("Too many users"), "{said}");
    let count = servers(&machine, MANY..MANY + 40);
    assert!((1..=16).contains(&count), "{count}");
    machine.end();
}

#[test]
fn two_who_look_at_once_have_one_server_started() {
    if !is_root() {
        return;
    }
    let machine = Machine::begin_known("twice", &[("alice", ALICE, "/bin/sh")]);
    gives(&machine, ("alice", ALICE, 0o755));
    machine.done(BOB, "true");
    std::thread::scope(|threads| {
        for user in [BOB, 0, BOB] {
            let machine = &machine;
            threads.spawn(move || {
                assert_eq!(machine.done(user, "cat /terral/alice/data"), format!("of {ALICE}\n"));
            });
        }
    });
    let told = first_starts(&machine);
    assert_eq!(told.lines().count(), 1, "{told}");
    machine.end();
}

#[test]
fn one_that_is_killed_as_it_starts_is_an_error_or_comes_all_the_same() {
    if !is_root() {
        return;
    }
    let machine = Machine::begin_known("killed", &[("alice", ALICE, "/bin/sh")]);
    gives(&machine, ("alice", ALICE, 0o755));
    machine.done(BOB, "true");
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !over.load(std::sync::atomic::Ordering::SeqCst) {
                for (pid, _) in machine.processes(ALICE) {
                    let pid = rustix::process::Pid::from_raw(pid as i32).expect("one");
                    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let begin = Instant::now();
        machine.denied(BOB, "cat /terral/alice/data");
        assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
        // His other requests go on.
        machine.done(BOB, "echo mine > /terral/bob/f && cat /terral/bob/f");
        over.store(true, std::sync::atomic::Ordering::SeqCst);
    });
    let told = starts(&machine);
    assert!(told.contains("refused"), "{told}");
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(machine.done(BOB, "cat /terral/alice/data"), format!("of {ALICE}\n"));
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

#[test]
fn one_that_nobody_needs_ends_and_begins_again_with_what_it_had() {
    if !is_root() {
        return;
    }
    let users = [("alice", ALICE, "/bin/sh")];
    let machine = Machine::begin_idle("idle", &users, "2s");
    gives(&machine, ("alice", ALICE, 0o755));
    let script = "exec 3< /terral/alice/data; cat /terral/alice/data; sleep 6; cat <&3";
    // Somebody has a file of hers open: it stays.
    machine.done(BOB, "true");
    assert!(machine.done(BOB, script).starts_with(&format!("of {ALICE}\nof {ALICE}\n")));
    let ends = |machine: &Machine| {
        let begin = Instant::now();
        while !machine.processes(ALICE).is_empty() {
            assert!(begin.elapsed() < all_users::PATIENCE, "{:?}", machine.processes(ALICE));
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    for round in 0..3 {
        ends(&machine);
        std::thread::sleep(Duration::from_secs(2));
        assert!(machine.processes(ALICE).is_empty(), "nobody needs it");
        let begin = Instant::now();
        assert_eq!(machine.done(BOB, "cat /terral/alice/data"), format!("of {ALICE}\n"));
        assert!(begin.elapsed() < Duration::from_secs(20), "{round}: {:?}", begin.elapsed());
        // What he was shown just before it ended he may have read without it: then it comes, too.
        let begin = Instant::now();
        while machine.processes(ALICE).is_empty() {
            assert!(begin.elapsed() < Duration::from_secs(10), "{round}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    // It is the same member.
    let mut status = machine.terral(0);
    let said =
        status.args(["status", "--json", "--instance", &machine.name]).output().expect("runs");
    assert_eq!(text(&said).matches("\"standing\"").count(), 3, "{}", text(&said));
    // She comes, and it is hers: it ends no more.
    ends(&machine);
    machine.done(ALICE, "echo new > /terral/alice/new && chmod 644 /terral/alice/new");
    std::thread::sleep(Duration::from_secs(5));
    assert!(!machine.processes(ALICE).is_empty());
    assert_eq!(machine.done(BOB, "cat /terral/alice/new"), "new\n");
    let home = machine.end();
    assert_eq!(fs::read_to_string(home.path().join("dir/alice/new")).expect("there"), "new\n");
}

#[test]
fn what_rests_is_gone_in_the_end() {
    if !is_root() {
        return;
    }
    let machine = Machine::begin_idle("rests", &[("alice", ALICE, "/bin/sh")], "1s");
    gives(&machine, ("alice", ALICE, 0o755));
    machine.done(BOB, "cat /terral/alice/data");
    let begin = Instant::now();
    while !machine.processes(ALICE).is_empty() {
        assert!(begin.elapsed() < all_users::PATIENCE);
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(machine.instance(ALICE).exists(), "what it has is in memory");
    let begin = Instant::now();
    machine.end();
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
}

#[test]
fn a_server_that_was_killed_is_started_again_for_others() {
    if !is_root() {
        return;
    }
    let machine = Machine::begin("again");
    machine.done(ALICE, "chmod 711 /terral/alice; echo one > /terral/alice/f");
    machine.done(ALICE, "chmod 644 /terral/alice/f");
    assert_eq!(machine.done(BOB, "cat /terral/alice/f"), "one\n");
    machine.kill(ALICE, "host");
    machine.kill(ALICE, "--instance-directory");
    let begin = Instant::now();
    assert_eq!(machine.done(BOB, "cat /terral/alice/f"), "one\n");
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
    let home = machine.end();
    assert_eq!(fs::read_to_string(home.path().join("dir/alice/f")).expect("there"), "one\n");
}
