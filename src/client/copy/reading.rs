//! Reads. Not here: what writers do at the same time (`copy`), and what a chunk is (`chunk`).

use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use terral_format::Result;
use terral_format::local::geometry::CHUNK_BYTES;
use terral_format::local::size::SizeWord;
use terral_format::wire::message::{EXTENT_MAX, Reply, Request};
use terral_transport::fault;

use super::Chunks;
use crate::borrowed::is_over;
use crate::chunk::{Notes, PATIENCE, Piece, pause};
use crate::map;
use crate::session::{Connection, unexpected};

/// Most chunks brought from the backing ahead of a reader: 16 MiB.
const STAGE_MAX: u32 = 8;
/// A reader whom writers disturb for longer than this queues among them.
pub(super) const DISTURBED_MAX: Duration = Duration::from_millis(1);
/// In less time than this no page is overwritten so often that its count comes round: 16,384 times.
pub(super) const ROUND_NS: u64 = 1_000_000;

impl Chunks {
    /// Reads at most `into.len()` bytes from `offset`; fewer only at the end of the file.
    pub(crate) fn read(
        &self,
        connection: &Connection,
        into: &mut [u8],
        offset: u64,
    ) -> Result<usize> {
        let header = self.header(connection)?;
        loop {
            let end = offset.saturating_add(into.len() as u64);
            let seen = self.size_word_to(connection, header, end)?;
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

    /// Reads bytes that lie in one chunk: all from between two writes to them.
    fn read_piece(&self, connection: &Connection, into: &mut [u8], offset: u64) -> Result<()> {
        let memory = &connection.memory;
        let header = self.header(connection)?;
        let index = offset / CHUNK_BYTES;
        let within = (offset % CHUNK_BYTES) as usize;
        let mut notes = Notes::new(into.len());
        let (mut since, mut round): (Option<Instant>, u32) = (None, 0);
        loop {
            let record = self.record(connection)?;
            let entry = map::entry(memory, record, index).unrecalled();
            // A hole has no mark of its own: it is the file's.
            let absent = entry.is_absent();
            let until = match absent {
                true => memory.until_of_open(self.ino),
                false => memory.until(entry.is_borrowed()),
            };
            let modified_ns = header.modified_ns.load(Ordering::SeqCst);
            let spilled = !(entry.is_here() || absent);
            let evictions = record.evictions.load(Ordering::SeqCst);
            let mut extents = false;
            let at_rest = if entry.is_here() {
                let piece = Piece::new(memory, entry, within, into.len());
                piece.try_get(into, &mut notes)?
            } else if spilled || index * CHUNK_BYTES < record.backed_bytes.load(Ordering::SeqCst) {
                extents = self.stage(connection, index, within, into)?;
                if !extents {
                    continue;
                }
                true
            } else {
                fault::clear(into)?;
                fence(Ordering::Acquire);
                true
            };
            let record = self.record(connection)?;
            let written_ns = header.modified_ns.load(Ordering::SeqCst).abs_diff(modified_ns);
            let still = map::entry(memory, record, index).unrecalled() == entry;
            let same = match extents {
                // Who has written to an absent chunk had it brought; then it was evicted.
                true => record.evictions.load(Ordering::SeqCst) == evictions,
                false => written_ns < ROUND_NS,
            };
            if at_rest && still && same {
                let used = (!absent).then_some(entry);
                if !is_over(until) || self.counts(connection, index, used)? {
                    return Ok(());
                }
                continue;
            }
            if since.get_or_insert_with(Instant::now).elapsed() < DISTURBED_MAX {
                pause(&mut round);
            } else if self.read_in_turn(connection, into, offset, &mut notes)? {
                return Ok(());
            }
        }
    }

    /// Reads bytes that lie in one chunk as a writer would write them, which keeps writers out.
    /// False: try again.
    #[cold]
    fn read_in_turn(
        &self,
        connection: &Connection,
        into: &mut [u8],
        offset: u64,
        notes: &mut Notes,
    ) -> Result<bool> {
        let (memory, record) = (&connection.memory, self.record(connection)?);
        let index = offset / CHUNK_BYTES;
        let entry = map::entry(memory, record, index);
        if !entry.is_here() || entry.is_recalled() {
            std::thread::yield_now();
            return Ok(false);
        }
        let pin = connection.own()?.pin(entry.page());
        if map::entry(memory, record, index) != entry {
            let _ = pin.leave();
            return Ok(false);
        }
        let until = memory.until(entry.is_borrowed());
        let within = (offset % CHUNK_BYTES) as usize;
        let piece = Piece::new(memory, entry, within, into.len());
        if let Err(blocked) = piece.claim(pin.owner, notes, PATIENCE) {
            let _ = pin.leave();
            self.unblock(connection, index, blocked)?;
            return Ok(false);
        }
        let copied = piece.get_claimed(into, pin.owner, notes);
        let late = is_over(until);
        let kept = pin.leave();
        copied?;
        Ok(kept && (!late || self.counts(connection, index, Some(entry))?))
    }

    /// Has chunk `index` brought; where memory has no room for it, reads these bytes of it. Whether
    /// it has read them.
    #[cold]
    fn stage(
        &self,
        connection: &Connection,
        index: u64,
        within: usize,
        into: &mut [u8],
    ) -> Result<bool> {
        let file = self.file(connection)?;
        let mut read = 0;
        while read < into.len() {
            let (count, rest) = (self.stage.load(Ordering::Relaxed), &mut into[read..]);
            let bytes = rest.len().min(EXTENT_MAX as usize);
            let (at, length) = ((within + read) as u32, bytes as u32);
            let asked = Request::Stage { file, first: index, count, within: at, bytes: length };
            match connection.call(asked)? {
                Reply::Done => {
                    self.stage.store((count * 2).min(STAGE_MAX), Ordering::Relaxed);
                    return Ok(false);
                }
                Reply::Extent(extent) if extent.len() == bytes => {
                    fault::copy(&mut rest[..bytes], &extent)?;
                }
                _ => return Err(unexpected()),
            }
            read += bytes;
        }
        Ok(true)
    }
}
