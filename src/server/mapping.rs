//! Chunks in programs' address spaces: makes them fit to be mapped, tells who has them mapped, and
//! counts as written what was stored there.
//!
//! Invariants: a chunk that is mapped keeps its place while its file has it; only a recalled chunk
//! changes its flags (docs/decisions/2026-11-21-memory-maps.md). Not here: the mapping itself.

use terral_format::entry::MapEntry;
use terral_format::geometry::{
    CHUNK_BYTES, CHUNK_ORDER, CHUNK_PAGES, FILE_BYTES_MAX, PAGE_BYTES, SEGMENT_CHUNKS,
    SEGMENT_PAGES,
};
use terral_format::ids::{FileSlot, Ino, PageNumber, SessionSlot};
use terral_format::message::FileRef;
use terral_format::pages::{self, PageState};
use terral_format::{Error, ErrorKind, Result};

use crate::state::State;

/// Most chunks of one request: 16 MiB.
const MAP_MAX: u32 = 8;

impl State {
    /// Makes chunks `first..first + count` of a file fit to be mapped.
    ///
    /// # Errors
    /// If not even the first can be: [`ErrorKind::NoSpace`] if memory is full,
    /// [`ErrorKind::WouldBlock`] if somebody has been stopped while writing to it.
    pub fn map(
        &mut self,
        session: SessionSlot,
        file: FileRef,
        first: u64,
        count: u32,
        stores: bool,
    ) -> Result<()> {
        let ino = self.open_file(file)?.ino;
        if stores && !self.names.is_written(ino) {
            return Err(Error::new(ErrorKind::BadHandle, format!("file {ino}")));
        }
        if first > FILE_BYTES_MAX / CHUNK_BYTES {
            return Err(Error::new(ErrorKind::TooLarge, "offset"));
        }
        if stores {
            self.owe(ino);
        }
        for index in first..first + u64::from(count.clamp(1, MAP_MAX)) {
            match self.map_one(session, file, index, stores) {
                Ok(()) => {}
                Err(error) if index == first => return Err(error),
                Err(_) => break,
            }
        }
        Ok(())
    }

    fn map_one(
        &mut self,
        session: SessionSlot,
        file: FileRef,
        index: u64,
        stores: bool,
    ) -> Result<()> {
        let FileRef { slot, .. } = file;
        let found = self.ram.memory().entry(slot, index);
        if found.is_absent() || found.order() < CHUNK_ORDER {
            self.grant_one(session, file, index, CHUNK_PAGES)?;
        }
        let missing = || Error::new(ErrorKind::NoSpace, "memory tier");
        let entry = self.ram.recall(slot, index).ok_or_else(missing)?;
        let mut fit = entry.mappable();
        if stores {
            fit = fit.stored();
        }
        if fit == entry {
            self.ram.unrecall(slot, index, entry);
            return Ok(());
        }
        if !self.wait_in_place(entry) {
            self.ram.unrecall(slot, index, entry);
            if entry.is_mappable() {
                // It may be mapped already, and must stay where it is.
                return Err(Error::new(ErrorKind::WouldBlock, "a stopped process writes there"));
            }
            self.with_room(|state| state.move_chunk(slot, index, CHUNK_ORDER))?;
            return self.map_one(session, file, index, stores);
        }
        let memory = self.ram.memory().clone();
        let (first, last) = (entry.page().0, entry.page().0 + entry.pages());
        let zeroed = match entry.is_mappable() {
            true => Ok(()),
            false => memory.zero_pages(first, last, |state| state == PageState::Invalid),
        };
        if let Err(error) = zeroed {
            self.ram.unrecall(slot, index, entry);
            return Err(error);
        }
        if fit.is_stored() {
            // What is stored in a hole shall be read. The flag may be older than the holes, if the
            // file was cut there, and who maps it for writing next asks nobody.
            pages::fill_holes(memory.lanes(), first, last);
        }
        self.ram.unrecall(slot, index, fit);
        Ok(())
    }

    // Who has what.

    /// Whether anybody has a chunk mapped. To be asked once it is recalled.
    pub(crate) fn is_mapped(&self, entry: MapEntry) -> bool {
        entry.is_mappable() && self.is_mapped_at(entry.page())
    }

    fn is_mapped_at(&self, page: PageNumber) -> bool {
        self.machine.is_mapped(page)
    }

    fn is_stored_to(&self, entry: MapEntry) -> bool {
        self.machine.is_stored_to(entry.page())
    }

    /// Recalls a chunk that nobody has mapped.
    pub(crate) fn recall_unmapped(&mut self, slot: FileSlot, index: u64) -> Option<MapEntry> {
        let entry = self.ram.recall(slot, index)?;
        if self.is_mapped(entry) {
            self.ram.unrecall(slot, index, entry);
            return None;
        }
        Some(entry)
    }

    /// All chunks that are mapped, after a restart.
    pub(crate) fn mapped_chunks(&self) -> Vec<PageNumber> {
        let step = (SEGMENT_PAGES / SEGMENT_CHUNKS) as usize;
        let all = (0..self.ram.segments() * SEGMENT_PAGES).step_by(step).map(PageNumber);
        all.filter(|page| self.is_mapped_at(*page)).collect()
    }

    /// Frees what is in quarantine and neither written to nor mapped any more.
    pub(crate) fn leave_quarantine(&mut self) {
        let pins = self.sessions.pins();
        let machine = &self.machine;
        self.ram.leave_quarantine(|page, order| {
            let held = |pinned: PageNumber| (page.0..page.0 + (1 << order)).contains(&pinned.0);
            let mapped = || machine.is_mapped(page);
            pins.iter().any(|(.., pinned)| held(*pinned)) || (order == CHUNK_ORDER && mapped())
        });
    }

    // What was stored.

    /// Whether stores through maps may not have been counted as written yet.
    pub(crate) fn is_stored(&self, ino: Ino) -> bool {
        let slot = self.names.inode(ino).and_then(|inode| inode.slot);
        slot.is_some_and(|slot| self.ram.entries(slot).iter().any(|(_, e)| e.is_stored()))
    }

    /// Whether somebody may write to a file without asking: who has it open, or mapped.
    pub(crate) fn is_written(&self, ino: Ino) -> bool {
        self.names.is_written(ino) || self.is_stored(ino)
    }

    /// Counts as written what was stored in the chunks of a file through maps that are no more.
    pub(crate) fn settle_stores(&mut self, slot: FileSlot) {
        let stored = |(_, entry): &(u64, MapEntry)| entry.is_stored();
        for (index, _) in self.ram.entries(slot).into_iter().filter(stored) {
            let Some(entry) = self.ram.recall(slot, index) else { continue };
            if self.is_stored_to(entry) {
                self.ram.unrecall(slot, index, entry);
                continue;
            }
            let memory = self.ram.memory();
            let inside = self.ram.size(slot).saturating_sub(index * CHUNK_BYTES);
            let used = (inside.div_ceil(PAGE_BYTES as u64)).min(entry.pages().into()) as u32;
            let first = entry.page().0;
            pages::mark_dirty(memory.lanes(), first, first + used);
            self.ram.unrecall(slot, index, entry.unstored());
        }
    }
}
