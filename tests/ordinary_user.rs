//! What a user without privileges may do and is told, under `terral run` and on tmpfs: the same.
//! Run by root, it is user `nobody` among files of root; otherwise oneself among one's own.
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use beside::{Beside, assert_lines, built, on_path, program, run_plain};

/// `nobody` on Debian.
const NOBODY: &str = "65534";

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Runs a program as the ordinary user.
fn ordinary(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={NOBODY}"), format!("--regid={NOBODY}")]);
    command.args(["--clear-groups", "--inh-caps=-all"]).arg(program);
    command
}

/// Gives a file or directory these permissions.
fn permit(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("changes its mode");
}

/// A directory that is somebody else's, if the tests are root's.
fn directory(path: PathBuf, mode: u32) -> PathBuf {
    fs::create_dir(&path).expect("makes");
    permit(&path, mode);
    path
}

fn file(path: PathBuf, mode: u32) {
    fs::write(&path, "#! /bin/sh\necho theirs\n").expect("writes");
    permit(&path, mode);
}

/// A directory with this mode and the files that `permissions.sh` finds.
fn furnished(mode: u32) -> tempfile::TempDir {
    let home = tempfile::tempdir_in("/dev/shm").expect("directory");
    let root = home.path();
    let theirs = directory(root.join("theirs"), 0o755);
    for (name, mode) in [("readable", 0o644), ("secret", 0o600), ("writable", 0o666)] {
        file(theirs.join(name), mode);
    }
    file(theirs.join("program"), 0o755);
    file(theirs.join("no-program"), 0o644);
    directory(theirs.join("empty"), 0o755);
    for (name, mode) in [("closed", 0o700), ("passage", 0o711), ("listed", 0o744)] {
        file(directory(theirs.join(name), mode).join("inside"), 0o644);
    }
    for (name, mode) in [("sticky", 0o1777), ("open", 0o777)] {
        let shared = directory(root.join(name), mode);
        file(shared.join("theirs"), 0o644);
        file(shared.join("second"), 0o644);
        directory(shared.join("empty"), 0o755);
    }
    permit(root, mode);
    home
}

/// The programs, where the ordinary user can reach them.
fn programs() -> tempfile::TempDir {
    let home = tempfile::tempdir().expect("directory");
    permit(home.path(), 0o755);
    for name in ["terral", "libterral_preload.so"] {
        fs::copy(built(name), home.path().join(name)).expect("copies");
    }
    let script = home.path().join("permissions.sh");
    fs::copy(program("everyday").join("permissions.sh"), script).expect("copies");
    home
}

fn text(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}\n{text}\n{errors}", output.status);
    text
}

/// Runs a script in two directories of somebody else, as the ordinary user.
fn beside(script: &str) -> Option<Beside> {
    if is_root() && !on_path("setpriv") {
        return None;
    }
    let programs = programs();
    let (ours, reference) = (furnished(0o1777), furnished(0o1777));
    let script = format!("cd \"$TERRAL_DIR\" || exit 1; {script}");
    let mut plain = ordinary(Path::new("/bin/sh"));
    plain.args(["-c", &script]).env("TERRAL_DIR", reference.path());
    let expected = text(&plain.env("HERE", programs.path()).output().expect("runs"));
    let mut command = ordinary(&programs.path().join("terral"));
    command.args(["run", "--json", "--to"]).arg(ours.path()).args(["--", "sh", "-c", &script]);
    let said = text(&command.env("HERE", programs.path()).output().expect("runs"));
    let at = said.trim_end().rfind('\n').map_or(0, |at| at + 1);
    let summary = serde_json::from_str(&said[at..]).unwrap_or_else(|e| panic!("{e}: {said}"));
    assert_lines(&said[..at], &expected);
    Some(Beside { text: expected, summary, ours, reference })
}

#[test]
fn permissions_are_those_of_linux() {
    let Some(beside) = beside("sh \"$HERE/permissions.sh\"") else { return };
    let owners = |root: &Path| {
        let script = "find . -name .terral -prune -o -printf '%p %u %g\\n' | sort";
        run_plain(root, &format!("cd \"$TERRAL_DIR\" && {script}"))
    };
    if is_root() {
        // As somebody else these are closed to oneself.
        beside.assert_same();
        assert_eq!(owners(beside.ours.path()), owners(beside.reference.path()));
    }
    beside.assert_served(100);
    for refusal in ["Operation not permitted", "Permission denied"] {
        assert!(beside.text.contains(refusal) || !is_root(), "{}", beside.text);
    }
    for directory in [&beside.ours, &beside.reference] {
        let script = "chmod -R u+rwx \"$TERRAL_DIR\"/shut";
        run_plain(directory.path(), script);
    }
}

#[test]
fn a_directory_where_one_may_not_write_is_refused() {
    if is_root() && !on_path("setpriv") {
        return;
    }
    let (programs, directory) = (programs(), furnished(0o555));
    let mut command = ordinary(&programs.path().join("terral"));
    let refused = command.args(["run", "--to"]).arg(directory.path()).args(["--", "true"]).output();
    let refused = refused.expect("runs");
    let errors = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(125), "{errors}");
    assert!(errors.contains("you may not write there"), "{errors}");
    permit(directory.path(), 0o755);
}
