//! Programs that do not go through libc's functions for files: the same answers and files as on
//! tmpfs, and Terral served the calls. What is not installed is printed as skipped; `make test`
//! installs it. Not here: MPI (`mpi`).
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use beside::{built, compiled, compiled_as, on_path, program, run, text_of};

#[test]
fn system_calls_by_number_are_served() {
    if !on_path("gcc") {
        return;
    }
    let home = tempfile::tempdir().expect("directory");
    let made = compiled("numbers", home.path());
    let beside = run(&format!("{0} && {0} signals", made.display()));
    beside.assert_same();
    beside.assert_served(1000);
}

/// Whether there is a compiler, and a kernel that catches calls.
fn can_catch() -> bool {
    let offered = terral_transport::dispatch::is_offered();
    if !offered {
        println!("skipped: this kernel has no Syscall User Dispatch");
    }
    offered && on_path("gcc")
}

#[test]
fn system_calls_by_a_programs_own_instructions_are_served() {
    if !can_catch() {
        return;
    }
    let home = tempfile::tempdir().expect("directory");
    let made = compiled_as("numbers", home.path(), &["-DINLINE"]);
    let beside = run(&format!("{0} && {0} signals", made.display()));
    beside.assert_same();
    beside.assert_served(1000);
    assert_eq!(beside.summary["past"]["programs"], serde_json::json!([]));
}

#[test]
fn calls_that_are_caught_and_wait_are_interrupted_by_signals_or_go_on() {
    if !can_catch() {
        return;
    }
    let home = tempfile::tempdir().expect("directory");
    let made = compiled("interrupted", home.path());
    let beside = run(&format!("timeout 60 {}", made.display()));
    beside.assert_same();
    beside.assert_served(3);
    let told = |line: &str| beside.text.lines().filter(|other| *other == line).count();
    for what in ["open to read", "open to write", "read", "connect"] {
        assert_eq!(told(&format!("{what}: -4")), 2, "{what}");
        assert_eq!(told(&format!("{what} again: 1 after 1")), 2, "{what}");
    }
    assert_eq!((told("flock: -4"), told("range: -4")), (1, 1));
    assert_eq!((told("flock again: 1 after 1"), told("range again: 1 after 1")), (1, 1));
}

#[test]
fn a_library_that_is_loaded_later_is_served_in_all_threads() {
    if !can_catch() {
        return;
    }
    let home = tempfile::tempdir().expect("directory");
    let made = compiled("caught", home.path());
    let library = compiled_as("caught_library", home.path(), &["-shared", "-fPIC"]);
    let beside = run(&format!("{} {}", made.display(), library.display()));
    beside.assert_same();
    beside.assert_served(800);
}

#[test]
fn children_made_by_a_programs_own_instructions_go_on_with_its_files() {
    if !on_path("gcc") {
        return;
    }
    for (catch, word) in [("found", "caught"), ("never", "not caught")] {
        let (home, to) = (tempfile::tempdir().expect("home"), tempfile::tempdir().expect("to"));
        let program = compiled("cloned", home.path());
        let mut terral = Command::new(built("terral"));
        terral.args(["run", "--json", "--cwd", "--catch", catch, "--to"]).arg(to.path());
        let output = terral.arg("--").arg(program).arg(word).output().expect("terral");
        let text = text_of(&output);
        let (said, summary) = text.trim_end().rsplit_once('\n').expect("two lines");
        assert_eq!(said, "as promised", "{catch}");
        let summary: serde_json::Value = serde_json::from_str(summary).expect("JSON");
        assert!(summary["totals"]["opens"].as_u64() > Some(1), "{summary}");
    }
}

