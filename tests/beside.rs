//! One command on tmpfs and the same under `terral run`: the same output, the same files, and
//! Terral served the calls. Not here: what the commands are.
#![allow(clippy::print_stdout)] // What is skipped is said.
#![allow(dead_code)] // Each test file uses its part.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

/// A program as users get it: what `cargo build --release` made, beside this test's profile.
pub fn built(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("own path");
    let path = own.ancestors().nth(3).expect("target directory").join("release").join(name);
    assert!(path.exists(), "{} is missing: cargo build --release first", path.display());
    path
}

/// Whether a program is installed; says so if it is not.
pub fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|directory| directory.join(program).exists());
    if !found {
        println!("skipped: {program} is not installed");
    }
    found
}

/// A path below `tests/programs`.
pub fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(name)
}

/// A command of a shell that runs a program of Python, which finds the package `terral`.
pub fn by_python(program: &Path) -> String {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../src/python");
    format!(
        "env PYTHONDONTWRITEBYTECODE=1 PYTHONPATH={} TERRAL_LIBRARY={} /usr/bin/python3 {}",
        source.display(),
        built("libterral.so").display(),
        program.display()
    )
}

/// Compiles one of the test's programs in C.
pub fn compiled(name: &str, home: &Path) -> PathBuf {
    made_by("gcc", name, home, &[])
}

/// As [`compiled`], with this compiler.
pub fn compiled_by(compiler: &str, name: &str, home: &Path) -> PathBuf {
    made_by(compiler, name, home, &[])
}

/// As [`compiled`], with more of the compiler's options.
pub fn compiled_as(name: &str, home: &Path, options: &[&str]) -> PathBuf {
    made_by("gcc", name, home, options)
}

/// As [`compiled`], with this compiler and more of its options.
pub fn made_by(compiler: &str, name: &str, home: &Path, options: &[&str]) -> PathBuf {
    let source = program(&format!("{name}.c"));
    let to = home.join(source.file_stem().expect("a name"));
    let mut command = Command::new(compiler);
    command.args(["-O1", "-g", "-D_GNU_SOURCE=", "-Wall", "-Wextra", "-Werror", "-pthread"]);
    command.args(["-Wno-deprecated-declarations", "-Wno-nonnull"]);
    // Libraries come after what uses them.
    command.arg("-o").arg(&to).arg(source).args(options);
    assert!(command.status().expect("runs").success(), "{compiler}: {name}.c does not compile");
    to
}

/// What Terral and tmpfs made of one script.
pub struct Beside {
    /// What the script printed.
    pub text: String,
    /// What `terral run --json` says.
    pub summary: serde_json::Value,
    /// Where the files arrived.
    pub ours: tempfile::TempDir,
    /// The directory on tmpfs.
    pub reference: tempfile::TempDir,
}

/// What a command that ended well has printed.
pub fn text_of(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}\n{text}\n{errors}", output.status);
    text
}

/// Runs a shell script in an empty directory, on tmpfs and under `terral run`.
pub fn run(script: &str) -> Beside {
    run_in(None, script, |_, _| ())
}

/// As [`run`], while something is done to the `terral run` of this process id, until it is over.
pub fn run_while(script: &str, meanwhile: impl FnOnce(u32, &AtomicBool) + Send) -> Beside {
    run_in(None, script, meanwhile)
}

/// As [`run_while`], with so much memory for Terral, as its `--memory` takes it.
pub fn run_in(
    memory: Option<&str>,
    script: &str,
    meanwhile: impl FnOnce(u32, &AtomicBool) + Send,
) -> Beside {
    let ours = tempfile::tempdir().expect("directory");
    let reference = tempfile::tempdir_in("/dev/shm").expect("directory");
    let script = format!("cd \"$TERRAL_DIR\" || exit 1; {script}");
    let expected = run_plain(reference.path(), &script);
    let mut command = Command::new(built("terral"));
    command.args(["run", "--json"]).args(memory.into_iter().flat_map(|bound| ["--memory", bound]));
    command.arg("--to").arg(ours.path()).args(["--", "sh", "-c", &script]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let run = command.spawn().expect("terral");
    let over = AtomicBool::new(false);
    let output = std::thread::scope(|scope| {
        let (pid, over) = (run.id(), &over);
        scope.spawn(move || meanwhile(pid, over));
        let output = run.wait_with_output();
        over.store(true, Ordering::SeqCst);
        output.expect("it ends")
    });
    let text = text_of(&output);
    let at = text.trim_end().rfind('\n').map_or(0, |at| at + 1);
    let summary = serde_json::from_str(&text[at..]).unwrap_or_else(|e| panic!("{e}: {text}"));
    assert_lines(&text[..at], &expected);
    Beside { text: expected, summary, ours, reference }
}

/// The same lines, or the first that differ.
pub fn assert_lines(ours: &str, reference: &str) {
    let pairs = ours.lines().zip(reference.lines()).enumerate();
    for (number, (ours, reference)) in pairs {
        assert_eq!(ours, reference, "line {}", number + 1);
    }
    assert_eq!(ours.lines().count(), reference.lines().count(), "after the same beginning: {ours}");
}

/// Runs a shell script without Terral, and gives what it printed.
pub fn run_plain(directory: &Path, script: &str) -> String {
    let mut command = Command::new("sh");
    command.args(["-c", script]).env("TERRAL_DIR", directory);
    text_of(&command.output().expect("sh"))
}

impl Beside {
    /// Asserts that both directories hold the same.
    pub fn assert_same(&self) {
        let (ours, reference) = (tree(self.ours.path()), tree(self.reference.path()));
        let only = |one: &BTreeMap<PathBuf, Entry>, other: &BTreeMap<PathBuf, Entry>| {
            one.keys().filter(|name| !other.contains_key(*name)).cloned().collect::<Vec<_>>()
        };
        assert_eq!((only(&ours, &reference), only(&reference, &ours)), (vec![], vec![]));
        for (name, entry) in reference {
            assert!(ours[&name] == entry, "{} differs", name.display());
        }
    }

    /// Asserts that Terral opened at least so many files, and that all arrived.
    pub fn assert_served(&self, opens: u64) {
        let found = self.summary.pointer("/totals/opens").and_then(serde_json::Value::as_u64);
        assert!(found.is_some_and(|found| found >= opens), "{}", self.summary);
        assert_eq!(self.summary["state"], "arrived", "{}", self.summary);
    }
}

/// What a name stands for: its type and permissions, and bytes or where a link leads.
#[derive(PartialEq, Eq)]
struct Entry {
    mode: u32,
    bytes: Vec<u8>,
}

/// Everything below a directory but sockets, which DIR does not get.
fn tree(root: &Path) -> BTreeMap<PathBuf, Entry> {
    let mut found = BTreeMap::new();
    let mut directories = vec![root.to_path_buf()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).expect("lists") {
            let path = entry.expect("entry").path();
            let name = path.strip_prefix(root).expect("below").to_path_buf();
            let metadata = path.symlink_metadata().expect("is there");
            if metadata.file_type().is_socket() {
                continue;
            }
            let bytes = if metadata.is_dir() {
                directories.push(path);
                Vec::new()
            } else if metadata.is_symlink() {
                fs::read_link(path).expect("leads").into_os_string().into_encoded_bytes()
            } else if metadata.file_type().is_fifo() {
                Vec::new()
            } else {
                fs::read(path).expect("reads")
            };
            found.insert(name, Entry { mode: metadata.permissions().mode(), bytes });
        }
    }
    found
}
