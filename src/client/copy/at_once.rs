//! Reads and writes of few bytes that wait for nobody and ask nothing: who makes them has others
//! waiting for him. Not here: what is done otherwise (`copy`, `reading`), which is always right.
//!
//! Invariant: what is given up in the middle may be done again: the same bytes at the same place.

use std::sync::atomic::Ordering;
use std::time::Duration;

use terral_format::Result;
use terral_format::ids::FileSlot;
use terral_format::local::geometry::CHUNK_BYTES;
use terral_format::local::size::SizeWord;

use super::reading::ROUND_NS;
use super::{Attempt, Chunks, Growth};
use crate::borrowed::is_over;
use crate::chunk::{Notes, Piece};
use crate::map;
use crate::session::Connection;

fn is_of_one_chunk(offset: u64, bytes: usize) -> bool {
    offset % CHUNK_BYTES + bytes as u64 <= CHUNK_BYTES
}

impl Chunks {
    /// Reads as [`Chunks::read`] does, if all of it is in memory and nobody just writes there.
    pub(crate) fn read_at_once(
        &self,
        connection: &Connection,
        into: &mut [u8],
        offset: u64,
    ) -> Result<Option<usize>> {
        if self.slot() == FileSlot::RESTING || !is_of_one_chunk(offset, into.len()) {
            return Ok(None);
        }
        let header = self.header(connection)?;
        let until = connection.memory.until_of_open(self.ino);
        let seen = SizeWord::load(&header.size);
        let count = (into.len() as u64).min(seen.size().saturating_sub(offset)) as usize;
        if count < into.len() && is_over(until) {
            return Ok(None);
        }
        let read = count == 0 || self.look(connection, &mut into[..count], offset)?;
        // A truncate in between: the size may be from before it, the bytes from after it.
        let counts = read && SizeWord::load(&header.size).epoch() == seen.epoch();
        Ok(counts.then_some(count))
    }

    /// Reads bytes that lie in one chunk. False: not all from between two writes to them.
    fn look(&self, connection: &Connection, into: &mut [u8], offset: u64) -> Result<bool> {
        let (memory, header) = (&connection.memory, self.header(connection)?);
        let (index, within) = (offset / CHUNK_BYTES, (offset % CHUNK_BYTES) as usize);
        let entry = map::entry(memory, self.record(connection)?, index).unrecalled();
        if !entry.is_here() {
            return Ok(false);
        }
        let until = memory.until(entry.is_borrowed());
        let modified_ns = header.modified_ns.load(Ordering::SeqCst);
        let mut notes = Notes::new(into.len());
        let whole = Piece::new(memory, entry, within, into.len()).try_get(into, &mut notes)?;
        let written_ns = header.modified_ns.load(Ordering::SeqCst).abs_diff(modified_ns);
        let still = map::entry(memory, self.record(connection)?, index).unrecalled() == entry;
        Ok(whole && still && written_ns < ROUND_NS && !is_over(until))
    }

    /// Writes as [`Chunks::write`] does, if that has memory, makes the file no longer, and nobody
    /// just writes there. False: it is to be done otherwise, though some of it may be there.
    pub(crate) fn write_at_once(
        &self,
        connection: &Connection,
        bytes: &[u8],
        offset: u64,
    ) -> Result<bool> {
        if self.slot() == FileSlot::RESTING || !is_of_one_chunk(offset, bytes.len()) {
            return Ok(false);
        }
        let size = SizeWord::load(&self.header(connection)?.size).size();
        if bytes.is_empty() || size < offset + bytes.len() as u64 {
            return Ok(false);
        }
        let (how, mut notes) = ((Growth::Raise, Duration::ZERO), Notes::new(bytes.len()));
        let attempt = self.try_write(connection, bytes, offset, how, &mut notes)?;
        Ok(matches!(attempt, Attempt::Done))
    }
}
