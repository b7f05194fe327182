//! How a run begins and ends: one within another, what it needs, signals and time limits while the
//! rest is brought, programs that outlive their launcher.
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;
mod descendants;
mod launched;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use beside::{built, on_path};
use launched::{run_to, said, until};
use rustix::process::Signal;

fn has(directory: &Path, name: &str) -> String {
    fs::read_to_string(directory.join(name)).unwrap_or_else(|error| error.to_string())
}

#[test]
fn a_run_within_a_run_delivers_to_its_own_directory() {
    for shell in ["sh", "bash", "python3"] {
        if !on_path(shell) {
            continue;
        }
        let (outer, inner) = (tempfile::tempdir(), tempfile::tempdir());
        let (outer, inner) = (outer.expect("directory"), inner.expect("directory"));
        let (program, target) = (built("terral"), inner.path().display());
        let program = program.display();
        let nested = format!(
            "{program} run --to {target} -- sh -c 'echo inner > $TERRAL_DIR/in; cat /terral/in'"
        );
        let script = if shell == "python3" {
            format!(
                "import os, subprocess\nopen('/terral/a', 'w').write('outer')\n\
                 subprocess.check_call({nested:?}, shell=True, env=dict(os.environ))\n\
                 open('/terral/b', 'w').write('outer')\nassert not os.path.exists('/terral/in')"
            )
        } else {
            format!(
                "echo -n outer > /terral/a; {nested} || exit 1; echo -n outer > /terral/b; \
                 test ! -e /terral/in"
            )
        };
        let mut command = run_to(outer.path(), &[]);
        let output = command.args(["--", shell, "-c", &script]).output().expect("runs");
        assert!(output.status.success(), "{shell}: {}", said(&output));
        let (a, b) = (has(outer.path(), "a"), has(outer.path(), "b"));
        assert_eq!((a.as_str(), b.as_str()), ("outer", "outer"), "{}", said(&output));
        assert_eq!(has(inner.path(), "in"), "inner\n", "{shell}: {}", said(&output));
        assert!(!outer.path().join("in").exists(), "{}", said(&output));
    }
}

#[test]
fn a_run_within_a_run_does_not_deliver_into_the_outer_ones_memory() {
    let outer = tempfile::tempdir().expect("directory");
    let program = built("terral");
    for (prefix, to) in [("/terral", "/terral/sub"), ("/inner", "/terral/sub")] {
        let script = format!("{} run --prefix {prefix} --to {to} -- true", program.display());
        let mut command = run_to(outer.path(), &[]);
        let output = command.args(["--", "sh", "-c", &script]).output().expect("runs");
        assert_eq!(output.status.code(), Some(125), "{}", said(&output));
        assert!(said(&output).contains("--to /terral/sub: lies"), "{}", said(&output));
    }
    let inner = tempfile::tempdir().expect("directory");
    for (how, code) in [("", 125), ("--cwd", 0)] {
        let to = inner.path().display();
        let script = format!("{} run {how} --to {to} -- sh -c 'echo > stands'", program.display());
        let mut command = run_to(outer.path(), &[]);
        let output = command.args(["--cwd", "--", "sh", "-c", &script]).output().expect("runs");
        assert_eq!(output.status.code(), Some(code), "{}", said(&output));
        assert_eq!(inner.path().join("stands").exists(), code == 0, "{}", said(&output));
    }
    assert!(fs::read_dir(outer.path()).expect("lists").next().is_none());
}

#[test]
fn programs_that_have_used_nothing_when_their_launcher_dies_are_served() {
    let (home, to) = (tempfile::tempdir(), tempfile::tempdir());
    let (home, to) = (home.expect("directory"), to.expect("directory"));
    let script = format!(
        ": > {0}/ready; sleep 1.2; sh -c 'sleep 0.3; echo late > /terral/a; : > {0}/done' &",
        home.path().display()
    );
    let mut run = run_to(to.path(), &[]);
    let mut run = run.args(["--", "sh", "-c", &script]).spawn().expect("starts");
    until("the program", || home.path().join("ready").exists());
    let server = descendants::server(run.id()).expect("a server");
    descendants::send(run.id() as i32, Signal::KILL);
    run.wait().expect("was killed");
    until("its last words", || home.path().join("done").exists());
    until("their arrival", || has(to.path(), "a") == "late\n");
    until("the server's end", || !descendants::is_server(server));
}

