//! A permanent directory that does not answer: who needs something of it waits, and nobody else
//! does. It is a `bindfs` (FUSE) that is stopped, as a file server over the network may be.
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod files;
mod process;
mod served;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use files::open;
use rustix::process::Signal;
use served::Served;
use terral_client::{Client, OpenHow, RenameHow};

/// For how long it does not answer.
const STOPPED: Duration = Duration::from_millis(900);
/// Nobody else waits for longer, on a machine that has other work.
const PROMPT: Duration = Duration::from_millis(300);
const CHUNK: usize = 2 << 20;

#[test]
fn role() {
    process::play(
        256,
        &[("asker", |instance| {
            let asks = Client::observe(instance).expect("there is a server");
            let _ = asks.list(b"d");
        })],
    );
}

struct Bench {
    instance: PathBuf,
    _server: process::Process,
    served: Served,
    /// What is served, as it is beneath.
    beneath: tempfile::TempDir,
    _homes: [tempfile::TempDir; 2],
}

impl Bench {
    /// `fill` puts into the directory what it has from the first.
    fn new(fill: impl Fn(&Path)) -> Option<Self> {
        let home = tempfile::tempdir_in("/dev/shm").expect("room");
        let (beneath, at) = (tempfile::tempdir().expect("is"), tempfile::tempdir().expect("is"));
        fill(beneath.path());
        let served = Served::mount(beneath.path(), at.path(), &[])?;
        let instance = home.path().join("instance");
        let server = process::start_server(&instance, Some(at.path()));
        let _homes = [home, at];
        Some(Bench { instance, _server: server, served, beneath, _homes })
    }

    fn connect(&self) -> Client {
        Client::connect(&self.instance).expect("connects")
    }

    /// Stops the directory's server for a moment and does `others` meanwhile, each in a thread, and
    /// `here`, which needs nothing of it, again and again. Gives the longest of these, and how many
    /// there were.
    fn beside<'s>(
        &self,
        others: Vec<Box<dyn Fn() + Send + 's>>,
        here: impl Fn(usize),
    ) -> (Duration, usize) {
        self.served.signal(Signal::STOP);
        let begin = Instant::now();
        std::thread::scope(|threads| {
            threads.spawn(|| {
                std::thread::sleep(STOPPED);
                self.served.signal(Signal::CONT);
            });
            for other in others {
                threads.spawn(move || {
                    other();
                    assert!(begin.elapsed() >= STOPPED, "what needs the directory waits for it");
                });
            }
            let (mut longest, mut count) = (Duration::ZERO, 0);
            while begin.elapsed() < STOPPED {
                let one = Instant::now();
                here(count);
                longest = longest.max(one.elapsed());
                count += 1;
            }
            (longest, count)
        })
    }
}

const READ: OpenHow = OpenHow { access: 1, create: false, ..files::WRITE };

#[test]
fn who_needs_nothing_of_a_directory_that_does_not_answer_does_not_wait_for_it() {
    let bytes: Vec<u8> = (0..3 * CHUNK + 5).map(|at| (at / 7) as u8).collect();
    let Some(bench) = Bench::new(|there| {
        std::fs::write(there.join("large"), &bytes).expect("writes");
        std::fs::create_dir(there.join("d")).expect("makes");
        (0..50).for_each(|n| {
            std::fs::write(there.join(format!("d/{n:02}")), [n; 100]).expect("writes");
        });
    }) else {
        return;
    };
    let [here, reader, looker, lister] = std::array::from_fn(|_| bench.connect());
    here.make_directory(b"made", 0o755).expect("makes");
    let large = reader.open(b"large", READ).expect("opens");
    here.flush().expect("asks");
    while !bench.beneath.path().join("made").exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    let read = || {
        let mut got = vec![0; bytes.len()];
        assert_eq!(large.read_at(&mut got, 0).expect("reads"), bytes.len());
        assert!(got == bytes);
    };
    let look = || {
        let file = looker.open(b"d/07", READ).expect("opens");
        let mut got = [0; 101];
        assert_eq!(file.read_at(&mut got, 0).expect("reads"), 100);
        assert!(got[..100] == [7; 100]);
        assert!(looker.stat(b"d/nothing").is_err());
    };
    let list = || assert_eq!(lister.list(b"d").expect("lists").len(), 50);
    let work = |n: usize| {
        let name = format!("made/{}", n % 10);
        let file = open(&here, &name);
        file.write_at(&[n as u8; 4096], 0).expect("writes");
        assert_eq!(here.stat(name.as_bytes()).expect("is there").size, 4096);
        file.close();
        if n.is_multiple_of(3) {
            here.unlink(name.as_bytes()).expect("removes");
        }
    };
    let others: Vec<Box<dyn Fn() + Send + '_>> =
        vec![Box::new(read), Box::new(look), Box::new(list)];
    let (longest, count) = bench.beside(others, work);
    assert!(longest < PROMPT, "{longest:?}, of {count}");
    assert!(count > 100, "{count} in {STOPPED:?}");
}

