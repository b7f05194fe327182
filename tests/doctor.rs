//! `terral doctor -- PROGRAM` tells the truth: what it says will work is what the other tests run.
//! Not here: its lines about the machine.
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;

use std::path::Path;
use std::process::Command;

use beside::{built, compiled_as, on_path};

/// Exit status, and what it says.
fn doctor(program: &str, change: impl Fn(&mut Command)) -> (Option<i32>, String) {
    let mut command = Command::new(built("terral"));
    command.args(["doctor", "--", program]);
    change(&mut command);
    let output = command.output().expect("terral");
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

fn works(program: &str) -> String {
    let (code, said) = doctor(program, |_| ());
    assert_eq!(code, Some(0), "{program}: {said}");
    said
}

#[test]
fn programs_that_work_are_said_to_work() {
    for program in ["node", "bash", "sqlite3", "git", "java", "gmx", "lmp", "mpiexec.mpich"] {
        if on_path(program) {
            works(program);
        }
    }
    for path in ["/usr/bin/python3", "/usr/lib/postgresql/15/bin/postgres"] {
        if Path::new(path).exists() {
            works(path);
        }
    }
}

#[test]
fn calls_by_a_programs_own_instructions_are_told() {
    if !on_path("gcc") || !terral_transport::dispatch::is_offered() {
        return;
    }
    let home = tempfile::tempdir().expect("directory");
    let library = compiled_as("caught_library", home.path(), &["-shared", "-fPIC"]);
    let said = works(&library.display().to_string());
    assert!(said.contains("caught_library: 2 places, caught"), "{said}");
    // Those of the toolchain that builds this, which the tests do not run under Terral.
    let cargo = works(env!("CARGO"));
    assert!(cargo.contains("places, caught"), "{cargo}");
}

#[test]
fn programs_of_mpich_work_whatever_ucx_was_told() {
    let library = "/usr/lib/x86_64-linux-gnu/libmpich.so.12";
    if !Path::new(library).exists() {
        println!("skipped: MPICH is not installed");
        return;
    }
    for mode in [None, Some("none"), Some("bistro")] {
        let (code, said) = doctor(library, |command| {
            command.env_remove("UCX_MEM_MMAP_HOOK_MODE");
            command.envs(mode.map(|mode| ("UCX_MEM_MMAP_HOOK_MODE", mode)));
        });
        assert_eq!(code, Some(0), "{mode:?}: {said}");
    }
}

#[test]
fn a_shim_of_pyenv_is_the_python_behind_it() {
    let shim = "/root/.pyenv/shims/python3";
    if std::fs::metadata(shim).is_err() {
        println!("skipped: pyenv is not installed");
        return;
    }
    let said = works(shim);
    assert!(said.contains("/versions/") && said.contains("/bin/python3"), "{said}");
}

#[test]
fn r_is_the_program_behind_its_scripts() {
    for program in ["R", "Rscript"] {
        if on_path(program) {
            let said = works(program);
            assert!(said.contains("/bin/exec/R and "), "{said}");
            // What only libR.so calls.
            assert!(said.contains("patterns: glob"), "{said}");
        }
    }
}

#[test]
fn what_cannot_work_is_said_not_to() {
    if !on_path("gcc") {
        return;
    }
    let home = tempfile::tempdir().expect("directory");
    let made = compiled_as("numbers", home.path(), &["-static"]);
    let (code, said) = doctor(&made.display().to_string(), |_| ());
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("static"), "{said}");
    let (code, _) = doctor("/no/such/program", |_| ());
    assert_eq!(code, Some(127));
}
