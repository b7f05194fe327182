//! Writes and appends, step by step as the grant protocol has them
//! (docs/decisions/2026-11-21-grant-protocol.md): a client may be stopped, or die, between any two
//! of them, with pages held that are half written. For real, `file` and `chunk` of the client.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Duration;

use terral_format::ids::{Owner, PageNumber};
use terral_format::local::entry::MapEntry;
use terral_format::local::geometry::{CHUNK_BYTES, HAZARDS, PAGE_BYTES};
use terral_format::local::hazard::{self, HazardWord};
use terral_format::local::pages::{self, Met};
use terral_format::local::size::{self, SizeWord};
use terral_format::wire::message::{FileRef, Request};
use terral_format::{Error, ErrorKind, Result};

use super::Sim;
use crate::core::world::World;
use crate::sessions::clients::owner;

/// Who is in the way for longer is reported to the server.
const PATIENCE: Duration = Duration::from_millis(101);
/// As often as that nothing is granted and taken back.
const ATTEMPTS_MAX: u32 = 200;

/// How far a write is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrote {
    Going,
    /// It holds the pages, and will have written to them in part.
    Holds,
    /// Its bytes are the file's, as far as that is long enough.
    Shown,
    /// The file has become so long.
    Grown(u64),
    Over,
}

/// What comes next.
#[derive(Clone, Copy, Debug)]
enum Next {
    /// Of an append: the ticket, and the size then.
    Ticket,
    Size,
    Look,
    Pin,
    Claim,
    Half,
    Rest,
    Publish,
    /// Of what makes a file longer and is no append: the ticket, the size, the ticket back.
    TakeGrowth,
    Raise,
    DropGrowth,
    Leave,
    /// Of an append.
    Append,
    Drop(bool),
}

/// A chunk that is pinned.
#[derive(Debug)]
struct Pinned {
    slot: usize,
    word: HazardWord,
    owner: Owner,
    entry: MapEntry,
    epoch: u16,
    before: Vec<u64>,
    raised: bool,
}

/// One of them, on its way.
#[derive(Debug)]
pub struct Writing {
    client: usize,
    pub file: FileRef,
    /// Where its bytes begin, and what they are.
    pub at: u64,
    bytes: Vec<u8>,
    /// Of an append: under which number, and the size that it found.
    appends: Option<(Owner, SizeWord)>,
    done: usize,
    next: Next,
    pinned: Option<Pinned>,
    attempts: u32,
    /// With which token of a named lock.
    token: u64,
}

impl Writing {
    pub fn new(client: usize, file: FileRef, at: u64, bytes: &[u8]) -> Self {
        let (appends, pinned) = (None, None);
        let (bytes, next) = (bytes.to_vec(), Next::Look);
        let (attempts, token) = (0, 0);
        Writing { client, file, at, bytes, appends, done: 0, next, pinned, attempts, token }
    }

    /// The same, with a token of a named lock.
    pub fn with(self, token: u64) -> Self {
        Writing { token, ..self }
    }

    pub fn is_append(&self) -> bool {
        self.appends.is_some()
    }

    fn end(&self) -> u64 {
        self.at + self.bytes.len() as u64
    }

    /// Of what it writes in one chunk: index, offset there, and which bytes.
    fn piece(&self) -> (u64, usize, Range<usize>) {
        let at = self.at + self.done as u64;
        let room = (CHUNK_BYTES - at % CHUNK_BYTES) as usize;
        let until = self.bytes.len().min(self.done + room);
        (at / CHUNK_BYTES, (at % CHUNK_BYTES) as usize, self.done..until)
    }

    /// How many pages of the chunk are needed.
    fn needs(&self) -> u32 {
        let (_, within, bytes) = self.piece();
        (within + bytes.len()).div_ceil(PAGE_BYTES) as u32
    }

    fn pages(&self, entry: MapEntry) -> (u32, u32) {
        let start = entry.page().0;
        (start + (self.piece().1 / PAGE_BYTES) as u32, start + self.needs())
    }
}

