//! What is marked as borrowed is used without asking until the deadline, and not beyond it: then
//! the server says how it stands, nothing that was written is lost, and nothing is done twice. A
//! server that is stopped answers nobody: who waits for it has asked.
#![cfg(not(loom))]

mod files;
mod process;
mod vandal;

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use files::WRITE;
use process::Bench;
use rustix::process::Signal;
use terral_client::{Change, Client, File, MapHow, OpenHow, access};
use terral_format::ids::Ino;
use terral_format::local::names::flag;
use terral_transport::boottime;
use vandal::Vandal;

const NEW: OpenHow = OpenHow { exclusive: true, ..WRITE };
const APPEND: OpenHow = OpenHow { access: WRITE.access | access::APPEND as u8, ..WRITE };
const HOUR_NS: u64 = 3600 * 1_000_000_000;
/// Files made in the beginning: of so many, some are in hand then.
const FILES: usize = 18;
const CHUNK: usize = 2 << 20;
/// Nobody who is going to come back without an answer needs so long.
const ASKS: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_secs(60);

#[test]
fn role() {
    process::play(128, &[]);
}

/// A server, a client in this process, and a file of one chunk that it has open.
struct Lent {
    bench: Bench,
    client: Client,
    vandal: Vandal,
    file: File,
}

impl Lent {
    fn new() -> Self {
        let bench = Bench::new();
        let client = Client::connect(&bench.instance()).expect("connects");
        client.make_directory(b"d", 0o755).expect("makes");
        let file = client.open(b"d/file", WRITE).expect("opens");
        file.write_at(&vec![b'a'; CHUNK], 0).expect("writes");
        // From now on this client may make files without waiting, and all is in the table.
        for number in 1..=FILES {
            client.open(format!("d/{number}").as_bytes(), WRITE).expect("opens").close();
        }
        client.space().expect("answers");
        client.list(b"d").expect("lists");
        let vandal = Vandal::new(&bench.instance());
        Lent { bench, client, vandal, file }
    }

    fn in_time(&self) {
        self.vandal.deadline(&self.bench.instance(), boottime::now_ns() + HOUR_NS);
    }

    fn late(&self) {
        self.vandal.deadline(&self.bench.instance(), boottime::now_ns());
    }

    fn lend_chunk(&self) {
        self.vandal.lend_chunk(&self.bench.instance(), self.file.ino());
    }

    fn ino(&self, path: &[u8]) -> Ino {
        self.client.stat(path).expect("is there").ino
    }

    fn lend(&self, path: &[u8]) -> Ino {
        let ino = self.ino(path);
        self.vandal.lend(&self.bench.instance(), ino);
        ino
    }

    fn stop(&self) {
        self.bench.server.signal(Signal::STOP);
    }

    fn goes_on(&self) {
        self.bench.server.signal(Signal::CONT);
    }

    /// What `call` gives, on a thread of its own.
    fn begin<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Client, &File) -> T + Send + 'static,
    ) -> Receiver<T> {
        let (tell, told) = channel();
        let (client, file) = (self.client.clone(), self.file.clone());
        std::thread::spawn(move || tell.send(call(&client, &file)));
        told
    }

    /// `call` needs nobody.
    fn asks_nobody<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Client, &File) -> T + Send + 'static,
    ) -> T {
        self.stop();
        let told = self.begin(call).recv_timeout(LONG);
        self.goes_on();
        told.expect("it waits for the server")
    }

    /// `call` waits for the server, and ends when that goes on after `meanwhile`.
    fn asks<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Client, &File) -> T + Send + 'static,
        meanwhile: impl FnOnce(),
    ) -> T {
        self.stop();
        let told = self.begin(call);
        let early = told.recv_timeout(ASKS).is_ok();
        meanwhile();
        self.goes_on();
        assert!(!early, "it did not ask");
        told.recv_timeout(LONG).expect("the server answers")
    }
}

fn read(file: &File) -> Vec<u8> {
    let mut into = vec![0; CHUNK];
    assert_eq!(file.read_at(&mut into, 0).expect("reads"), CHUNK);
    into
}

