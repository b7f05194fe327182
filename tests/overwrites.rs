//! Overwrites that overlap, by real processes: a reader sees one or the other, also when their
//! writers are stopped or killed.
#![cfg(not(loom))]

mod files;
mod process;

use std::path::Path;
use std::time::{Duration, Instant};

use files::open;
use rustix::process::Signal;
use terral_client::{Client, File};

/// What the left and the right writer write to, and the part that both do: no end is that of a
/// page.
const LEFT: (u64, usize) = (1_000, 200_000);
const RIGHT: (u64, usize) = (101_000, 200_000);
const BOTH: (u64, usize) = (101_000, 100_000);
/// The same within a page.
const SMALL: (u64, usize) = (1_000_100, 300);

#[test]
fn role() {
    process::play(
        256,
        &[
            ("left", |instance| overwrite(instance, b'a', LEFT)),
            ("right", |instance| overwrite(instance, b'n', RIGHT)),
        ],
    );
}

/// Writes one letter after another, for ever.
fn overwrite(instance: &Path, first: u8, (at, length): (u64, usize)) {
    let client = Client::connect(instance).expect("connects");
    let file = open(&client, "shared");
    let mut bytes = vec![0; length];
    for letter in (first..first + 13).cycle() {
        bytes.fill(letter);
        file.write_at(&bytes, at).expect("writes");
        file.write_at(&bytes[..SMALL.1], SMALL.0).expect("writes");
    }
}

fn uniform(file: &File, (at, length): (u64, usize)) -> bool {
    let mut seen = vec![0; length];
    assert_eq!(file.read_at(&mut seen, at).expect("reads"), length);
    assert!(seen.iter().all(u8::is_ascii_lowercase), "bytes nobody wrote");
    seen.iter().all(|byte| *byte == seen[0])
}

/// A home, its server, a client, and the file before the writers come.
struct Shared {
    _home: tempfile::TempDir,
    instance: std::path::PathBuf,
    _server: process::Process,
    client: Client,
    file: File,
}

impl Shared {
    fn new() -> Self {
        let home = tempfile::tempdir_in("/dev/shm").expect("room");
        let instance = home.path().join("instance");
        let server = process::start_server(&instance, None);
        let client = Client::connect(&instance).expect("connects");
        let file = open(&client, "shared");
        file.write_at(&[b'a'; 1_100_000], 0).expect("writes");
        Shared { _home: home, instance, _server: server, client, file }
    }

    fn writers(&self) -> [process::Process; 2] {
        let writers = ["left", "right"].map(|role| process::start(role, &self.instance, None));
        self.await_sessions(|sessions| sessions >= 4);
        writers
    }

    /// Two sessions are this process's own.
    fn await_sessions(&self, enough: impl Fn(u64) -> bool) {
        let begin = Instant::now();
        while !enough(self.client.status().expect("status").sessions as u64) {
            assert!(begin.elapsed() < Duration::from_secs(60), "sessions neither come nor go");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn a_reader_sees_one_overwrite_or_the_other() {
    let shared = Shared::new();
    let _writers = shared.writers();
    let (begin, mut letters) = (Instant::now(), std::collections::BTreeSet::new());
    let may_go_on = |letters: usize| letters <= 13 && begin.elapsed() < Duration::from_secs(60);
    while begin.elapsed() < Duration::from_secs(3) || may_go_on(letters.len()) {
        assert!(uniform(&shared.file, BOTH), "half of one overwrite, half of another");
        assert!(uniform(&shared.file, SMALL), "half of one small overwrite, half of another");
        let mut letter = [0];
        shared.file.read_at(&mut letter, BOTH.0).expect("reads");
        letters.insert(letter[0]);
    }
    assert!(letters.len() > 13, "only one writer was seen: {letters:?}");
}

#[test]
fn a_stopped_overwriter_holds_up_nobody_and_goes_on_whole() {
    let shared = Shared::new();
    let writers = shared.writers();
    for round in 0..15u64 {
        std::thread::sleep(Duration::from_micros(round * 700));
        writers.iter().for_each(|process| process.signal(Signal::STOP));
        let begin = Instant::now();
        uniform(&shared.file, BOTH);
        shared.file.write_at(&vec![b'z'; BOTH.1], BOTH.0).expect("writes");
        assert!(uniform(&shared.file, BOTH), "a completed overwrite is not whole");
        assert!(begin.elapsed() < Duration::from_secs(60), "held up for {:?}", begin.elapsed());
        writers.iter().for_each(|process| process.signal(Signal::CONT));
    }
    std::thread::sleep(Duration::from_millis(200));
    assert!(uniform(&shared.file, BOTH) && uniform(&shared.file, SMALL));
}

#[test]
fn a_killed_overwriter_leaves_no_hole_and_holds_up_nobody() {
    let shared = Shared::new();
    for round in 0..15u64 {
        let mut writers = shared.writers();
        std::thread::sleep(Duration::from_micros(round * 700));
        writers.iter_mut().for_each(process::Process::kill);
        let begin = Instant::now();
        // `uniform` also says that every byte is somebody's.
        uniform(&shared.file, LEFT);
        shared.file.write_at(&vec![b'z'; BOTH.1], BOTH.0).expect("writes");
        assert!(uniform(&shared.file, BOTH), "a completed overwrite is not whole");
        assert!(begin.elapsed() < Duration::from_secs(60), "held up for {:?}", begin.elapsed());
        shared.await_sessions(|sessions| sessions <= 2);
    }
}
