//! A permanent directory that does not answer: who needs something of it waits, and nobody else
//! does. It is a `bindfs` (FUSE) that is stopped, as a file server over the network may be.
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;
mod files;
mod launched;
mod process;
mod served;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use files::open;
use launched::until;
use rustix::process::Signal;
use served::Served;
use terral_client::{Client, OpenHow, RenameHow};

/// For how long it does not answer, and for how much work of others.
const STOPPED: (Duration, usize) = (Duration::from_millis(900), 300);
/// Nothing takes so long, unless it waits for the directory.
const LONG: Duration = Duration::from_secs(60);
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
    server: process::Process,
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
        Some(Bench { instance, server, served, beneath, _homes })
    }

    fn connect(&self) -> Client {
        Client::connect(&self.instance).expect("connects")
    }

    /// Stops the directory's server and does `others` meanwhile, each in a thread, and `here`,
    /// which needs nothing of it, again and again: it goes on only when that has been done.
    fn beside<'s>(&self, others: Vec<Box<dyn Fn() + Send + 's>>, here: impl Fn(usize)) {
        self.served.signal(Signal::STOP);
        let (begin, stopped) = (Instant::now(), &AtomicBool::new(true));
        std::thread::scope(|threads| {
            let (done, is_done) = channel::<()>();
            threads.spawn(move || {
                let _ = is_done.recv_timeout(LONG);
                stopped.store(false, Ordering::SeqCst);
                self.served.signal(Signal::CONT);
            });
            for other in others {
                threads.spawn(move || {
                    other();
                    let waited = !stopped.load(Ordering::SeqCst);
                    assert!(waited, "what needs the directory waits for it");
                });
            }
            let goes_on = |&count: &usize| begin.elapsed() < STOPPED.0 || count < STOPPED.1;
            (0..).take_while(goes_on).for_each(here);
            assert!(stopped.load(Ordering::SeqCst), "it waits for the directory");
            drop(done);
        });
    }

    /// Whether a thread of the server waits for an answer of the directory's.
    fn asks(&self) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.server.0.id()));
        threads.expect("it lives").flatten().any(|thread| {
            let waits = std::fs::read_to_string(thread.path().join("wchan"));
            waits.is_ok_and(|what| what == "request_wait_answer")
        })
    }

    /// How many talk with the server.
    fn connections(&self) -> usize {
        let open = std::fs::read_dir(format!("/proc/{}/fd", self.server.0.id()));
        let open = open.expect("it lives").flatten().flat_map(|fd| std::fs::read_link(fd.path()));
        open.filter(|to| to.to_string_lossy().starts_with("socket:")).count()
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
    until("it is there", || bench.beneath.path().join("made").exists());
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
    bench.beside(others, work);
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
    until("all are there", || (0..50).all(|n| there(&format!("d/{n:02}")).exists()));
    bench.beside(vec![], |n| go_on(&here, &bench, n));
    here.flush().expect("asks");
    until("what was moved is there", || (0..50).all(|n| there(&format!("e/{n:02}")).exists()));
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
    let connections = bench.connections();
    bench.served.signal(Signal::STOP);
    let mut asker = process::start("asker", &bench.instance, None);
    until("it has come", || bench.connections() > connections);
    let begin = Instant::now();
    while !bench.asks() {
        if begin.elapsed() > LONG / 4 {
            return println!("skipped: this kernel does not say who waits for a directory");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    asker.kill();
    until("the server knows that nobody waits", || bench.connections() == connections);
    bench.served.signal(Signal::CONT);
    until("the directory has answered", || !bench.asks());
    std::fs::write(bench.beneath.path().join("d/late"), "").expect("writes");
    let names: Vec<_> = here.list(b"d").expect("lists").into_iter().map(|it| it.name).collect();
    assert_eq!(names, [b"early".to_vec(), b"late".to_vec()]);
}