#[test]
fn bytes_of_a_borrowed_chunk_are_read_until_the_deadline_and_then_asked_for() {
    let lent = Lent::new();
    lent.lend_chunk();
    lent.in_time();
    assert!(lent.asks_nobody(|_, file| read(file)) == vec![b'a'; CHUNK]);
    assert!(lent.vandal.entry(lent.file.ino()).is_borrowed());
    lent.late();
    assert!(lent.asks(|_, file| read(file), || ()) == vec![b'a'; CHUNK]);
    // The server is alone, and has taken it for its own: nobody asks any more.
    assert!(!lent.vandal.entry(lent.file.ino()).is_borrowed());
    assert!(lent.asks_nobody(|_, file| read(file)) == vec![b'a'; CHUNK]);
}

#[test]
fn a_write_into_a_borrowed_chunk_that_comes_late_counts_if_the_chunk_is_there() {
    let lent = Lent::new();
    lent.lend_chunk();
    lent.in_time();
    lent.asks_nobody(|_, file| file.write_at(b"in time", 0).expect("writes"));
    lent.late();
    lent.asks(|_, file| file.write_at(b"late", 100).expect("writes"), || ());
    let bytes = read(&lent.file);
    assert!(bytes.starts_with(b"in time") && bytes[100..].starts_with(b"lateaaa"));
    assert!(!lent.vandal.entry(lent.file.ino()).is_borrowed());
}

#[test]
fn a_late_write_whose_chunk_was_taken_away_is_done_anew() {
    let lent = Lent::new();
    lent.lend_chunk();
    lent.late();
    let (vandal, instance) = (&lent.vandal, lent.bench.instance());
    let gone = || vandal.evict(&instance, lent.file.ino());
    lent.asks(|_, file| file.write_at(b"late", 100).expect("writes"), gone);
    let mut bytes = vec![0; CHUNK];
    bytes[100..104].copy_from_slice(b"late");
    assert!(read(&lent.file) == bytes, "only what was written late is there");
}

#[test]
fn a_record_that_is_appended_late_is_there_once() {
    let lent = Lent::new();
    let log = lent.client.open(b"d/log", APPEND).expect("opens");
    log.write(b"first ").expect("writes");
    let vandal = &lent.vandal;
    vandal.lend_chunk(&lent.bench.instance(), log.ino());
    lent.lend(b"d/log");
    lent.in_time();
    let appends = log.clone();
    lent.asks_nobody(move |_, _| appends.write(b"in time ").expect("writes"));
    lent.late();
    let appends = log.clone();
    lent.asks(move |_, _| appends.write(b"late").expect("writes"), || ());
    assert!(!vandal.is_lent(log.ino()) && !vandal.entry(log.ino()).is_borrowed());
    let mut into = [0; 99];
    let reader = lent.client.open(b"d/log", WRITE).expect("opens");
    let count = reader.read(&mut into).expect("reads");
    assert_eq!(&into[..count], b"first in time late");
}

#[test]
fn what_is_asked_when_the_server_dies_the_next_one_answers() {
    let mut lent = Lent::new();
    lent.lend_chunk();
    lent.late();
    lent.stop();
    let told = lent.begin(|_, file| file.write_at(b"late", 0).map(|_| read(file)));
    assert!(told.recv_timeout(ASKS).is_err(), "it did not ask");
    lent.bench.restart();
    let bytes = told.recv_timeout(LONG).expect("the server answers").expect("writes");
    assert!(bytes.starts_with(b"lateaaa"));
    assert!(!lent.vandal.entry(lent.file.ino()).is_borrowed());
}

#[test]
fn names_of_a_borrowed_directory_are_found_until_the_deadline_and_then_asked_for() {
    let lent = Lent::new();
    let directory = lent.lend(b"d");
    lent.in_time();
    let look = |client: &Client| {
        let there = client.stat(b"d/file").is_ok();
        (there, client.stat(b"d/none").is_err(), client.list(b"d").expect("lists").len())
    };
    assert_eq!(lent.asks_nobody(move |client, _| look(client)), (true, true, 1 + FILES));
    lent.late();
    assert_eq!(lent.asks(move |client, _| look(client), || ()), (true, true, 1 + FILES));
    assert!(lent.vandal.is_lent(directory), "to look changes nothing");
}

