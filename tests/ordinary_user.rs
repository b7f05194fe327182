//! What a user without privileges may do and is told, under `terral run` and on tmpfs: the same.
//! Run by root, it is user `nobody` among files of root; otherwise oneself among one's own.
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;
mod user;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Output;

use beside::{Beside, assert_lines, on_path, program, run_plain};
use user::{NOBODY, is_root, ordinary, permit};

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
    let home = user::programs();
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

/// What user `nobody` brings to a directory that everybody may write to, where somebody else has
/// made what Terral's own directory is called. Gives the summary.
fn brings_beside(theirs: &dyn Fn(&Path)) -> (serde_json::Value, tempfile::TempDir) {
    let (programs, to) = (programs(), tempfile::tempdir().expect("directory"));
    permit(to.path(), 0o1777);
    theirs(to.path());
    let mut command = ordinary(&programs.path().join("terral"));
    let script = "for n in 1 2 3; do echo mine > $TERRAL_DIR/$n; done; mkdir $TERRAL_DIR/.terral-1";
    command.args(["run", "--json", "--to"]).arg(to.path()).args(["--", "sh", "-c"]);
    let output = command.arg(format!("{script}; true")).output().expect("runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let summary = said.lines().last().unwrap_or_default();
    (serde_json::from_str(summary).unwrap_or_default(), to)
}

#[test]
fn what_another_user_can_write_into_is_no_place_for_versions() {
    if !is_root() || !on_path("setpriv") {
        println!("skipped: two users take root and setpriv");
        return;
    }
    // Somebody else's; a link to somewhere else; one of our own that others may write into.
    let make = |to: &Path, mode| permit(&directory(to.join(".terral"), mode), mode);
    let link = |to: &Path| std::os::unix::fs::symlink("/tmp", to.join(".terral")).expect("links");
    let given = |to: &Path| {
        make(to, 0o777);
        std::os::unix::fs::chown(to.join(".terral"), Some(65534), Some(65534)).expect("gives");
    };
    let sticky = |to: &Path| make(to, 0o1777);
    let shut = |to: &Path| make(to, 0o700);
    for theirs in [&sticky as &dyn Fn(&Path), &shut, &link, &given] {
        let (summary, to) = brings_beside(theirs);
        assert_eq!(summary["state"], "arrived", "{summary}");
        for name in ["1", "2", "3"] {
            let path = to.path().join(name);
            assert_eq!(fs::read(&path).expect("arrived"), b"mine\n");
            let owner = std::os::unix::fs::MetadataExt::uid(&path.metadata().expect("is there"));
            assert_eq!(owner, 65534);
        }
        // An empty one of one's own goes at the end, whoever may write into it.
        let entries = fs::read_dir(to.path()).expect("lists").flatten();
        let left = entries.filter(|entry| entry.file_name() != ".terral").count();
        assert_eq!(left, 3, "three files, beside what was there: {summary}");
    }
}

#[test]
fn without_a_place_of_its_own_nothing_is_brought_and_it_is_said() {
    if !is_root() || !on_path("setpriv") {
        println!("skipped: two users take root and setpriv");
        return;
    }
    let (programs, to) = (programs(), tempfile::tempdir().expect("directory"));
    permit(to.path(), 0o1777);
    let names = [".terral".to_owned(), format!(".terral-{NOBODY}")];
    names.iter().for_each(|name| drop(directory(to.path().join(name), 0o1777)));
    let mut command = ordinary(&programs.path().join("terral"));
    command.args(["run", "--to"]).arg(to.path());
    command.args(["--", "sh", "-c", "echo mine > $TERRAL_DIR/file"]);
    let mut run = command.stderr(std::process::Stdio::piped()).spawn().expect("runs");
    let said = BufReader::new(run.stderr.take().expect("piped"));
    let mut said = said.lines().map_while(Result::ok);
    assert!(said.any(|line| line.contains("is not yours alone")), "it is not said");
    assert_eq!(fs::read_dir(to.path()).expect("lists").count(), 2, "something was brought");
    names.iter().for_each(|name| fs::remove_dir(to.path().join(name)).expect("removes"));
    said.for_each(drop);
    assert!(run.wait().expect("ends").success());
    assert_eq!(fs::read(to.path().join("file")).expect("arrived"), b"mine\n");
}