impl Sim {
    /// An append of these bytes, after as many zeros as take it to the start of a page.
    pub fn appending(&mut self, client: usize, file: FileRef, bytes: &[u8]) -> Writing {
        let asker = &mut self.clients[client];
        let slot = asker.appending.trailing_ones() as usize;
        asker.appending |= 1 << slot;
        let number = owner(asker.session, slot).appending();
        let appends = Some((number, SizeWord(0)));
        Writing { appends, next: Next::Ticket, ..Writing::new(client, file, 0, bytes) }
    }

    /// Writes bytes of a file open for writing.
    pub fn write(&mut self, client: usize, file: FileRef, at: u64, bytes: &[u8]) -> Result<()> {
        self.write_with(client, (file, 0), at, bytes)
    }

    /// The same with a token of a named lock.
    pub fn write_with(
        &mut self,
        client: usize,
        (file, token): (FileRef, u64),
        at: u64,
        bytes: &[u8],
    ) -> Result<()> {
        let mut writing = Writing::new(client, file, at, bytes).with(token);
        while self.go_on_writing(&mut writing)? != Wrote::Over {}
        Ok(())
    }

    /// The next step of it. If it fails, it is over.
    pub fn go_on_writing(&mut self, writing: &mut Writing) -> Result<Wrote> {
        let stepped = self.write_step(writing);
        if let (Err(_), Some((owner, seen))) = (&stepped, writing.appends) {
            let (file, index) = (writing.file, seen.size() / CHUNK_BYTES);
            let give_up = Request::Unblock { file, index, owner: owner.0 };
            let _ = self.ask(writing.client, give_up);
            self.end_appending(writing);
        }
        stepped
    }

    fn end_appending(&mut self, writing: &Writing) {
        let Some((number, _)) = writing.appends else { return };
        let asker = &mut self.clients[writing.client];
        let slot = number.hazard().0 - owner(asker.session, 0).0;
        asker.appending &= !(1 << slot);
    }

    /// Somebody who does not move is in the way.
    pub(super) fn unblock(
        &mut self,
        client: usize,
        file: FileRef,
        index: u64,
        other: Owner,
    ) -> Result<()> {
        self.pass(PATIENCE);
        self.ask(client, Request::Unblock { file, index, owner: other.0 }).map(drop)
    }

    fn write_step(&mut self, writing: &mut Writing) -> Result<Wrote> {
        let mut wrote = Wrote::Going;
        writing.next = match writing.next {
            Next::Ticket => self.take_ticket(writing)?,
            Next::Size => self.begin_at_end(writing),
            Next::Look => self.look_for_chunk(writing)?,
            Next::Pin => self.pin(writing)?,
            Next::Claim => {
                let next = self.claim(writing)?;
                if matches!(next, Next::Half) {
                    wrote = Wrote::Holds;
                }
                next
            }
            Next::Half => {
                self.copy(writing, true);
                Next::Rest
            }
            Next::Rest => {
                self.copy(writing, false);
                Next::Publish
            }
            Next::Publish => {
                if self.publish(writing) {
                    wrote = Wrote::Shown;
                }
                if writing.is_append() { Next::Leave } else { Next::TakeGrowth }
            }
            Next::TakeGrowth => self.take_growth(writing)?,
            Next::Raise => {
                if self.raise(writing) {
                    wrote = Wrote::Grown(writing.end());
                }
                Next::DropGrowth
            }
            Next::DropGrowth => {
                let held = writing.pinned.as_ref().expect("pinned");
                let header = self.memory.header(writing.file.slot);
                size::drop_ticket(header.ticket(), held.owner);
                Next::Leave
            }
            Next::Leave => match self.leave(writing) {
                Some(next) => next,
                None => return Ok(Wrote::Over),
            },
            Next::Append => {
                let header = self.memory.header(writing.file.slot);
                let (_, seen) = writing.appends.expect("an append");
                let appended = size::append(header.size(), seen, writing.end());
                if appended {
                    wrote = Wrote::Grown(writing.end());
                }
                Next::Drop(appended)
            }
            Next::Drop(appended) => {
                let (owner, _) = writing.appends.expect("an append");
                size::drop_ticket(self.memory.header(writing.file.slot).ticket(), owner);
                if appended {
                    self.end_appending(writing);
                    return Ok(Wrote::Over);
                }
                Next::Ticket
            }
        };
        Ok(wrote)
    }

