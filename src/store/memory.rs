//! The shared memory as the server's side sees it: tables, headers, page states, segment files.
//!
//! Everything here takes `&self`: the words are atomics and the bytes are files, so the drain can
//! read without the server's lock. What clients can write (headers, page states) is checked by its
//! users.

use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use terral_format::ids::{DescriptionSlot, FileSlot, Ino, PageNumber, SpillPlace};
use terral_format::local::deferred::{self, DeferredTable};
use terral_format::local::entry::MapEntry;
use terral_format::local::geometry::{
    Geometry, INLINE_ENTRIES, MAP_FANOUT, PAGE_BYTES, SEGMENT_PAGES,
};
use terral_format::local::lock_table::{self, LockTable};
use terral_format::local::names::Table;
use terral_format::local::pages::{self, PageState};
use terral_format::local::spill;
use terral_format::local::tables::{Description, FileHeader, FileRecord, Superblock};
use terral_format::{Error, ErrorKind, Result};

use crate::arena::Arena;
use crate::existing::{Existing, Shared};
use crate::spill::{Block, Spill};

/// The regions of one instance.
pub struct Memory {
    /// Its sizes.
    pub geometry: Geometry,
    tables: Existing,
    headers: Existing,
    pages: Existing,
    arena: Arc<dyn Arena>,
    spill: Option<Spill>,
    /// The entry of the chunk that the drain is just taking from; 0 for none.
    in_hand: AtomicU64,
}

/// Words of a file's header, by name.
pub struct Header<'a>(&'a [AtomicU64]);

impl Header<'_> {
    /// See [`terral_format::local::size`].
    pub fn size(&self) -> &AtomicU64 {
        &self.0[offset_of!(FileHeader, size) / 8]
    }

    /// See [`terral_format::local::size`].
    pub fn ticket(&self) -> &AtomicU64 {
        &self.0[offset_of!(FileHeader, ticket) / 8]
    }

    /// Last modification, nanoseconds since 1970.
    pub fn modified_ns(&self) -> &AtomicU64 {
        &self.0[offset_of!(FileHeader, modified_ns) / 8]
    }

    /// Last read, nanoseconds since 1970.
    pub fn accessed_ns(&self) -> &AtomicU64 {
        &self.0[offset_of!(FileHeader, accessed_ns) / 8]
    }

    /// Last write or change of size, nanoseconds since 1970.
    pub fn changed_ns(&self) -> &AtomicU64 {
        &self.0[offset_of!(FileHeader, changed_ns) / 8]
    }

    /// Not 0: it may have holes.
    pub fn holes(&self) -> &AtomicU64 {
        &self.0[offset_of!(FileHeader, holes) / 8]
    }

    /// What was said of how long its bytes will live.
    pub fn hint(&self) -> &AtomicU64 {
        &self.0[offset_of!(FileHeader, hint) / 8]
    }

    /// The least token with which it is written.
    pub fn fence(&self) -> &AtomicU64 {
        &self.0[offset_of!(FileHeader, fence) / 8]
    }

    /// Notes a write, or a change of size.
    pub fn wrote(&self, time_ns: u64) {
        self.modified_ns().store(time_ns, Ordering::SeqCst);
        self.changed_ns().store(time_ns, Ordering::SeqCst);
    }
}

/// Words of a file's record, by name.
pub struct Record<'a>(&'a [AtomicU64]);

impl<'a> Record<'a> {
    /// Whose record; 0 for nobody's.
    pub fn ino(&self) -> &'a AtomicU64 {
        &self.0[offset_of!(FileRecord, ino) / 8]
    }

    /// Bytes below this without a chunk lie in the backing.
    pub fn backed_bytes(&self) -> &'a AtomicU64 {
        &self.0[offset_of!(FileRecord, backed_bytes) / 8]
    }

    /// 1 + the top map page.
    pub fn root(&self) -> &'a AtomicU64 {
        &self.0[offset_of!(FileRecord, root) / 8]
    }

    /// What the server has set the size to last.
    pub fn given(&self) -> &'a AtomicU64 {
        &self.0[offset_of!(FileRecord, given) / 8]
    }

    /// How often a chunk of it has left memory.
    pub fn evictions(&self) -> &'a AtomicU64 {
        &self.0[offset_of!(FileRecord, evictions) / 8]
    }

    /// With which update id a write was carried out last.
    pub fn applied(&self) -> &'a AtomicU64 {
        &self.0[offset_of!(FileRecord, applied) / 8]
    }

    fn inline(&self, index: usize) -> &'a AtomicU64 {
        &self.0[offset_of!(FileRecord, inline) / 8 + index]
    }
}

