//! Chunks that another machine has lent to this one. What is asked back is marked as borrowed: it
//! is not used any more. Not here: who asks for them (`file/loan`).

use std::sync::atomic::{Ordering, fence};
use std::time::Instant;

use terral_format::Result;
use terral_format::ids::{FileSlot, Member, Owner};
use terral_format::local::entry::MapEntry;
use terral_format::local::geometry::{CHUNK_BYTES, HAZARDS};
use terral_format::local::size::{self, SizeWord};

use super::reading::{DISTURBED_MAX, ROUND_NS};
use super::{APPENDING, Attempt, Chunks, Growth, appending_slot};
use crate::chunk::{Notes, PATIENCE, Piece, pause};
use crate::map;
use crate::session::Connection;

impl Chunks {
    /// The entry of a chunk, if it may be used now.
    fn usable(&self, connection: &Connection, index: u64) -> Option<MapEntry> {
        let record = self.record(connection).ok()?;
        let entry = map::entry(&connection.memory, record, index).unrecalled();
        (entry.is_here() && !entry.is_borrowed()).then_some(entry)
    }

    /// Writes bytes that lie in one chunk, if that is here to be used; they may lie beyond the end
    /// of the file. Gives which chunk that was.
    pub(crate) fn write_lent(
        &self,
        connection: &Connection,
        bytes: &[u8],
        offset: u64,
    ) -> Result<Option<MapEntry>> {
        let index = offset / CHUNK_BYTES;
        let (how, mut notes) = ((Growth::Stays, PATIENCE), Notes::new(bytes.len()));
        while let Some(entry) = self.usable(connection, index) {
            match self.try_write(connection, bytes, offset, how, &mut notes)? {
                // It was written to the one that was seen, or to one that took its place since.
                Attempt::Done if self.is_still(connection, index, entry) => {
                    return Ok(Some(entry));
                }
                Attempt::Ask if self.is_still(connection, index, entry) => return Ok(None),
                Attempt::Blocked(owner) => self.unblock(connection, index, owner)?,
                _ => std::thread::yield_now(),
            }
        }
        Ok(None)
    }

    /// Whether a chunk still is the one that was seen, and may be used.
    pub(crate) fn is_still(&self, connection: &Connection, index: u64, entry: MapEntry) -> bool {
        self.usable(connection, index) == Some(entry)
    }

    /// How long the file is known to be.
    pub(crate) fn known_size(&self, connection: &Connection) -> Result<SizeWord> {
        self.record(connection)?;
        Ok(SizeWord::load(&self.header(connection)?.size))
    }

    /// Reads bytes that lie in one chunk, as far as the file is known to go. `None`: it may not be
    /// used, or none of them is known.
    pub(crate) fn read_lent(
        &self,
        connection: &Connection,
        into: &mut [u8],
        offset: u64,
    ) -> Result<Option<usize>> {
        self.read_known(connection, into, offset, false)
    }

    /// The same for who knows by himself that the file goes as far. False: it may not be used.
    pub(crate) fn read_all_lent(
        &self,
        connection: &Connection,
        into: &mut [u8],
        offset: u64,
    ) -> Result<bool> {
        self.read_known(connection, into, offset, true).map(|count| count.is_some())
    }

    fn read_known(
        &self,
        connection: &Connection,
        into: &mut [u8],
        offset: u64,
        all: bool,
    ) -> Result<Option<usize>> {
        let (index, within) = (offset / CHUNK_BYTES, (offset % CHUNK_BYTES) as usize);
        let (begin, mut round) = (Instant::now(), 0);
        while let Some(entry) = self.usable(connection, index) {
            // What is known of it after the chunk was seen counts as long as that stays.
            let known = self.known_size(connection)?.size().saturating_sub(offset);
            let count = if all { into.len() } else { (into.len() as u64).min(known) as usize };
            if count == 0 {
                return Ok(None);
            }
            let header = self.header(connection)?;
            let modified_ns = header.modified_ns.load(Ordering::SeqCst);
            let mut notes = Notes::new(count);
            let piece = Piece::new(&connection.memory, entry, within, count);
            let at_rest = piece.try_get(&mut into[..count], &mut notes)?;
            fence(Ordering::Acquire);
            let written_ns = header.modified_ns.load(Ordering::SeqCst).abs_diff(modified_ns);
            if at_rest && written_ns < ROUND_NS && self.is_still(connection, index, entry) {
                return Ok(Some(count));
            }
            if begin.elapsed() > DISTURBED_MAX * 100 {
                // Its home reads it when nobody writes any more.
                return Ok(None);
            }
            pause(&mut round);
        }
        Ok(None)
    }

    /// Whether a member has a chunk.
    pub(crate) fn is_with(
        &self,
        connection: &Connection,
        index: u64,
        member: Member,
    ) -> Result<bool> {
        let entry = map::entry(&connection.memory, self.record(connection)?, index);
        Ok(entry.with() == Some(member))
    }

    /// Whether another member has a chunk.
    pub(crate) fn is_away(&self, connection: &Connection, index: u64) -> Result<bool> {
        if self.slot() == FileSlot::RESTING {
            return Ok(false);
        }
        let entry = map::entry(&connection.memory, self.record(connection)?, index);
        Ok(entry.with().is_some())
    }

    /// Makes the file reach to `end`, if it does not.
    pub(crate) fn raise_to(&self, connection: &Connection, end: u64) -> Result<()> {
        let slot = appending_slot();
        let own = connection.own()?;
        let owner = Owner(own.index * HAZARDS as u16 + slot as u16 + 1).appending();
        let raised = self.raise_as(connection, end, owner);
        APPENDING.fetch_and(!(1 << slot), Ordering::AcqRel);
        raised
    }

    fn raise_as(&self, connection: &Connection, end: u64, owner: Owner) -> Result<()> {
        let header = self.header(connection)?;
        loop {
            self.take_ticket(connection, header, owner, false)?;
            let raised = size::raise(&header.size, end, SizeWord::load(&header.size).epoch());
            size::drop_ticket(&header.ticket, owner);
            if raised {
                return Ok(());
            }
        }
    }
}
