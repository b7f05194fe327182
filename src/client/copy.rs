//! The grant protocol, client's side: writes and appends over a file's chunks, and (`reading`)
//! reads. Unchanged in shape from the model in `tests/`. What happens inside a chunk is `chunk`'s.

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use terral_format::ids::{FileSlot, Ino, Owner};
use terral_format::local::entry::MapEntry;
use terral_format::local::geometry::{CHUNK_BYTES, CHUNK_PAGES, HAZARDS, PAGE_BYTES};
use terral_format::local::lease::Until;
use terral_format::local::size::{self, SizeWord};
use terral_format::local::tables::{FileHeader, FileRecord};
use terral_format::wire::message::{FileRef, Request};
use terral_format::{Error, ErrorKind, Result};

use crate::borrowed::is_over;
use crate::chunk::{Notes, PATIENCE, Piece, thread_hint};
use crate::map;
use crate::session::Connection;

mod at_once;
mod lent;
mod reading;
mod through;

/// Most chunks asked for ahead: 64 MiB.
const AHEAD_MAX: u32 = 32;

/// A ticket held for a moment is waited for in place.
const TICKET_SPINS: u32 = 1000;

/// Hazard slots whose owner number is in use for an append ticket.
static APPENDING: AtomicU16 = AtomicU16::new(0);

/// An open file's place in shared memory, and how its writer is getting on.
pub(crate) struct Chunks {
    pub(crate) ino: Ino,
    /// Of a file that was at rest when it was opened: [`FileSlot::RESTING`], until somebody needs
    /// its record.
    slot: AtomicU32,
    granted_to: AtomicU64,
    ahead: AtomicU32,
    stage: AtomicU32,
    /// With which token of a named lock it is written.
    token: AtomicU64,
    /// For what containers let it be used, bits of access, above them how often they had changed.
    contained: AtomicU64,
}

/// What happens to the size once the bytes are there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Growth {
    Raise,
    /// It stays: who else has the file says how long it is.
    Stays,
    /// The holder of this append ticket will publish all at once, if the file still ends where it
    /// did.
    Later(Owner, SizeWord),
}

/// How one attempt to write a piece ended.
enum Attempt {
    Done,
    /// The chunk, the size's epoch, or the slot changed hands: do it again.
    Again,
    /// It is there, but too late: in this chunk, which is borrowed, or the file, which is now
    /// longer, is.
    Late(Option<MapEntry>, bool),
    /// The chunk cannot be written without the server.
    Ask,
    /// This owner has not moved for long.
    Blocked(Owner),
    /// The bytes are there, but this owner has the ticket that a longer file needs.
    NoTicket(Owner),
    /// Our own ticket was taken away, or the file has another size: what we append may be somebody
    /// else's place by now.
    TicketLost,
}

fn stale(ino: Ino) -> Error {
    Error::new(ErrorKind::BadHandle, format!("file {ino}"))
}

impl Chunks {
    pub(crate) fn new(file: FileRef) -> Self {
        let FileRef { ino, slot } = file;
        let (slot, ahead, stage) = (slot.0.into(), AtomicU32::new(1), AtomicU32::new(1));
        let [granted_to, token, contained] = [0; 3].map(AtomicU64::new);
        Chunks { ino, slot, granted_to, ahead, stage, token, contained }
    }

    pub(crate) fn slot(&self) -> FileSlot {
        FileSlot(self.slot.load(Ordering::Relaxed))
    }

    /// With which token of a named lock it is written; 0: without one.
    pub(crate) fn token(&self) -> u64 {
        self.token.load(Ordering::Relaxed)
    }

    /// Whether containers, which have changed so often, let it be used so.
    pub(crate) fn is_let(&self, changes: u64, need: u64) -> bool {
        let known = self.contained.load(Ordering::Relaxed);
        known >> 2 == changes && known & need == need
    }

    /// They do.
    pub(crate) fn let_so(&self, changes: u64, need: u64) {
        let more =
            |known: u64| if known >> 2 == changes { known | need } else { changes << 2 | need };
        let order = Ordering::Relaxed;
        let _ = self.contained.fetch_update(order, order, |known| Some(more(known)));
    }

    /// It is written with this one from now on.
    pub(crate) fn set_token(&self, token: u64) {
        self.token.store(token, Ordering::Relaxed);
    }