#[test]
fn code_that_a_program_writes_as_it_runs_is_served_on_demand() {
    if !can_catch() {
        return;
    }
    let (home, to) = (tempfile::tempdir().expect("home"), tempfile::tempdir().expect("to"));
    let made = compiled("caught", home.path()).display().to_string();
    let options = ["--catch", "all", "--cwd", "--json"];
    let (output, said) = terral(to.path(), &options, &[&made]);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert_eq!(fs::read(to.path().join("file-12")).expect("arrived"), b"file-12");
    assert!(!said.contains("written past"), "{said}");
}

#[test]
fn what_is_not_caught_is_named_and_not_run_under_strict() {
    if !can_catch() {
        return;
    }
    let (home, to) = (tempfile::tempdir().expect("home"), tempfile::tempdir().expect("to"));
    let made = compiled("caught", home.path()).display().to_string();
    let library = compiled_as("caught_library", home.path(), &["-shared", "-fPIC"]);
    let library = library.display().to_string();
    let numbers = compiled_as("numbers", home.path(), &["-DINLINE"]).display().to_string();
    let command =
        ["sh", "-c", &format!("cd {}; {made} {library} >/dev/null", home.path().display())];
    let (output, said) = terral(to.path(), &["--catch", "never", "--json"], &command);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert_eq!(said.matches(&library).count(), 1, "{said}");
    let (output, said) = terral(to.path(), &["--catch", "never", "--strict"], &command);
    assert_eq!(output.status.code(), Some(126), "{said}");
    let (output, said) = terral(to.path(), &["--catch", "never", "--strict"], &[&numbers]);
    assert_eq!(output.status.code(), Some(126), "{said}");
    assert!(said.contains(&numbers), "{said}");
    // Those that make none are started.
    let (output, said) = terral(to.path(), &["--catch", "never", "--strict"], &["true"]);
    assert_eq!(output.status.code(), Some(0), "{said}");
}

#[test]
fn node_uses_files() {
    if on_path("node") {
        let beside = run(&format!("node {}", program("everyday/files.js").display()));
        beside.assert_same();
        beside.assert_served(20);
    }
}

#[test]
fn npm_installs_a_package() {
    if on_path("node") && on_path("npm") {
        let beside = run(&format!("sh {}", program("everyday/npm.sh").display()));
        beside.assert_same();
        beside.assert_served(100);
    }
}

const STATIC: &str = "#include <stdio.h>
int main(int count, char **arguments) {
    return count > 1 && fopen(arguments[1], count > 2 ? \"w\" : \"r\") == NULL ? 3 : 0;
}
";

/// A program that loads no library.
fn unservable(home: &Path) -> Option<String> {
    let (source, made) = (home.join("unservable.c"), home.join("unservable"));
    fs::write(&source, STATIC).expect("writes");
    let done = on_path("gcc")
        && Command::new("gcc")
            .args(["-static", "-o"])
            .args([&made, &source])
            .status()
            .is_ok_and(|status| status.success());
    if !done {
        println!("skipped: nothing static can be linked");
    }
    done.then(|| made.display().to_string())
}

fn terral(to: &Path, options: &[&str], command: &[&str]) -> (Output, String) {
    let mut terral = Command::new(built("terral"));
    terral.arg("run").args(options).arg("--to").arg(to).arg("--").args(command);
    let output = terral.output().expect("terral");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, said)
}

#[test]
fn programs_that_cannot_be_served_are_named_when_they_start_and_in_the_summary() {
    let (home, to) = (tempfile::tempdir().expect("home"), tempfile::tempdir().expect("to"));
    let Some(one) = unservable(home.path()) else { return };
    // As COMMAND, and below a shell that also does what is served.
    let (output, said) = terral(to.path(), &[], &[&one, "/terral/x"]);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("does not see /terral"), "{said}");
    let script = format!("echo 1 > /terral/x; {one} /terral/x; {one} /terral/x; {one}; exit 0");
    let (output, said) = terral(to.path(), &["--json"], &["sh", "-c", &script]);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert_eq!(said.matches("does not see /terral").count(), 1, "{said}");
    let summary: serde_json::Value =
        serde_json::from_slice(output.stdout.trim_ascii()).expect("a summary");
    let named = summary["past"]["programs"].as_array().expect("a list");
    assert!(named.len() == 1 && named[0].as_str().expect("text").starts_with(&one), "{summary}");
    // Not given the prefix: only in the summary.
    let (_, said) = terral(to.path(), &[], &["sh", "-c", &format!("cat /terral/x; {one}")]);
    assert!(!said.contains("does not see"), "{said}");
    assert_eq!(said.matches(&one).count(), 1, "{said}");
}

