//! FIFOs and sockets under the prefix: programs get the answers of tmpfs, names survive whatever
//! else does, and FIFOs are in DIR.
#![allow(clippy::print_stdout)] // What is skipped, and seeds, are said.
#![cfg(not(loom))]

mod beside;
mod descendants;
mod launched;
mod random;

use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use beside::{Beside, compiled, on_path, program, run, run_while, text_of};
use descendants::{ended, kill_servers};
use launched::until;
use random::Random;
use rustix::process::Signal;

/// Runs a program of `programs/special` on tmpfs and under `terral run`, and asserts that it prints
/// the same, and leaves the same but for sockets.
fn same(name: &str) -> Option<Beside> {
    if !on_path("gcc") {
        return None;
    }
    let home = tempfile::tempdir().expect("directory");
    let program = compiled(&format!("special/{name}"), home.path());
    let beside = run(&program.display().to_string());
    beside.assert_served(1);
    beside.assert_same();
    Some(beside)
}

#[test]
fn fifos_are_opened_waited_for_passed_on_and_removed_as_on_tmpfs() {
    if let Some(beside) = same("fifos") {
        for word in ["ENXIO", "EINTR", "from a thread", "through exec"] {
            assert!(beside.text.contains(word), "{word}: {}", beside.text);
        }
    }
}

#[test]
fn names_of_fifos_and_sockets_are_names_as_on_tmpfs() {
    if let Some(beside) = same("nodes") {
        let kept = fs::symlink_metadata(beside.ours.path().join("kept")).expect("arrived");
        assert!(kept.file_type().is_fifo() && kept.permissions().mode() & 0o7777 == 0o620);
        assert!(!beside.ours.path().join("lost").exists(), "a socket in DIR");
    }
}

#[test]
fn sockets_are_bound_reached_and_told_by_their_names_as_on_tmpfs() {
    if let Some(beside) = same("sockets") {
        assert!(beside.text.contains("own: family 1 length 4 s\n"), "{}", beside.text);
    }
}

#[test]
fn shells_and_python_talk_through_fifos_and_sockets() {
    if !on_path("python3") || !on_path("bash") {
        return;
    }
    let script = program("special/talk.py").display().to_string();
    let shell = "mkfifo p q; (while read -r line; do echo \"got $line\" > q; done < p) & \
                 exec 3> p; for i in 1 2 3; do echo $i >&3; cat q; done; exec 3>&-; wait; \
                 tee copy < p > /dev/null & echo teed > p; wait; cat copy; \
                 find . -type p | sort; cp -a p r; tar cf - p | tar xOf - | wc -c; \
                 mkdir x; tar cf - p | tar xf - -C x; stat -c '%F %a' x/p r; rm q r";
    let beside = run(&format!("bash -c '{}'; python3 {script}", shell.replace('\'', "'\\''")));
    assert!(beside.text.contains("got 3\n") && beside.text.contains("asyncio: echo"));
    beside.assert_served(3);
    beside.assert_same();
}

// A server that is killed.

#[test]
fn servers_die_under_fifos_and_sockets() {
    if !on_path("python3") {
        return;
    }
    let mut random = Random::new("special");
    let script = format!("python3 {} 20", program("special/talk.py").display());
    let mut life_ms = || 20 + random.below(150);
    let beside = run_while(&script, |run, over| kill_servers(run, over, &mut life_ms));
    beside.assert_same();
    let restarts = beside.summary["restarts"].as_u64();
    assert!(restarts.is_some_and(|restarts| restarts >= 3), "{}", beside.summary);
}

fn terral(arguments: &[&str], to: &Path) -> Command {
    let mut command = launched::terral();
    command.args(arguments).arg("--to").arg(to).env_remove("TERRAL_INSTANCE");
    command
}

