//! `terral serve --users`: real users of this machine, each with a server that is his own process,
//! see one `/terral` as permission bits let them, and the permanent directory has what is whose.
//! Needs root, which makes the users: numbers are enough.
#![cfg(not(loom))]
#![allow(clippy::print_stdout)] // What is skipped is said.

mod all_users;
mod beside;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use all_users::{ALICE, BOB, Machine, is_root, text};

/// Who owns it, with which mode, and what is in it.
fn is(path: &Path) -> (u32, u32, String) {
    let found = fs::symlink_metadata(path).expect("there");
    let bytes = fs::read_to_string(path).unwrap_or_default();
    (found.uid(), found.mode() & 0o7777, bytes)
}

#[test]
fn users_see_one_namespace_as_bits_let_them_and_the_directory_has_what_is_whose() {
    if !is_root() {
        return;
    }
    let machine = Machine::begin("bits");
    // Alice.
    machine.done(ALICE, "umask 022; cd /terral/alice && echo secret > f && mkdir d && mv f d/g");
    machine.done(
        ALICE,
        "cd /terral/alice && mkdir e && mv d e/d && mv e h && mv h/d d && rmdir h && ls d/g",
    );
    assert_eq!(
        machine.done(ALICE, "cat /terral/alice/before /terral/alice/d/g"),
        "was theresecret\n"
    );
    machine.done(ALICE, "echo hello > /terral/all/a && chmod 644 /terral/all/a");
    // Bob, at once.
    assert_eq!(
        machine.done(BOB, "cat /terral/all/a; stat -c '%u %a' /terral/all/a"),
        format!("hello\n{ALICE} 644\n")
    );
    for script in [
        "cat /terral/alice/d/g",
        "ls /terral/alice",
        "echo x > /terral/alice/x",
        "echo x >> /terral/all/a",
        "rm -f /terral/all/a",
        "mv /terral/all/a /terral/all/b",
        "chmod 666 /terral/all/a",
        "mkdir /terral/mine",
        "rmdir /terral/alice",
        "ln /terral/all/a /terral/bob/a",
    ] {
        machine.denied(BOB, script);
    }
    machine.done(
        BOB,
        "echo bob > /terral/all/b; cp /terral/all/a /terral/bob/copy; mkdir /terral/all/d",
    );
    machine.done(BOB, "echo more >> /terral/all/b; mv /terral/all/b /terral/all/c");
    assert_eq!(machine.done(ALICE, "cat /terral/all/c"), "bob\nmore\n");
    machine.denied(ALICE, "rm -f /terral/all/c");
    // Root may all.
    assert_eq!(machine.done(0, "cat /terral/alice/d/g"), "secret\n");
    assert_eq!(
        machine.done(0, "stat -c %u /terral/all/d /terral/bob/copy"),
        format!("{BOB}\n{BOB}\n")
    );
    let home = machine.end();
    let dir = home.path().join("dir");
    assert_eq!(is(&dir.join("alice/d/g")), (ALICE, 0o644, "secret\n".into()));
    assert_eq!(is(&dir.join("alice/d")), (ALICE, 0o755, String::new()));
    assert_eq!(is(&dir.join("alice")), (ALICE, 0o700, String::new()));
    assert_eq!(is(&dir.join("all/a")), (ALICE, 0o644, "hello\n".into()));
    assert_eq!(is(&dir.join("all/c")), (BOB, 0o644, "bob\nmore\n".into()));
    assert_eq!(is(&dir.join("all/d")).0, BOB);
    assert_eq!(is(&dir.join("bob/copy")), (BOB, 0o644, "hello\n".into()));
    assert!(!dir.join("all/b").exists() && !dir.join("alice/f").exists());
    let left: Vec<_> =
        fs::read_dir(&dir).expect("there").flatten().map(|one| one.file_name()).collect();
    assert_eq!(left.len(), 3, "{left:?}");
}

#[test]
fn what_is_in_a_users_memory_the_kernel_keeps_from_others() {
    if !is_root() {
        return;
    }
    let machine = Machine::begin("walls");
    machine.done(ALICE, "echo secret > /terral/alice/f");
    machine.done(BOB, "true");
    let instance = machine.instance(ALICE);
    for path in [instance.clone(), instance.join("socket"), machine.instance(0)] {
        let mut look = Command::new("ls");
        look.arg(&path).uid(BOB).gid(BOB);
        let said = look.output().expect("runs");
        assert!(!said.status.success() && text(&said).contains("denied"), "{}", text(&said));
    }
    // Her processes are hers, and keep nothing of root's.
    for user in [ALICE, BOB] {
        let all = machine.processes(user);
        assert!(all.len() >= 2, "{all:?}");
        for (pid, _) in all {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("runs");
            let ids = format!("Uid:\t{user}\t{user}\t{user}\t{user}");
            assert!(status.contains(&ids) && status.contains("CapEff:\t0000000000000000"));
        }
    }
    machine.end();
}

