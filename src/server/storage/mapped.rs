//! Chunks in programs' address spaces: who has them mapped, and what was stored there.

use terral_format::ids::{FileSlot, PageNumber};
use terral_format::local::entry::MapEntry;
use terral_format::local::geometry::{
    CHUNK_BYTES, CHUNK_ORDER, PAGE_BYTES, SEGMENT_CHUNKS, SEGMENT_PAGES,
};
use terral_format::local::pages::{self, PageState};
use terral_format::{Error, ErrorKind, Result};

use super::Storage;
use crate::sessions::clients::Sessions;

/// How making a chunk fit to be mapped ended.
pub enum Fit {
    /// It is.
    Done,
    /// Somebody who does not move is writing there, where it may be mapped already, or is not.
    Held {
        /// Whether it may be.
        mapped: bool,
    },
}

impl Storage {
    /// Makes a whole chunk of a file fit to be mapped, and stored to.
    ///
    /// # Errors
    /// [`ErrorKind::NoSpace`] if it is gone, or what is no page there yet cannot become one.
    pub fn make_mappable(
        &mut self,
        clients: &Sessions,
        (slot, index): (FileSlot, u64),
        stores: bool,
    ) -> Result<Fit> {
        let missing = || Error::new(ErrorKind::NoSpace, "memory tier");
        let entry = self.recall(slot, index).ok_or_else(missing)?;
        let mut fit = entry.mappable().owned();
        if stores {
            fit = fit.stored();
        }
        if fit == entry {
            self.unrecall(slot, index, entry);
            return Ok(Fit::Done);
        }
        if !self.wait_in_place(clients, entry) {
            self.unrecall(slot, index, entry);
            return Ok(Fit::Held { mapped: entry.is_mappable() });
        }
        let memory = self.memory().clone();
        let (first, last) = (entry.page().0, entry.page().0 + entry.pages());
        let zeroed = match entry.is_mappable() {
            true => Ok(()),
            false => memory.zero_pages(first, last, |state| state == PageState::Invalid),
        };
        if let Err(error) = zeroed {
            self.unrecall(slot, index, entry);
            return Err(error);
        }
        if fit.is_stored() {
            // What is stored in a hole shall be read. The flag may be older than the holes, if the
            // file was cut there, and who maps it for writing next asks nobody.
            pages::fill_holes(memory.lanes(), first, last);
        }
        self.unrecall(slot, index, fit);
        Ok(Fit::Done)
    }

    /// Whether anybody has a chunk mapped. To be asked once it is recalled.
    pub fn is_mapped(&self, entry: MapEntry) -> bool {
        entry.is_mappable() && self.is_mapped_at(entry.page())
    }

    fn is_mapped_at(&self, page: PageNumber) -> bool {
        self.machine.is_mapped(page)
    }

    fn is_stored_to(&self, entry: MapEntry) -> bool {
        self.machine.is_stored_to(entry.page())
    }

    /// Recalls a chunk that nobody has mapped.
    pub fn recall_unmapped(&mut self, slot: FileSlot, index: u64) -> Option<MapEntry> {
        let entry = self.ram.recall(slot, index)?;
        if self.is_mapped(entry) {
            self.ram.unrecall(slot, index, entry);
            return None;
        }
        Some(entry)
    }

    /// All chunks that are mapped, after a restart.
    pub fn mapped_chunks(&self) -> Vec<PageNumber> {
        let step = (SEGMENT_PAGES / SEGMENT_CHUNKS) as usize;
        let all = (0..self.ram.segments() * SEGMENT_PAGES).step_by(step).map(PageNumber);
        all.filter(|page| self.is_mapped_at(*page)).collect()
    }

    /// Frees what is in quarantine and neither written to nor mapped any more.
    pub fn leave_quarantine(&mut self, clients: &Sessions) {
        let pins = clients.pins();
        let machine = &self.machine;
        self.ram.leave_quarantine(|page, order| {
            let held = |pinned: PageNumber| (page.0..page.0 + (1 << order)).contains(&pinned.0);
            let mapped = || machine.is_mapped(page);
            pins.iter().any(|(.., pinned)| held(*pinned)) || (order == CHUNK_ORDER && mapped())
        });
    }

    /// Counts as written what was stored in the chunks of a file through maps that are no more.
    pub fn settle_stores(&mut self, slot: FileSlot) {
        let stored = |(_, entry): &(u64, MapEntry)| entry.is_stored();
        for (index, _) in self.entries(slot).into_iter().filter(stored) {
            let Some(entry) = self.ram.recall(slot, index) else { continue };
            if self.is_stored_to(entry) {
                self.ram.unrecall(slot, index, entry);
                continue;
            }
            let memory = self.memory();
            let inside = self.size(slot).saturating_sub(index * CHUNK_BYTES);
            let used = (inside.div_ceil(PAGE_BYTES as u64)).min(entry.pages().into()) as u32;
            let first = entry.page().0;
            pages::mark_dirty(memory.lanes(), first, first + used);
            self.ram.unrecall(slot, index, entry.unstored());
        }
    }

    /// Chunks of a file that nobody has mapped any more are not fit to be mapped any more, and what
    /// was stored there counts as written, whole.
    pub fn leave_maps(&mut self, slot: FileSlot) {
        let maps = |(_, entry): &(u64, MapEntry)| entry.is_mappable() && !entry.is_borrowed();
        for (index, _) in self.entries(slot).into_iter().filter(maps) {
            let Some(entry) = self.recall_unmapped(slot, index) else { continue };
            if entry.is_stored() {
                let (first, last) = (entry.page().0, entry.page().0 + entry.pages());
                pages::mark_dirty(self.memory().lanes(), first, last);
            }
            self.ram.unrecall(slot, index, entry.unstored().unmappable());
        }
    }

    /// Whether stores through maps may not have been counted as written yet.
    pub fn is_stored(&self, slot: FileSlot) -> bool {
        self.entries(slot).iter().any(|(_, entry)| entry.is_stored())
    }
}