/// Work of a client whose names and files the directory has, or is to get.
fn go_on(here: &Client, bench: &Bench, n: usize) {
    let (known, new) = (format!("d/{:02}", n % 50), format!("d/new{}", n % 10));
    let moved = format!("e/{}", n % 10);
    let file = open(here, &new);
    file.write_at(&[n as u8; 4096], 0).expect("writes");
    file.close();
    assert_eq!(here.stat(new.as_bytes()).expect("is there").size, 4096);
    here.rename(new.as_bytes(), moved.as_bytes(), RenameHow::Replace).expect("moves");
    if n < 50 {
        // Its bytes are only there, and so is its name.
        let to = format!("e/{n:02}");
        here.rename(known.as_bytes(), to.as_bytes(), RenameHow::Replace).expect("moves");
    }
    if n.is_multiple_of(3) {
        here.unlink(moved.as_bytes()).expect("removes");
    }
    if n.is_multiple_of(50) {
        assert_eq!(bench.connect().stat(b"d").expect("is there").mode & 0o777, 0o755);
    }
    if n.is_multiple_of(100) {
        here.flush().expect("asks");
    }
}

#[test]
fn a_drain_that_waits_for_a_directory_that_does_not_answer_holds_up_nobody() {
    let Some(bench) = Bench::new(|_| {}) else { return };
    let here = bench.connect();
    for directory in [&b"d"[..], b"e"] {
        here.make_directory(directory, 0o755).expect("makes");
    }
    for n in 0..50 {
        let file = open(&here, &format!("d/{n:02}"));
        file.write_at(&[n; 100], 0).expect("writes");
        file.close();
    }
    here.flush().expect("asks");
    let there = |name: &str| bench.beneath.path().join(name);
    while !(0..50).all(|n| there(&format!("d/{n:02}")).exists()) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let (longest, count) = bench.beside(vec![], |n| go_on(&here, &bench, n));
    assert!(longest < PROMPT, "{longest:?}, of {count}");
    assert!(count > 100, "{count} in {STOPPED:?}");
    here.flush().expect("asks");
    let begin = Instant::now();
    while !(0..50).all(|n| there(&format!("e/{n:02}")).exists()) {
        assert!(begin.elapsed() < Duration::from_secs(60), "what was moved arrives");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn what_was_fetched_for_one_who_is_gone_is_asked_for_anew() {
    let Some(bench) = Bench::new(|there| {
        std::fs::create_dir(there.join("d")).expect("makes");
        std::fs::write(there.join("d/early"), "").expect("writes");
    }) else {
        return;
    };
    let here = bench.connect();
    here.stat(b"d").expect("is there");
    bench.served.signal(Signal::STOP);
    let mut asker = process::start("asker", &bench.instance, None);
    std::thread::sleep(PROMPT);
    asker.kill();
    std::thread::sleep(PROMPT);
    bench.served.signal(Signal::CONT);
    std::thread::sleep(PROMPT);
    std::fs::write(bench.beneath.path().join("d/late"), "").expect("writes");
    let names: Vec<_> = here.list(b"d").expect("lists").into_iter().map(|it| it.name).collect();
    assert_eq!(names, [b"early".to_vec(), b"late".to_vec()]);
}