/// Places of a chunk index in the three levels below a record's root, from the top.
pub fn path_of(index: u64) -> Option<[usize; 3]> {
    let at = index.checked_sub(INLINE_ENTRIES as u64)?;
    let fanout = MAP_FANOUT as u64;
    let top = at / (fanout * fanout);
    (top < fanout).then(|| [top as usize, (at / fanout % fanout) as usize, (at % fanout) as usize])
}

impl Memory {
    /// The memory of one instance: tables, headers and page states, and the bytes of its chunks.
    pub fn new(
        geometry: Geometry,
        [tables, headers, pages]: [Box<dyn Shared>; 3],
        arena: Arc<dyn Arena>,
    ) -> Self {
        Memory {
            tables: Existing::new(tables, geometry.tables_bytes()),
            headers: Existing::new(headers, geometry.headers_bytes()),
            pages: Existing::new(pages, geometry.pages_bytes()),
            geometry,
            arena,
            spill: None,
            in_hand: AtomicU64::new(0),
        }
    }

    /// The same, with a disk for what does not fit.
    #[must_use]
    pub fn with_spill(self, spill: Option<Spill>) -> Self {
        Memory { spill, ..self }
    }

    /// The disk for what does not fit, if there is one.
    pub fn spill(&self) -> Option<&Spill> {
        self.spill.as_ref()
    }

    /// Reads chunk `index` of a file from where it was spilled, as it lies there.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if there is no spill, and those of [`Spill::read`].
    pub fn read_spilled(&self, place: SpillPlace, (ino, index): (Ino, u64)) -> Result<Block> {
        let missing = || Error::new(ErrorKind::Corrupt, "spilled bytes, and no spill");
        self.spill.as_ref().ok_or_else(missing)?.read(place, (ino.0, index))
    }