#[test]
fn programs_that_cannot_be_served_are_named_in_whatever_way_they_are_started() {
    let (home, to) = (tempfile::tempdir().expect("home"), tempfile::tempdir().expect("to"));
    let Some(one) = unservable(home.path()) else { return };
    let starts = compiled("linux/started", home.path()).display().to_string();
    let put = Command::new("cp").arg(&one).arg(to.path()).status().expect("cp");
    assert!(put.success());
    let place = home.path().display().to_string();
    for way in ["posix_spawnp", "fexecve", "execveat", "execvp"] {
        for directory in [place.as_str(), "/terral"] {
            let command = [&starts, way, directory, "unservable", "/terral/x"];
            let (_, said) = terral(to.path(), &[], &command);
            assert!(said.contains("unservable: a static program, which"), "{way}: {said}");
            let (output, said) = terral(to.path(), &["--strict"], &command);
            assert!(said.contains("not started (--strict)"), "{way}: {said}");
            assert_eq!(output.status.code(), Some(rustix::io::Errno::ACCESS.raw_os_error()));
        }
    }
}

#[test]
fn strict_starts_no_program_that_cannot_be_served() {
    let (home, to) = (tempfile::tempdir().expect("home"), tempfile::tempdir().expect("to"));
    let Some(one) = unservable(home.path()) else { return };
    let (output, said) = terral(to.path(), &["--strict"], &[&one]);
    assert_eq!(output.status.code(), Some(126), "{said}");
    let (output, said) = terral(to.path(), &["--strict"], &["sh", "-c", &one]);
    assert_eq!(output.status.code(), Some(126), "{said}");
    assert!(said.contains("--strict"), "{said}");
    let (output, said) = terral(to.path(), &["--strict"], &["sh", "-c", "cat /dev/null"]);
    assert_eq!(output.status.code(), Some(0), "{said}");
}

#[test]
fn what_appears_under_a_real_prefix_is_said() {
    let (home, to) = (tempfile::tempdir().expect("home"), tempfile::tempdir().expect("to"));
    let Some(one) = unservable(home.path()) else { return };
    let prefix = home.path().join("real");
    fs::create_dir(&prefix).expect("made");
    fs::write(prefix.join("old"), "of before").expect("written");
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let (shown, past) = (prefix.display().to_string(), prefix.join("past"));
    let past = past.display().to_string();
    let command = ["sh", "-c", &format!("echo 1 > {shown}/served; {one} {past} make")];
    let (_, said) = terral(to.path(), &["--prefix", &shown], &command);
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("cannot see")).collect();
    assert!(lines.len() == 1 && lines[0].contains(&past), "{said}");
}

/// Ordinary users cannot write where the kernel puts it.
#[test]
fn core_dumps_of_a_program_under_the_prefix_are_kept() {
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    if pattern.contains(['|', '/']) || !rustix::process::geteuid().is_root() {
        println!("skipped: core dumps go elsewhere");
        return;
    }
    let to = tempfile::tempdir().expect("to");
    let script = "ulimit -c unlimited; kill -SEGV $$";
    let (output, said) = terral(to.path(), &["--cwd"], &["sh", "-c", script]);
    assert_eq!(output.status.code(), Some(128 + 11), "{said}");
    assert!(said.contains("/strays-of-") && said.contains("/core"), "{said}");
}