#[test]
fn what_another_machine_has_is_asked_for_and_nothing_of_it_is_changed_without_asking() {
    let lent = Lent::new();
    for path in [&b"d"[..], b"d/file"] {
        lent.vandal.mark(&lent.bench.instance(), lent.ino(path), flag::ELSEWHERE);
    }
    lent.in_time();
    let there = |name: &'static [u8]| lent.asks(move |client, _| client.stat(name).is_ok(), || ());
    assert!(there(b"d") && there(b"d/file") && !there(b"d/none"));
    assert_eq!(lent.asks(|client, _| client.list(b"d").expect("lists").len(), || ()), 1 + FILES);
    let make = |client: &Client, _: &File| client.open(b"d/new", NEW).map(|file| file.close());
    lent.asks(make, || ()).expect("is made");
    lent.asks(|client, _| client.make_directory(b"d/below", 0o755), || ()).expect("is made");
    lent.asks(|client, _| client.rename(b"d/1", b"moved", Default::default()), || ())
        .expect("moves");
    lent.asks(|client, _| client.unlink(b"d/2"), || ()).expect("is removed");
    lent.asks(|client, _| client.open(b"d/file", WRITE).map(|file| file.close()), || ())
        .expect("opens");
    let change = Change { mode: Some(0o600), ..Change::default() };
    lent.asks(move |_, file| file.change(change), || ()).expect("changes");
    // Its bytes are here.
    assert_eq!(lent.asks_nobody(|_, file| read(file)), vec![b'a'; CHUNK]);
}

#[test]
fn the_size_of_a_borrowed_file_is_asked_for_beyond_the_deadline() {
    let lent = Lent::new();
    let ino = lent.lend(b"d/file");
    let at_the_end = |file: &File| file.read_at(&mut [0; 9], CHUNK as u64).expect("reads");
    lent.in_time();
    assert_eq!(lent.asks_nobody(move |_, file| at_the_end(file)), 0);
    lent.late();
    assert_eq!(
        lent.asks(|client, _| client.stat(b"d/file").expect("is there").size, || ()),
        2 << 20
    );
    assert_eq!(lent.asks(move |_, file| at_the_end(file), || ()), 0);
    assert!(!lent.vandal.is_lent(ino));
}

#[test]
fn a_name_made_in_a_borrowed_directory_is_there_once_whenever_the_deadline_is() {
    let lent = Lent::new();
    let make = |name: String| {
        move |client: &Client, _: &File| client.open(name.as_bytes(), NEW).map(|file| file.close())
    };
    lent.lend(b"d");
    lent.in_time();
    lent.asks_nobody(make("d/in time".into())).expect("is made");
    assert!(lent.asks_nobody(|client, _| client.unlink(b"d/1").is_ok()));
    assert!(
        lent.asks_nobody(|client, _| client.rename(b"d/2", b"d/other", Default::default()).is_ok())
    );
    lent.late();
    lent.asks(make("d/late".into()), || ()).expect("is made");
    let there = |name: &str| lent.client.stat(name.as_bytes()).is_ok();
    assert!(there("d/in time") && there("d/late") && !there("d/1") && there("d/other"));
    // The deadline passes somewhere in the middle of a call.
    for round in 0..2000 {
        let name = format!("d/{round}.new");
        lent.lend(b"d");
        let soon = boottime::now_ns() + round % 400 * 50;
        lent.vandal.deadline(&lent.bench.instance(), soon);
        make(name.clone())(&lent.client, &lent.file).expect("is made, and only once");
        assert!(there(&name), "{name}");
    }
}

