//! What files have in memory, and what of it is not drained yet.

use std::sync::atomic::Ordering;

use terral_format::ids::FileSlot;
use terral_format::local::entry::MapEntry;
use terral_format::local::geometry::{CHUNK_BYTES, PAGE_BYTES};
use terral_format::local::pages::{self, PageState};
use terral_format::wire::message::FileRef;
use terral_store::tier;

use super::Storage;

impl Storage {
    /// Bytes of a file that are not yet drained, as a person counts them: no more than it has.
    pub fn owed_bytes(&self, slot: FileSlot) -> u64 {
        self.resident(slot).1.min(self.size(slot))
    }

    /// Whether a file has pages that a drain could copy now.
    pub fn has_dirty(&self, slot: FileSlot) -> bool {
        let memory = self.memory();
        let owed = |entry: MapEntry| !entry.is_stored() && tier::owed_bytes(memory, entry) > 0;
        self.entries(slot).into_iter().any(|(_, entry)| owed(entry))
    }

    /// Bytes of a file in memory, and those of pages, there or spilled, not yet drained.
    pub fn resident(&self, slot: FileSlot) -> (u64, u64) {
        let memory = self.memory();
        self.entries(slot).iter().fold((0, 0), |(held, owed), (_, entry)| {
            let pages = if entry.is_here() { entry.pages() } else { 0 };
            let bytes = u64::from(pages) * PAGE_BYTES as u64;
            (held + bytes, owed + tier::owed_bytes(memory, *entry))
        })
    }

    /// Whether any page of a file is in memory, or spilled.
    pub fn has_any(&self, slot: FileSlot) -> bool {
        self.entries(slot).into_iter().any(|(_, entry)| self.has_bytes(entry))
    }

    /// Whether any page of a chunk is no hole.
    pub fn has_bytes(&self, entry: MapEntry) -> bool {
        if !entry.is_here() {
            return !entry.is_absent();
        }
        let mut pages = entry.page().0..entry.page().0 + entry.pages();
        pages.any(|page| pages::state(self.memory().lanes(), page) != PageState::Invalid)
    }

    /// Whether a chunk is of use only as a copy: nothing of it is owed, nor about to be.
    pub fn is_settled(&self, entry: MapEntry) -> bool {
        if entry.is_stored() {
            return false;
        }
        let lanes = self.memory().lanes();
        // A hole that was mapped; one that was not waits for its writer.
        let mut some = entry.is_mappable();
        for page in entry.page().0..entry.page().0 + entry.pages() {
            match pages::state(lanes, page) {
                PageState::Valid { dirty: false } => some = true,
                PageState::Invalid => {}
                PageState::Claimed(_) | PageState::Valid { dirty: true } => return false,
            }
        }
        some
    }

    /// Whether so many bytes of a file were all written, and are in memory: a page that was not has
    /// what others had there.
    pub fn has_from(&self, slot: FileSlot, at: u64, bytes: u32) -> bool {
        let is_valid = |page| {
            let state = pages::state(self.memory().lanes(), page);
            matches!(state, PageState::Valid { .. })
        };
        let end = at + u64::from(bytes);
        let is_here = |index: u64| {
            let (entry, begin) = (self.memory().entry(slot, index), index * CHUNK_BYTES);
            let from = (at.saturating_sub(begin) / PAGE_BYTES as u64) as u32;
            let until = (CHUNK_BYTES.min(end - begin)).div_ceil(PAGE_BYTES as u64) as u32;
            let (first, held) = (entry.page().0, entry.pages());
            entry.is_here() && until <= held && (first + from..first + until).all(is_valid)
        };
        end <= self.size(slot) && (at / CHUNK_BYTES..end.div_ceil(CHUNK_BYTES)).all(is_here)
    }

    /// They, put into `into`; `None` if not all of them are in memory.
    pub fn read_from(&self, slot: FileSlot, at: u64, into: &mut [u8]) -> Option<()> {
        if !self.has_from(slot, at, into.len() as u32) {
            return None;
        }
        let (mut at, mut rest) = (at, into);
        while !rest.is_empty() {
            let (index, within) = (at / CHUNK_BYTES, at % CHUNK_BYTES);
            let count = rest.len().min((CHUNK_BYTES - within) as usize);
            let (part, after) = rest.split_at_mut(count);
            let entry = self.memory().entry(slot, index);
            self.memory().read(entry.page(), within, part).ok()?;
            (at, rest) = (at + count as u64, after);
        }
        Some(())
    }

    /// The same, in place of what is in `into`.
    pub fn take_from(
        &self,
        slot: FileSlot,
        (at, bytes): (u64, u32),
        mut into: Vec<u8>,
    ) -> Option<Vec<u8>> {
        into.resize(bytes as usize, 0);
        self.read_from(slot, at, &mut into).map(|()| into)
    }

    /// Whether the backing has bytes of chunk `index`, as far as it has no entry.
    pub fn is_backed(&self, file: FileRef, index: u64) -> bool {
        let backed = self.memory().record(file.slot).backed_bytes().load(Ordering::SeqCst);
        index * CHUNK_BYTES < backed
    }

    /// Bytes of a file below this without a chunk lie in the backing.
    pub fn backed_bytes(&self, slot: FileSlot) -> u64 {
        self.memory().record(slot).backed_bytes().load(Ordering::SeqCst)
    }
}
