//! A permanent store that fails: the data stays, the failure is shown, and the drain goes on by
//! itself when the store is well again.
#![cfg(not(loom))]

mod mount;
mod process;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use mount::Mount;
use terral_client::{Client, Drain, OpenHow, access};

#[test]
fn role() {
    if let Some((_, instance)) = process::role() {
        process::serve(&instance, 256);
    }
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
            assert!(begin.elapsed() < Duration::from_secs(30), "never {what}: {drain:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn fails(&self, because: &str) {
        let drain = self.wait("fails", |drain| !drain.failures.is_empty());
        assert!(drain.failures[0].contains(because), "{:?}", drain.failures);
        assert!(drain.owed_files > 0 && !drain.settled);
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