    /// The file as requests say it: not at rest any more.
    pub(crate) fn file(&self, connection: &Connection) -> Result<FileRef> {
        let (ino, slot) = (self.ino, self.slot());
        let slot = if slot == FileSlot::RESTING { self.rouse(connection)? } else { slot };
        Ok(FileRef { ino, slot })
    }

    /// Finds the record of a file that was at rest, or has the server give it one. It stays as long
    /// as the file is open: the open was committed before.
    #[cold]
    fn rouse(&self, connection: &Connection) -> Result<FileSlot> {
        let ino = self.ino;
        if self.slot() != FileSlot::RESTING {
            return Err(stale(ino));
        }
        let own = |record: &FileRecord| record.ino.load(Ordering::SeqCst) == ino.0;
        let find = || {
            let slot = connection.memory.look(|table| table.find(ino))?.slot?;
            connection.memory.record(slot).filter(|record| own(record)).map(|_| slot)
        };
        let file = FileRef { ino, slot: FileSlot::RESTING };
        let request = Request::Stage { file, first: 0, count: 1, within: 0, bytes: 0 };
        let asked = || connection.call(request).map(|_| find());
        // The server may be just changing the table again.
        let found = match find() {
            Some(slot) => Some(slot),
            None => asked()?.map_or_else(asked, |slot| Ok(Some(slot)))?,
        };
        let slot = found.ok_or_else(|| stale(ino))?;
        self.slot.store(slot.0, Ordering::Relaxed);
        Ok(slot)
    }

