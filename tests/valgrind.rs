//! The preload library under valgrind's memcheck, inside real programs: no access to memory that is
//! not the program's or not set, nothing lost. Each program prints the same and leaves the same
//! files as on tmpfs.
//!
//! Not checked: the copy by AVX-512, since valgrind tells programs that there is none; and what
//! happens in programs that lie under the prefix, which valgrind cannot start.
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;

use std::fs;

use beside::{compiled, on_path, program};

/// What an error of ours has in its stack: a function of the library, or the library.
const OURS: [&str; 2] = ["terral_", "libterral"];

/// Runs a script on tmpfs and, with valgrind as `$checked`, under `terral run`.
fn check(script: &str, opens: u64) {
    let logs = tempfile::tempdir().expect("directory");
    let checked = format!(
        "checked=; [ -z \"$TERRAL_INSTANCE\" ] || checked='valgrind -q --trace-children=yes \
         --leak-check=full --show-leak-kinds=definite --log-file={}/%p'; export checked; {script}",
        logs.path().display()
    );
    let beside = beside::run(&checked);
    beside.assert_same();
    beside.assert_served(opens);
    let logs: Vec<String> = fs::read_dir(logs.path())
        .expect("lists")
        .map(|entry| fs::read_to_string(entry.expect("entry").path()).expect("reads"))
        .collect();
    assert!(!logs.is_empty(), "valgrind ran nothing");
    let found = logs.iter().flat_map(|log| of_ours(log)).collect::<Vec<_>>();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// The errors in a log that have the library in their stack.
fn of_ours(log: &str) -> Vec<String> {
    let mut found = Vec::new();
    let is_end = |line: &str| line.ends_with("== ");
    for error in log.lines().collect::<Vec<_>>().split(|line| is_end(line)) {
        let text = error.join("\n");
        if OURS.iter().any(|mark| text.contains(mark)) {
            found.push(text);
        }
    }
    found
}

#[test]
fn tools_and_python() {
    if ["valgrind", "tar", "python3"].iter().all(|program| on_path(program)) {
        check(&format!("sh {}", program("everyday/checked.sh").display()), 100);
    }
}

#[test]
fn git() {
    if on_path("valgrind") && on_path("git") {
        check(&format!("sh {}", program("everyday/checked-git.sh").display()), 50);
    }
}

#[test]
fn c_programs() {
    if on_path("valgrind") && on_path("gcc") {
        let home = tempfile::tempdir().expect("directory");
        for name in ["rw", "stdio"] {
            let made = compiled(name, home.path());
            check(&format!("mkdir w; $checked {} \"$TERRAL_DIR/w\"", made.display()), 10);
        }
    }
}

#[test]
fn an_error_of_ours_is_found() {
    let log = "==1== Invalid read of size 8\n==1==    at 0x1: other (in /usr/bin/tar)\n==1== \n\
               ==1== Invalid write of size 1\n==1==    at 0x1: terral_preload::open::x (open.rs:1)";
    assert_eq!(of_ours(log).len(), 1);
    assert!(of_ours(log)[0].contains("Invalid write"));
}
