//! When what was written arrives in the permanent directory, and under which name: real servers and
//! the times that are promised. Not here: that it arrives whole whatever fails (`bad_backing`,
//! `crash_points`).
#![cfg(not(loom))]

mod beside;
mod files;
mod launched;
mod process;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use files::open;
use launched::until;
use process::{Home, Process};
use terral_client::{Client, RenameHow};

#[test]
fn role() {
    process::play(256, &[]);
}

struct Bench {
    _home: Home,
    _server: Process,
    to: tempfile::TempDir,
    client: Client,
}

impl Bench {
    fn new(to: tempfile::TempDir) -> Self {
        let home = Home::new();
        let server = process::start_server(&home.instance(), Some(to.path()));
        let client = Client::connect(&home.instance()).expect("connects");
        Bench { _home: home, _server: server, to, client }
    }

    fn empty() -> Self {
        Bench::new(tempfile::tempdir().expect("directory"))
    }

    fn there(&self, name: &str) -> PathBuf {
        self.to.path().join(name)
    }

    fn brought(&self) -> (u64, u64) {
        let drain = self.client.status().expect("status").drain;
        (drain.files, drain.bytes)
    }

    /// Until nothing is owed, of itself.
    fn settled(&self) {
        until("all has arrived", || {
            let drain = self.client.status().expect("status").drain;
            drain.owed_files == 0 && drain.owed_names == 0
        });
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let file = open(&self.client, name);
        file.write(bytes).expect("writes");
        file.close();
    }
}

fn is(path: &Path, bytes: &[u8]) -> bool {
    std::fs::read(path).is_ok_and(|found| found == bytes)
}

#[test]
fn a_large_file_is_on_its_way_while_it_is_written_and_a_small_one_waits_a_second() {
    let bench = Bench::empty();
    let begin = Instant::now();
    bench.write("small", b"small");
    let large = open(&bench.client, "large");
    large.write(&[b'l'; 5 << 20]).expect("writes");
    until("the large one is on its way, though it is open", || bench.brought().1 > 0);
    let small_is_there = bench.there("small").exists();
    assert!(!small_is_there || begin.elapsed() > Duration::from_secs(1), "it did not wait");
    until("the small one has arrived", || is(&bench.there("small"), b"small"));
    assert!(begin.elapsed() > Duration::from_secs(1), "after {:?}", begin.elapsed());
    assert!(!bench.there("large").exists(), "an open file has no name there yet");
    large.close();
    until("the large one has arrived", || is(&bench.there("large"), &[b'l'; 5 << 20]));
}

#[test]
fn who_waits_for_all_need_not_wait_a_second() {
    let (waits, asks) = (Bench::empty(), Bench::empty());
    // On a busy machine a second may pass anywhere, but not each time.
    let is_first = (0..20).any(|round| {
        let name = format!("small-{round}");
        waits.write(&name, b"small");
        std::thread::sleep(Duration::from_millis(300));
        asks.write(&name, b"small");
        asks.client.flush().expect("asks for it");
        until("it has arrived", || is(&asks.there(&name), b"small"));
        !waits.there(&name).exists()
    });
    assert!(is_first, "it waits like another that is older by 0.3 s");
}

#[test]
fn what_is_removed_or_renamed_within_a_second_costs_the_directory_nothing() {
    let bench = Bench::empty();
    for round in 0..20 {
        bench.write("removed", b"never there");
        bench.write("temporary", format!("round {round}").as_bytes());
        bench.client.rename(b"temporary", b"kept", RenameHow::Replace).expect("renames");
        bench.client.unlink(b"removed").expect("removes");
    }
    bench.settled();
    assert!(is(&bench.there("kept"), b"round 19"));
    assert_eq!(bench.brought().0, 1, "files that were copied");
}

#[test]
fn a_rename_of_an_open_file_is_not_held_back_and_what_is_closed_is_complete_under_either_name() {
    let to = tempfile::tempdir().expect("directory");
    std::fs::write(to.path().join("open"), b"old bytes").expect("writes");
    let bench = Bench::new(to);
    let file = open(&bench.client, "open");
    file.write(b"new bytes, more of them").expect("writes");
    file.sync().expect("is as safe as it gets");
    bench.client.rename(b"open", b"moved", RenameHow::Replace).expect("renames");
    until("the name is there", || bench.there("moved").exists());
    file.write(b"!").expect("writes");
    file.close();
    bench.write("closed", b"complete");
    bench.client.rename(b"closed", b"moved too", RenameHow::Replace).expect("renames");
    let (old, new) = (bench.there("closed"), bench.there("moved too"));
    until("it has arrived", || {
        for path in [&old, &new] {
            assert!(!path.exists() || is(path, b"complete") || !path.exists(), "half of it");
        }
        is(&new, b"complete")
    });
    bench.settled();
    assert!(is(&bench.there("moved"), b"new bytes, more of them!"));
    assert!(!bench.there("open").exists() && !old.exists());
}
