//! Chunks that go to the spill, where memory is full, and come back from it. Not here: which, and
//! when (`jobs`, `choosing`).

use std::sync::atomic::Ordering;

use terral_format::Result;
use terral_format::ids::{FileSlot, SpillPlace};
use terral_format::local::entry::MapEntry;
use terral_format::local::geometry::CHUNK_BYTES;
use terral_format::local::spill;
use terral_store::moving::Copied;
use terral_store::spill::Block;

use crate::sessions::clients::Sessions;
use crate::storage::Storage;

impl Storage {
    /// A place of the spill that holds nothing.
    ///
    /// # Errors
    /// [`terral_format::ErrorKind::NoSpace`] if there is none.
    pub fn take_place(&mut self) -> Result<SpillPlace> {
        self.ram.take_place()
    }

    /// A place holds nothing any more.
    pub fn free_place(&mut self, place: SpillPlace) {
        self.ram.free_place(place);
    }

    /// Free places whose room the disk is to have back: nobody gets them before
    /// [`Storage::cleared`].
    pub fn take_stale(&mut self) -> Vec<SpillPlace> {
        self.ram.take_stale()
    }

    /// Whether there are any.
    pub fn has_stale(&self) -> bool {
        self.ram.has_stale()
    }

    /// It has.
    pub fn cleared(&mut self, places: Vec<SpillPlace>) {
        self.ram.cleared(places);
    }

    /// Bytes of the chunks that are spilled.
    pub fn spilled_bytes(&self) -> u64 {
        self.ram.spilled_bytes()
    }

    /// Whether a chunk can leave memory: it has bytes that count, nobody stores into it through a
    /// map, and what an append is about to add is not in it.
    pub fn may_spill(&self, slot: FileSlot, index: u64, entry: MapEntry) -> bool {
        let (begin, end) = (index * CHUNK_BYTES, (index + 1) * CHUNK_BYTES);
        let size = self.size(slot);
        let appends = || self.memory().header(slot).ticket().load(Ordering::SeqCst) != 0;
        entry.is_here()
            && !entry.is_recalled()
            && !entry.is_stored()
            && !entry.is_borrowed()
            && begin < size
            && (end <= size || !appends())
            && self.has_bytes(entry)
    }

    /// The chunk of `entry`, as it was copied to `place`, leaves memory. False: it has changed
    /// since, or somebody has it mapped.
    pub fn spill_chunk(
        &mut self,
        clients: &Sessions,
        (slot, index): (FileSlot, u64),
        (entry, place): (MapEntry, SpillPlace),
        copied: &Copied,
    ) -> bool {
        let memory = self.memory().clone();
        let is_of = memory.record(slot).ino().load(Ordering::SeqCst) == copied.description.ino;
        let same = is_of && memory.entry(slot, index) == entry;
        if !same || !self.may_spill(slot, index, entry) {
            return false;
        }
        if self.recall_unmapped(slot, index).is_none() {
            return false;
        }
        // From now on nobody begins to write there.
        if !self.owners_in(clients, entry).is_empty() || !copied.is_still(&memory) {
            self.unrecall(slot, index, entry);
            return false;
        }
        self.ram.spill((slot, index), entry, place, &copied.description);
        true
    }

    /// A spilled chunk comes back, with the bytes that were read there.
    ///
    /// # Errors
    /// [`terral_format::ErrorKind::NoSpace`] if memory is full.
    pub fn unspill(
        &mut self,
        slot: FileSlot,
        index: u64,
        entry: MapEntry,
        block: &mut Block,
    ) -> Result<()> {
        self.ram.unspill((slot, index), entry, block)
    }

    /// Whether a chunk of `order` can be had.
    ///
    /// # Errors
    /// [`terral_format::ErrorKind::NoSpace`] if not.
    pub fn find_room(&mut self, order: u8) -> Result<()> {
        let entry = self.ram.take_chunk(order, None)?;
        self.ram.free(entry, false);
        Ok(())
    }

    /// Drops a spilled chunk of which nothing is owed. False: something is.
    pub fn drop_settled(&mut self, slot: FileSlot, index: u64, entry: MapEntry) -> bool {
        let record = entry.place().and_then(|place| self.memory().place(place));
        let settled = record.is_some_and(|record| spill::runs(&record.dirty()).is_empty());
        if settled {
            self.ram.drop_spilled(slot, index);
        }
        settled
    }
}
