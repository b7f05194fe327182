//! Chunks that go from memory to the spill, and come back.
//!
//! One word decides where a chunk is, its map entry; what it says is prepared before it is stored.
//! A chunk, or a place, that the drain is just taking from is nobody else's before it is through,
//! and what took its place is owed whole ([`Memory::is_in_hand`]). Not here: the copying, which
//! needs no lock (`moving`, `spill`), and who decides what goes.

use terral_format::ids::{FileSlot, Ino, SpillPlace};
use terral_format::local::entry::MapEntry;
use terral_format::local::geometry::PAGE_BYTES;
use terral_format::local::pages::{self, PageState};
use terral_format::local::spill::{self, BITMAP_WORDS, Bitmap, Description, Part, Record};
use terral_format::{Error, ErrorKind, Result};

use super::Ram;
use crate::memory::Memory;
use crate::spill::{Block, too_short};

impl Memory {
    /// Whether a place holds this chunk, as far as the table says.
    pub(super) fn holds(&self, place: SpillPlace, ino: Ino, index: u64) -> bool {
        self.place(place).is_some_and(|record| record.is_of(ino.0, index))
    }

    fn dirty_pages(&self, entry: MapEntry) -> Bitmap {
        let mut dirty = [0; BITMAP_WORDS];
        for page in 0..entry.pages() {
            let state = pages::state(self.lanes(), entry.page().0 + page);
            if state == (PageState::Valid { dirty: true }) {
                spill::set(&mut dirty, page);
            }
        }
        dirty
    }
}

impl Ram {
    /// A place that holds nothing.
    ///
    /// # Errors
    /// [`ErrorKind::NoSpace`] if there is none, or no memory for its record.
    pub fn take_place(&mut self) -> Result<SpillPlace> {
        self.free_put_down();
        let full = || Error::new(ErrorKind::NoSpace, "every place of the spill is in use");
        let place = self.stale.pop().or_else(|| self.places.take().map(SpillPlace));
        let place = place.ok_or_else(full)?;
        let prepared = self.memory.spill().map_or(Err(full()), |spill| spill.prepare(place));
        prepared.map(|()| place).inspect_err(|_| self.free_place(place))
    }

    /// A place holds nothing any more.
    pub fn free_place(&mut self, place: SpillPlace) {
        self.stale.push(place);
    }

    /// Free places of which the disk still keeps the room: nobody gets them before
    /// [`Ram::cleared`].
    pub fn take_stale(&mut self) -> Vec<SpillPlace> {
        self.free_put_down();
        std::mem::take(&mut self.stale)
    }

    /// Whether there are any.
    pub fn has_stale(&self) -> bool {
        let put_down = |(entry, _): &(MapEntry, bool)| !self.memory.is_in_hand(*entry);
        !self.stale.is_empty() || self.in_hand.iter().any(put_down)
    }

    /// The disk has their room back.
    pub fn cleared(&mut self, places: Vec<SpillPlace>) {
        self.places.free.extend(places.into_iter().map(|place| place.0));
    }

    /// Bytes of the chunks that are spilled.
    pub fn spilled_bytes(&self) -> u64 {
        self.spilled_pages * PAGE_BYTES as u64
    }

    /// The recalled chunk, whose bytes are in `place` already, is spilled: its memory is free.
    pub fn spill(
        &mut self,
        (slot, index): (FileSlot, u64),
        entry: MapEntry,
        place: SpillPlace,
        description: &Description,
    ) {
        let memory = self.memory.clone();
        let (Some(record), Some(word)) = (memory.place(place), memory.entry_word(slot, index))
        else {
            return;
        };
        let dirty = memory.dirty_pages(entry);
        record.describe(&Description { dirty, ..*description });
        self.generation = self.generation.wrapping_add(1);
        MapEntry::spilled(place, entry.order(), self.generation).store(word);
        self.spilled_pages += u64::from(entry.pages());
        if memory.is_in_hand(entry) {
            record.mark_dirty();
            self.in_hand.push((entry, false));
        } else {
            // What was given back since it was described.
            record.add_dirty(&memory.dirty_pages(entry));
            self.free(entry, false);
        }
        self.free_put_down();
    }