#[test]
fn a_borrowed_file_is_opened_until_the_deadline_and_then_asked_for() {
    let lent = Lent::new();
    let ino = lent.lend(b"d/file");
    let open = |client: &Client, _: &File| client.open(b"d/file", WRITE).expect("opens");
    lent.in_time();
    lent.asks_nobody(open);
    lent.late();
    let file = lent.asks(open, || ());
    assert!(!lent.vandal.is_lent(ino) && read(&file) == vec![b'a'; CHUNK]);
}

#[test]
fn attributes_changed_late_count() {
    let lent = Lent::new();
    let ino = lent.lend(b"d/file");
    let change = |mode| Change { mode: Some(mode), ..Change::default() };
    lent.in_time();
    lent.asks_nobody(move |_, file| file.change(change(0o600)).expect("changes"));
    lent.late();
    lent.asks(move |_, file| file.change(change(0o640)).expect("changes"), || ());
    assert_eq!(lent.client.stat(b"d/file").expect("is there").mode & 0o777, 0o640);
    assert!(!lent.vandal.is_lent(ino));
}

#[test]
fn a_borrowed_chunk_is_its_machines_own_before_it_is_mapped() {
    let lent = Lent::new();
    lent.lend_chunk();
    lent.in_time();
    // Shared, to be read and written.
    let how = MapHow { at: 0, length: CHUNK, protection: 3, flags: 1, offset: 0 };
    lent.file.map(how).expect("maps");
    assert!(!lent.vandal.entry(lent.file.ino()).is_borrowed());
}

#[test]
fn a_hole_of_a_borrowed_file_is_asked_for_beyond_the_deadline() {
    let lent = Lent::new();
    lent.client.open(b"d/holes", WRITE).expect("opens").truncate(1 << 20).expect("grows");
    let holes = lent.client.open(b"d/holes", WRITE).expect("opens");
    let ino = lent.lend(b"d/holes");
    lent.in_time();
    let reads = holes.clone();
    assert_eq!(lent.asks_nobody(move |_, _| reads.read_at(&mut [1; 9], 0).expect("reads")), 9);
    lent.late();
    let read = move |_: &Client, _: &File| {
        let mut bytes = [1; 9];
        holes.read_at(&mut bytes, 0).expect("reads");
        bytes
    };
    assert_eq!(lent.asks(read, || ()), [0; 9]);
    assert!(!lent.vandal.is_lent(ino));
}

#[test]
fn a_borrowed_file_that_becomes_longer_is_asked_for_beyond_the_deadline() {
    let lent = Lent::new();
    let log = lent.client.open(b"d/grows", WRITE).expect("opens");
    log.write_at(b"first", 0).expect("writes");
    let ino = lent.lend(b"d/grows");
    lent.in_time();
    let writes = log.clone();
    lent.asks_nobody(move |_, _| writes.write_at(b"in time", 5).expect("writes"));
    lent.late();
    let writes = log.clone();
    lent.asks_nobody(move |_, _| writes.write_at(b"over", 0).expect("writes"));
    let writes = log.clone();
    lent.asks(move |_, _| writes.write_at(b"late", 12).expect("writes"), || ());
    assert!(!lent.vandal.is_lent(ino));
    assert_eq!(lent.client.stat(b"d/grows").expect("is there").size, 16);
}

#[test]
fn a_late_rename_is_asked_for_in_both_directories() {
    let lent = Lent::new();
    lent.client.make_directory(b"e", 0o755).expect("makes");
    lent.client.list(b"e").expect("lists");
    let names = [b"d/1", b"e/1"];
    let instance = lent.bench.instance();
    // Until the deadline passes in the middle of a call, once it has begun without asking.
    let is_found = (0..200_000u64).any(|round| {
        let [from, to] = [names[round as usize % 2], names[(round as usize + 1) % 2]];
        let [from_in, to_in] = [&from[..1], &to[..1]].map(|directory| lent.lend(directory));
        lent.vandal.deadline(&instance, boottime::now_ns() + round % 400 * 50);
        lent.client.rename(from, to, Default::default()).expect("is moved, and only once");
        let asked = !lent.vandal.is_lent(to_in);
        assert!(!asked || !lent.vandal.is_lent(from_in), "asked in one of them");
        asked
    });
    assert!(is_found, "no call was late");
}
