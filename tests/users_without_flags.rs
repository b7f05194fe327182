//! `terral serve --users` on a permanent directory whose file system takes none of the flags of
//! renameat2(2), as over NFS: a `bindfs`. Needs root, which makes the users, and bindfs.
#![cfg(not(loom))]
#![allow(clippy::print_stdout)] // What is skipped is said.

mod all_users;
mod beside;
mod process;
mod served;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use all_users::{ALICE, BOB, Machine, NOBODY, is_root, set, text};
use served::Served;

/// renameat2(2) with RENAME_EXCHANGE of two names, and what it says.
const EXCHANGE: &str = "
import ctypes, errno, os, sys
libc = ctypes.CDLL(None, use_errno=True)
one, other = (os.fsencode(name) for name in sys.argv[1:])
failed = libc.renameat2(-100, one, -100, other, 2)
print(errno.errorcode[ctypes.get_errno()] if failed else 'done')
";

/// A machine on one, beside what is mounted. `None`: it cannot be had.
fn begin(test: &str, prepare: impl FnOnce(&Path)) -> Option<(Served, Machine)> {
    if !is_root() {
        return None;
    }
    let mut served = None;
    let machine = Machine::begin_on(test, &[], |home| {
        let (dir, store) = (home.join("dir"), home.join("store"));
        fs::rename(&dir, &store).expect("ours");
        fs::create_dir(&dir).expect("makes");
        prepare(&store);
        served = Served::mount(&store, &dir, &[]);
        if served.is_none() {
            // Then it is all there.
            fs::remove_dir(&dir).and_then(|()| fs::rename(&store, &dir)).expect("ours");
        }
        fs::write(home.join("exchange.py"), EXCHANGE).expect("writes");
    });
    let Some(served) = served else {
        machine.end();
        return None;
    };
    // Else this would show nothing.
    let (one, other) = (machine.dir("all/.one"), machine.dir("all/.other"));
    for path in [&one, &other] {
        fs::write(path, "").expect("root may");
    }
    let mut exchange = std::process::Command::new("python3");
    exchange.arg(machine.home.path().join("exchange.py")).args([&one, &other]);
    assert_eq!(text(&exchange.output().expect("runs")), "EINVAL\n");
    for path in [&one, &other] {
        fs::remove_file(path).expect("ours");
    }
    Some((served, machine))
}

fn exchange(machine: &Machine, user: u32, one: &str, other: &str) -> String {
    let script = machine.home.path().join("exchange.py");
    machine.done(user, &format!("python3 {} {one} {other}", script.display()))
}

/// Who owns it, with which mode, and what is in it.
fn is(path: &Path) -> (u32, u32, String) {
    let found = fs::symlink_metadata(path).expect("there");
    let bytes = fs::read_to_string(path).unwrap_or_default();
    (found.uid(), found.mode() & 0o7777, bytes)
}

fn names_in(path: &Path) -> Vec<String> {
    let found = fs::read_dir(path).expect("there").flatten();
    let mut names: Vec<_> = found.map(|one| one.file_name().into_string().expect("text")).collect();
    names.sort();
    names
}

#[test]
fn users_make_rename_exchange_and_remove_and_the_directory_has_what_is_whose() {
    let Some((served, machine)) = begin("noflags", |_| {}) else { return };
    for (user, own) in [(ALICE, "/terral/alice"), (BOB, "/terral/bob")] {
        machine.done(
            user,
            &format!(
                "umask 022; cd {own} && mkdir d e && echo one > f && echo two > g && mv f d/f && \
                 mv g e/g && echo three > h && mv h d/f && mv e d/e && ln d/f second && \
                 ln -s d link && mkfifo fifo && mkdir gone && rmdir gone && echo x > x && rm x"
            ),
        );
    }
    let [one, other] = ["/terral/alice/d/f", "/terral/alice/d/e/g"];
    assert_eq!(exchange(&machine, ALICE, one, other), "done\n");
    assert_eq!(machine.done(ALICE, &format!("cat {one} {other}")), "two\nthree\n");
    // A group of hers may write there, in the directory itself.
    machine
        .done(ALICE, "cd /terral/alice && mkdir -m 775 team && echo t > team/a && sync && sleep 1");
    machine.done(ALICE, "mv /terral/alice/team/a /terral/alice/team/b");
    machine.kill(ALICE, "--instance-directory");
    machine.done(ALICE, "cd /terral/alice && mv d/e/g d/e/moved && mv d moved");
    machine.kill(0, "--instance-directory");
    assert_eq!(machine.done(ALICE, "cat /terral/alice/moved/e/moved"), "three\n");
    machine.denied(BOB, "mv /terral/bob/second /terral/alice/f");
    let home = machine.end();
    drop(served);
    let store = home.path().join("store");
    assert_eq!(names_in(&store), ["alice", "all", "bob"]);
    let alice = store.join("alice");
    assert_eq!(names_in(&alice), ["before", "fifo", "link", "moved", "second", "team"]);
    assert_eq!(is(&alice.join("moved/f")), (ALICE, 0o644, "two\n".into()));
    assert_eq!(is(&alice.join("moved/e/moved")), (ALICE, 0o644, "three\n".into()));
    assert_eq!(is(&alice.join("second")), (ALICE, 0o644, "three\n".into()));
    assert_eq!(names_in(&alice.join("team")), ["b"]);
    assert_eq!(is(&store.join("bob/d/f")), (BOB, 0o644, "three\n".into()));
    assert_eq!(fs::metadata(store.join("bob/d/f")).expect("there").nlink(), 2);
}

