//! A permanent store that fails: the data stays, the failure is shown, and the drain goes on by
//! itself when the store is well again.
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;
mod fault;
mod mount;
mod process;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use beside::built;
use fault::Fault;
use mount::Mount;
use terral_client::{Client, Drain, OpenHow, RenameHow, access};

#[test]
fn role() {
    process::play(256, &[]);
}

struct Bench {
    _home: tempfile::TempDir,
    instance: PathBuf,
    server: process::Process,
    client: Client,
}

impl Bench {
    fn new(backing: &Path) -> Self {
        let home = tempfile::tempdir_in("/dev/shm").expect("room");
        let instance = home.path().join("instance");
        let server = process::start_server(&instance, Some(backing));
        let client = Client::connect(&instance).expect("connects");
        Bench { _home: home, instance, server, client }
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let access = access::WRITE as u8;
        let how =
            OpenHow { access, create: true, truncate: true, mode: 0o644, ..OpenHow::default() };
        let file = self.client.open(name.as_bytes(), how).expect("opens");
        file.write(bytes).expect("writes");
        file.close();
    }

    fn wait(&self, what: &str, done: impl Fn(&Drain) -> bool) -> Drain {
        let begin = Instant::now();
        loop {
            let drain = self.client.status().expect("status").drain;
            if done(&drain) {
                return drain;
            }
            assert!(begin.elapsed() < Duration::from_secs(60), "never {what}: {drain:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn fails(&self, because: &str) {
        let drain = self.wait("fails", |drain| !drain.failures.is_empty());
        assert!(drain.failures[0].contains(because), "{:?}", drain.failures);
        assert!(drain.owed_files > 0 && !drain.settled);
    }

    /// What a person sees: `terral VERB` on this instance.
    fn terral(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(built("terral"));
        command.args(arguments).arg("--instance").arg(&self.instance);
        command.output().expect("terral runs")
    }

    fn settles(&self) {
        self.client.finish().expect("finishes");
        let drain = self.wait("settled", |drain| drain.settled);
        assert_eq!((drain.owed_files, drain.owed_bytes, drain.owed_names), (0, 0, 0));
    }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length as u32).map(|i| (i.wrapping_mul(2_654_435_761)).to_le_bytes()[3]).collect()
}

fn staged(directory: &Path) -> Vec<std::ffi::OsString> {
    let entries = std::fs::read_dir(directory).expect("lists");
    entries.map(|entry| entry.expect("entry").file_name()).collect()
}

/// While `calls` on `path` fail: it is shown, waiting ends as promised, and the bytes are here.
fn shows_the_fault(bench: &Bench, name: &str, bytes: &[u8]) {
    bench.fails("nput/output error");
    let status = bench.terral(&["status"]);
    let shown = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(shown.contains("failing") && shown.contains("nput/output error"), "{shown}");
    let wait = bench.terral(&["wait", "--timeout", "0.5"]);
    let said = String::from_utf8_lossy(&wait.stderr).into_owned();
    assert_eq!(wait.status.code(), Some(74), "{said}");
    assert!(said.contains("still owed"), "{said}");
    let how = OpenHow { access: access::READ as u8, ..OpenHow::default() };
    let file = bench.client.open(name.as_bytes(), how).expect("opens");
    let mut seen = vec![0; bytes.len()];
    assert_eq!(file.read_at(&mut seen, 0).expect("reads"), bytes.len());
    assert!(seen == bytes, "the data is not what was written");
    file.close();
}

#[test]
fn a_disk_that_fails_to_write_a_new_file_loses_nothing() {
    let home = tempfile::tempdir().expect("directory");
    let mut bench = Bench::new(home.path());
    let bytes = pattern(9_000_000);
    let how = OpenHow { access: 2, create: true, mode: 0o644, ..OpenHow::default() };
    let file = bench.client.open(b"result", how).expect("opens");
    file.write(&bytes[..1_000_000]).expect("writes");
    bench.client.flush().expect("flushes");
    bench.wait("begun", |drain| drain.bytes > 0);
    let staging = home.path().join(".terral");
    let staged = std::fs::read_dir(&staging).expect("lists").next().expect("one").expect("entry");
    let Some(fault) = Fault::inject(&bench.server, "pwrite64", &staged.path()) else { return };
    file.write(&bytes[1_000_000..]).expect("writes");
    file.close();
    shows_the_fault(&bench, "result", &bytes);
    assert!(!home.path().join("result").exists(), "half of a file was published");
    drop(fault);
    assert_eq!(bench.terral(&["wait", "--timeout", "30"]).status.code(), Some(0));
    bench.settles();
    assert!(std::fs::read(home.path().join("result")).expect("reads") == bytes);
    bench.client.leave().expect("leaves");
    assert!(bench.server.0.wait().expect("ends").success());
}

#[test]
fn a_disk_that_fails_to_update_or_to_read_back_loses_nothing() {
    let home = tempfile::tempdir().expect("directory");
    let (path, mut bytes) = (home.path().join("result"), pattern(3_000_000));
    std::fs::write(&path, &bytes).expect("writes");
    let bench = Bench::new(home.path());
    for (round, calls) in ["pwrite64", "pread64", "ftruncate"].into_iter().enumerate() {
        let how = OpenHow { access: 3, ..OpenHow::default() };
        let file = bench.client.open(b"result", how).expect("opens");
        bytes[round * 7_777..][..100_000].fill(round as u8);
        // All of it is in memory before the disk fails.
        file.read_at(&mut vec![0; bytes.len()], 0).expect("reads");
        let Some(fault) = Fault::inject(&bench.server, calls, &path) else { return };
        file.write_at(&bytes[round * 7_777..][..100_000], round as u64 * 7_777).expect("writes");
        file.close();
        shows_the_fault(&bench, "result", &bytes);
        drop(fault);
        bench.settles();
        assert!(std::fs::read(&path).expect("reads") == bytes, "after failing {calls}");
    }
}

#[test]
fn a_full_disk_keeps_the_data_and_the_drain_goes_on_when_there_is_room() {
    let Some(disk) = Mount::tmpfs(8) else { return };
    std::fs::write(disk.path().join("result"), b"the old one").expect("writes");
    let mut bench = Bench::new(disk.path());
    let bytes = pattern(20 << 20);
    bench.write("result", &bytes);
    bench.fails("result");
    let old = std::fs::read(disk.path().join("result")).expect("reads");
    assert_eq!(old, b"the old one", "the old file stays until the new one is whole");
    disk.remount("size=64m");
    bench.settles();
    assert!(std::fs::read(disk.path().join("result")).expect("reads") == bytes);
    bench.client.leave().expect("leaves");
    bench.server.0.wait().expect("ends");
    assert_eq!(staged(disk.path()), ["result"]);
}

#[test]
fn a_read_only_store_is_reported_and_waited_for_across_a_restart() {
    let Some(disk) = Mount::tmpfs(64) else { return };
    let mut bench = Bench::new(disk.path());
    disk.remount("ro");
    let bytes = pattern(5_000_000);
    bench.write("result", &bytes);
    bench.client.make_directory(b"d", 0o755).expect("makes");
    bench.fails("ead-only");
    bench.server.kill();
    bench.server = process::start_server(&bench.instance, None);
    bench.fails("ead-only");
    disk.remount("rw");
    bench.settles();
    assert!(std::fs::read(disk.path().join("result")).expect("reads") == bytes);
    assert!(disk.path().join("d").is_dir());
}

#[test]
fn a_vanished_directory_is_reported_and_waited_for() {
    let home = tempfile::tempdir().expect("directory");
    let (here, away) = (home.path().join("here"), home.path().join("away"));
    std::fs::create_dir(&here).expect("creates");
    let bench = Bench::new(&here);
    bench.write("first", b"1");
    std::fs::rename(&here, &away).expect("moves");
    let bytes = pattern(3_000_000);
    bench.write("second", &bytes);
    bench.fails("here");
    std::fs::rename(&away, &here).expect("moves");
    bench.settles();
    assert!(std::fs::read(here.join("second")).expect("reads") == bytes);
    assert_eq!(std::fs::read(here.join("first")).expect("reads"), b"1");
}

#[test]
fn a_directory_that_somebody_removed_is_made_anew_for_what_comes() {
    let home = tempfile::tempdir().expect("directory");
    let bench = Bench::new(home.path());
    let out = home.path().join("out");
    for name in ["out", "out/deep"] {
        bench.client.make_directory(name.as_bytes(), 0o750).expect("makes");
    }
    bench.write("out/deep/old", b"old");
    bench.write("moves", b"moves");
    bench.client.flush().expect("flushes");
    bench.wait("arrived", |drain| drain.owed_files == 0 && drain.owed_names == 0);
    std::fs::remove_dir_all(&out).expect("removes");
    bench.client.rename(b"moves", b"out/deep/moved", RenameHow::default()).expect("renames");
    bench.client.make_directory(b"out/deep/more", 0o700).expect("makes");
    bench.client.make_link(b"out/deep/link", b"moved").expect("makes");
    bench.write("out/deep/new", b"new");
    bench.settles();
    for (name, bytes) in [("moved", b"moves" as &[u8]), ("link", b"moves"), ("new", b"new")] {
        assert_eq!(std::fs::read(out.join("deep").join(name)).expect("arrived"), bytes);
    }
    assert!(out.join("deep/more").is_dir() && !out.join("deep/old").exists());
    assert_eq!(out.metadata().expect("is there").permissions().mode() & 0o777, 0o750);
    let conflicts = bench.client.status().expect("status").drain.conflicts;
    assert_eq!(conflicts.len(), 2, "{conflicts:?}");
    assert!(conflicts[0].contains("/out: removed there"), "{conflicts:?}");
}

#[test]
fn a_file_that_somebody_made_under_a_name_we_move_to_is_kept() {
    let home = tempfile::tempdir().expect("directory");
    let bench = Bench::new(home.path());
    for name in ["a", "b", "over"] {
        bench.write(name, name.as_bytes());
    }
    bench.client.flush().expect("flushes");
    bench.wait("arrived", |drain| drain.owed_files == 0 && drain.owed_names == 0);
    let away = home.path().with_extension("away");
    std::fs::rename(home.path(), &away).expect("moves");
    bench.client.rename(b"a", b"taken", RenameHow::default()).expect("renames");
    bench.client.rename(b"b", b"over", RenameHow::default()).expect("renames");
    std::fs::write(away.join("taken"), b"theirs").expect("writes");
    let drain = bench.client.status().expect("status").drain;
    assert!(drain.owed_names == 2 && !drain.settled, "nothing is settled that is owed: {drain:?}");
    std::fs::rename(&away, home.path()).expect("moves");
    bench.settles();
    let read = |name: &str| std::fs::read(home.path().join(name)).expect("is there");
    assert_eq!((read("taken"), read("taken.theirs-1")), (b"a".to_vec(), b"theirs".to_vec()));
    assert_eq!(read("over"), b"b");
    assert!(!home.path().join("over.theirs-1").exists(), "what we replaced was ours");
    let conflicts = bench.client.status().expect("status").drain.conflicts;
    assert!(conflicts.len() == 1 && conflicts[0].contains("/taken"), "{conflicts:?}");
}

#[test]
fn what_somebody_else_changed_meanwhile_is_kept_beside_ours() {
    let home = tempfile::tempdir().expect("directory");
    std::fs::write(home.path().join("notes"), b"as it was").expect("writes");
    let bench = Bench::new(home.path());
    let how = OpenHow { access: 3, ..OpenHow::default() };
    let file = bench.client.open(b"notes", how).expect("opens");
    std::fs::write(home.path().join("notes"), b"changed by somebody").expect("writes");
    file.write_at(b"AS", 0).expect("writes");
    file.close();
    bench.settles();
    let drain = bench.client.status().expect("status").drain;
    assert_eq!(drain.conflicts.len(), 1, "{drain:?}");
    assert!(drain.conflicts[0].contains("/notes"));
    let theirs = std::fs::read(home.path().join("notes.theirs-1")).expect("is kept");
    assert_eq!(theirs, b"changed by somebody");
    assert!(std::fs::read(home.path().join("notes")).expect("reads").starts_with(b"AS"));
}

#[test]
fn a_server_killed_in_a_conflict_still_brings_what_was_overwritten() {
    let home = tempfile::tempdir().expect("directory");
    let path = home.path().join("data");
    let (before, after) = (pattern(24 << 20), vec![7; 24 << 20]);
    for round in 0..12u64 {
        std::fs::write(&path, &before).expect("writes");
        let mut bench = Bench::new(home.path());
        let how = OpenHow { access: 3, ..OpenHow::default() };
        let file = bench.client.open(b"data", how).expect("opens");
        // Theirs has the same length as ours: only the marks in memory say that ours is owed.
        std::fs::write(&path, &before).expect("theirs");
        file.write_at(&after, 0).expect("writes");
        file.close();
        std::thread::sleep(Duration::from_millis(round * 3));
        bench.server.kill();
        bench.server = process::start_server(&bench.instance, None);
        bench.settles();
        assert!(std::fs::read(&path).expect("reads") == after, "round {round}");
        assert!(std::fs::read(home.path().join("data.theirs-1")).expect("is kept") == before);
        std::fs::remove_file(home.path().join("data.theirs-1")).expect("removes");
        std::fs::remove_file(&path).expect("removes");
        bench.client.leave().expect("leaves");
        bench.server.0.wait().expect("ends");
    }
}

#[test]
fn a_server_killed_while_it_drains_resumes_and_publishes_whole_files_only() {
    let home = tempfile::tempdir().expect("directory");
    let mut bench = Bench::new(home.path());
    let bytes = pattern(24 << 20);
    for round in 0..12u64 {
        bench.write("result", &bytes[round as usize..]);
        std::thread::sleep(Duration::from_micros(round * 2_500));
        bench.server.kill();
        if let Ok(found) = std::fs::read(home.path().join("result")) {
            let whole = (0..=round).any(|round| found == bytes[round as usize..]);
            assert!(whole, "half of a file was published in round {round}");
        }
        bench.server = process::start_server(&bench.instance, None);
    }
    bench.settles();
    assert!(std::fs::read(home.path().join("result")).expect("reads") == bytes[11..]);
    bench.client.leave().expect("leaves");
    bench.server.0.wait().expect("ends");
    assert_eq!(staged(home.path()), ["result"]);
    assert!(!bench.instance.exists(), "an instance that owes nothing is removed");
}

#[test]
fn what_was_cut_off_does_not_come_back_when_the_file_grows_again() {
    let home = tempfile::tempdir().expect("directory");
    std::fs::write(home.path().join("data"), vec![7; 1_000_000]).expect("writes");
    let bench = Bench::new(home.path());
    let how = OpenHow { access: 3, ..OpenHow::default() };
    let file = bench.client.open(b"data", how).expect("opens");
    file.truncate(10).expect("truncates");
    file.truncate(100_000).expect("truncates");
    file.close();
    bench.settles();
    let seen = std::fs::read(home.path().join("data")).expect("reads");
    assert_eq!(seen.len(), 100_000);
    assert!(seen[..10].iter().all(|byte| *byte == 7) && seen[10..].iter().all(|byte| *byte == 0));
}

#[test]
fn an_open_file_is_readable_whole_after_its_name_is_gone_or_another_files() {
    let home = tempfile::tempdir().expect("directory");
    for name in ["removed", "replaced"] {
        std::fs::write(home.path().join(name), vec![7; 5_000_000]).expect("writes");
    }
    let bench = Bench::new(home.path());
    let how = OpenHow { access: 1, ..OpenHow::default() };
    let files =
        [b"removed".as_slice(), b"replaced"].map(|n| bench.client.open(n, how).expect("opens"));
    bench.client.unlink(b"removed").expect("unlinks");
    bench.write("new", b"new");
    bench.client.rename(b"new", b"replaced", RenameHow::Replace).expect("renames");
    bench.settles();
    for file in files {
        let mut seen = vec![0; 5_000_000];
        assert_eq!(file.read_at(&mut seen, 0).expect("reads"), seen.len());
        assert!(seen.iter().all(|byte| *byte == 7));
    }
    assert!(!home.path().join("removed").exists());
    assert_eq!(std::fs::read(home.path().join("replaced")).expect("reads"), b"new");
}

#[test]
fn a_name_removed_twice_stays_removed() {
    let home = tempfile::tempdir().expect("directory");
    std::fs::write(home.path().join("a"), b"old").expect("writes");
    let bench = Bench::new(home.path());
    for _ in 0..3 {
        if bench.client.stat(b"a").is_ok() {
            bench.client.unlink(b"a").expect("unlinks");
        }
        assert!(bench.client.stat(b"a").is_err(), "the old file is back");
        bench.write("a", b"new");
        bench.client.unlink(b"a").expect("unlinks");
        assert!(bench.client.stat(b"a").is_err(), "the old file is back");
    }
    bench.settles();
    assert!(!home.path().join("a").exists());
}

#[test]
fn an_older_file_is_never_published_under_the_new_ones_name() {
    let home = tempfile::tempdir().expect("directory");
    std::fs::write(home.path().join("tmp"), b"stale").expect("writes");
    std::fs::write(home.path().join("final"), b"previous").expect("writes");
    let bench = Bench::new(home.path());
    let bytes = pattern(8 << 20);
    bench.write("tmp", &bytes);
    bench.client.rename(b"tmp", b"final", RenameHow::Replace).expect("renames");
    let begin = Instant::now();
    bench.client.flush().expect("flushes");
    while begin.elapsed() < Duration::from_millis(800) {
        let seen = std::fs::read(home.path().join("final")).expect("is always there");
        assert!(seen == b"previous" || seen == bytes, "{} bytes", seen.len());
    }
    bench.settles();
    assert!(std::fs::read(home.path().join("final")).expect("reads") == bytes);
    assert!(!home.path().join("tmp").exists());
}

#[test]
fn a_name_operation_that_can_never_succeed_is_reported_and_holds_up_nothing() {
    let home = tempfile::tempdir().expect("directory");
    std::fs::create_dir(home.path().join("d")).expect("creates");
    let bench = Bench::new(home.path());
    bench.client.stat(b"d").expect("is there");
    bench.client.remove_directory(b"d").expect("removes");
    // Somebody else puts something there before the drain gets to it: now or never.
    std::fs::create_dir_all(home.path().join("d/theirs")).expect("creates");
    bench.write("after", b"x");
    bench.settles();
    assert_eq!(std::fs::read(home.path().join("after")).expect("reads"), b"x");
    assert!(home.path().join("d/theirs").is_dir());
}

#[test]
fn what_is_written_after_finish_is_owed_when_it_is_closed() {
    let home = tempfile::tempdir().expect("directory");
    let mut bench = Bench::new(home.path());
    let how = OpenHow { access: 3, create: true, mode: 0o644, ..OpenHow::default() };
    let file = bench.client.open(b"late", how).expect("opens");
    file.write(&[1; 1 << 20]).expect("writes");
    bench.settles();
    file.write_at(&[2; 1 << 20], 0).expect("writes");
    file.close();
    bench.wait("settled again", |drain| drain.owed_files == 0 && drain.settled);
    bench.client.leave().expect("leaves");
    bench.server.0.wait().expect("ends");
    let seen = std::fs::read(home.path().join("late")).expect("reads");
    assert!(seen.len() == 1 << 20 && seen.iter().all(|byte| *byte == 2));
}

#[test]
fn what_is_written_after_finish_outlives_a_server_that_is_told_to_leave() {
    let home = tempfile::tempdir().expect("directory");
    let mut bench = Bench::new(home.path());
    let how = OpenHow { access: 3, create: true, mode: 0o644, ..OpenHow::default() };
    let file = bench.client.open(b"late", how).expect("opens");
    file.write(&[1; 1 << 20]).expect("writes");
    bench.settles();
    // Into memory that it has already: nobody is asked.
    file.write_at(&[2; 1 << 20], 0).expect("writes");
    bench.client.leave().expect("leaves");
    bench.server.0.wait().expect("ends");
    assert!(bench.instance.exists(), "an instance that owes something stays");
    bench.server = process::start_server(&bench.instance, None);
    let arrived = || std::fs::read(home.path().join("late")).is_ok_and(|seen| seen[0] == 2);
    bench.wait("arrives", |_| arrived());
}
