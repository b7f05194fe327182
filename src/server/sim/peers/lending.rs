//! Chunks of one file that several machines have: whoever writes what and wherever, all of them see
//! one file, whoever dies.

use std::collections::VecDeque;
use std::time::Duration;

use terral_format::frame;
use terral_format::local::geometry::{CHUNK_BYTES, PAGE_BYTES};
use terral_format::local::pages::{self, PageState};
use terral_format::wire::far_files::FarFile;
use terral_format::wire::message::{FileRef, OpenHow, Reply, Request, Target};

use super::bytes::Open;
use super::{Peers, walk_all};
use crate::core::left_out::Step;
use crate::core::left_out::tests::without;
use crate::requests::handling::Outcome as Handled;
use crate::sim::client::CREATE;
use crate::sim::world::Virtual;

const OPEN: OpenHow = OpenHow { create: false, ..CREATE };
/// So many chunks are written to.
const CHUNKS: u64 = 4;

/// A file of the first machine, open on all.
struct Shared {
    peers: Peers,
    open: Vec<Open>,
    /// Where chunks of it are on each, if it has some.
    loans: Vec<Option<FileRef>>,
    /// What it must be.
    bytes: Vec<u8>,
    tokens: u64,
    /// How often something was written without asking.
    lent: u64,
}

impl Shared {
    fn new(seed: u64) -> Self {
        let mut peers = Peers::new(seed, 3);
        peers.create(0, b"a").expect("made");
        let open: Vec<Open> =
            (0..3).map(|at| peers.open(at, b"a", OPEN).expect("opened")).collect();
        assert!(open[1].is_far() && open[2].is_far() && !open[0].is_far());
        let (loans, bytes) = (vec![None; 3], Vec::new());
        Shared { peers, open, loans, bytes, tokens: 0, lent: 0 }
    }

    fn token(&mut self, length: usize) -> Vec<u8> {
        self.tokens += 1;
        let word = self.tokens.to_le_bytes();
        word.iter().map(|byte| byte | 1).cycle().take(length).collect()
    }

    /// Where bytes of a chunk are that may be used without asking, and which grant of it that is.
    fn usable(&self, at: usize, index: u64) -> Option<(FileRef, u64)> {
        let memory = &self.peers.sims[at].memory;
        let loan = self.loans[at]?;
        let is_its = memory.record(loan.slot).ino().load(std::sync::atomic::Ordering::SeqCst);
        let entry = memory.entry(loan.slot, index).unrecalled();
        let is = is_its == loan.ino.0 && entry.is_here() && !entry.is_borrowed();
        is.then_some((loan, entry.0))
    }

    /// As a client does, which writes to a chunk of its own.
    fn write_there(&mut self, at: usize, loan: FileRef, offset: u64, bytes: &[u8]) {
        let memory = self.peers.sims[at].memory.clone();
        let entry = memory.entry(loan.slot, offset / CHUNK_BYTES).unrecalled();
        let (first, end) = (offset % CHUNK_BYTES, offset % CHUNK_BYTES + bytes.len() as u64);
        for page in first / PAGE_BYTES as u64..end.div_ceil(PAGE_BYTES as u64) {
            let at = entry.page().0 + page as u32;
            if !matches!(pages::state(memory.lanes(), at), PageState::Valid { .. }) {
                let begin = page * PAGE_BYTES as u64;
                memory.write(entry.page(), begin, &[0; PAGE_BYTES]).expect("memory");
                pages::fill(memory.lanes(), at, at + 1, true);
            }
        }
        memory.write(entry.page(), first, bytes).expect("memory");
    }

    /// Writes bytes of one chunk.
    fn write(&mut self, at: usize, offset: u64, bytes: &[u8]) {
        let index = offset / CHUNK_BYTES;
        if !self.open[at].is_far() {
            self.bring(at, offset);
            self.peers.write(self.open[at], Some(offset), bytes).expect("written");
            return self.was_written(offset, bytes);
        }
        let of = self.open[at].handle();
        if self.usable(at, index).is_none() {
            let asked = FarFile::Borrow { of, first: index, count: 2 };
            if let Reply::Lent(loan) = self.peers.ask(at, Request::Far(asked)).expect("asked") {
                self.loans[at] = Some(loan);
            }
        }
        if let Some((loan, entry)) = self.usable(at, index) {
            self.write_there(at, loan, offset, bytes);
            if self.counts(at, (loan, index, entry), offset + bytes.len() as u64) {
                self.lent += 1;
                return self.was_written(offset, bytes);
            }
        }
        self.peers.write(self.open[at], Some(offset), bytes).expect("written");
        self.was_written(offset, bytes);
    }

