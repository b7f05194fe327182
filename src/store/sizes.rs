//! Sizes of files as the server sets them, and whether what clients have made of one can be.
//!
//! Clients raise a size only over pages that they have written, within the epoch that the server
//! has begun. A word that is not so was written by a process that went wild. Not here: who asks,
//! and who is told (`server/mending`).

use std::sync::atomic::Ordering;

use terral_format::ids::{FileSlot, Owner};
use terral_format::local::entry::MapEntry;
use terral_format::local::geometry::{CHUNK_BYTES, FILE_BYTES_MAX, PAGE_BYTES};
use terral_format::local::pages::{self, PageState};
use terral_format::local::size::{self, SizeWord};
use terral_format::local::spill;

use crate::memory::Memory;
use crate::ram::entries;

impl Memory {
    /// The size of a file that begins, in an epoch of its own.
    pub(crate) fn begin_size(&self, slot: FileSlot, size: u64) {
        let word = self.header(slot);
        let epoch = SizeWord::load(word.size()).epoch().wrapping_add(1);
        word.size().store(SizeWord::new(size, epoch).0, Ordering::SeqCst);
        self.gave(slot, size);
    }

    /// The epoch of a file's size.
    pub fn size_epoch(&self, slot: FileSlot) -> u16 {
        SizeWord::load(self.header(slot).size()).epoch()
    }

    /// See [`size::reset`].
    pub fn reset_size(&self, slot: FileSlot, size: u64) -> u64 {
        let before = size::reset(self.header(slot).size(), size);
        self.gave(slot, size);
        before
    }

    /// See [`size::bump`].
    pub fn bump_size(&self, slot: FileSlot) -> u64 {
        let size = size::bump(self.header(slot).size());
        self.gave(slot, self.given_size(slot));
        size
    }

    /// See [`size::revoke_ticket`].
    pub fn revoke_ticket(&self, slot: FileSlot, owner: Owner) -> u64 {
        let header = self.header(slot);
        let size = size::revoke_ticket(header.size(), header.ticket(), owner);
        self.gave(slot, self.given_size(slot));
        size
    }

    /// See [`size::seal`].
    ///
    /// # Errors
    /// Who appends just now.
    pub fn seal(&self, slot: FileSlot) -> std::result::Result<(), Owner> {
        size::seal(self.header(slot).ticket())
    }

    /// See [`size::is_sealed`].
    pub fn is_sealed(&self, slot: FileSlot) -> bool {
        size::is_sealed(self.header(slot).ticket())
    }

    /// See [`size::raise`]; nothing if the epoch is another one.
    pub fn raise_size(&self, slot: FileSlot, size: u64, epoch: u16) {
        if size::raise(self.header(slot).size(), size, epoch) {
            self.gave(slot, SizeWord::load(self.header(slot).size()).size());
        }
    }

    fn given_size(&self, slot: FileSlot) -> u64 {
        SizeWord::load(self.record(slot).given()).size()
    }

    fn gave(&self, slot: FileSlot, size: u64) {
        let epoch = SizeWord::load(self.header(slot).size()).epoch();
        let given = SizeWord::new(size, epoch);
        self.record(slot).given().store(given.0, Ordering::SeqCst);
    }

    /// After a restart: a server that died may have set a size and not said so any more.
    pub(crate) fn adopt_size(&self, slot: FileSlot) {
        let (found, given) = self.size_words(slot);
        if given.0 == 0 || found.epoch() == given.epoch().wrapping_add(1) {
            self.gave(slot, found.size());
        }
    }

    fn size_words(&self, slot: FileSlot) -> (SizeWord, SizeWord) {
        (SizeWord::load(self.header(slot).size()), SizeWord::load(self.record(slot).given()))
    }

    /// If the size of a file cannot be what clients have made of it: what is there of the file for
    /// sure. With the server's lock.
    pub fn unsound_size(&self, slot: FileSlot) -> Option<u64> {
        let (found, given) = self.size_words(slot);
        let backed = self.record(slot).backed_bytes().load(Ordering::SeqCst);
        let known = given.size().max(backed);
        let size = found.size();
        let in_order = found.epoch() == given.epoch() && size >= given.size();
        if in_order && (size <= known || self.has_byte(slot, size - 1)) {
            return None;
        }
        Some(known.max(self.end_of_pages(slot)).min(FILE_BYTES_MAX))
    }

    /// Whether the page of a byte was written.
    fn has_byte(&self, slot: FileSlot, at: u64) -> bool {
        let entry = self.entry(slot, at / CHUNK_BYTES).unrecalled();
        let page = (at % CHUNK_BYTES / PAGE_BYTES as u64) as u32;
        !entry.is_absent() && page < entry.pages() && self.is_written(entry, page)
    }

    fn is_written(&self, entry: MapEntry, page: u32) -> bool {
        if entry.with().is_some() {
            // Who has it may have written any.
            return true;
        }
        if let Some(place) = entry.place() {
            return self.place(place).is_some_and(|record| spill::has(&record.valid(), page));
        }
        matches!(pages::state(self.lanes(), entry.page().0 + page), PageState::Valid { .. })
    }

    /// Where the last page ends that was written.
    fn end_of_pages(&self, slot: FileSlot) -> u64 {
        let ends = entries(self, slot).into_iter().rev().filter_map(|(index, entry)| {
            let last = (0..entry.pages()).rev().find(|page| self.is_written(entry, *page))?;
            Some(index * CHUNK_BYTES + (u64::from(last) + 1) * PAGE_BYTES as u64)
        });
        ends.take(1).sum()
    }
}
