//! Chunks that files get, and that are given back as they are.

use terral_format::Result;
use terral_format::ids::FileSlot;
use terral_format::local::entry::MapEntry;
use terral_format::local::geometry::SEGMENT_PAGES;
use terral_store::sparse::Sparse;

use super::Storage;

impl Storage {
    /// A writer is no more, whose last chunk was in this segment if he had one.
    pub fn left_segment(&mut self, near: Option<u32>) {
        near.into_iter().for_each(|segment| self.ram.allocator().writer(segment, false));
    }

    /// A free chunk, near where its writer was before; gives its segment, too.
    ///
    /// # Errors
    /// [`terral_format::ErrorKind::NoSpace`] if the bound or the file system is reached.
    pub fn take_chunk(&mut self, order: u8, near: Option<u32>) -> Result<(MapEntry, u32)> {
        let entry = self.ram.take_chunk(order, near)?;
        let segment = entry.page().0 / SEGMENT_PAGES;
        if near != Some(segment) {
            self.left_segment(near);
            self.ram.allocator().writer(segment, true);
        }
        Ok((entry, segment))
    }

    /// A free chunk whose writer goes elsewhere with what comes next.
    ///
    /// # Errors
    /// As [`Storage::take_chunk`].
    pub fn take_first(&mut self, order: u8, near: Option<u32>) -> Result<MapEntry> {
        self.ram.take_chunk(order, near)
    }

    /// Makes a chunk that was just taken chunk `index` of a file.
    ///
    /// # Errors
    /// If the map cannot have it; it is free again then.
    pub fn install(&mut self, slot: FileSlot, index: u64, entry: MapEntry) -> Result<()> {
        self.ram.install(slot, index, entry).inspect_err(|_| self.ram.free(entry, false))
    }

    /// Makes these bytes, which the backing has, chunk `index` of a file.
    ///
    /// # Errors
    /// [`terral_format::ErrorKind::NoSpace`] if memory is full.
    pub fn fill(&mut self, slot: FileSlot, index: u64, bytes: &Sparse) -> Result<()> {
        self.ram.fill(slot, index, bytes)
    }

    /// Raises the recall flag of a chunk and gives its entry, unflagged.
    pub fn recall(&mut self, slot: FileSlot, index: u64) -> Option<MapEntry> {
        self.ram.recall(slot, index)
    }

    /// Lowers the flag again: the chunk stays, as `entry` says.
    pub fn unrecall(&mut self, slot: FileSlot, index: u64, entry: MapEntry) {
        self.ram.unrecall(slot, index, entry);
    }

    /// The chunk, if there is one, is not borrowed any more. Gives its entry.
    pub fn own(&mut self, slot: FileSlot, index: u64) -> MapEntry {
        let entry = self.memory().entry(slot, index);
        // What another member keeps is so marked, too.
        let is_its = entry.is_borrowed() && entry.with().is_none();
        if let Some(word) = self.memory().entry_word(slot, index).filter(|_| is_its) {
            entry.owned().store(word);
        }
        entry.owned()
    }

    /// The recalled chunk is the file's no more.
    pub fn release(&mut self, slot: FileSlot, index: u64, entry: MapEntry, quarantined: bool) {
        self.ram.release(slot, index, entry, quarantined);
    }

    /// Bytes in use by files.
    pub fn used_bytes(&self) -> u64 {
        self.ram.used_bytes()
    }

    /// Whether chunks become free once the drain does not take from them any more.
    pub fn has_lost(&self) -> bool {
        self.ram.has_lost()
    }
}