#[test]
fn a_users_server_that_is_killed_loses_nothing_and_keeps_nobody_waiting() {
    if !is_root() {
        return;
    }
    let machine = Machine::begin("kills");
    machine.done(ALICE, "echo one > /terral/alice/f; echo one > /terral/all/a");
    machine.kill(ALICE, "--instance-directory");
    assert_eq!(machine.done(BOB, "cat /terral/all/a; echo two > /terral/all/b"), "one\n");
    assert_eq!(machine.done(ALICE, "cat /terral/alice/f /terral/all/b"), "one\ntwo\n");
    // And so is who starts it again.
    machine.kill(ALICE, "host");
    machine.kill(ALICE, "--instance-directory");
    assert_eq!(machine.done(ALICE, "cat /terral/alice/f /terral/all/b"), "one\ntwo\n");
    machine.done(ALICE, "echo three >> /terral/alice/f");
    let home = machine.end();
    assert_eq!(is(&home.path().join("dir/alice/f")).2, "one\nthree\n");
    assert_eq!(is(&home.path().join("dir/all/a")).2, "one\n");
}

#[test]
fn who_may_not_have_a_server_is_told_why() {
    if !is_root() {
        return;
    }
    let machine = Machine::begin("refused");
    // Not root: one serves oneself alone.
    let mut serve = machine.terral(BOB);
    serve.args(["serve", "--users", "--to"]).arg(machine.dir("bob"));
    let said = serve.output().expect("runs");
    assert!(!said.status.success() && text(&said).contains("needs root"), "{}", text(&said));
    // No door of that name.
    let mut run = machine.terral(BOB);
    let said = run.args(["run", "--instance", "users-none", "--", "true"]).output().expect("runs");
    assert!(text(&said).contains("no server there"), "{}", text(&said));
    machine.end();
}

#[test]
fn what_he_writes_to_anothers_file_ends_when_that_one_says_so() {
    if !is_root() {
        return;
    }
    let machine = Machine::begin("taken");
    machine.done(ALICE, "printf hers > /terral/all/a && chmod 666 /terral/all/a");
    // He has it open, and tries to have it in his memory; goes on until he may no more.
    let script = "
import errno, mmap, os, sys, time
fd = os.open('/terral/all/a', os.O_RDWR)
try:
    mmap.mmap(fd, 4)
    sys.exit('mapped')
except OSError as error:
    assert error.errno == errno.ENODEV, error
assert mmap.mmap(fd, 4, access=mmap.ACCESS_COPY)[:4] == b'hers'
begin, count = time.monotonic(), 0
while time.monotonic() - begin < 60:
    try:
        os.pwrite(fd, b'%04d' % (count % 10000), 0)
    except OSError as error:
        assert error.errno in (errno.EACCES, errno.EPERM), error
        print('%04d' % ((count - 1) % 10000))
        sys.exit(0)
    count += 1
    if count == 100:
        open('/terral/bob/writes', 'w').close()
sys.exit('he may for ever')
";
    let path = machine.home.path().join("script.py");
    fs::write(&path, script).expect("writes");
    let line = format!("exec python3 {}", path.display());
    let output = std::thread::scope(|threads| {
        let writes = threads.spawn(|| machine.sh(BOB, &line));
        let wait = "until test -e /terral/bob/writes; do sleep 0.05; done; \
                    chmod 644 /terral/all/a; cat /terral/all/a; sleep 0.5; cat /terral/all/a";
        let seen = machine.done(ALICE, wait);
        assert_eq!(seen[..4], seen[4..], "nothing is written once that is said");
        (writes.join().expect("runs"), seen)
    });
    assert!(output.0.status.success(), "{}", text(&output.0));
    assert_eq!(String::from_utf8_lossy(&output.0.stdout).trim(), &output.1[..4]);
    let home = machine.end();
    assert_eq!(is(&home.path().join("dir/all/a")).2, output.1[..4]);
}
