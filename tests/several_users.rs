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

use all_users::{ALICE, BOB, Machine, NOBODY, is_root, text};

/// Who owns it, with which mode, and what is in it.
fn is(path: &Path) -> (u32, u32, String) {
    let found = fs::symlink_metadata(path).expect("there");
    let bytes = fs::read_to_string(path).unwrap_or_default();
    (found.uid(), found.mode() & 0o7777, bytes)
}

#[test]
fn each_has_his_own_and_of_others_what_bits_let_him_and_the_directory_has_what_is_whose() {
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
    machine.done(ALICE, "ln -s d/g /terral/alice/l && mkfifo /terral/alice/p && ls /terral/alice");
    // Bob, at once.
    machine.done(BOB, "echo hello > /terral/bob/a && chmod 644 /terral/bob/a");
    for script in ["cat /terral/alice/d/g", "ls /terral/alice", "cat /terral/alice/before"] {
        machine.denied(BOB, script);
    }
    assert_eq!(
        machine.done(ALICE, "cat /terral/bob/a; stat -c '%u %a' /terral/bob/a"),
        format!("hello\n{BOB} 644\n")
    );
    machine.denied(ALICE, "echo x >> /terral/bob/a");
    machine.done(BOB, "chmod 666 /terral/bob/a");
    machine.done(ALICE, "echo more >> /terral/bob/a");
    assert_eq!(machine.done(BOB, "cat /terral/bob/a"), "hello\nmore\n");
    machine.done(BOB, "chmod 600 /terral/bob/a");
    machine.denied(ALICE, "cat /terral/bob/a");
    // Root reads all.
    assert_eq!(machine.done(0, "cat /terral/alice/d/g /terral/bob/a"), "secret\nhello\nmore\n");
    machine.done(0, "mkdir /terral/all/roots && echo root > /terral/all/roots/f");
    let home = machine.end();
    let dir = home.path().join("dir");
    assert_eq!(is(&dir.join("alice/d/g")), (ALICE, 0o644, "secret\n".into()));
    assert_eq!(is(&dir.join("alice/d")), (ALICE, 0o755, String::new()));
    assert_eq!(is(&dir.join("alice/l")).0, ALICE);
    assert_eq!(is(&dir.join("alice")), (ALICE, 0o700, String::new()));
    assert_eq!(is(&dir.join("bob/a")), (BOB, 0o600, "hello\nmore\n".into()));
    assert_eq!(is(&dir.join("all/roots/f")).0, 0);
    assert!(!dir.join("alice/f").exists());
    let mut left: Vec<_> =
        fs::read_dir(&dir).expect("there").flatten().map(|one| one.file_name()).collect();
    left.sort();
    assert_eq!(left, ["alice", "all", "bob"]);
}

/// All names of a directory, in order.
fn names_in(directory: &Path) -> Vec<std::ffi::OsString> {
    let found = fs::read_dir(directory).expect("there").flatten();
    let mut names: Vec<_> = found.map(|one| one.file_name()).collect();
    names.sort();
    names
}

#[test]
fn names_in_a_directory_are_changed_by_its_owner_only() {
    if !is_root() {
        return;
    }
    let machine = Machine::begin("names");
    for (user, of) in [(ALICE, "alice"), (BOB, "bob")] {
        let script = format!(
            "cd /terral/{of} && mkdir open open/d own && echo x > open/f && echo x > own/f && \
             chmod 755 . && chmod 777 open"
        );
        machine.done(user, &script);
    }
    machine.done(
        0,
        "cd /terral/all && mkdir d && echo x > f && mkdir /terral/own && echo x > /terral/own/f",
    );
    let all = [(0, "all", "own"), (ALICE, "alice/open", "alice/own"), (BOB, "bob/open", "bob/own")];
    for (user, _, own) in all {
        for (owner, theirs, _) in all {
            if owner == user {
                continue;
            }
            for script in [
                "echo x > T/new",
                "mkdir T/new",
                "ln -s x T/new",
                "mkfifo T/new",
                "rm -f T/f",
                "rmdir T/d",
                "mv T/f T/new",
                "mv T/f O/new",
                "mv O/f T/new",
                "mv O/f T/f",
                "ln O/f T/new",
                "cp O/f T/new",
                "chmod 600 T/f",
            ] {
                let script = script.replace('T', &format!("/terral/{theirs}"));
                let script = script.replace('O', &format!("/terral/{own}"));
                if user == 0 && script.starts_with("chmod") {
                    continue;
                }
                machine.denied(user, &script);
            }
            assert_eq!(machine.done(user, &format!("cat /terral/{theirs}/f")), "x\n");
        }
        machine.denied(if user == 0 { ALICE } else { user }, "mkdir /terral/mine");
    }
    // What is a user's in root's directory has its name from root, past Terral.
    let path = machine.dir("all/hers");
    fs::write(&path, "hers").expect("root may");
    all_users::set(&path, ALICE, 0o644);
    for user in [0, ALICE, BOB] {
        assert_eq!(machine.done(user, "cat /terral/all/hers"), "hers");
        machine.denied(user, "echo x >> /terral/all/hers");
        machine.denied(user, "echo x > /terral/all/hers");
        machine.denied(user, "rm -f /terral/all/hers");
        machine.denied(user, "mv /terral/all/hers /terral/all/else");
    }
    let home = machine.end();
    for (_, theirs, own) in all {
        let names = |path: &str| names_in(&home.path().join("dir").join(path));
        let hers: &[&str] = if theirs == "all" { &["d", "f", "hers"] } else { &["d", "f"] };
        assert_eq!(names(theirs), hers);
        assert_eq!(names(own), ["f"]);
    }
}