    fn take_ticket(&mut self, writing: &Writing) -> Result<Next> {
        let (file, memory) = (writing.file, self.memory.clone());
        let header = memory.header(file.slot);
        let (owner, _) = writing.appends.expect("an append");
        let Err(holder) = size::take_ticket(header.ticket(), owner) else { return Ok(Next::Size) };
        let index = SizeWord::load(header.size()).size() / CHUNK_BYTES;
        self.unblock(writing.client, file, index, holder)?;
        Ok(Next::Ticket)
    }

    fn begin_at_end(&self, writing: &mut Writing) -> Next {
        let seen = SizeWord::load(self.memory.header(writing.file.slot).size());
        let begin = writing.bytes.iter().position(|byte| *byte != 0).unwrap_or(0);
        let page = PAGE_BYTES as u64;
        let zeros = (page - seen.size() % page) % page;
        writing.bytes = [&vec![0; zeros as usize], &writing.bytes[begin..]].concat();
        (writing.at, writing.done) = (seen.size(), 0);
        writing.appends = writing.appends.map(|(owner, _)| (owner, seen));
        Next::Look
    }

    fn look_for_chunk(&mut self, writing: &mut Writing) -> Result<Next> {
        let (file, first, pages) = (writing.file, writing.piece().0, writing.needs());
        let entry = self.memory.entry(file.slot, first);
        if entry.is_here() && !entry.is_recalled() && pages <= entry.pages() {
            return Ok(Next::Pin);
        }
        writing.attempts += 1;
        assert!(writing.attempts < ATTEMPTS_MAX, "granted and taken back for ever");
        self.ask(writing.client, Request::Grant { file, first, count: 1, pages })?;
        Ok(Next::Look)
    }

    fn claim(&mut self, writing: &mut Writing) -> Result<Next> {
        let memory = self.memory.clone();
        let entry = writing.pinned.as_ref().expect("pinned").entry;
        let (first, last) = writing.pages(entry);
        let held = writing.pinned.as_mut().expect("pinned");
        let met = pages::claim(memory.lanes(), first, last, held.owner, &mut held.before);
        let Met::Writer(_, other) = met else { return Ok(Next::Half) };
        pages::give_up(memory.lanes(), first, last, held.owner, &held.before);
        self.unpin(writing);
        writing.attempts += 1;
        if writing.attempts > ATTEMPTS_MAX {
            return Err(Error::new(ErrorKind::Busy, "somebody is stopped there"));
        }
        self.unblock(writing.client, writing.file, writing.piece().0, other)?;
        Ok(Next::Look)
    }

    /// Whether that was in the chunk that the file has.
    fn publish(&self, writing: &Writing) -> bool {
        let held = writing.pinned.as_ref().expect("pinned");
        let (first, last) = writing.pages(held.entry);
        pages::publish(self.memory.lanes(), first, last, held.owner, &held.before);
        let here = self.memory.entry(writing.file.slot, writing.piece().0);
        here.is_here() && here.unrecalled().page() == held.entry.page()
    }

    fn take_growth(&mut self, writing: &mut Writing) -> Result<Next> {
        let memory = self.memory.clone();
        let header = memory.header(writing.file.slot);
        let (seen, end) = (SizeWord::load(header.size()), writing.end());
        let held = writing.pinned.as_mut().expect("pinned");
        if seen.size() >= end {
            held.raised = seen.epoch() == held.epoch;
            return Ok(Next::Leave);
        }
        let taken = size::take_ticket(header.ticket(), held.owner);
        let Err(holder) = taken else { return Ok(Next::Raise) };
        self.unpin(writing);
        self.unblock(writing.client, writing.file, writing.piece().0, holder)?;
        Ok(Next::Look)
    }

    fn raise(&self, writing: &mut Writing) -> bool {
        let end = writing.end();
        let held = writing.pinned.as_mut().expect("pinned");
        let header = self.memory.header(writing.file.slot);
        held.raised = size::raise(header.size(), end, held.epoch);
        held.raised
    }

