//! The grant protocol, client's side: copies into and out of chunks. Unchanged in shape from the
//! model in `tests/grants.rs`.

use std::sync::atomic::{AtomicU16, AtomicU32, Ordering, fence};
use std::time::{Duration, Instant};

use terral_format::entry::MapEntry;
use terral_format::geometry::{CHUNK_BYTES, CHUNK_PAGES, HAZARDS, PAGE_BYTES, SEGMENT_PAGES};
use terral_format::hazard::{self, HazardWord};
use terral_format::ids::{Owner, PageNumber};
use terral_format::message::{FileRef, Request};
use terral_format::pages::{self, Claim, PageState};
use terral_format::size::{self, SizeWord};
use terral_format::tables::{FileHeader, FileRecord};
use terral_format::{Error, ErrorKind, Result};

use crate::map;
use crate::session::{Connection, Own};

/// Somebody in the way longer than this is reported to the server.
const PATIENCE: Duration = Duration::from_millis(100);
/// Most chunks asked for ahead: 64 MiB.
const AHEAD_MAX: u32 = 32;
/// Most chunks brought from the backing ahead of a reader: 16 MiB.
const STAGE_MAX: u32 = 8;

/// A ticket held for a moment is waited for in place.
const TICKET_SPINS: u32 = 1000;

static ZEROS: [u8; PAGE_BYTES] = [0; PAGE_BYTES];
static OPERATION: AtomicU32 = AtomicU32::new(0);
/// Hazard slots whose owner number is in use for an append ticket.
static APPENDING: AtomicU16 = AtomicU16::new(0);

/// An open file's place in shared memory, and how its writer is getting on.
pub(crate) struct Chunks {
    pub(crate) file: FileRef,
    granted_to: std::sync::atomic::AtomicU64,
    ahead: AtomicU32,
    stage: AtomicU32,
}

/// What happens to the size once the bytes are there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Growth {
    Raise,
    /// The holder of this append ticket will publish all at once.
    Later(Owner),
}

/// How one attempt to write a piece ended.
enum Attempt {
    Done,
    /// The chunk, the size's epoch, or the slot changed hands: do it again.
    Again,
    /// The chunk cannot be written without the server.
    Ask,
    /// This owner has not moved for long.
    Blocked(Owner),
    /// The bytes are there, but this owner has the ticket that a longer file needs.
    NoTicket(Owner),
    /// Our own ticket was taken away: what we append may be somebody else's place by now.
    TicketLost,
}

/// A pinned chunk.
struct Pin<'a> {
    slot: &'a std::sync::atomic::AtomicU64,
    word: HazardWord,
    owner: Owner,
}

/// A number that differs between threads, most of the time: where their stacks are.
fn thread_hint() -> usize {
    let here = 0u8;
    (std::ptr::from_ref(&here).addr() >> 16) % HAZARDS
}

impl Own {
    fn pin(&self, page: PageNumber) -> Pin<'_> {
        let operation = OPERATION.fetch_add(1, Ordering::Relaxed);
        let first = thread_hint();
        loop {
            for at in (0..HAZARDS).map(|at| (first + at) % HAZARDS) {
                let slot = &self.page().hazards[at].word;
                if let Some(word) = hazard::enter(slot, page, operation) {
                    let owner = Owner(self.index * HAZARDS as u16 + at as u16 + 1);
                    return Pin { slot, word, owner };
                }
            }
            std::thread::yield_now();
        }
    }
}

impl Pin<'_> {
    #[must_use]
    fn leave(self) -> bool {
        hazard::leave(self.slot, self.word)
    }
}

fn stale(file: FileRef) -> Error {
    Error::new(ErrorKind::BadHandle, format!("file {}", file.ino))
}

impl Chunks {
    pub(crate) fn new(file: FileRef) -> Self {
        Chunks { file, granted_to: 0.into(), ahead: AtomicU32::new(1), stage: AtomicU32::new(1) }
    }