    /// What is known of a chunk that was spilled.
    pub fn place(&self, place: SpillPlace) -> Option<spill::Record<'_>> {
        let spill = self.spill.as_ref().filter(|spill| place.0 < spill.places())?;
        Some(spill.record(place))
    }

    /// The drain takes dirty marks and bytes of chunk `index`, if it still is that of `entry`. Who
    /// replaces that entry meanwhile sees it by [`Memory::is_in_hand`]: he does not let anybody
    /// else have the chunk yet, and owes all of what he made of it.
    pub(crate) fn take_in_hand(&self, slot: FileSlot, index: u64, entry: MapEntry) -> bool {
        entry.store(&self.in_hand);
        self.entry(slot, index).is_chunk_of(entry)
    }

    /// It does so no more.
    pub(crate) fn put_down(&self) {
        MapEntry::ABSENT.store(&self.in_hand);
    }

    /// Whether the drain is just taking from a chunk. To be asked when no entry names it any more.
    pub fn is_in_hand(&self, entry: MapEntry) -> bool {
        let held = MapEntry::load(&self.in_hand);
        !held.is_absent() && held.is_chunk_of(entry)
    }

    /// The record of a file slot.
    pub fn record(&self, slot: FileSlot) -> Record<'_> {
        Record(self.tables.words(self.geometry.record_at(slot.0), size_of::<FileRecord>() / 8))
    }

    /// The header of a file slot; clients write it.
    pub fn header(&self, slot: FileSlot) -> Header<'_> {
        Header(self.headers.words(self.geometry.header_at(slot.0), size_of::<FileHeader>() / 8))
    }

    /// The words of an open-file description; clients write them.
    pub fn description(&self, slot: DescriptionSlot) -> &[AtomicU64] {
        self.headers.words(self.geometry.description_at(slot.0), size_of::<Description>() / 8)
    }

    /// With which token of a named lock is written through a description; clients write it.
    pub fn description_token(&self, slot: DescriptionSlot) -> &AtomicU64 {
        &self.description(slot)[offset_of!(Description, token) / 8]
    }

    /// The deferred changes; clients write them.
    pub fn deferred(&self) -> DeferredTable<'_> {
        DeferredTable::new(self.headers.words(self.geometry.deferred_at(), deferred::WORDS))
    }

    /// The locks; clients write them.
    pub fn locks(&self) -> LockTable<'_> {
        LockTable::new(self.headers.words(self.geometry.locks_at(), lock_table::WORDS))
    }

    /// The inode that is not to be opened just now.
    pub fn closing(&self) -> &AtomicU64 {
        &self.tables.words(offset_of!(Superblock, closing), 1)[0]
    }

    /// Not 0 while nothing may be deferred.
    pub fn gate(&self) -> &AtomicU64 {
        &self.tables.words(offset_of!(Superblock, gate), 1)[0]
    }

    /// Until when clients may look at what other machines have lent; see
    /// `terral_format::local::lease`.
    pub fn deadline(&self) -> &AtomicU64 {
        &self.tables.words(offset_of!(Superblock, deadline), 1)[0]
    }

    /// Not 0 while programs wait for memory.
    pub fn waiting(&self) -> &AtomicU64 {
        &self.tables.words(offset_of!(Superblock, waiting), 1)[0]
    }

    /// What the partition's time is ahead of this machine's clock.
    pub fn clock_offset(&self) -> &AtomicU64 {
        &self.tables.words(offset_of!(Superblock, clock_offset), 1)[0]
    }

    /// How often containers have changed.
    pub fn containers(&self) -> &AtomicU64 {
        &self.tables.words(offset_of!(Superblock, containers), 1)[0]
    }

    /// The number of the member that this server is.
    pub fn member(&self) -> &AtomicU64 {
        &self.tables.words(offset_of!(Superblock, member), 1)[0]
    }

    /// The page states of the whole arena, indexed by page number; clients write them.
    pub fn lanes(&self) -> &[AtomicU64] {
        self.pages.words(0, self.geometry.pages_bytes() / 8)
    }

    /// The words of a map page.
    pub fn map_page(&self, page: u32) -> &[AtomicU64] {
        self.tables.words(self.geometry.map_page_at(page), MAP_FANOUT)
    }

    /// The words of the table of names.
    pub fn names_words(&self) -> &[AtomicU64] {
        self.tables.words(self.geometry.names_at(), self.geometry.names().bytes() / 8)
    }

    /// The table of names.
    pub fn names(&self) -> Table<'_> {
        Table::new(self.names_words(), self.geometry.names())
    }

    /// Makes the words `from..to` of the table of names exist.
    ///
    /// # Errors
    /// [`terral_format::ErrorKind::NoSpace`] if memory is full.
    pub fn prepare_names(&self, from: usize, to: usize) -> Result<()> {
        let (at, bytes) = (self.geometry.names_at() + from * 8, (to - from) * 8);
        self.tables.make(at, bytes).map_err(|error| self.full(&error))
    }

    // What is touched must exist: where memory is full, touching is SIGBUS, for clients too.

    /// Makes exist what is there whatever files there are.
    ///
    /// # Errors
    /// Of this and the following: [`ErrorKind::NoSpace`] if memory is full.
    pub fn prepare_fixed(&self) -> Result<()> {
        let segments = offset_of!(Superblock, segments) + self.geometry.segments as usize * 8;
        let made = self.tables.make(0, segments).and_then(|()| self.headers.make(0, 1));
        let locks = (self.geometry.locks_at(), lock_table::WORDS_AT_FIRST * 8);
        let made = made.and_then(|()| self.headers.make(locks.0, locks.1));
        made.map_err(|error| self.full(&error))?;
        self.prepare_names(0, 1)
    }

    /// Makes the record and the header of a file slot exist.
    pub fn prepare_file(&self, slot: FileSlot) -> Result<()> {
        let (record, header) = (self.geometry.record_at(slot.0), self.geometry.header_at(slot.0));
        let made = self.tables.make(record, size_of::<FileRecord>());
        let made = made.and_then(|()| self.headers.make(header, size_of::<FileHeader>()));
        made.map_err(|error| self.full(&error))
    }

    /// Makes an open-file description exist.
    pub fn prepare_description(&self, slot: DescriptionSlot) -> Result<()> {
        let at = self.geometry.description_at(slot.0);
        let made = self.headers.make(at, size_of::<Description>());
        made.map_err(|error| self.full(&error))
    }

    /// Makes a group of blocks for lists of locks exist.
    pub fn prepare_lock_blocks(&self, group: u32) -> Result<()> {
        let (from, bytes) = LockTable::place(group);
        let made = self.headers.make(self.geometry.locks_at() + from, bytes);
        made.map_err(|error| self.full(&error))
    }

    /// Makes a map page exist.
    pub fn prepare_map_page(&self, page: u32) -> Result<()> {
        let made = self.tables.make(self.geometry.map_page_at(page), PAGE_BYTES);
        made.map_err(|error| self.full(&error))
    }

    /// Makes the page states of a segment exist.
    pub fn prepare_lanes(&self, segment: u32) -> Result<()> {
        let bytes = SEGMENT_PAGES as usize * 2;
        let made = self.pages.make(segment as usize * bytes, bytes);
        made.map_err(|error| self.full(&error))
    }

    /// What it means that no memory is left there.
    fn full(&self, error: &Error) -> Error {
        let place = self.arena.place();
        let context = format!("{place} is full: remove what others keep there, or enlarge it");
        Error { kind: ErrorKind::NoSpace, errno: error.errno, context }
    }

    /// Where the bytes of chunks lie.
    pub fn arena(&self) -> &dyn Arena {
        &*self.arena
    }

    /// What the superblock says of a segment.
    pub fn segment_state(&self, segment: u32) -> &AtomicU64 {
        &self.tables.words(offset_of!(Superblock, segments) + segment as usize * 8, 1)[0]
    }

    /// The word of a file's map for chunk `index`, if its map pages exist.
    pub fn entry_word(&self, slot: FileSlot, index: u64) -> Option<&AtomicU64> {
        let record = self.record(slot);
        let Some(path) = path_of(index) else {
            return (index < INLINE_ENTRIES as u64).then(|| record.inline(index as usize));
        };
        let mut word = record.root();
        for place in path {
            let page = word.load(std::sync::atomic::Ordering::SeqCst).checked_sub(1)?;
            word = &self.map_page(u32::try_from(page).ok()?)[place];
        }
        Some(word)
    }

    /// The entry of chunk `index`.
    pub fn entry(&self, slot: FileSlot, index: u64) -> MapEntry {
        self.entry_word(slot, index).map_or(MapEntry::ABSENT, MapEntry::load)
    }

    /// Reads arena bytes from the start of `page` plus `offset` on; they lie in one segment.
    pub fn read(&self, page: PageNumber, offset: u64, into: &mut [u8]) -> Result<()> {
        let at = u64::from(page.0 % SEGMENT_PAGES) * PAGE_BYTES as u64 + offset;
        self.arena.read(page.0 / SEGMENT_PAGES, at, into)
    }

    /// Writes arena bytes as [`Memory::read`] reads them.
    pub fn write(&self, page: PageNumber, offset: u64, bytes: &[u8]) -> Result<()> {
        let at = u64::from(page.0 % SEGMENT_PAGES) * PAGE_BYTES as u64 + offset;
        self.arena.write(page.0 / SEGMENT_PAGES, at, bytes)
    }

    /// Writes zeros into the chunk of `entry`, from byte `from` on.
    pub fn zero_from(&self, entry: MapEntry, from: u64) -> Result<()> {
        let end = u64::from(entry.pages()) * PAGE_BYTES as u64;
        self.write(entry.page(), from, &vec![0; end.saturating_sub(from) as usize])
    }

    /// Writes zeros into the pages `first..last` that are `is`.
    pub fn zero_pages(&self, first: u32, last: u32, is: impl Fn(PageState) -> bool) -> Result<()> {
        let mut page = first;
        while page < last {
            let rest = (page..last).take_while(|at| is(pages::state(self.lanes(), *at)));
            let run = rest.count() as u32;
            if run > 0 {
                self.write(PageNumber(page), 0, &vec![0; run as usize * PAGE_BYTES])?;
            }
            page += run + 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::path_of;
    use terral_format::local::geometry::{CHUNK_BYTES, FILE_BYTES_MAX};

    #[test]
    fn every_chunk_of_the_largest_file_has_a_place() {
        assert_eq!(path_of(1), None);
        assert_eq!(path_of(2), Some([0, 0, 0]));
        assert_eq!(path_of(2 + 511), Some([0, 0, 511]));
        assert_eq!(path_of(2 + 512), Some([0, 1, 0]));
        assert!(path_of(FILE_BYTES_MAX / CHUNK_BYTES).is_some());
        assert_eq!(path_of(u64::MAX), None);
    }
}