    pub(crate) fn header<'c>(&self, connection: &'c Connection) -> Result<&'c FileHeader> {
        if let Some(header) = connection.memory.header(self.slot()) {
            return Ok(header);
        }
        connection.memory.header(self.rouse(connection)?).ok_or_else(|| stale(self.ino))
    }

    /// The record, if it still is this file's.
    pub(crate) fn record<'c>(&self, connection: &'c Connection) -> Result<&'c FileRecord> {
        let record = match connection.memory.record(self.slot()) {
            Some(record) => Some(record),
            None => connection.memory.record(self.rouse(connection)?),
        };
        let own = record.filter(|record| record.ino.load(Ordering::SeqCst) == self.ino.0);
        own.ok_or_else(|| stale(self.ino))
    }

    pub(crate) fn size(&self, connection: &Connection) -> Result<u64> {
        let resting = self.slot() == FileSlot::RESTING;
        if let Some(now) = resting.then(|| connection.memory.attributes_of(self.ino)).flatten() {
            return Ok(now.size);
        }
        self.size_word(connection, self.header(connection)?).map(SizeWord::size)
    }

    /// The same, or what is at least `end`: who reads no further need not know where it ends.
    pub(crate) fn size_to(&self, connection: &Connection, end: u64) -> Result<u64> {
        if self.slot() == FileSlot::RESTING {
            return self.size(connection);
        }
        Ok(self.size_word_to(connection, self.header(connection)?, end)?.size())
    }

    fn size_word_to(
        &self,
        connection: &Connection,
        header: &FileHeader,
        end: u64,
    ) -> Result<SizeWord> {
        let word = SizeWord::load(&header.size);
        if word.size() >= end { Ok(word) } else { self.size_word(connection, header) }
    }

    /// The size word as it is now.
    fn size_word(&self, connection: &Connection, header: &FileHeader) -> Result<SizeWord> {
        loop {
            let until = connection.memory.until_of_open(self.ino);
            let word = SizeWord::load(&header.size);
            if !is_over(until) || connection.counts(self.file(connection)?, None)? {
                return Ok(word);
            }
        }
    }

    /// Whether what was done too late with chunk `index`, which was `entry`, counts; without one,
    /// with the file's attributes or a hole in it.
    #[cold]
    fn counts(&self, connection: &Connection, index: u64, entry: Option<MapEntry>) -> Result<bool> {
        connection.counts(self.file(connection)?, entry.map(|entry| (index, entry)))
    }

    // Writing.

    /// Writes all of `bytes` at `offset`.
    pub(crate) fn write(&self, connection: &Connection, bytes: &[u8], offset: u64) -> Result<()> {
        self.write_as(connection, bytes, offset, Growth::Raise).map(drop)
    }

    /// Writes all of `bytes` at `offset`. False: an append lost its ticket on the way.
    fn write_as(
        &self,
        connection: &Connection,
        bytes: &[u8],
        offset: u64,
        growth: Growth,
    ) -> Result<bool> {
        let (mut at, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let room = (CHUNK_BYTES - at % CHUNK_BYTES) as usize;
            let (piece, after) = rest.split_at(rest.len().min(room));
            if !self.write_piece(connection, piece, at, growth)? {
                return Ok(false);
            }
            at += piece.len() as u64;
            rest = after;
        }
        Ok(true)
    }

    /// Writes bytes that lie in one chunk.
    fn write_piece(
        &self,
        connection: &Connection,
        bytes: &[u8],
        offset: u64,
        growth: Growth,
    ) -> Result<bool> {
        let index = offset / CHUNK_BYTES;
        let mut waiting: Option<Instant> = None;
        let mut notes = Notes::new(bytes.len());
        loop {
            let how = (growth, PATIENCE);
            let done = match self.try_write(connection, bytes, offset, how, &mut notes)? {
                Attempt::Late(entry, longer) => {
                    self.counts_late(connection, index, entry, longer)?
                }
                attempt => attempt,
            };
            match done {
                Attempt::Done => {
                    if (offset + bytes.len() as u64).is_multiple_of(CHUNK_BYTES) {
                        self.ask_ahead(connection, index)?;
                    }
                    return Ok(true);
                }
                Attempt::Again | Attempt::Late(..) => {}
                Attempt::Ask => {
                    let end = (offset % CHUNK_BYTES) as usize + bytes.len();
                    match self.ask(connection, index, end.div_ceil(PAGE_BYTES) as u32) {
                        Err(error) if error.kind == ErrorKind::TextBusy => {
                            if self.write_through(connection, bytes, offset, growth)? {
                                return Ok(true);
                            }
                        }
                        asked => asked?,
                    }
                }
                Attempt::Blocked(owner) => self.unblock(connection, index, owner)?,
                Attempt::NoTicket(owner) => {
                    if waiting.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                        self.unblock(connection, index, owner)?;
                        waiting = None;
                    }
                    std::thread::yield_now();
                }
                Attempt::TicketLost => return Ok(false),
            }
        }
    }

    /// What becomes of an attempt that was late with a chunk, or with a longer file.
    #[cold]
    fn counts_late(
        &self,
        connection: &Connection,
        index: u64,
        entry: Option<MapEntry>,
        longer: bool,
    ) -> Result<Attempt> {
        let there = entry.is_none() || self.counts(connection, index, entry)?;
        let counts = there && (!longer || self.counts(connection, index, None)?);
        Ok(if counts { Attempt::Done } else { Attempt::Again })
    }

    fn unblock(&self, connection: &Connection, index: u64, owner: Owner) -> Result<()> {
        let (file, owner) = (self.file(connection)?, owner.0);
        connection.call(Request::Unblock { file, index, owner }).map(drop)
    }

    fn try_write(
        &self,
        connection: &Connection,
        bytes: &[u8],
        offset: u64,
        (growth, patience): (Growth, Duration),
        notes: &mut Notes,
    ) -> Result<Attempt> {
        let memory = &connection.memory;
        let (record, header) = (self.record(connection)?, self.header(connection)?);
        let index = offset / CHUNK_BYTES;
        let within = (offset % CHUNK_BYTES) as usize;
        let entry = map::entry(memory, record, index);
        let last = ((within + bytes.len()).div_ceil(PAGE_BYTES)) as u32;
        if !entry.is_here() || entry.is_recalled() || last > entry.pages() {
            return Ok(Attempt::Ask);
        }
        let own = connection.own()?;
        let pin = own.pin(entry.page());
        let (size, end) = (SizeWord::load(&header.size), offset + bytes.len() as u64);
        if map::entry(memory, record, index) != entry {
            let _ = pin.leave();
            return Ok(Attempt::Again);
        }
        // Once it is pinned: who fences the file waits for who came before.
        if header.fence.load(Ordering::SeqCst) > self.token() {
            let _ = pin.leave();
            let context = format!("file {} is fenced", self.ino);
            return Err(Error::new(ErrorKind::Stale, context));
        }
        if let Growth::Later(owner, seen) = growth
            && !(size::holds_ticket(&header.ticket, owner) && SizeWord::load(&header.size) == seen)
        {
            let _ = pin.leave();
            return Ok(Attempt::TicketLost);
        }
        let until = memory.until(entry.is_borrowed());
        // A longer file is a change of its attributes; that of an append is its own.
        let grows = growth == Growth::Raise && size.size() < end;
        let longer_until = if grows { memory.until_of_open(self.ino) } else { Until::ALWAYS };
        let piece = Piece::new(memory, entry, within, bytes.len());
        if let Err(blocked) = piece.claim(pin.owner, notes, patience) {
            let _ = pin.leave();
            return Ok(Attempt::Blocked(blocked));
        }
        if let Err(error) = piece.put(bytes, pin.owner, notes) {
            let _ = pin.leave();
            return Err(error);
        }
        let raised = match growth {
            Growth::Later(..) | Growth::Stays => Ok(true),
            Growth::Raise => raise(header, end, size.epoch(), pin.owner),
        };
        let (late, longer_late) = (is_over(until), is_over(longer_until));
        let kept = pin.leave();
        Ok(match raised {
            Ok(true) if kept && (late || longer_late) => {
                Attempt::Late(late.then_some(entry), longer_late)
            }
            Ok(true) if kept => Attempt::Done,
            Ok(_) => Attempt::Again,
            Err(holder) => Attempt::NoTicket(holder),
        })
    }

    /// Asks for `pages` pages of chunk `index` and, while the writer goes straight on, for more and
    /// more chunks after it.
    fn ask(&self, connection: &Connection, index: u64, pages: u32) -> Result<()> {
        let count = self.ahead.load(Ordering::Relaxed);
        let straight = index == self.granted_to.load(Ordering::Relaxed);
        let count = if straight { count } else { 1 };
        let file = self.file(connection)?;
        connection.call(Request::Grant { file, first: index, count, pages })?;
        self.granted_to.store(index + u64::from(count), Ordering::Relaxed);
        self.ahead.store((count * 2).min(AHEAD_MAX), Ordering::Relaxed);
        Ok(())
    }

    /// The writer has filled chunk `index`: asks for what it will need soon, without waiting.
    fn ask_ahead(&self, connection: &Connection, index: u64) -> Result<()> {
        let granted = self.granted_to.load(Ordering::Relaxed);
        let ahead = self.ahead.load(Ordering::Relaxed);
        let near = index + 1 + u64::from(ahead / 2).max(1) >= granted && index < granted;
        if !near || !map::entry(&connection.memory, self.record(connection)?, granted).is_absent() {
            return Ok(());
        }
        let (file, pages) = (self.file(connection)?, CHUNK_PAGES);
        connection.tell(Request::Grant { file, first: granted, count: ahead, pages })?;
        self.granted_to.store(granted + u64::from(ahead), Ordering::Relaxed);
        self.ahead.store((ahead * 2).min(AHEAD_MAX), Ordering::Relaxed);
        Ok(())
    }

    /// Appends all of `bytes` in one piece. Gives the offset they begin at.
    pub(crate) fn append(&self, connection: &Connection, bytes: &[u8]) -> Result<u64> {
        self.append_parts(connection, &[bytes], None)?.ok_or_else(|| stale(self.ino))
    }

    /// Appends these in one piece, unless it is sealed, or has more than `most` bytes then: false.
    pub(crate) fn add_record(
        &self,
        connection: &Connection,
        parts: [&[u8]; 2],
        most: u64,
    ) -> Result<bool> {
        self.append_parts(connection, &parts, Some(most)).map(|at| at.is_some())
    }

    /// `most`: it may be sealed, and has no more bytes than that.
    fn append_parts(
        &self,
        connection: &Connection,
        parts: &[&[u8]],
        most: Option<u64>,
    ) -> Result<Option<u64>> {
        let slot = appending_slot();
        let own = connection.own()?;
        let owner = Owner(own.index * HAZARDS as u16 + slot as u16 + 1).appending();
        let appended = self.append_as(connection, parts, owner, most);
        APPENDING.fetch_and(!(1 << slot), Ordering::AcqRel);
        appended
    }

    fn append_as(
        &self,
        connection: &Connection,
        parts: &[&[u8]],
        owner: Owner,
        most: Option<u64>,
    ) -> Result<Option<u64>> {
        let header = self.header(connection)?;
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let max = most.unwrap_or(terral_format::local::geometry::FILE_BYTES_MAX);
        loop {
            if !self.take_ticket(connection, header, owner, most.is_some())? {
                return Ok(None);
            }
            if most.is_some()
                && let Err(error) = self.record(connection)
            {
                // It was sent, and is another file by now.
                size::drop_ticket(&header.ticket, owner);
                return Err(error);
            }
            let until = connection.memory.until_of_open(self.ino);
            let seen = SizeWord::load(&header.size);
            let end = seen.size().checked_add(bytes as u64);
            let end = end.filter(|end| *end <= max);
            if end.is_none() && most.is_some() {
                size::drop_ticket(&header.ticket, owner);
                return Ok(None);
            }
            let written = match end {
                Some(_) => self.write_parts(connection, parts, owner, seen),
                None => Err(Error::new(ErrorKind::TooLarge, "append")),
            };
            // Every piece is in place and unpinned; only the size makes them visible.
            let done = written
                .map(|whole| whole && size::append(&header.size, seen, end.unwrap_or_default()));
            let late = is_over(until);
            if let (Err(error), Some(_)) = (&done, end) {
                // What is in place already must not show when the file becomes longer: the server
                // cuts it off as it takes the ticket, also from who may do nothing else any more.
                let _ = self.unblock(connection, seen.size() / CHUNK_BYTES, owner);
                return Err(error.clone());
            }
            size::drop_ticket(&header.ticket, owner);
            if done? && (!late || connection.counts(self.file(connection)?, None)?) {
                return Ok(Some(seen.size()));
            }
        }
    }

    /// Writes parts one behind the other, from where the file ends. False: the ticket was lost.
    fn write_parts(
        &self,
        connection: &Connection,
        parts: &[&[u8]],
        owner: Owner,
        seen: SizeWord,
    ) -> Result<bool> {
        let mut at = seen.size();
        for part in parts {
            if !self.write_as(connection, part, at, Growth::Later(owner, seen))? {
                return Ok(false);
            }
            at += part.len() as u64;
        }
        Ok(true)
    }

    fn take_ticket(
        &self,
        connection: &Connection,
        header: &FileHeader,
        owner: Owner,
        may_be_sealed: bool,
    ) -> Result<bool> {
        let mut since: Option<(Instant, Owner)> = None;
        loop {
            let Err(holder) = size::take_ticket(&header.ticket, owner) else { return Ok(true) };
            if may_be_sealed && size::is_sealed(&header.ticket) {
                return Ok(false);
            }
            match since {
                Some((begin, who)) if who == holder => {
                    if begin.elapsed() > PATIENCE {
                        let index = SizeWord::load(&header.size).size() / CHUNK_BYTES;
                        self.unblock(connection, index, holder)?;
                        since = None;
                    }
                }
                _ => since = Some((Instant::now(), holder)),
            }
            std::thread::yield_now();
        }
    }
}

