//! Chunks of one file that several machines have: whoever writes what and wherever, all of them see
//! one file, whoever dies.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use terral_format::disk::membership::Membership;
use terral_format::ids::{PageNumber, ROOT};
use terral_format::local::entry::MapEntry;
use terral_format::local::geometry::{CHUNK_BYTES, PAGE_BYTES};
use terral_format::local::pages::{self, PageState};
use terral_format::local::size;
use terral_format::wire::far_files::FarFile;
use terral_format::wire::message::{EXTENT_MAX, FileRef, OpenHow, Reply, Request, Target};
use terral_format::wire::placement::Stripe;
use terral_format::{Error, ErrorKind, frame};

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
    /// A chunk that is mapped on each, and how often one was.
    maps: Vec<Option<Map>>,
    mapped: u64,
    /// All that were.
    were_mapped: BTreeSet<u64>,
}

/// A chunk in a program's address space.
#[derive(Clone, Copy)]
struct Map {
    file: FileRef,
    index: u64,
    entry: MapEntry,
    lock: u64,
}

/// What kind of file it is, and what is done with it.
#[derive(Clone, Copy, Default)]
struct How {
    kills: bool,
    maps: bool,
    stripes: bool,
}

/// A file of the first machine has its parts over these.
fn is_striped(peers: &mut Peers, name: &[u8], over: &[usize]) {
    peers.sims[0].with(|server| {
        let mut state = server.lock();
        let ino = state.names.child_here(ROOT, name).expect("made");
        let over = over.iter().copied().map(super::member).collect();
        state.record(Membership::Striped { ino, stripe: Some(Stripe { over, chunks: 1 }) });
        state.commit().expect("there is room");
    });
}

impl Shared {
    fn new(seed: u64) -> Self {
        Shared::of(seed, false)
    }