    fn counts(&mut self, at: usize, (loan, index, entry): (FileRef, u64, u64), to: u64) -> bool {
        let memory = self.peers.sims[at].memory.clone();
        let known = crate::sim::client::memory_size(&memory, loan.slot);
        if to <= known {
            return true;
        }
        let of = self.open[at].handle();
        let asked = FarFile::Grow { of, to, epoch: memory.size_epoch(loan.slot) };
        let grown = self.peers.ask(at, Request::Far(asked)).expect("asked");
        grown == Reply::Done && self.usable(at, index) == Some((loan, entry))
    }

    fn was_written(&mut self, offset: u64, bytes: &[u8]) {
        let (at, end) = (offset as usize, offset as usize + bytes.len());
        self.bytes.resize(self.bytes.len().max(end), 0);
        self.bytes[at..end].copy_from_slice(bytes);
    }

    /// Who is at home has what it reads or writes brought.
    fn bring(&mut self, at: usize, offset: u64) {
        let (file, first) = (self.open[at].file, offset / CHUNK_BYTES);
        if self.peers.sims[at].memory.entry(file.slot, first).with().is_some() {
            let (within, bytes) = (0, 0);
            let asked = Request::Stage { file, first, count: 1, within, bytes };
            self.peers.ask(at, asked).expect("it comes");
        }
    }

    /// Reads bytes of one chunk.
    fn read(&mut self, at: usize, offset: u64, length: usize) -> Vec<u8> {
        if let Some((loan, _)) = self.usable(at, offset / CHUNK_BYTES) {
            let memory = self.peers.sims[at].memory.clone();
            let known = crate::sim::client::memory_size(&memory, loan.slot);
            let count = known.saturating_sub(offset).min(length as u64);
            if count > 0 {
                let client = self.peers.clients[at];
                let open = Open { file: loan, ..self.open[at] };
                let here = crate::sim::client::Opened::new(
                    terral_format::wire::message::OpenFile {
                        file: open.file,
                        description: open.description,
                        nonce: open.nonce,
                    },
                    None,
                );
                let sim = &mut self.peers.sims[at];
                let read = sim.read_all(client, here, offset, count as usize).expect("read");
                return read;
            }
        }
        if !self.open[at].is_far() {
            self.bring(at, offset);
        }
        self.peers.read(self.open[at], offset, length).expect("read")
    }

    fn check_read(&mut self, at: usize, offset: u64, length: usize) {
        let read = self.read(at, offset, length);
        let (begin, end) = (offset as usize, offset as usize + length);
        let (begin, end) = (begin.min(self.bytes.len()), end.min(self.bytes.len()));
        let must = &self.bytes[begin..begin + read.len().min(end - begin)];
        let differs = read.iter().zip(must).position(|(one, other)| one != other);
        assert!(read.len() == must.len() && differs.is_none(), "{at}: {offset}, {differs:?}");
        // Fewer only where what this machine knows of its own ends.
        assert!(read.len() == end - begin || self.usable(at, offset / CHUNK_BYTES).is_some());
    }

    fn step(&mut self, draw: &mut impl FnMut(u64) -> u64) {
        let at = draw(3) as usize;
        let length = if draw(4) == 0 { draw(60_000) } else { draw(300) } as usize + 1;
        let index = draw(CHUNKS);
        let place = match draw(3) {
            0 => CHUNK_BYTES - draw(3) * PAGE_BYTES as u64 - draw(100) - 1,
            1 => CHUNK_BYTES / 2 + draw(1000),
            _ => draw(3 * PAGE_BYTES as u64),
        };
        let length = length.min((CHUNK_BYTES - place) as usize);
        let place = index * CHUNK_BYTES + place;
        match draw(16) {
            0..=6 => {
                let bytes = self.token(length);
                self.write(at, place, &bytes);
            }
            7..=9 => self.check_read(at, place, length),
            10 => {
                let seen = self.peers.stat(at, b"a").expect("it is there");
                assert_eq!(seen.size, self.bytes.len() as u64, "on {at}");
            }
            11 => {
                let size = if draw(2) == 0 { draw(2) * place } else { 0 };
                let target = Target::File(self.open[at].file);
                self.peers.ask(at, Request::Truncate { target, size }).expect("cut");
                self.bytes.resize(size as usize, 0);
            }
            12 | 13 if at > 0 => {
                self.peers.close(self.open[at]).expect("closed");
                if draw(2) == 0 {
                    self.peers.pass(Duration::from_millis(draw(3000)));
                }
                self.open[at] = self.peers.open(at, b"a", OPEN).expect("opened");
            }
            13 => drop(self.peers.sims[0].with(|server| server.lock().rewrite_log())),
            14 if draw(3) == 0 => drop(self.peers.sims[at].with(|it| it.lock().rewrite_log())),
            14 => self.peers.cut(at, (at + 1) % 3),
            _ => self.peers.pass(Duration::from_millis(draw(3000))),
        }
    }

