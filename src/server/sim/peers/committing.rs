//! Files that are written under `consistency=commit`: what a machine has written it sees, and
//! others once it is committed, by bytes and not by pages; whoever dies, and done once.

use std::sync::atomic::Ordering;
use std::time::Duration;

use terral_format::disk::membership::Membership;
use terral_format::ids::Ino;
use terral_format::local::batch::{BATCH_BYTES, HEAD_BYTES, Head, RECORD_MAX};
use terral_format::wire::far_files::FarFile;
use terral_format::wire::locks::{Lock, LockAsk, LockKind, LockRange, Locker};
use terral_format::wire::message::{FileRef, OpenFile, OpenHow, Reply, Request};
use terral_format::wire::roster::{Consistency, Policy};
use terral_format::{ErrorKind, Result};

use super::bytes::Open;
use super::{Peers, walk_all};
use crate::core::left_out::Step;
use crate::core::left_out::tests::without;
use crate::requests::handling::Outcome as Handled;
use crate::sim::client::{CREATE, Opened};
use crate::sim::world::Virtual;

const OPEN: OpenHow = OpenHow { create: false, ..CREATE };
/// The first bytes are a number that is counted under a lock.
const COUNTER: u64 = 8;
/// All others are beyond these.
const OTHERS: u64 = 16;
const ALL: LockRange = LockRange::ALL;

/// What a byte may be.
#[derive(Clone, Default)]
struct Byte {
    /// What it is for all, or may be, each with when it came there at the latest.
    common: Vec<(u8, u64)>,
    /// What each machine has written and not committed.
    own: [Vec<(u8, u64)>; 3],
}

impl Byte {
    fn is(&mut self, value: u8, when: u64) {
        self.common = vec![(value, when)];
    }

    fn commit(&mut self, at: usize, now: u64) {
        let Some((last, written)) = std::mem::take(&mut self.own[at]).pop() else { return };
        // It may have come there as soon as it was written: before others, or after them.
        self.common.retain(|other| other.1 > written);
        self.common.push((last, now));
    }

    /// What a machine may see that has nothing of its own that is not committed.
    fn may_be(&self, value: u8) -> bool {
        let none = self.common.is_empty() && value == 0;
        let mut all = self.common.iter().chain(self.own.iter().flatten());
        none || all.any(|(other, _)| *other == value)
    }
}

/// A file of the first machine, open on all, by one program of each.
struct Shared {
    peers: Peers,
    open: Vec<Open>,
    /// To which batch each machine writes.
    batches: Vec<Option<FileRef>>,
    bytes: Vec<Byte>,
    counter: u64,
    /// How long it is for sure.
    size: u64,
    writes: u64,
    /// Those that went to a batch.
    batched: u64,
}

impl Shared {
    fn new(seed: u64) -> Self {
        let mut peers = Peers::new(seed, 3);
        peers.create(0, b"a").expect("made");
        for sim in &mut peers.sims {
            let policy = Policy { pattern: "*".into(), consistency: Consistency::Commit };
            let said = Membership::Policies(vec![policy]);
            sim.with(|server| {
                let mut state = server.lock();
                state.record(said.clone());
                state.commit().expect("there is room");
            });
        }
        let open: Vec<Open> =
            (0..3).map(|at| peers.open(at, b"a", OPEN).expect("opened")).collect();
        assert!(open[1].is_far() && open[2].is_far() && !open[0].is_far());
        let (counter, size, writes, batched) = Default::default();
        let (batches, bytes) = (vec![None; 3], Vec::new());
        Shared { peers, open, batches, bytes, counter, size, writes, batched }
    }

    fn is_usable(&self, at: usize, batch: FileRef, more: u64) -> bool {
        let memory = &self.peers.sims[at].memory;
        let is_its = memory.record(batch.slot).ino().load(Ordering::SeqCst) == batch.ino.0;
        let size = crate::sim::client::memory_size(memory, batch.slot);
        is_its && !memory.is_sealed(batch.slot) && size + more <= BATCH_BYTES
    }

    /// As a client does. False: there is no batch.
    fn add(&mut self, at: usize, offset: u64, bytes: &[u8]) -> bool {
        let head = Head { at: offset, bytes: bytes.len() as u32 }.write();
        let record = [&head, bytes].concat();
        for _ in 0..20 {
            let known = self.batches[at].filter(|it| self.is_usable(at, *it, record.len() as u64));
            if let Some(batch) = known {
                let memory = self.peers.sims[at].memory.clone();
                let end = crate::sim::client::memory_size(&memory, batch.slot);
                let client = self.peers.clients[at];
                self.peers.sims[at].write(client, batch, end, &record).expect("there is memory");
                return true;
            }
            let full = self.batches[at].map_or(Ino(0), |batch| batch.ino);
            let asked = FarFile::Batch { of: self.open[at].handle(), full };
            match self.peers.ask(at, Request::Far(asked)).expect("asked") {
                Reply::Lent(file) => self.batches[at] = Some(file),
                _ => return false,
            }
        }
        panic!("there is none to be had");
    }