/// A run whose command has ended, while its directory is away: it has another name.
fn waiting(to: &Path, arguments: &[&str]) -> std::process::Child {
    let (done, away) = (to.with_extension("done"), to.with_extension("away"));
    let _ = fs::remove_file(&done);
    let script = format!(
        "echo kept > /terral/a; mv {} {}; : > {}",
        to.display(),
        away.display(),
        done.display()
    );
    let mut run = run_to(to, &[]);
    let run = run.args(arguments).args(["--", "sh", "-c", &script]).spawn().expect("starts");
    until("the command's end", || done.exists());
    run
}

/// The directory comes back, and the next run has what the last one kept.
fn assert_kept(to: &Path, output: &Output) {
    assert_eq!(output.status.code(), Some(74), "{}", said(output));
    assert!(!to.join("a").exists());
    fs::rename(to.with_extension("away"), to).expect("renames");
    let next = run_to(to, &[]).args(["--", "cat", "/terral/a"]).output().expect("runs");
    assert_eq!(String::from_utf8_lossy(&next.stdout), "kept\n", "{}", said(&next));
    assert_eq!(has(to, "a"), "kept\n");
}

#[test]
fn one_term_goes_on_bringing_and_the_second_keeps_the_rest_in_memory() {
    for signals in [1, 2] {
        let home = tempfile::tempdir().expect("directory");
        let to = home.path().join("to");
        let run = waiting(&to, &[]);
        for _ in 0..signals {
            std::thread::sleep(Duration::from_millis(700));
            descendants::send(run.id() as i32, Signal::TERM);
        }
        if signals == 1 {
            std::thread::sleep(Duration::from_millis(300));
            fs::rename(to.with_extension("away"), &to).expect("renames");
        }
        let output = run.wait_with_output().expect("ends");
        assert!(said(&output).contains("going on until"), "{}", said(&output));
        if signals == 1 {
            assert!(output.status.success(), "{}", said(&output));
            assert_eq!(has(&to, "a"), "kept\n");
        } else {
            assert_kept(&to, &output);
        }
    }
}

#[test]
fn the_end_of_a_run_is_waited_for_no_longer_than_was_said() {
    let home = tempfile::tempdir().expect("directory");
    let to = home.path().join("to");
    let run = waiting(&to, &["--wait-timeout", "300ms"]);
    let begin = Instant::now();
    let output = run.wait_with_output().expect("ends");
    assert!(begin.elapsed() < Duration::from_secs(60), "{}", said(&output));
    assert!(said(&output).contains("--wait-timeout"), "{}", said(&output));
    assert_kept(&to, &output);
}

#[test]
fn a_staging_directory_that_stays_is_said_and_is_no_success() {
    let to = tempfile::tempdir().expect("directory");
    let mine = to.path().join(".terral/mine");
    let staging = to.path().join(".terral");
    let script =
        format!("echo kept > /terral/a; mkdir -p {0}; touch {0}/mine; exit $1", staging.display());
    for (own, code) in [("0", 1), ("3", 3)] {
        let mut run = run_to(to.path(), &[]);
        let output = run.args(["--", "sh", "-c", &script, "sh", own]).output().expect("runs");
        assert_eq!(output.status.code(), Some(code), "{}", said(&output));
        assert!(said(&output).contains(".terral stays"), "{}", said(&output));
        assert!(mine.exists() && has(to.path(), "a") == "kept\n");
    }
}

/// Under a limit of the kernel, as a shell sets it.
fn limited(limit: &str, command: &str) -> Output {
    let script = format!("{limit}; exec {} {command}", built("terral").display());
    let mut shell = Command::new("bash");
    shell.args(["-c", &script]).arg0("bash").output().expect("bash")
}

#[test]
fn a_server_without_descriptors_or_address_space_says_what_it_needs() {
    let to = tempfile::tempdir().expect("directory");
    let name = format!("limits-{}", std::process::id());
    let to = to.path().display();
    for (limit, words) in [("ulimit -n 20", "ulimit -n"), ("ulimit -v 1000000", "ulimit -v")] {
        for verb in [format!("run --to {to} -- true"), format!("serve --to {to} --name {name}")] {
            let output = limited(limit, &verb);
            assert_eq!(output.status.code(), Some(125), "{limit}: {verb}: {}", said(&output));
            assert!(said(&output).contains(words), "{limit}: {verb}: {}", said(&output));
        }
    }
}
