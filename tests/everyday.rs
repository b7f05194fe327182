//! The programs people use every day, unmodified, under `terral run`: each prints the same and
//! leaves the same files as on tmpfs, and Terral really served the calls. What is not installed is
//! printed as skipped; `make test` installs it. Not here: the main job (`programs`).
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;

use std::path::Path;

use beside::{Beside, compiled, on_path, program, run, run_plain};

/// Runs one of `tests/programs/everyday` with this interpreter, if all `needed` are installed.
fn beside(interpreter: &str, name: &str, needed: &[&str]) -> Option<Beside> {
    if !needed.iter().all(|program| on_path(program)) {
        return None;
    }
    let script = program("everyday").join(name);
    Some(run(&format!("{interpreter} {}", script.display())))
}

fn same(interpreter: &str, name: &str, needed: &[&str], opens: u64) {
    if let Some(beside) = beside(interpreter, name, needed) {
        beside.assert_same();
        beside.assert_served(opens);
    }
}

#[test]
fn dash_scripts() {
    same("dash", "shell.sh", &["dash"], 40);
}

#[test]
fn bash_scripts() {
    same("bash", "shell.sh", &["bash"], 40);
    same("bash", "bash.sh", &["bash"], 10);
}

#[test]
fn tools() {
    same("sh", "tools.sh", &["bc", "look"], 200);
}

#[test]
fn archives() {
    same("sh", "archives.sh", &["tar"], 800);
}

#[test]
fn rsync() {
    same("sh", "rsync.sh", &["rsync"], 500);
}

#[test]
fn rsync_of_hard_links() {
    same("sh", "rsync-links.sh", &["rsync"], 200);
}

#[test]
fn links() {
    same("bash", "links.sh", &["rsync", "perl"], 60);
}

#[test]
fn editors() {
    same("sh", "editors.sh", &["vim", "less"], 100);
}

#[test]
fn perl() {
    same("perl", "files.pl", &["perl"], 20);
}

#[test]
fn git() {
    same("sh", "git.sh", &["git"], 1000);
}

#[test]
fn make() {
    same("bash", "make.sh", &["make", "gcc"], 200);
}

#[test]
fn python() {
    same("/usr/bin/python3", "files.py", &["python3"], 80);
}

fn has_module(name: &str) -> bool {
    let found = Path::new("/usr/lib/python3/dist-packages").join(name).exists();
    if !found {
        println!("skipped: python3-{name} is not installed");
    }
    found
}

#[test]
fn numpy() {
    if has_module("numpy") {
        same("/usr/bin/python3", "arrays.py", &["python3"], 15);
    }
}

#[test]
fn a_virtual_environment() {
    if has_module("setuptools") {
        same("sh", "venv.sh", &["python3"], 1000);
    }
}

#[test]
fn fortran() {
    if on_path("gfortran") {
        let source = program("everyday/files.f90");
        let beside = run(&format!("gfortran {} -o run && ./run && rm run", source.display()));
        beside.assert_same();
        beside.assert_served(10);
    }
}

#[test]
fn what_libc_does_inside() {
    if on_path("gcc") {
        let home = tempfile::tempdir().expect("directory");
        let inside = compiled("everyday/inside", home.path());
        let beside = run(&format!("{} && rm libseven.so", inside.display()));
        beside.assert_same();
        beside.assert_served(20);
    }
}

#[test]
fn walks_of_trees() {
    if on_path("gcc") {
        let home = tempfile::tempdir().expect("directory");
        let trees = compiled("everyday/trees", home.path());
        let beside = run(&format!("{} | sed \"s|$TERRAL_DIR||g\"", trees.display()));
        assert!(beside.text.lines().count() > 200, "{}", beside.text);
        beside.assert_same();
        beside.assert_served(20);
    }
}

#[test]
fn gromacs_killed_and_continued() {
    if on_path("gmx") {
        let whole = tempfile::tempdir_in("/dev/shm").expect("directory");
        let script = program("everyday/gromacs.sh");
        let whole =
            run_plain(whole.path(), &format!("cd \"$TERRAL_DIR\" && bash {}", script.display()));
        let beside = run(&format!("bash {} kill", script.display()));
        assert!(beside.text == whole && whole.len() > 10_000, "another simulation");
        beside.assert_served(20);
    }
}
