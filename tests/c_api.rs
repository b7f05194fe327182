//! The C library as C programs meet it: `terral.h`, the shared and the static library, the example.
//!
//! Needs a C compiler, and the libraries beside this test program (`cargo build` of the same
//! profile).
#![cfg(not(loom))]
#![allow(clippy::print_stdout)] // It says what it skips.

mod process;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use terral_client::{Client, Totals};

const C_SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../src/c");
const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/programs");

/// Plays the role this process was started for; in the test run itself it does nothing.
#[test]
fn role() {
    process::play(256, &[]);
}

#[derive(Clone, Copy)]
enum Library {
    Shared,
    Static,
}

/// Where `cargo build --release` puts libraries.
fn libraries() -> PathBuf {
    let own = std::env::current_exe().expect("own path");
    own.ancestors().nth(3).expect("target/PROFILE/deps").join("release")
}

fn compiler_missing() -> bool {
    let missing = Command::new("cc").arg("--version").output().is_err();
    if missing {
        println!("skipped: no C compiler");
    }
    missing
}

fn text(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    format!("{out}{err}")
}

/// Compiles a program against the library; gives the program.
fn compile(source: &Path, library: Library, into: &Path) -> PathBuf {
    let folder = libraries();
    let name = match library {
        Library::Shared => "libterral.so",
        Library::Static => "libterral.a",
    };
    let found = folder.join(name);
    assert!(found.exists(), "{}: not built: run `cargo build --release` first", found.display());
    let program = into.join("program");
    let mut cc = Command::new("cc");
    cc.args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-O1", "-I", C_SOURCES]);
    cc.arg("-o").arg(&program).arg(source);
    match library {
        Library::Shared => {
            cc.arg("-L").arg(&folder).arg("-lterral");
            cc.arg(format!("-Wl,-rpath,{}", folder.display()));
        }
        Library::Static => {
            cc.arg(found);
        }
    }
    let output = cc.args(["-lpthread", "-ldl", "-lm"]).output().expect("cc runs");
    assert!(output.status.success(), "{}", text(&output));
    program
}

/// Runs a program on a server of its own; gives what it said and what the server counted meanwhile.
fn run(source: &Path, library: Library) -> (String, Totals) {
    let home = tempfile::tempdir_in("/dev/shm").expect("room");
    let program = compile(source, library, home.path());
    let instance = home.path().join("instance");
    let _server = process::start_server(&instance, None);
    let client = Client::connect(&instance).expect("connects");
    let before = client.status().expect("status").totals;
    assert_eq!((before.opens, before.written_bytes), (0, 0));
    let mut command = Command::new(program);
    command.arg(&instance).env("TERRAL_INSTANCE", &instance).env_remove("LD_PRELOAD");
    let output = command.output().expect("runs");
    assert!(output.status.success(), "{}\n{}", output.status, text(&output));
    (text(&output), client.status().expect("status").totals)
}

const EXAMPLE_OUTPUT: &str = "restored step 3, 1048576 values\ncheckpoints:\n  latest\n";

#[test]
fn the_example_works_with_the_shared_library() {
    if compiler_missing() {
        return;
    }
    let (said, totals) = run(&Path::new(C_SOURCES).join("example.c"), Library::Shared);
    assert_eq!(said, EXAMPLE_OUTPUT);
    let checkpoint = 24 + 8 * (1 << 20);
    assert_eq!((totals.opens, totals.written_bytes), (4, 3 * checkpoint));
    assert_eq!(totals.read_bytes, checkpoint);
}

#[test]
fn the_example_works_with_the_static_library() {
    if compiler_missing() {
        return;
    }
    let (said, totals) = run(&Path::new(C_SOURCES).join("example.c"), Library::Static);
    assert_eq!((said.as_str(), totals.opens), (EXAMPLE_OUTPUT, 4));
}

#[test]
fn every_call_does_what_the_header_says() {
    if compiler_missing() {
        return;
    }
    for library in [Library::Shared, Library::Static] {
        let (said, totals) = run(&Path::new(PROGRAMS).join("c_api.c"), library);
        assert_eq!(said, "c_api: all well\n");
        assert!(totals.opens >= 15, "{totals:?}");
        assert!(totals.written_bytes >= 300_000 + 100_010 + 800 * 777, "{totals:?}");
        // However often it connected: the program, its forked child, and this test's two clients.
        assert!(totals.sessions <= 4, "{totals:?}");
    }
}

#[test]
fn every_call_on_objects_and_checkpoints_does_what_the_header_says() {
    if compiler_missing() {
        return;
    }
    let (said, _) = run(&Path::new(PROGRAMS).join("c_objects.c"), Library::Shared);
    assert_eq!(said, "c_objects: all well\n");
}

#[test]
fn every_call_on_named_locks_does_what_the_header_says() {
    if compiler_missing() {
        return;
    }
    let (said, _) = run(&Path::new(PROGRAMS).join("c_locks.c"), Library::Shared);
    assert_eq!(said, "c_locks: all well\n");
}

/// Names that look like `terral_x(`, or `terral_x` after `before`.
fn calls(text: &str, before: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, _) in text.match_indices("terral_") {
        let name: String =
            text[at..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        if text[..at].ends_with(before) && text[at + name.len()..].starts_with('(') {
            found.insert(name);
        }
    }
    found
}

#[test]
fn the_header_declares_what_the_library_has() {
    let read =
        |name: &str| std::fs::read_to_string(Path::new(C_SOURCES).join(name)).expect("a source");
    let header = read("terral.h");
    let code: String = header.split("*/").filter_map(|part| part.split("/*").next()).collect();
    let declared: BTreeSet<String> =
        calls(&code, "").into_iter().filter(|name| !name.ends_with("_callback")).collect();
    let rust = [
        "error",
        "connection",
        "names",
        "file",
        "containers",
        "servers",
        "objects",
        "submitted",
        "locks",
        "transactions",
        "checkpoints",
    ];
    let rust = rust.map(|name| read(&format!("{name}.rs"))).concat();
    assert!(declared.len() > 20);
    assert_eq!(declared, calls(&rust, "fn "));
    let used = ["c_api.c", "c_objects.c", "c_locks.c"]
        .map(|name| std::fs::read_to_string(Path::new(PROGRAMS).join(name)).expect("a source"));
    let used = calls(&used.concat(), "");
    let unused: Vec<_> = declared.difference(&used).collect();
    assert!(unused.is_empty(), "the test program never calls {unused:?}");
}