/// A run that made a FIFO and a socket, and was killed with its server and all its programs.
/// Gives the instance it left.
fn killed_run(to: &Path, home: &Path) -> String {
    let ready = home.join("ready");
    let bind = "import socket; socket.socket(socket.AF_UNIX).bind(\"s\")";
    let script = format!(
        "cd $TERRAL_DIR; mkdir d; mkfifo -m 640 d/p; python3 -c '{bind}'; (echo 1 > d/p) & \
         cat d/p; echo $TERRAL_INSTANCE > {}.new; mv {0}.new {0}; exec cat d/p",
        ready.display()
    );
    let run = terral(&["run"], to).args(["--", "sh", "-c", &script]).spawn().expect("starts");
    until("the command", || ready.exists());
    let mut all = descendants::of(run.id());
    // Its launcher first, so that no other server is started.
    for pid in all.drain(..) {
        descendants::send(pid, Signal::KILL);
    }
    ended(run);
    let instance = fs::read_to_string(&ready).expect("reads");
    fs::remove_file(ready).expect("removes");
    instance.trim().into()
}

#[test]
fn the_next_run_finds_the_fifos_and_the_names_of_sockets() {
    if !on_path("python3") {
        return;
    }
    let (to, home) = (tempfile::tempdir().expect("to"), tempfile::tempdir().expect("home"));
    for _ in 0..3 {
        let _ = fs::remove_dir_all(to.path().join("d"));
        killed_run(to.path(), home.path());
        let connect = "import socket\ntry: socket.socket(socket.AF_UNIX).connect(\"s\")\n\
                       except OSError as error: print(error.errno)";
        let script = format!(
            "cd $TERRAL_DIR; stat -c '%n %F %a' d/p s; (echo words > d/p) & cat d/p; wait; \
             python3 -c '{connect}'; rm s"
        );
        let next = terral(&["run"], to.path()).args(["--", "sh", "-c", &script]).spawn();
        let text = text_of(&ended(next.expect("starts")));
        assert_eq!(text, "d/p fifo 640\ns socket 755\nwords\n111\n");
        let arrived = fs::symlink_metadata(to.path().join("d/p")).expect("arrived");
        assert!(arrived.file_type().is_fifo() && arrived.permissions().mode() & 0o777 == 0o640);
        assert!(!to.path().join("s").exists());
    }
}

#[test]
fn fifos_that_a_killed_run_has_made_are_recovered() {
    if !on_path("python3") {
        return;
    }
    let (to, home) = (tempfile::tempdir().expect("to"), tempfile::tempdir().expect("home"));
    let left = killed_run(to.path(), home.path());
    let recover = launched::terral().args(["recover", &left]).spawn();
    text_of(&ended(recover.expect("starts")));
    let arrived = fs::symlink_metadata(to.path().join("d/p")).expect("arrived");
    assert!(arrived.file_type().is_fifo());
    assert!(!Path::new(&left).exists(), "its memory is not free");
}

#[test]
fn fifos_of_dir_are_listed_opened_moved_and_removed_and_sockets_there_are_not_seen() {
    let to = tempfile::tempdir().expect("to");
    let mut make = Command::new("mkfifo");
    make.args(["-m", "604", "old", "gone"]).current_dir(to.path());
    assert!(make.status().expect("mkfifo").success());
    let _socket = std::os::unix::net::UnixListener::bind(to.path().join("s")).expect("binds");
    let script = "cd $TERRAL_DIR; ls -F; (echo through > old) & cat old; wait; rm gone; \
                  chmod 600 old; mv old new; cat s";
    let run = terral(&["run"], to.path()).args(["--", "sh", "-c", script]).spawn();
    let output = ended(run.expect("starts"));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "gone|\nold|\nthrough\n");
    assert!(String::from_utf8_lossy(&output.stderr).contains("cat: s: "));
    let new = fs::symlink_metadata(to.path().join("new")).expect("moved");
    assert!(new.file_type().is_fifo() && new.permissions().mode() & 0o777 == 0o600);
    let mut left: Vec<_> = fs::read_dir(to.path()).expect("lists").flatten().collect();
    left.sort_by_key(fs::DirEntry::file_name);
    let left: Vec<_> = left.iter().map(fs::DirEntry::file_name).collect();
    assert_eq!(left, ["new", "s"]);
}