    /// All see the same; and when nobody else has it open, all of it is at its home.
    fn check(&mut self) {
        for at in [2, 0, 1] {
            for offset in (0..self.bytes.len()).step_by(CHUNK_BYTES as usize) {
                let length = (self.bytes.len() - offset).min(CHUNK_BYTES as usize);
                let mut read = 0;
                while read < length {
                    let count = (length - read).min(1 << 20);
                    self.check_read(at, (offset + read) as u64, count);
                    read += count;
                }
            }
        }
        for at in [1, 2] {
            self.peers.close(self.open[at]).expect("closed");
        }
        for _ in 0..20 {
            self.peers.pass(Duration::from_secs(1));
        }
        let slot = self.open[0].file.slot;
        let away = self.peers.sims[0].with(|server| server.lock().storage.away(slot));
        assert_eq!(away.expect("it lives"), [], "all is at home");
        for at in [1, 2] {
            let is_empty = self.peers.sims[at].with(|server| server.lock().far.loans.is_empty());
            assert!(is_empty.expect("it lives"), "nothing is left on {at}");
        }
    }
}

fn walk(seed: u64, kills: bool) -> [u64; 2] {
    let mut shared = Shared::new(seed);
    shared.peers.rough = kills.then(|| Virtual::new(seed + 1));
    let world = Virtual::new(seed);
    let mut draw = |of| world.one_of(of);
    for _ in 0..120 {
        if kills && draw(4) == 0 {
            let at = draw(3) as usize;
            shared.peers.sims[at].kill_at(1 + draw(12) as i64);
        }
        shared.step(&mut draw);
        shared.peers.reconnect();
    }
    shared.peers.rough = None;
    shared.check();
    [shared.lent, shared.peers.sims.iter().map(|sim| sim.killed).sum()]
}

#[test]
fn chunks_that_one_machine_has_alone_are_seen_by_all_as_it_wrote_them() {
    let [lent, _] = walk_all(20, |seed| walk(seed, false));
    assert!(lent > 100, "written without asking: {lent}");
}

#[test]
fn what_was_written_to_them_is_there_whoever_dies() {
    let [lent, killed] = walk_all(20, |seed| walk(seed, true));
    assert!(lent > 100 && killed > 100, "written without asking: {lent}; killed: {killed}");
}

#[test]
fn a_server_that_goes_on_using_what_is_asked_back_is_found() {
    let flawed = |seed| {
        let walked = || without(Step::Freeze, || walk(seed, false));
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(walked)).is_err()
    };
    assert!((0..20).any(flawed));
}

/// A chunk is lent, and asked back; that is heard before the answer that lends it. Gives what who
/// has asked for it is told.
fn asked_back_before_it_comes() -> Reply {
    let mut shared = Shared::new(7);
    let peers = &mut shared.peers;
    let (of, home) = (shared.open[1].handle(), shared.open[0].file);
    let asked = Request::Far(FarFile::Borrow { of, first: 1, count: 1 });
    let taken = peers.sims[1].asking(peers.clients[1], asked).expect("encodes");
    let session = peers.sims[1].clients[peers.clients[1]].session;
    assert!(matches!(peers.handle(1, session, &taken), Some(Handled::Fetch)));
    let is_lent = |peers: &Peers| peers.sims[0].memory.entry(home.slot, 1).with().is_some();
    let mut lends = None;
    while lends.is_none() {
        let question = peers.links.get_mut(&(1, 0)).and_then(VecDeque::pop_front);
        question.into_iter().for_each(|bytes| peers.arrive((1, 0), &bytes));
        peers.work(0);
        lends = is_lent(peers).then(|| peers.links.get_mut(&(0, 1)).and_then(VecDeque::pop_back));
    }
    let (within, bytes) = (0, 0);
    let stage = Request::Stage { file: home, first: 1, count: 1, within, bytes };
    peers.ask(0, stage).expect("nothing is there");
    assert!(!is_lent(peers), "it came back");
    let lends = lends.flatten().expect("it was answered");
    peers.arrive((0, 1), &lends);
    match peers.handle(1, session, &taken) {
        Some(Handled::Answer(reply)) => frame::decode(&reply).expect("an answer"),
        _ => panic!("it is answered"),
    }
}

#[test]
fn what_was_asked_back_before_it_came_is_not_used() {
    assert_eq!(asked_back_before_it_comes(), Reply::Again);
    let flawed = without(Step::Fence, asked_back_before_it_comes);
    assert!(matches!(flawed, Reply::Lent(_)));
}