    fn write(&mut self, at: usize, offset: u64, bytes: &[u8]) {
        let piece = RECORD_MAX - HEAD_BYTES;
        let is_far = self.open[at].is_far();
        if is_far && bytes.chunks(piece).all(|bytes| self.add(at, offset, bytes)) {
            self.batched += 1;
            return self.was_written(at, offset, bytes, false);
        }
        self.peers.write(self.open[at], Some(offset), bytes).expect("written");
        // All that was written there before went first.
        self.commits(at);
        self.was_written(at, offset, bytes, true);
    }

    fn was_written(&mut self, at: usize, offset: u64, bytes: &[u8], strict: bool) {
        if offset < OTHERS {
            return;
        }
        let (begin, end) = (offset as usize, offset as usize + bytes.len());
        self.bytes.resize_with(self.bytes.len().max(end), Byte::default);
        self.writes += 1;
        for (byte, value) in self.bytes[begin..end].iter_mut().zip(bytes) {
            match strict {
                true => byte.is(*value, self.writes),
                false => byte.own[at].push((*value, self.writes)),
            }
        }
        if strict {
            self.size = self.size.max(end as u64);
        }
    }

    /// What a machine has written is there for all from now on.
    fn commits(&mut self, at: usize) {
        self.writes += 1;
        for (place, byte) in self.bytes.iter_mut().enumerate() {
            if !byte.own[at].is_empty() {
                byte.commit(at, self.writes);
                self.size = self.size.max(place as u64 + 1);
            }
        }
    }

    fn commit(&mut self, at: usize) {
        if self.open[at].is_far() {
            let asked = FarFile::Commit(self.open[at].handle());
            self.peers.ask(at, Request::Far(asked)).expect("committed");
        }
        self.commits(at);
    }

    fn check_read(&mut self, at: usize, offset: u64, length: usize) {
        let read = self.peers.read(self.open[at], offset, length).expect("read");
        // It sees its own: that went first.
        self.commits(at);
        let there = (self.size.saturating_sub(offset) as usize).min(length);
        assert!(read.len() >= there, "{at}: {} of {there} at {offset}", read.len());
        for (place, value) in (offset as usize..).zip(read) {
            let byte = self.bytes.get(place);
            let may_be = byte.is_some_and(|byte| byte.may_be(value));
            assert!(may_be, "{at}: {value} at {place}, {:?}", byte.map(|byte| &byte.common));
        }
    }

