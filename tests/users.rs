//! Programs of root's that become other users: under `terral run` and on tmpfs they are told the
//! same, and what they make is the same user's, here and in the permanent directory.
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;
mod descendants;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use beside::{Beside, built, run_plain, run_while};
use rustix::process::Signal;

/// Root may become somebody else; nobody else may.
fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("skipped: not root");
    }
    root
}

/// The program, compiled where every user can reach it.
fn compiled() -> (tempfile::TempDir, PathBuf) {
    let home = tempfile::tempdir().expect("directory");
    let path = beside::compiled("users", home.path());
    (home, path)
}

fn owners(root: &Path) -> String {
    let script = "find . -name .terral -prune -o -printf '%p %U %G %m\\n' | sort";
    run_plain(root, &format!("cd \"$TERRAL_DIR\" && {script}"))
}

/// One way of becoming somebody else: told the same, seen the same while it runs, and after.
fn becomes(way: &str) -> Option<Beside> {
    becomes_while(way, |_, _| ())
}

fn becomes_while(way: &str, meanwhile: impl FnOnce(u32, &AtomicBool) + Send) -> Option<Beside> {
    if !is_root() {
        return None;
    }
    let (_home, program) = compiled();
    let look = "find . -printf '%p %U %G %m %y\\n' | sort";
    let script = format!("\"{}\" {way} \"$TERRAL_DIR\" && {look}", program.display());
    let beside = run_while(&script, meanwhile);
    beside.assert_same();
    beside.assert_served(30);
    assert_eq!(owners(beside.ours.path()), owners(beside.reference.path()));
    for line in ["theirs/secret 0 0", "open/small-0 65534 65534"] {
        assert!(way == "calls" || beside.text.contains(line), "{line}: {}", beside.text);
    }
    Some(beside)
}

#[test]
fn who_changes_its_effective_user_is_told_what_linux_tells_it() {
    let Some(beside) = becomes("effective") else { return };
    for refused in ["unlink(\"theirs/readable\"): EACCES", "truncate(\"theirs/readable\", 0): EAC"]
    {
        assert!(beside.text.contains(refused), "{}", beside.text);
    }
}

#[test]
fn children_that_become_another_user_for_good_use_files_as_that_user() {
    becomes("fork");
}

#[test]
fn each_thread_is_the_user_that_it_has_become() {
    becomes("threads");
}

#[test]
fn every_call_of_libc_that_changes_users_or_groups_counts() {
    becomes("calls");
}

#[test]
fn system_calls_by_number_change_one_thread() {
    becomes("numbers");
}

#[test]
fn a_daemon_that_closes_everything_and_becomes_another_user_goes_on() {
    becomes("daemon");
}

#[test]
fn another_user_goes_on_when_the_server_was_killed() {
    let beside = becomes_while("fork", |run, over| {
        // All of it may be over within a tenth of a second.
        for after in [20, 60, 150] {
            let is_over = || over.load(Ordering::SeqCst);
            let server = std::iter::repeat_with(|| {
                std::thread::sleep(Duration::from_millis(1));
                descendants::server(run)
            });
            let Some(server) = server.take_while(|_| !is_over()).flatten().next() else { return };
            std::thread::sleep(Duration::from_millis(after));
            descendants::send(server, Signal::KILL);
        }
    });
    let Some(beside) = beside else { return };
    assert!(beside.summary["restarts"].as_u64() > Some(0), "{}", beside.summary);
}

#[test]
fn a_program_that_is_run_as_another_user_has_nothing_there() {
    if !is_root() {
        return;
    }
    let to = tempfile::tempdir().expect("directory");
    let other = "setpriv --reuid=65534 --regid=65534 --clear-groups";
    let script = format!(
        "cd /terral && umask 0 && echo secret > file && chmod 666 file && \
         {other} cat /terral/file; {other} sh -c 'echo theirs > /terral/new'; \
         {other} cat < file; {other} rm file; cat file; ls"
    );
    let mut command = Command::new(built("terral"));
    let command = command.args(["run", "--to"]).arg(to.path()).args(["--", "sh", "-c", &script]);
    let output = command.output().expect("terral");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(text, "secret\nfile\n", "only what root itself asked for: {errors}");
    assert_eq!(output.status.code(), Some(0), "{errors}");
    assert_eq!(std::fs::read_dir(to.path()).expect("lists").count(), 1);
}
