//! What root's server changes in the permanent directory, where a user puts other things in the
//! place of what was meant: what is root's stays root's, and what is a user's is done as he. Needs
//! root.
#![cfg(not(loom))]
#![allow(clippy::print_stdout)] // What is skipped is said.

mod all_users;
mod beside;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use all_users::{ALICE, BOB, Machine, is_root, set, text};

/// Between two lines that it reads it swaps names as fast as it can; in the end all are as before.
const SWAPS: &str = "
import os, select, sys
os.chdir(sys.argv[1])
while sys.stdin.readline():
    while not select.select([sys.stdin], [], [], 0)[0]:
        for own, other in [('f', 'secret'), ('d', 'shut'), ('new', 'shut'), ('new', 'secret')]:
            for a, b in [(own, '.x'), (other, own), (own, other), ('.x', own)]:
                try:
                    os.rename(a, b)
                except OSError:
                    pass
    sys.stdin.readline()
    print('rests', flush=True)
";

struct Swapping(Child, BufReader<ChildStdout>);

impl Swapping {
    fn begin(place: &Path) -> Swapping {
        let mut command = Command::new("python3");
        command.args(["-c", SWAPS]).arg(place).uid(BOB).gid(BOB);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("one");
        let said = BufReader::new(child.stdout.take().expect("piped"));
        Swapping(child, said)
    }

    fn says(&mut self) {
        writeln!(self.0.stdin.as_mut().expect("piped")).expect("it reads");
    }

    /// For a while.
    fn swaps(&mut self, time: Duration) {
        self.says();
        std::thread::sleep(time);
        self.says();
        let mut said = String::new();
        self.1.read_line(&mut said).expect("it lives");
        assert_eq!(said, "rests\n");
    }
}

impl Drop for Swapping {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What is root's in a directory that bob may change: a file and a directory, by their numbers.
fn furnish(place: &Path) -> [u64; 2] {
    fs::write(place.join("secret"), "root's").expect("writes");
    fs::create_dir(place.join("shut")).expect("makes");
    set(&place.join("secret"), 0, 0o600);
    set(&place.join("shut"), 0, 0o700);
    fs::write(place.join("shut/key"), "root's").expect("writes");
    fs::write(place.join("f"), "bob's").expect("writes");
    fs::create_dir(place.join("d")).expect("makes");
    set(&place.join("f"), BOB, 0o644);
    set(&place.join("d"), BOB, 0o755);
    ["secret", "shut"].map(|name| fs::metadata(place.join(name)).expect("made").ino())
}

/// They are as they were, whatever they are called.
fn are_roots(place: &Path, numbers: [u64; 2]) {
    let mut found = 0;
    for entry in fs::read_dir(place).expect("there").flatten() {
        let is = fs::symlink_metadata(entry.path()).expect("there");
        let Some(at) = numbers.iter().position(|number| *number == is.ino()) else { continue };
        assert_eq!((is.uid(), is.mode() & 0o7777), (0, [0o600, 0o700][at]), "{entry:?}");
        found += 1;
    }
    assert_eq!(found, 2);
}

#[test]
fn what_a_user_puts_in_the_place_of_what_root_changes_stays_roots() {
    if !is_root() {
        return;
    }
    let machine = Machine::begin("places");
    fs::create_dir(machine.dir("open")).expect("makes");
    set(&machine.dir("open"), 0, 0o777);
    let mut met = false;
    for place in ["bob", "open"] {
        let (at, shown) = (machine.dir(place), format!("/terral/{place}"));
        let numbers = furnish(&at);
        let mut bob = Swapping::begin(&at);
        for round in 0..4 {
            // What it says is of what has these names now; it is brought, after a second, while he
            // swaps them.
            let (owner, mode) = if round % 2 == 0 { (BOB, "4777") } else { (ALICE, "6755") };
            let mut roots = machine.terral(0);
            roots.args(["run", "-q", "--instance", &machine.name, "--", "sh", "-c"]);
            roots.arg(format!(
                "cd {shown}; ls -l; chown {owner} f d; chmod {mode} f d; rmdir new; mkdir new \
                 && chown {owner} new && chmod 2777 new; echo done; sleep 2"
            ));
            let mut roots = roots.stdout(Stdio::piped()).spawn().expect("starts");
            let said = BufReader::new(roots.stdout.take().expect("piped"));
            let is_done = |line: &Result<String, _>| line.as_ref().is_ok_and(|line| line == "done");
            assert!(said.lines().any(|line| is_done(&line)));
            bob.swaps(Duration::from_millis(1800));
            roots.wait().expect("ours");
            machine.sh(ALICE, &format!("cd {shown}; mkdir hers; chmod 2777 hers; rmdir hers"));
            are_roots(&at, numbers);
        }
        // It was tried, and refused.
        let said =
            machine.terral(0).args(["status", "--json", "--instance", &machine.name]).output();
        let said = text(&said.expect("runs"));
        met |= said.contains("others may rename there");
        drop(bob);
        are_roots(&at, numbers);
    }
    assert!(met, "nothing was ever in the way");
    machine.end();
}

#[test]
fn what_root_and_users_change_arrives_where_nobody_is_in_the_way() {
    if !is_root() {
        return;
    }
    let machine = Machine::begin("arrives");
    let at = machine.dir("bob");
    furnish(&at);
    machine.done(0, &format!("cd /terral/bob; chown {ALICE} f; chmod 640 f; chmod 711 d"));
    machine.done(0, &format!("cd /terral/bob; mkdir new; chown {BOB} new; mkfifo new/fifo"));
    machine.done(0, "cd /terral/bob; mv secret new/moved; ln -s to new/link");
    machine.done(ALICE, "cd /terral/all; mkdir hers; mkfifo hers/fifo; ln -s to hers/link");
    machine.done(ALICE, "cd /terral/all; mv hers hers2; chmod 2750 hers2; rm hers2/link");
    let home = machine.end();
    let is = |path: &str| fs::symlink_metadata(home.path().join("dir").join(path));
    let is = |path: &str| is(path).map(|is| (is.uid(), is.mode() & 0o7777)).ok();
    assert_eq!(is("bob/f"), Some((ALICE, 0o640)));
    assert_eq!(is("bob/d"), Some((BOB, 0o711)));
    assert_eq!(is("bob/new"), Some((BOB, 0o755)));
    assert_eq!(is("bob/new/fifo").map(|is| is.0), Some(0));
    assert_eq!(is("bob/new/moved"), Some((0, 0o600)));
    assert_eq!(is("bob/secret"), None);
    assert_eq!(is("all/hers2"), Some((ALICE, 0o2750)));
    assert_eq!(is("all/hers2/fifo").map(|is| is.0), Some(ALICE));
    assert_eq!((is("all/hers2/link"), is("all/hers")), (None, None));
}