/// Makes the file reach to `end`. A file grows only under the ticket, so that no append in progress
/// is overtaken by a write beyond it. `Ok(false)`: the epoch is over; `Err`: who has the ticket.
fn raise(
    header: &FileHeader,
    end: u64,
    epoch: u16,
    owner: Owner,
) -> std::result::Result<bool, Owner> {
    let seen = SizeWord::load(&header.size);
    if seen.size() >= end {
        return Ok(seen.epoch() == epoch);
    }
    let mut taken = size::take_ticket(&header.ticket, owner);
    for _ in 0..TICKET_SPINS {
        if taken.is_ok() {
            break;
        }
        std::hint::spin_loop();
        taken = size::take_ticket(&header.ticket, owner);
    }
    taken?;
    let raised = size::raise(&header.size, end, epoch);
    size::drop_ticket(&header.ticket, owner);
    Ok(raised)
}

/// A hazard slot's number that no other thread of this process appends under.
fn appending_slot() -> usize {
    let first = thread_hint();
    loop {
        for slot in (0..HAZARDS).map(|at| (first + at) % HAZARDS) {
            if APPENDING.fetch_or(1 << slot, Ordering::AcqRel) & (1 << slot) == 0 {
                return slot;
            }
        }
        std::thread::yield_now();
    }
}