#[test]
fn where_others_make_names_root_moves_nothing_and_makes_what_it_likes() {
    let Some((served, machine)) = begin("nosticky", |store| {
        fs::create_dir(store.join("own")).expect("makes");
        set(&store.join("own"), 0, 0o755);
    }) else {
        return;
    };
    machine.done(
        0,
        "umask 022; cd /terral/all && echo f > f && echo g > g && mkdir d && ln -s f link && \
         mkfifo fifo && ln f second && cd ../own && echo x > x && echo y > y && sync",
    );
    let rename = |from: &str, to: &str| {
        let script = format!(
            "import os\ntry: os.rename('{from}', '{to}')\nexcept OSError as e: print(e.errno)"
        );
        machine.done(0, &format!("python3 -c \"{script}\""))
    };
    for (from, to) in
        [("own/x", "all/x"), ("all/f", "all/new"), ("all/f", "all/g"), ("all/d", "all/e")]
    {
        let (from, to) = (format!("/terral/{from}"), format!("/terral/{to}"));
        assert_eq!(rename(&from, &to), "18\n", "EXDEV: {from} {to}");
    }
    assert_eq!(exchange(&machine, 0, "/terral/all/f", "/terral/own/x"), "EXDEV\n");
    assert_eq!(exchange(&machine, 0, "/terral/own/y", "/terral/own/x"), "done\n");
    machine
        .done(0, "cd /terral && mv own/y all/y && mv all/d all/e && mv all/g own/g && rm all/link");
    // What a user has made there himself, past Terral, stays.
    let hers = machine.dir("all/hers");
    fs::write(&hers, "hers").expect("root may");
    set(&hers, ALICE, 0o600);
    machine.denied(0, "mv /terral/own/x /terral/all/hers");
    let said = machine.terral(0).args(["doctor", "--to"]).arg(machine.dir("")).output();
    let said = text(&said.expect("runs"));
    let line = said.lines().find(|line| line.contains(" users ")).unwrap_or_default();
    assert!(line.contains("RENAME_NOREPLACE and RENAME_EXCHANGE"), "{said}");
    let home = machine.end();
    drop(served);
    let store = home.path().join("store");
    assert_eq!(names_in(&store), ["alice", "all", "bob", "own"]);
    assert_eq!(names_in(&store.join("all")), ["e", "f", "fifo", "hers", "second", "y"]);
    assert_eq!(names_in(&store.join("own")), ["g", "x"]);
    assert_eq!(is(&store.join("all/y")), (0, 0o644, "x\n".into()));
    assert_eq!(is(&store.join("all/hers")), (ALICE, 0o600, "hers".into()));
    for name in ["f", "second"] {
        assert_eq!(fs::metadata(store.join("all").join(name)).expect("there").nlink(), 2);
    }
    assert_eq!(fs::metadata(store.join("all/y")).expect("there").nlink(), 1);
}

#[test]
fn who_has_no_directory_gets_one_though_root_was_killed_as_it_made_it() {
    for killed in [false, true] {
        let begun = begin("nohome", |store| {
            if killed {
                fs::create_dir(store.join("nobody")).expect("makes");
                set(&store.join("nobody"), 0, 0o1200);
            }
        });
        let Some((served, machine)) = begun else { return };
        assert_eq!(machine.done(0, "ls /terral"), "alice\nall\nbob\n");
        let said = text(&machine.sh(BOB, "ls -d /terral/nobody"));
        assert!(said.contains("No such file"), "{said}");
        machine.done(NOBODY, "umask 022; echo mine > /terral/nobody/f && cat /terral/nobody/f");
        assert_eq!(is(&machine.dir("nobody")).0, NOBODY);
        let home = machine.end();
        drop(served);
        let nobody = home.path().join("store/nobody");
        assert_eq!((is(&nobody).0, is(&nobody).1), (NOBODY, 0o700));
        assert_eq!(is(&nobody.join("f")), (NOBODY, 0o644, "mine\n".into()));
    }
}