    /// Of a file that is striped over all three, or not.
    fn of(seed: u64, stripes: bool) -> Self {
        let mut peers = Peers::new(seed, 3);
        peers.create(0, b"a").expect("made");
        if stripes {
            is_striped(&mut peers, b"a", &[1, 2, 0]);
        }
        let open: Vec<Open> =
            (0..3).map(|at| peers.open(at, b"a", OPEN).expect("opened")).collect();
        assert!(open[1].is_far() && open[2].is_far() && !open[0].is_far());
        let (loans, bytes, maps) = (vec![None; 3], Vec::new(), vec![None; 3]);
        let were_mapped = BTreeSet::new();
        Shared { peers, open, loans, bytes, tokens: 0, lent: 0, maps, mapped: 0, were_mapped }
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
            while !self.bring(at, offset) {
                if self.write_through(at, offset, bytes) {
                    return self.was_written(offset, bytes);
                }
            }
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

    /// Who is at home has what it reads or writes brought. False: another machine has it mapped.
    fn bring(&mut self, at: usize, offset: u64) -> bool {
        let (file, first) = (self.open[at].file, offset / CHUNK_BYTES);
        if self.peers.sims[at].memory.entry(file.slot, first).with().is_none() {
            return true;
        }
        let (within, bytes) = (0, 0);
        let asked = Request::Stage { file, first, count: 1, within, bytes };
        match self.peers.ask(at, asked) {
            Ok(_) => true,
            Err(error) => {
                self.may_refuse(&error, at, Some(first));
                false
            }
        }
    }

    /// Only what another machine has mapped is refused.
    fn may_refuse(&self, error: &Error, at: usize, index: Option<u64>) {
        let others = (0..3).filter(|other| *other != at).filter_map(|other| self.maps[other]);
        let is = others.into_iter().any(|map| index.is_none_or(|index| map.index == index));
        assert!(error.kind == ErrorKind::TextBusy && is, "on {at}, {index:?}: {error}");
    }

    /// As a client of the home does with what another machine has mapped. False: it is no more.
    fn write_through(&mut self, at: usize, offset: u64, bytes: &[u8]) -> bool {
        let file = self.open[at].file;
        let asked = FarFile::WriteMapped { file, at: offset, bytes };
        let written = self.peers.ask(at, Request::Far(asked)).expect("asked") == Reply::Done;
        if written {
            let (end, memory) = (offset + bytes.len() as u64, &self.peers.sims[at].memory);
            let epoch = memory.size_epoch(file.slot);
            assert!(size::raise(memory.header(file.slot).size(), end, epoch));
        }
        written
    }

    /// The same for a read, as far as the file goes.
    fn read_through(&mut self, at: usize, offset: u64, length: usize) -> Option<Vec<u8>> {
        let file = self.open[at].file;
        let (first, within) = (offset / CHUNK_BYTES, (offset % CHUNK_BYTES) as u32);
        let asked = Request::Stage { file, first, count: 1, within, bytes: length as u32 };
        let Reply::Extent(mut read) = self.peers.ask(at, asked).expect("asked") else {
            return None;
        };
        let size = crate::sim::client::memory_size(&self.peers.sims[at].memory, file.slot);
        read.truncate(size.saturating_sub(offset) as usize);
        Some(read)
    }

    /// Maps a chunk, or unmaps what is mapped.
    fn map(&mut self, at: usize, index: u64) {
        if let Some(map) = self.maps[at].take() {
            return self.peers.sims[at].machine.unmap(map.lock);
        }
        for _ in 0..100 {
            let Open { file, .. } = self.open[at];
            let asked = match self.open[at].is_far() {
                true => {
                    Request::Far(FarFile::Map { of: self.open[at].handle(), index, stores: true })
                }
                false => Request::Map { file, first: index, count: 1, stores: true },
            };
            let file = match self.peers.ask(at, asked) {
                Ok(Reply::Lent(loan)) => loan,
                Ok(Reply::Done) => file,
                Ok(_) => {
                    self.peers.pass(Duration::from_millis(10));
                    continue;
                }
                Err(error) => return self.may_refuse(&error, at, Some(index)),
            };
            if self.open[at].is_far() {
                self.loans[at] = Some(file);
            }
            let sim = &self.peers.sims[at];
            let entry = sim.memory.entry(file.slot, index);
            if !entry.is_stored() || entry.is_borrowed() || entry.is_recalled() {
                continue;
            }
            let pid = sim.clients[self.peers.clients[at]].pid;
            let lock = sim.machine.map(pid, entry.page(), true);
            self.maps[at] = Some(Map { file, index, entry, lock });
            self.mapped += 1;
            self.were_mapped.insert(index);
            return;
        }
        panic!("{index} is not had on {at}");
    }

    /// What is mapped is the file's, and shows it. Stores something there.
    fn use_map(&mut self, at: usize, page: u32, length: usize) {
        let Some(Map { file, index, entry, .. }) = self.maps[at] else { return };
        let begin = (index * CHUNK_BYTES) as usize + page as usize * PAGE_BYTES;
        let memory = self.peers.sims[at].memory.clone();
        let now = memory.entry(file.slot, index);
        assert!(now.is_chunk_of(entry) && !now.is_borrowed(), "{index} on {at} moved");
        let page = PageNumber(entry.page().0 + page);
        let inside = self.bytes.len().saturating_sub(begin).min(length);
        if inside == 0 {
            return;
        }
        let mut shown = vec![0; inside];
        memory.read(page, 0, &mut shown).expect("there");
        assert!(shown == self.bytes[begin..][..inside], "{index} on {at}");
        let stored = self.token(inside);
        memory.write(page, 0, &stored).expect("there");
        self.bytes[begin..][..inside].copy_from_slice(&stored);
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
        while !self.open[at].is_far() && !self.bring(at, offset) {
            if let Some(read) = self.read_through(at, offset, length) {
                return read;
            }
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

    fn step(&mut self, How { maps, stripes, .. }: How, draw: &mut impl FnMut(u64) -> u64) {
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
        // What was mapped may count as mapped yet, and is read and written bit by bit then.
        let length = if self.were_mapped.contains(&index) {
            length.min(EXTENT_MAX as usize)
        } else {
            length
        };
        match if maps { draw(22) } else { draw(16) } {
            16 | 17 => self.map(at, index),
            18.. => self.use_map(at, draw(512) as u32, 300),
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
                match self.peers.ask(at, Request::Truncate { target, size, token: 0 }) {
                    Ok(_) => self.bytes.resize(size as usize, 0),
                    Err(error) => self.may_refuse(&error, 0, None),
                }
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
            _ if stripes && draw(2) == 0 => self.send_parts(draw(3) == 0),
            _ => self.peers.pass(Duration::from_millis(draw(3000))),
        }
    }

    /// All see the same; and when nobody else has it open, all of it is at its home.
    fn check(&mut self, stripes: bool) {
        (0..3).filter(|at| self.maps[*at].is_some()).collect::<Vec<_>>().into_iter().for_each(
            |at| {
                self.use_map(at, 0, PAGE_BYTES);
                self.map(at, 0);
            },
        );
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
        if stripes {
            return self.check_stripes();
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

fn walk(seed: u64, how: How) -> [u64; 3] {
    let How { kills, stripes, .. } = how;
    let mut shared = Shared::of(seed, stripes);
    shared.peers.rough = kills.then(|| Virtual::new(seed + 1));
    shared.peers.may_have_trouble(seed);
    let world = Virtual::new(seed);
    let mut draw = |of| world.one_of(of);
    for _ in 0..120 {
        if kills && draw(4) == 0 {
            let at = draw(3) as usize;
            shared.peers.sims[at].kill_at(1 + draw(12) as i64);
        }
        shared.step(how, &mut draw);
        shared.peers.reconnect();
    }
    shared.peers.rough = None;
    shared.peers.trouble_ends();
    shared.check(stripes);
    let killed = shared.peers.sims.iter().map(|sim| sim.killed).sum();
    [shared.lent, killed, shared.mapped]
}

#[test]
fn chunks_that_one_machine_has_alone_are_seen_by_all_as_it_wrote_them() {
    let [lent, ..] = walk_all(20, |seed| walk(seed, How::default()));
    assert!(lent > 100, "written without asking: {lent}");
}

#[test]
fn what_was_written_to_them_is_there_whoever_dies() {
    let [lent, killed, _] = walk_all(20, |seed| walk(seed, How { kills: true, ..How::default() }));
    assert!(lent > 100 && killed > 100, "written without asking: {lent}; killed: {killed}");
}

#[test]
fn what_programs_of_three_machines_store_through_maps_all_see() {
    let [lent, _, mapped] = walk_all(20, |seed| walk(seed, How { maps: true, ..How::default() }));
    assert!(lent > 50 && mapped > 100, "written without asking: {lent}; mapped: {mapped}");
}

#[test]
fn what_was_stored_through_maps_is_there_whoever_dies() {
    let [lent, killed, mapped] =
        walk_all(20, |seed| walk(seed, How { kills: true, maps: true, ..How::default() }));
    assert!(lent > 50 && killed > 100 && mapped > 100, "{lent}, {killed}, {mapped}");
}

/// In this one, a part of a chunk was refused, and the chunk asked for anew before the other part
/// was: that refusal is nobody's any more.
#[test]
fn what_is_refused_is_refused_to_who_asked_for_it_then() {
    walk(108, How { maps: true, ..How::default() });
}

/// One machine asks for a chunk that another has mapped, and is refused; before the home hears
/// that, it is mapped no more, and the home's own program maps it.
#[test]
fn who_asks_for_what_is_mapped_no_more_is_not_refused_for_who_asked_before() {
    let mut shared = Shared::new(5);
    shared.write(0, 0, b"something");
    shared.map(1, 0);
    shared.peers.settle();
    let peers = &mut shared.peers;
    let of = shared.open[2].handle();
    let early = Request::Far(FarFile::Map { of, index: 0, stores: true });
    let early = peers.sims[2].asking(peers.clients[2], early).expect("encodes");
    let session = peers.sims[2].clients[peers.clients[2]].session;
    assert!(matches!(peers.handle(2, session, &early), Some(Handled::Fetch)));
    let is_refused = |peers: &Peers| !peers.links.get(&(1, 0)).is_none_or(VecDeque::is_empty);
    for _ in 0..100 {
        if !is_refused(peers) {
            peers.carry();
        }
    }
    assert!(is_refused(peers));
    shared.map(1, 0);
    let file = shared.open[0].file;
    let late = Request::Map { file, first: 0, count: 1, stores: true };
    assert_eq!(shared.peers.ask(0, late), Ok(Reply::Done));
}

/// Whether walks find a server that leaves out a step.
fn is_found(step: Step, how: How) -> bool {
    let flawed = |seed| {
        let walked = || without(step, || walk(seed, how));
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(walked)).is_err()
    };
    (0..20).any(flawed)
}

#[test]
fn a_server_that_goes_on_using_what_is_asked_back_is_found() {
    assert!(is_found(Step::Freeze, How::default()));
}

#[test]
fn a_server_that_gives_back_what_is_mapped_is_found() {
    assert!(is_found(Step::KeepMapped, How { maps: true, ..How::default() }));
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

mod kept;
mod leaving;
mod offering;
mod striping;