#[test]
fn who_has_no_directory_gets_one_by_his_name_and_what_has_that_stays() {
    if !is_root() {
        return;
    }
    let machine = Machine::begin("homes");
    // `nobody` has a name on every system.
    machine.done(NOBODY, "echo mine > /terral/nobody/f && cat /terral/nobody/f");
    assert_eq!(is(&machine.dir("nobody")).0, NOBODY);
    assert_eq!(is(&machine.dir("nobody")).1, 0o700);
    machine.denied(BOB, "ls /terral/nobody");
    machine.done(NOBODY, "chmod 755 /terral/nobody");
    assert_eq!(machine.done(BOB, "cat /terral/nobody/f"), "mine\n");
    let home = machine.end();
    assert_eq!(is(&home.path().join("dir/nobody/f")), (NOBODY, 0o644, "mine\n".into()));
    // Something else that has the name stays as it is.
    let machine = Machine::begin("nohomes");
    std::os::unix::fs::symlink("/etc", machine.dir("nobody")).expect("root may");
    machine.done(NOBODY, "true");
    assert!(fs::symlink_metadata(machine.dir("nobody")).expect("there").is_symlink());
    assert_eq!(fs::symlink_metadata(machine.dir("nobody")).expect("there").uid(), 0);
    machine.end();
}

#[test]
fn root_that_becomes_somebody_else_uses_that_ones_server_or_none() {
    if !is_root() {
        return;
    }
    let machine = Machine::begin("su");
    let other = format!("setpriv --reuid={BOB} --regid={BOB} --clear-groups");
    let said = machine.sh(0, &format!("cd / && {other} sh -c 'echo x > /terral/bob/x'"));
    assert!(!said.status.success(), "{}", text(&said));
    let home = machine.end();
    assert!(!home.path().join("dir/bob/x").exists());
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
    machine.done(ALICE, "chmod 711 /terral/alice; cd /terral/alice; echo one > f; chmod 644 f");
    machine.kill(ALICE, "--instance-directory");
    assert_eq!(machine.done(BOB, "cat /terral/alice/f; echo two > /terral/bob/b"), "one\n");
    assert_eq!(machine.done(ALICE, "cat /terral/alice/f /terral/bob/b"), "one\ntwo\n");
    // And so is who starts it again.
    machine.kill(ALICE, "host");
    machine.kill(ALICE, "--instance-directory");
    assert_eq!(machine.done(ALICE, "cat /terral/alice/f /terral/bob/b"), "one\ntwo\n");
    // And root's.
    machine.kill(0, "--instance-directory");
    assert_eq!(machine.done(ALICE, "cat /terral/alice/f /terral/bob/b"), "one\ntwo\n");
    machine.done(ALICE, "echo three >> /terral/alice/f");
    let home = machine.end();
    assert_eq!(is(&home.path().join("dir/alice/f")).2, "one\nthree\n");
    assert_eq!(is(&home.path().join("dir/bob/b")).2, "two\n");
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
    // Nowhere for all of them to bring files to.
    let mut serve = machine.terral(0);
    let said = serve.args(["serve", "--users", "--name", "users-none"]).output().expect("runs");
    assert!(!said.status.success() && text(&said).contains("needs --to DIR"), "{}", text(&said));
    // Others may make names there.
    let mut serve = machine.terral(0);
    serve.args(["serve", "--users", "--name", "users-none", "--to"]).arg(machine.dir("all"));
    let said = serve.output().expect("runs");
    assert!(!said.status.success() && text(&said).contains("not root's"), "{}", text(&said));
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
    machine.done(
        ALICE,
        "chmod 711 /terral/alice; printf hers > /terral/alice/a && chmod 666 /terral/alice/a",
    );
    // He has it open, and tries to have it in his memory; goes on until he may no more.
    let script = "
import errno, mmap, os, sys, time
fd = os.open('/terral/alice/a', os.O_RDWR)
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
                    chmod 644 /terral/alice/a; cat /terral/alice/a; sleep 0.5; cat /terral/alice/a";
        let seen = machine.done(ALICE, wait);
        assert_eq!(seen[..4], seen[4..], "nothing is written once that is said");
        (writes.join().expect("runs"), seen)
    });
    assert!(output.0.status.success(), "{}", text(&output.0));
    assert_eq!(String::from_utf8_lossy(&output.0.stdout).trim(), &output.1[..4]);
    let home = machine.end();
    assert_eq!(is(&home.path().join("dir/alice/a")).2, output.1[..4]);
}
