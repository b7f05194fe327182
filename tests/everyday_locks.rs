//! Locks and extended attributes as unmodified programs use them, under `terral run`: each prints
//! the same and leaves the same files as on tmpfs, and Terral really served the calls. What is not
//! installed is printed as skipped; `make test` installs it. Not here: the requests themselves
//! (`locks`, `xattrs`).
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;

use beside::{Beside, compiled, on_path, program, run, run_plain};

/// Runs one of `tests/programs/everyday`, if all `needed` are installed.
fn same(name: &str, needed: &[&str], opens: u64) -> Option<Beside> {
    if !needed.iter().all(|program| on_path(program)) {
        return None;
    }
    let beside = run(&format!("sh {}", program("everyday").join(name).display()));
    beside.assert_served(opens);
    Some(beside)
}

#[test]
fn every_kind_of_lock() {
    if on_path("gcc") {
        let home = tempfile::tempdir().expect("directory");
        let locks = compiled("locks", home.path());
        let beside = run(&format!("{} .", locks.display()));
        beside.assert_same();
        beside.assert_served(40);
        assert!(beside.text.ends_with("600\n600\n600\n600\ncounts\n"), "{}", beside.text);
    }
}

#[test]
fn locks_of_scripts() {
    if let Some(beside) = same("locks.sh", &["flock", "git", "perl", "pkill", "python3"], 100) {
        beside.assert_same();
        assert!(!beside.text.contains("stolen") && beside.text.contains("\n32\n"));
    }
}

#[test]
fn databases_of_many_writers() {
    if let Some(beside) = same("sqlite.sh", &["sqlite3", "python3"], 100) {
        // Random bytes are in the files: their dumps were compared.
        assert_eq!(beside.text.matches("ok\n").count(), 6, "{}", beside.text);
    }
}

#[test]
fn attributes_as_tools_set_and_copy_them() {
    let needed = ["cp", "getfattr", "rsync", "setfattr", "tar"];
    if let Some(beside) = same("xattrs.sh", &needed, 50) {
        beside.assert_same();
        let script = "cd \"$TERRAL_DIR\"; find . ! -path '*/.terral*' | LC_ALL=C sort | \
            xargs getfattr -d";
        let arrived = run_plain(beside.ours.path(), script);
        assert_eq!(arrived, run_plain(beside.reference.path(), script));
        assert!(arrived.contains("user.of.directory"), "{arrived}");
    }
}