    /// A spilled chunk comes back into memory, with the bytes that were read from its place.
    ///
    /// # Errors
    /// [`ErrorKind::NoSpace`] if memory is full.
    pub fn unspill(
        &mut self,
        (slot, index): (FileSlot, u64),
        entry: MapEntry,
        block: &mut Block,
    ) -> Result<()> {
        let memory = self.memory.clone();
        let Some(record) = entry.place().and_then(|place| memory.place(place)) else {
            return Err(Error::new(ErrorKind::Corrupt, format!("chunk {index}")));
        };
        let new = self.take_chunk(entry.order(), None)?;
        let filled = fill_from(&memory, new, record, block);
        self.mark_dirty(new, &record.dirty());
        if let Err(error) = filled.and_then(|()| self.install(slot, index, new)) {
            self.free(new, false);
            return Err(error);
        }
        let dirty = if memory.is_in_hand(entry) { record.valid() } else { record.dirty() };
        self.mark_dirty(new, &dirty);
        self.leave_place(entry, (slot, index));
        Ok(())
    }

    fn mark_dirty(&self, entry: MapEntry, dirty: &Bitmap) {
        let first = entry.page().0;
        for (from, to) in spill::runs(dirty) {
            pages::mark_dirty(self.memory.lanes(), first + from, first + to);
        }
    }

    /// Raises the recall flag of a spilled chunk: who asks for it waits.
    pub fn recall_spilled(&mut self, slot: FileSlot, index: u64) {
        if let Some(word) = self.memory.entry_word(slot, index) {
            MapEntry::load(word).recalled().store(word);
        }
    }

    /// A spilled chunk is its file's no more.
    pub fn drop_spilled(&mut self, slot: FileSlot, index: u64) {
        let entry = self.memory.entry(slot, index).unrecalled();
        if entry.place().is_some() {
            self.clear_entry(slot, index);
            self.leave_place(entry, (slot, index));
        }
    }

    /// Makes the bytes of a spilled chunk from `within` on a hole.
    pub fn cut_spilled(&self, entry: MapEntry, within: u64) {
        let record = entry.place().and_then(|place| self.memory.place(place));
        record.into_iter().for_each(|record| record.cut(within));
    }

    /// No entry names this place of a file's chunk any more.
    fn leave_place(&mut self, entry: MapEntry, (slot, index): (FileSlot, u64)) {
        self.spilled_pages -= u64::from(entry.pages()).min(self.spilled_pages);
        let order = std::sync::atomic::Ordering::SeqCst;
        let ino = Ino(self.memory.record(slot).ino().load(order));
        // What was never known to be there may be another's.
        let Some(place) = entry.place().filter(|place| self.memory.holds(*place, ino, index))
        else {
            return;
        };
        if self.memory.is_in_hand(entry) {
            self.in_hand.push((entry, false));
        } else {
            self.free_place(place);
        }
    }

    /// Frees what the drain had in hand and has no more.
    pub fn free_put_down(&mut self) {
        if self.in_hand.is_empty() {
            return;
        }
        for (entry, quarantined) in std::mem::take(&mut self.in_hand) {
            match entry.place() {
                _ if self.memory.is_in_hand(entry) => self.in_hand.push((entry, quarantined)),
                Some(place) => self.free_place(place),
                None => self.free(entry, quarantined),
            }
        }
    }
}

/// Puts what was read from a place into the pages where it belongs, as far as its record says now:
/// it may have been cut since.
fn fill_from(memory: &Memory, to: MapEntry, record: Record<'_>, block: &mut Block) -> Result<()> {
    for Part { from, to: end, at } in record.parts() {
        let whole = end.next_multiple_of(PAGE_BYTES);
        let bytes = block.get_mut(at..at + whole - from).ok_or_else(too_short)?;
        bytes[end - from..].fill(0);
        memory.write(to.page(), from as u64, bytes)?;
        let page = |at: usize| to.page().0 + (at / PAGE_BYTES) as u32;
        pages::fill(memory.lanes(), page(from), page(whole), false);
    }
    Ok(())
}
