//! What must not grow: the memory of programs and of the server over very many opens, and the time
//! each file takes with the number of files in its directory. In full with `TERRAL_TEST_LONG=1`.
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;
mod long;

use std::fs;
use std::path::Path;
use std::process::Command;

use beside::{built, compiled, on_path};

/// The log is written anew when it is 4 MiB longer than what it says.
const LOG_KIB: u64 = 5 << 10;
/// What the server and what is not warm memory may take more: pages first touched late.
const SLACK_KIB: u64 = 256;

/// Prints what the server and the instance take, in KiB, when nothing is owed: anonymous memory,
/// the log, all else but the segments, which `--memory` bounds, and what of those has a file's.
const MEASURE: &str = r#"measure() {
    "$terral" wait || exit 1
    # What was closed keeps its memory for a second.
    for _ in $(seq 100); do
        json=$("$terral" status --instance "$TERRAL_INSTANCE" --json)
        pid=$(echo "$json" | sed 's/.*"pid":\([0-9]*\).*/\1/')
        used=$(echo "$json" | sed 's/.*"memory_used_bytes":\([0-9]*\).*/\1/')
        test "$used" = 0 && break
        sleep 0.1
    done
    server=$(awk '/^RssAnon:/ { print $2 }' "/proc/$pid/status")
    log=$(du -k "$TERRAL_INSTANCE/log" | cut -f 1)
    other=$(du -sk --exclude 'seg-*' --exclude log "$TERRAL_INSTANCE" | cut -f 1)
    echo "$server $log $other $((used / 1024))"
}"#;

fn on_tmpfs() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").expect("directory")
}

/// Runs a shell script under `terral run`, and gives its lines and the summary.
fn run(to: &Path, script: &str) -> (Vec<String>, serde_json::Value) {
    let mut command = Command::new(built("terral"));
    command.args(["run", "--memory", "256M", "--json", "--to"]).arg(to);
    command.args(["--", "sh", "-c", script]).env("terral", built("terral"));
    let output = command.output().expect("terral runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    println!("{errors}");
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let summary = serde_json::from_str(&lines.pop().expect("a summary")).expect("JSON");
    (lines, summary)
}

#[test]
fn a_million_files_come_and_go_in_the_same_memory() {
    if !on_path("gcc") {
        return;
    }
    let home = on_tmpfs();
    let growth = compiled("growth", home.path());
    let rounds: u64 =
        if long::is_time_for("a million instead of 100,000 rounds") { 1_000_000 } else { 100_000 };
    let to = on_tmpfs();
    let script = format!(
        "{MEASURE}
        {0} $TERRAL_DIR 3 {1} && measure && {0} $TERRAL_DIR 3 {rounds} && measure",
        growth.display(),
        rounds / 10
    );
    let (lines, summary) = run(to.path(), &script);
    let numbers = |line: &String| -> Vec<u64> {
        line.split(' ').map(|word| word.parse().unwrap_or_else(|_| panic!("{line}"))).collect()
    };
    let [early, late] = [0, 1].map(|line| numbers(&lines[line]));
    assert!(late[0] <= early[0] + SLACK_KIB, "the server: {early:?} KiB, then {late:?}");
    assert!(late[1] <= LOG_KIB, "the log: {early:?} KiB, then {late:?}");
    assert!(late[2] <= early[2] + SLACK_KIB, "the instance: {early:?} KiB, then {late:?}");
    assert_eq!(late[3], 0, "memory of files that are gone");
    let opens = summary["totals"]["opens"].as_u64();
    assert!(opens.is_some_and(|opens| opens >= rounds * 2), "{summary}");
    assert!(fs::read_dir(to.path()).expect("lists").count() <= 2, "more than `old` arrived");
}

#[test]
fn many_files_in_a_directory_take_no_longer_each() {
    if !on_path("gcc") {
        return;
    }
    let home = on_tmpfs();
    let many = compiled("many", home.path());
    let files: u64 =
        if long::is_time_for("a million instead of 100,000 files") { 1_000_000 } else { 100_000 };
    let to = on_tmpfs();
    let script = format!("mkdir $TERRAL_DIR/d && {} $TERRAL_DIR/d {files}", many.display());
    let (_, summary) = run(to.path(), &script);
    let opens = summary["totals"]["opens"].as_u64();
    assert!(opens.is_some_and(|opens| opens >= files), "{summary}");
    assert_eq!(summary["state"], "arrived", "{summary}");
    let arrived = fs::read_dir(to.path().join("d")).expect("lists");
    assert_eq!(arrived.count() as u64, files / 1000);
    for number in (0..files).step_by(1000) {
        let name = format!("f{number:08}");
        assert_eq!(fs::read(to.path().join("d").join(&name)).expect("arrived"), name.as_bytes());
    }
}