    fn lock(&mut self, at: usize, kind: LockKind) -> bool {
        let (open, client) = (self.open[at], self.peers.clients[at]);
        let (description, nonce, file) = (open.description, open.nonce, open.file);
        let (locker, range) = (Locker::Process, ALL);
        if !open.is_far() {
            let opened = Opened::new(OpenFile { file, description, nonce }, None);
            let owner = self.peers.sims[at].locker(client, &opened, locker);
            let lock = Lock { ino: file.ino, owner, range, kind };
            let done = self.peers.sims[at].lock(client, &opened, (locker, lock));
            self.peers.collect(at);
            return done;
        }
        let ask = LockAsk { ino: file.ino, description, nonce, locker, range, kind };
        let done = self.peers.ask(at, Request::Far(FarFile::Lock { ask, wait: 0 }));
        self.commits(at);
        match done {
            Ok(_) => true,
            Err(error) if error.kind == ErrorKind::WouldBlock => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// One more, under a lock; who has counted may end before he gives that back.
    fn count(&mut self, at: usize, ends: bool) {
        if !self.lock(at, LockKind::Exclusive) {
            // Who has ended may have it yet.
            self.peers.pass(Duration::from_secs(1));
            return;
        }
        let read = self.peers.read(self.open[at], 0, COUNTER as usize).expect("read");
        self.commits(at);
        let mut word = [0; 8];
        word[..read.len()].copy_from_slice(&read);
        assert_eq!(u64::from_le_bytes(word), self.counter, "on {at}");
        self.counter += 1;
        let word = self.counter.to_le_bytes();
        self.write(at, 0, &word);
        if ends && at > 0 {
            self.ends(at);
        } else {
            assert!(self.lock(at, LockKind::Unlock));
        }
    }

    /// A program is killed, and another one begins.
    fn ends(&mut self, at: usize) {
        let client = self.peers.clients[at];
        self.peers.sims[at].end(client);
        self.peers.collect(at);
        self.peers.clients[at] = self.peers.sims[at].connect();
        self.open[at] = self.peers.open(at, b"a", OPEN).expect("opened");
    }

    fn step(&mut self, draw: &mut impl FnMut(u64) -> u64) {
        let at = draw(3) as usize;
        let length = if draw(5) == 0 { draw(20_000) } else { draw(400) } as usize + 1;
        let place = OTHERS + if draw(3) == 0 { draw(30_000) } else { draw(600) };
        match draw(24) {
            0..=9 => {
                let value = draw(255) as u8 + 1;
                self.write(at, place, &vec![value; length]);
            }
            10..=12 => self.check_read(at, place, length),
            13 => {
                let seen = self.peers.stat(at, b"a").expect("it is there");
                self.commits(at);
                assert!(seen.size >= self.size, "on {at}: {} < {}", seen.size, self.size);
                assert!(seen.size <= (self.bytes.len() as u64).max(COUNTER));
            }
            14 | 15 => self.commit(at),
            16 => {
                self.commit(at);
                self.peers.close(self.open[at]).expect("closed");
                if draw(2) == 0 {
                    self.peers.pass(Duration::from_millis(draw(3000)));
                }
                self.open[at] = self.peers.open(at, b"a", OPEN).expect("opened");
            }
            17..=19 => self.count(at, draw(4) == 0),
            20 if at > 0 => self.ends(at),
            20 => drop(self.peers.sims[0].with(|server| server.lock().rewrite_log())),
            21 if draw(3) == 0 => drop(self.peers.sims[at].with(|it| it.lock().rewrite_log())),
            21 | 22 => self.peers.cut(at, (at + 1) % 3),
            _ => self.peers.pass(Duration::from_millis(draw(3000))),
        }
    }

    /// All is committed, nothing is left, and all see the same.
    fn check(&mut self) {
        for at in [1, 2] {
            self.commit(at);
        }
        let length = self.bytes.len();
        let mut seen = Vec::new();
        for at in [2, 0, 1] {
            self.check_read(at, OTHERS, length);
            seen.push(self.peers.read(self.open[at], 0, length).expect("read"));
        }
        assert!(seen.windows(2).all(|two| two[0] == two[1]), "all see the same");
        for at in [1, 2] {
            self.peers.close(self.open[at]).expect("closed");
        }
        for _ in 0..5 {
            self.peers.pass(Duration::from_secs(1));
        }
        for at in [1, 2] {
            let is_empty = self.peers.sims[at].with(|server| server.lock().far.batches.is_empty());
            assert!(is_empty.expect("it lives"), "nothing is left on {at}");
        }
    }
}

fn walk(seed: u64, kills: bool) -> [u64; 3] {
    let mut shared = Shared::new(seed);
    shared.peers.rough = kills.then(|| Virtual::new(seed + 1));
    shared.peers.may_have_trouble(seed);
    let world = Virtual::new(seed);
    let mut draw = |of| world.one_of(of);
    for _ in 0..150 {
        if kills && draw(4) == 0 {
            let at = draw(3) as usize;
            shared.peers.sims[at].kill_at(1 + draw(12) as i64);
        }
        shared.step(&mut draw);
        shared.peers.reconnect();
    }
    shared.peers.rough = None;
    shared.peers.trouble_ends();
    shared.check();
    let killed = shared.peers.sims.iter().map(|sim| sim.killed).sum();
    [shared.batched, shared.counter, killed]
}

#[test]
fn what_is_committed_all_see_and_what_is_not_its_own_machine() {
    let [batched, counted, _] = walk_all(20, |seed| walk(seed, false));
    assert!(batched > 100 && counted > 50, "{batched} written to batches, {counted} counted");
}

#[test]
fn so_it_is_and_nothing_is_done_twice_whoever_dies() {
    let [batched, counted, killed] = walk_all(20, |seed| walk(seed, true));
    assert!(batched > 100 && counted > 50 && killed > 100, "{batched} {counted} {killed}");
}

#[test]
fn a_home_that_merges_pages_instead_of_bytes_is_caught() {
    let flawed = |seed| without(Step::MergeBytes, || walk(seed, false));
    assert!((0..20).any(|seed| std::panic::catch_unwind(|| flawed(seed)).is_err()));
}

/// Two machines write two parts of a page, neither of which has read it. What there is then.
fn two_parts_of_a_page() -> Vec<u8> {
    let mut shared = Shared::new(7);
    shared.write(1, OTHERS, b"one ");
    shared.write(2, OTHERS + 4, b"other");
    shared.commit(1);
    shared.commit(2);
    shared.peers.read(shared.open[0], OTHERS, 20).expect("read")
}

#[test]
fn two_parts_of_a_page_that_two_machines_write_are_both_there() {
    assert_eq!(two_parts_of_a_page(), b"one other");
    assert_eq!(
        without(Step::MergeBytes, two_parts_of_a_page),
        b"\0\0\0\0other",
        "else one is lost"
    );
}

/// A program writes while what was written before is on its way. What there is in the end.
fn written_meanwhile() -> Vec<u8> {
    let mut shared = Shared::new(5);
    shared.write(1, OTHERS, b"early");
    let asked = Request::Far(FarFile::Commit(shared.open[1].handle()));
    let taken = shared.peers.sims[1].asking(shared.peers.clients[1], asked).expect("encodes");
    let session = shared.peers.sims[1].clients[shared.peers.clients[1]].session;
    assert!(matches!(shared.peers.handle(1, session, &taken), Some(Handled::Fetch)));
    shared.write(1, OTHERS + 5, b" late");
    shared.peers.settle();
    assert!(matches!(shared.peers.handle(1, session, &taken), Some(Handled::Answer(_))));
    shared.commit(1);
    shared.peers.read(shared.open[0], OTHERS, 20).expect("read")
}

#[test]
fn what_is_written_while_a_batch_goes_is_in_the_next_one() {
    assert_eq!(written_meanwhile(), b"early late");
    assert_eq!(without(Step::Seal, written_meanwhile), b"early", "else it is lost");
}

/// A program is killed that has written much under a lock, and a number last. What who has the lock
/// next on another machine reads there.
fn counted_by_who_is_killed() -> Vec<u8> {
    let mut shared = Shared::new(6);
    assert!(shared.lock(1, LockKind::Exclusive));
    for at in 0..12 {
        shared.write(1, OTHERS + at * (1 << 20), &vec![7; RECORD_MAX - HEAD_BYTES]);
    }
    shared.write(1, 0, b"1");
    let client = shared.peers.clients[1];
    shared.peers.sims[1].end(client);
    shared.peers.collect(1);
    let locked = (0..1000).any(|_| shared.lock(2, LockKind::Exclusive) || !shared.peers.carry());
    assert!(locked && shared.lock(2, LockKind::Exclusive));
    shared.peers.read(shared.open[2], 0, 1).expect("read")
}

#[test]
fn who_has_a_lock_next_reads_what_was_written_under_it_also_by_who_was_killed() {
    assert_eq!(counted_by_who_is_killed(), b"1");
    assert_eq!(without(Step::KeepLocks, counted_by_who_is_killed), [0], "else it is old");
}

/// Its home does not answer: who commits is told so, and what he wrote is there once it does.
#[test]
fn what_cannot_be_committed_now_is_an_error_and_arrives_later() -> Result<()> {
    let mut shared = Shared::new(3);
    shared.write(1, OTHERS, b"late");
    shared.peers.stopped = Some((0, Duration::from_secs(300)));
    let asked = FarFile::Commit(shared.open[1].handle());
    let error = shared.peers.ask(1, Request::Far(asked)).expect_err("nobody answers");
    assert_eq!((error.kind, error.errno), (ErrorKind::Backing, 5), "{error:?}");
    while shared.peers.stopped.is_some() {
        shared.peers.pass(Duration::from_secs(10));
    }
    shared.peers.pass(Duration::from_secs(1));
    assert_eq!(shared.peers.read(shared.open[0], OTHERS, 9)?, b"late");
    let asked = FarFile::Commit(shared.open[1].handle());
    shared.peers.ask(1, Request::Far(asked)).map(drop)
}

/// As `terral recover` does on a machine that has lost all others.
#[test]
fn a_server_that_ends_and_has_met_nobody_says_what_is_lost_and_owes_nothing() {
    let mut shared = Shared::new(4);
    shared.write(1, OTHERS, b"never");
    shared.peers.stopped = Some((0, Duration::from_secs(300)));
    let left = |shared: &mut Shared| {
        let state = |server: &crate::shared::Shared| {
            let state = server.lock();
            (state.far.batches.is_empty(), state.warnings.concat())
        };
        shared.peers.sims[1].with(state).expect("it lives")
    };
    shared.peers.pass(Duration::from_secs(40));
    assert!(!left(&mut shared).0, "it goes on: they may come");
    shared.peers.sims[1].with(|server| server.lock().finishing = true);
    shared.peers.pass(Duration::from_secs(1));
    let (is_empty, warnings) = left(&mut shared);
    assert!(is_empty && warnings.contains("a: what was written here"), "{warnings}");
}