    pub(crate) fn header<'c>(&self, connection: &'c Connection) -> Result<&'c FileHeader> {
        connection.memory.header(self.file.slot).ok_or_else(|| stale(self.file))
    }

    /// The record, if it still is this file's.
    fn record<'c>(&self, connection: &'c Connection) -> Result<&'c FileRecord> {
        let record = connection.memory.record(self.file.slot);
        let own = record.filter(|record| record.ino.load(Ordering::SeqCst) == self.file.ino.0);
        own.ok_or_else(|| stale(self.file))
    }

    pub(crate) fn size(&self, connection: &Connection) -> Result<u64> {
        Ok(SizeWord::load(&self.header(connection)?.size).size())
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
        loop {
            match self.try_write(connection, bytes, offset, growth)? {
                Attempt::Done => {
                    if (offset + bytes.len() as u64).is_multiple_of(CHUNK_BYTES) {
                        self.ask_ahead(connection, index)?;
                    }
                    return Ok(true);
                }
                Attempt::Again => {}
                Attempt::Ask => self.ask(connection, index)?,
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

    fn unblock(&self, connection: &Connection, index: u64, owner: Owner) -> Result<()> {
        let (file, owner) = (self.file, owner.0);
        connection.call(Request::Unblock { file, index, owner }).map(drop)
    }

    fn try_write(
        &self,
        connection: &Connection,
        bytes: &[u8],
        offset: u64,
        growth: Growth,
    ) -> Result<Attempt> {
        let memory = &connection.memory;
        let (record, header) = (self.record(connection)?, self.header(connection)?);
        let index = offset / CHUNK_BYTES;
        let within = (offset % CHUNK_BYTES) as usize;
        let entry = map::entry(memory, record, index);
        let last = ((within + bytes.len()).div_ceil(PAGE_BYTES)) as u32;
        if entry.is_absent() || entry.is_recalled() || last > entry.pages() {
            return Ok(Attempt::Ask);
        }
        let own = connection.own()?;
        let pin = own.pin(entry.page());
        let epoch = SizeWord::load(&header.size).epoch();
        if map::entry(memory, record, index) != entry {
            let _ = pin.leave();
            return Ok(Attempt::Again);
        }
        if let Growth::Later(owner) = growth
            && !size::holds_ticket(&header.ticket, owner)
        {
            let _ = pin.leave();
            return Ok(Attempt::TicketLost);
        }
        let start = entry.page().0;
        let (first, last) = (start + (within / PAGE_BYTES) as u32, start + last);
        let lanes = memory.lanes();
        if !pages::all_valid(lanes, first, last)
            && let Some(blocked) = claim(lanes, first, last, pin.owner)
        {
            pages::abandon(lanes, first, last, pin.owner);
            let _ = pin.leave();
            return Ok(Attempt::Blocked(blocked));
        }
        let copied = self.fill(connection, entry, within, bytes, pin.owner);
        if let Err(error) = copied {
            pages::abandon(lanes, first, last, pin.owner);
            let _ = pin.leave();
            return Err(error);
        }
        pages::publish(lanes, first, last, pin.owner);
        let end = offset + bytes.len() as u64;
        let raised = match growth {
            Growth::Later(_) => Ok(true),
            Growth::Raise => raise(header, end, epoch, pin.owner),
        };
        let kept = pin.leave();
        Ok(match raised {
            Ok(true) if kept => Attempt::Done,
            Ok(_) => Attempt::Again,
            Err(holder) => Attempt::NoTicket(holder),
        })
    }

    /// Copies, and zeroes what it does not cover of the pages that were claimed.
    fn fill(
        &self,
        connection: &Connection,
        entry: MapEntry,
        within: usize,
        bytes: &[u8],
        owner: Owner,
    ) -> Result<()> {
        let (memory, page) = (&connection.memory, entry.page());
        let segment = (page.0 / SEGMENT_PAGES) as usize;
        let state = memory.superblock().segments[segment % terral_format::geometry::SEGMENTS_MAX]
            .load(Ordering::Acquire);
        let end = within + bytes.len();
        let (head, tail) = (within % PAGE_BYTES, end % PAGE_BYTES);
        let claimed = |at: usize| {
            pages::is_claimed_by(memory.lanes(), page.0 + (at / PAGE_BYTES) as u32, owner)
        };
        if head != 0 && claimed(within) {
            memory.arena.write(page, within - head, &ZEROS[..head], state)?;
        }
        if tail != 0 && claimed(end) {
            memory.arena.write(page, end, &ZEROS[tail..], state)?;
        }
        memory.arena.write(page, within, bytes, state)
    }

    /// Asks for chunk `index` and, while the writer goes straight on, for more and more after it.
    fn ask(&self, connection: &Connection, index: u64) -> Result<()> {
        let count = self.ahead.load(Ordering::Relaxed);
        let straight = index == self.granted_to.load(Ordering::Relaxed);
        let count = if straight { count } else { 1 };
        connection.call(Request::Grant { file: self.file, first: index, count })?;
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
        connection.tell(Request::Grant { file: self.file, first: granted, count: ahead })?;
        self.granted_to.store(granted + u64::from(ahead), Ordering::Relaxed);
        self.ahead.store((ahead * 2).min(AHEAD_MAX), Ordering::Relaxed);
        Ok(())
    }

    /// Appends all of `bytes` in one piece. Gives the offset they begin at.
    pub(crate) fn append(&self, connection: &Connection, bytes: &[u8]) -> Result<u64> {
        let slot = appending_slot();
        let own = connection.own()?;
        let owner = Owner(own.index * HAZARDS as u16 + slot as u16 + 1);
        let appended = self.append_as(connection, bytes, owner);
        APPENDING.fetch_and(!(1 << slot), Ordering::AcqRel);
        appended
    }

    fn append_as(&self, connection: &Connection, bytes: &[u8], owner: Owner) -> Result<u64> {
        let header = self.header(connection)?;
        loop {
            self.take_ticket(connection, header, owner)?;
            let seen = SizeWord::load(&header.size);
            let end = seen.size().checked_add(bytes.len() as u64);
            let end = end.filter(|end| *end <= terral_format::geometry::FILE_BYTES_MAX);
            let written = match end {
                Some(_) => self.write_as(connection, bytes, seen.size(), Growth::Later(owner)),
                None => Err(Error::new(ErrorKind::TooLarge, "append")),
            };
            // Every piece is in place and unpinned; only the size makes them visible.
            let done = written
                .map(|whole| whole && size::append(&header.size, seen, end.unwrap_or_default()));
            size::drop_ticket(&header.ticket, owner);
            if done? {
                return Ok(seen.size());
            }
        }
    }

    fn take_ticket(
        &self,
        connection: &Connection,
        header: &FileHeader,
        owner: Owner,
    ) -> Result<()> {
        let mut since = Instant::now();
        loop {
            let Err(holder) = size::take_ticket(&header.ticket, owner) else { return Ok(()) };
            if since.elapsed() > PATIENCE {
                let index = SizeWord::load(&header.size).size() / CHUNK_BYTES;
                self.unblock(connection, index, holder)?;
                since = Instant::now();
            }
            std::thread::yield_now();
        }
    }

    // Reading.

    /// Reads at most `into.len()` bytes from `offset`; fewer only at the end of the file.
    pub(crate) fn read(
        &self,
        connection: &Connection,
        into: &mut [u8],
        offset: u64,
    ) -> Result<usize> {
        let header = self.header(connection)?;
        loop {
            let seen = SizeWord::load(&header.size);
            let count = (into.len() as u64).min(seen.size().saturating_sub(offset)) as usize;
            let (mut at, mut rest) = (offset, &mut into[..count]);
            while !rest.is_empty() {
                let room = (CHUNK_BYTES - at % CHUNK_BYTES) as usize;
                let length = rest.len().min(room);
                let (piece, after) = rest.split_at_mut(length);
                self.read_piece(connection, piece, at)?;
                at += length as u64;
                rest = after;
            }
            // A truncate in between: the size may be from before it, the bytes from after it.
            if SizeWord::load(&header.size).epoch() == seen.epoch() {
                return Ok(count);
            }
        }
    }

    fn read_piece(&self, connection: &Connection, into: &mut [u8], offset: u64) -> Result<()> {
        let memory = &connection.memory;
        let index = offset / CHUNK_BYTES;
        let within = (offset % CHUNK_BYTES) as usize;
        loop {
            let record = self.record(connection)?;
            let entry = map::entry(memory, record, index).unrecalled();
            if entry.is_absent() {
                if index * CHUNK_BYTES < record.backed_bytes.load(Ordering::SeqCst) {
                    self.stage(connection, index)?;
                    continue;
                }
                into.fill(0);
            } else {
                read_chunk(connection, entry, within, into)?;
            }
            fence(Ordering::Acquire);
            let record = self.record(connection)?;
            if map::entry(memory, record, index).unrecalled() == entry {
                return Ok(());
            }
        }
    }

    fn stage(&self, connection: &Connection, first: u64) -> Result<()> {
        let count = self.stage.load(Ordering::Relaxed);
        connection.call(Request::Stage { file: self.file, first, count })?;
        self.stage.store((count * 2).min(STAGE_MAX), Ordering::Relaxed);
        Ok(())
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

/// Claims pages, waiting for others; gives who has been in the way for too long.
fn claim(
    lanes: &[std::sync::atomic::AtomicU64],
    first: u32,
    last: u32,
    owner: Owner,
) -> Option<Owner> {
    let mut from = first;
    let mut since: Option<(Instant, u32)> = None;
    loop {
        match pages::claim(lanes, from, last, owner) {
            Claim::Done => return None,
            Claim::Wait(page, other) => {
                from = page;
                match since {
                    Some((begin, at)) if at == page => {
                        if begin.elapsed() > PATIENCE {
                            return Some(other);
                        }
                    }
                    _ => since = Some((Instant::now(), page)),
                }
                std::thread::yield_now();
            }
        }
    }
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

/// Copies out of a chunk; pages that are not valid read as zeros.
fn read_chunk(
    connection: &Connection,
    entry: MapEntry,
    within: usize,
    into: &mut [u8],
) -> Result<()> {
    let memory = &connection.memory;
    let page = entry.page();
    let segment = (page.0 / SEGMENT_PAGES) as usize % terral_format::geometry::SEGMENTS_MAX;
    let state = memory.superblock().segments[segment].load(Ordering::Acquire);
    let lanes = memory.lanes();
    let first = (within / PAGE_BYTES) as u32;
    let last = (within + into.len()).div_ceil(PAGE_BYTES) as u32;
    if last <= entry.pages() && pages::all_valid(lanes, page.0 + first, page.0 + last) {
        return memory.arena.read(page, within, into, state);
    }
    debug_assert!(last <= CHUNK_PAGES);
    let mut at = within;
    while at < within + into.len() {
        let here = (at / PAGE_BYTES) as u32;
        let length = (PAGE_BYTES - at % PAGE_BYTES).min(within + into.len() - at);
        let piece = &mut into[at - within..at - within + length];
        let valid = here < entry.pages()
            && matches!(pages::state(lanes, page.0 + here), PageState::Valid { .. });
        if valid {
            memory.arena.read(page, at, piece, state)?;
        } else {
            piece.fill(0);
        }
        at += length;
    }
    Ok(())
}