    /// `None`: it is over.
    fn leave(&mut self, writing: &mut Writing) -> Option<Next> {
        let raised = writing.pinned.as_ref().is_some_and(|held| held.raised);
        let kept = self.unpin(writing);
        if !kept || !(raised || writing.is_append()) {
            return Some(Next::Look);
        }
        writing.done = writing.piece().2.end;
        self.memory.header(writing.file.slot).wrote(self.world.wall_ns());
        if writing.done < writing.bytes.len() {
            return Some(Next::Look);
        }
        writing.is_append().then_some(Next::Append)
    }

    fn pin(&mut self, writing: &mut Writing) -> Result<Next> {
        let (file, memory) = (writing.file, &self.memory);
        let index = writing.piece().0;
        let entry = memory.entry(file.slot, index);
        let asker = &self.clients[writing.client];
        let hazards = &asker.page.page().hazards;
        let enter = |slot: usize| {
            let word = hazard::enter(&hazards[slot].word, entry.page(), 1)?;
            Some((slot, word))
        };
        let (slot, word) = (0..HAZARDS).find_map(enter).expect("few are stopped at a time");
        let header = memory.header(file.slot);
        let epoch = SizeWord::load(header.size()).epoch();
        let whole = memory.entry(file.slot, index) == entry;
        if !whole || !entry.is_here() || entry.is_recalled() || writing.needs() > entry.pages() {
            let _ = hazard::leave(&hazards[slot].word, word);
            return Ok(Next::Look);
        }
        if header.fence().load(Ordering::SeqCst) > writing.token {
            let _ = hazard::leave(&hazards[slot].word, word);
            return Err(Error::new(ErrorKind::Stale, "it is fenced"));
        }
        let as_it_was = |(owner, seen): (Owner, SizeWord)| {
            size::holds_ticket(header.ticket(), owner) && SizeWord::load(header.size()) == seen
        };
        if !writing.appends.is_none_or(as_it_was) {
            let _ = hazard::leave(&hazards[slot].word, word);
            return Ok(Next::Drop(false));
        }
        let (owner, before) = (owner(asker.session, slot), vec![0; pages::WORDS]);
        let raised = false;
        writing.pinned = Some(Pinned { slot, word, owner, entry, epoch, before, raised });
        Ok(Next::Claim)
    }

    /// Whether the chunk was its own all the time.
    fn unpin(&mut self, writing: &mut Writing) -> bool {
        let Some(held) = writing.pinned.take() else { return false };
        let hazards = &self.clients[writing.client].page.page().hazards;
        hazard::leave(&hazards[held.slot].word, held.word)
    }

    /// Copies the first half of a piece, with zeros around it in pages that had none, or the other.
    fn copy(&self, writing: &Writing, first_half: bool) {
        let Some(held) = &writing.pinned else { return };
        let (_, within, bytes) = writing.piece();
        let (first, last) = writing.pages(held.entry);
        let holes = (first..last).filter(|page| !pages::was_valid(&held.before, first, *page));
        for page in holes.filter(|_| first_half) {
            self.memory.write(PageNumber(page), 0, &[0; PAGE_BYTES]).expect("it exists");
        }
        let middle = bytes.start + bytes.len() / 2;
        let half = if first_half { bytes.start..middle } else { middle..bytes.end };
        let at = (within + half.start - bytes.start) as u64;
        self.memory.write(held.entry.page(), at, &writing.bytes[half]).expect("it exists");
    }

    /// Whether a client is in a chunk.
    pub(super) fn is_somebody_pinned(&self) -> bool {
        let mut hazards = self.clients.iter().flat_map(|client| &client.page.page().hazards);
        hazards.any(|hazard| hazard::observe(&hazard.word).page().is_some())
    }

    /// Who is just writing to a page, if somebody is.
    pub(super) fn writer_of(&self, page: u32) -> Option<Owner> {
        let mut seen = [0; 1];
        match pages::observe(self.memory.lanes(), page, page + 1, &mut seen) {
            Met::Writer(_, owner) => Some(owner),
            Met::Bytes | Met::Holes => None,
        }
    }

    /// Bytes of a file that lie in memory or the store below this without a chunk.
    pub(super) fn backed_bytes(&self, file: FileRef) -> u64 {
        self.memory.record(file.slot).backed_bytes().load(Ordering::SeqCst)
    }
}
