//! `terral bench --against`: two builds measured in turn, and what that says about them.
#![cfg(not(loom))]

mod beside;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const CASE: &str = "overwrite-64k-1p";

/// Compares the program that was built with another.
fn compare(other: &Path, more: &[&str]) -> Output {
    let disk = tempfile::tempdir().expect("a directory");
    let mut command = Command::new(beside::built("terral"));
    command.args(["bench", "--runs", "2", "--quick", "--size", "4M", "--cases", CASE, "--against"]);
    command.arg(other).arg("--to").arg(disk.path()).args(more).env_remove("TERRAL_INSTANCE");
    command.output().expect("terral")
}

/// A program that says it has the case and measured so much, client and preload.
fn that_measured(at: &Path, ratio: f64) -> std::path::PathBuf {
    let row =
        |face: &str| format!(r#"{{"case":"{CASE}","face":"{face}","ratio":{{"median":{ratio}}}}}"#);
    let report = format!(r#"{{"rows":[{},{}],"facts":[]}}"#, row("client"), row("preload"));
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in\n'bench --list') echo {CASE};;\n*'--json --cases {CASE}'*) \
         echo '{report}';;\n*) exit 9;;\nesac\n"
    );
    let path = at.join("other");
    fs::write(&path, script).expect("writes");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("executable");
    path
}

#[test]
fn a_build_compared_with_itself_is_itself() {
    let output = compare(&beside::built("terral"), &["--json"]);
    let said = String::from_utf8_lossy(&output.stderr);
    let found: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{said}"));
    let figures = found["figures"].as_array().expect("figures");
    let names: Vec<_> = figures.iter().filter_map(|figure| figure["name"].as_str()).collect();
    assert_eq!(names, [format!("{CASE} client"), format!("{CASE} preload")], "{found}");
    for figure in figures {
        for of in ["ratio", "same"] {
            let bound = |name: &str| figure[of][name].as_f64().expect("a number");
            let (low, mean, high) = (bound("low"), bound("mean"), bound("high"));
            assert!(low <= mean && mean <= high && (0.05..20.0).contains(&mean), "{found}");
        }
    }
    assert_eq!((&found["rounds"], &found["without"]), (&2.into(), &Value::Array(vec![])));
    // What it says and how it ends are one: with so few bytes chance may well make one slower.
    let mean = found["mean"].as_f64().expect("a number");
    let worse = figures.iter().any(|figure| figure["worse"] == true) || mean < 0.98;
    assert_eq!(output.status.code(), Some(i32::from(worse)), "{said}");
}

#[test]
fn a_slower_build_is_said_and_is_exit_status_1() {
    let at = tempfile::tempdir().expect("a directory");
    // So far apart that two rounds tell, also where one of them waited for a busy machine.
    let slower = compare(&that_measured(at.path(), 1e15), &[]);
    let said = String::from_utf8_lossy(&slower.stdout);
    assert_eq!(slower.status.code(), Some(1), "{said}");
    assert!(said.contains("WORSE") && said.contains("2 of 2 figures worse"), "{said}");
    let quicker = compare(&that_measured(at.path(), 1e-15), &[]);
    let said = String::from_utf8_lossy(&quicker.stdout);
    assert_eq!(quicker.status.code(), Some(0), "{said}");
    assert!(!said.contains("WORSE") && said.contains("0 of 2 figures worse"), "{said}");
}
