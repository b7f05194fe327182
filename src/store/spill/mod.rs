//! The spill: a file on a disk of this machine, for chunks that do not fit in memory and that the
//! permanent store does not have yet. It is cut into places, each for one chunk.
//!
//! Invariants: a place's bytes are written before its record in the table, and that before the map
//! entry that names it; what is read is compared with the checksum in the record, so that a disk
//! that gives back something else gives an error. Not here: which chunks go there, and when
//! (`server/storage/overflow`), and which directories it may be in ([`directory`]).

use terral_format::frame::checksum;
use terral_format::ids::SpillPlace;
use terral_format::local::geometry::{CHUNK_BYTES, PAGE_BYTES};
use terral_format::local::spill::{PLACES_MAX, RECORD_WORDS, Record, TABLE_BYTES};
use terral_format::{Error, ErrorKind, Result};

use crate::existing::{Existing, Shared};
use crate::sparse::Sparse;

mod block;
pub mod directory;
pub mod disk;

pub use block::Block;

/// What holds the bytes. A place is as long as the largest chunk.
pub trait Disk: Send + Sync {
    /// Its name, for messages.
    fn describe(&self) -> String;

    /// Most places that it can have.
    fn places(&self) -> u32;

    /// Writes the first `bytes` bytes of a place, whole pages.
    ///
    /// # Errors
    /// [`ErrorKind::NoSpace`] if it is full.
    fn write(&self, place: SpillPlace, block: &Block, bytes: usize) -> Result<()>;

    /// Reads them.
    fn read(&self, place: SpillPlace, block: &mut Block, bytes: usize) -> Result<()>;

    /// Gives back the room of a place that holds nothing any more, as far as that can be done.
    fn free(&self, place: SpillPlace);
}

/// What lies from `from` to `to` in the chunk that was read from a place, as far as its record says
/// now: it may have been cut since.
///
/// # Errors
/// [`ErrorKind::Corrupt`] if the record is of other bytes.
pub fn unpack(
    record: Record<'_>,
    block: &Block,
    (from, to): (usize, usize),
    into: &mut Sparse,
) -> Result<()> {
    into.clear(to - from);
    for part in record.parts() {
        let (first, last) = (part.from.max(from), part.to.min(to));
        if first < last {
            let at = part.at + first - part.from;
            let bytes = block.get(at..at + last - first).ok_or_else(too_short)?;
            into.add(first - from, last - first).copy_from_slice(bytes);
        }
    }
    Ok(())
}

/// A record is of other bytes than those that were read.
pub(crate) fn too_short() -> Error {
    Error::new(ErrorKind::Corrupt, "a spilled chunk is not what is known of it")
}

/// The spill of one instance: the disk, and the table of what is there.
pub struct Spill {
    disk: Box<dyn Disk>,
    table: Existing,
}

impl Spill {
    /// With a table of [`TABLE_BYTES`].
    pub fn new(disk: Box<dyn Disk>, table: Box<dyn Shared>) -> Self {
        Spill { disk, table: Existing::new(table, TABLE_BYTES) }
    }

    /// Its name, for messages.
    pub fn describe(&self) -> String {
        self.disk.describe()
    }

    /// Most places that it can have.
    pub fn places(&self) -> u32 {
        self.disk.places().min(PLACES_MAX)
    }

    /// The record of a place, which must be below [`Spill::places`] and have been prepared.
    pub fn record(&self, place: SpillPlace) -> Record<'_> {
        Record::new(self.table.words(place.0 as usize * RECORD_WORDS * 8, RECORD_WORDS))
    }

    /// Makes the record of a place exist.
    ///
    /// # Errors
    /// [`ErrorKind::NoSpace`] if memory is full.
    pub fn prepare(&self, place: SpillPlace) -> Result<()> {
        self.table.make(place.0 as usize * RECORD_WORDS * 8, RECORD_WORDS * 8)
    }

    /// Writes the first `bytes` of a block; gives their checksum.
    ///
    /// # Errors
    /// Those of [`Disk::write`].
    pub fn write(&self, place: SpillPlace, block: &Block, bytes: usize) -> Result<u64> {
        debug_assert!(bytes.is_multiple_of(PAGE_BYTES));
        self.disk.write(place, block, bytes)?;
        Ok(checksum(&block[..bytes]))
    }

    /// Reads chunk `index` of file `ino` as it lies there: see [`Record::parts`], and [`unpack`].
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if it is not what was written there; so it is also for a place that
    /// holds another chunk by now, which the caller is to look at first.
    pub fn read(&self, place: SpillPlace, (ino, index): (u64, u64)) -> Result<Block> {
        let wrong = |why: &str| {
            let context = format!("chunk {index} in {}: {why}", self.describe());
            Error::new(ErrorKind::Corrupt, context)
        };
        if place.0 >= self.places() || !self.record(place).is_of(ino, index) {
            return Err(wrong("nothing is known of it"));
        }
        let record = self.record(place);
        let (sum, bytes) = record.sum();
        let bytes = bytes as usize;
        if bytes > CHUNK_BYTES as usize || !bytes.is_multiple_of(PAGE_BYTES) {
            return Err(wrong("what is known of it makes no sense"));
        }
        let mut block = Block::of(bytes);
        self.disk.read(place, &mut block, bytes)?;
        if checksum(&block) != sum {
            return Err(wrong("not what was written there: its bytes are lost"));
        }
        Ok(block)
    }

    /// See [`Disk::free`].
    pub fn free(&self, place: SpillPlace) {
        self.disk.free(place);
    }
}
