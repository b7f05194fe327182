//! The memory tier: gives files records, maps and chunks, and takes them back.
//!
//! The caller holds the server's lock. Taking a chunk back has two halves: the caller raises the
//! recall flag ([`Ram::recall`]), waits until nobody is copying into the chunk, and then says what
//! becomes of it. A chunk somebody may still store into goes to quarantine instead of the free
//! list.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use terral_format::ids::{FileSlot, Ino, PageNumber, SpillPlace};
use terral_format::local::entry::MapEntry;
use terral_format::local::geometry::{
    CHUNK_BYTES, CHUNK_ORDER, FILE_BYTES_MAX, INLINE_ENTRIES, MAP_FANOUT, PAGE_BYTES,
    SEGMENT_BYTES, SEGMENT_PAGES,
};
use terral_format::local::pages;
use terral_format::local::size::SizeWord;
use terral_format::local::tables::segment;
use terral_format::{Error, ErrorKind, Result};

use crate::allocator::Allocator;
use crate::memory::{Memory, path_of};
use crate::spill::Spill;

mod away;
mod brought;
mod moved;
mod spilled;

pub use moved::Move;

/// Memory left to others in the arena's file system.
const ROOM_KEPT_BYTES: u64 = 64 << 20;

/// Numbers handed out and taken back, lowest first as long as none came back.
struct Numbers {
    next: u32,
    limit: u32,
    free: Vec<u32>,
}

impl Numbers {
    fn take(&mut self) -> Option<u32> {
        self.free.pop().or_else(|| {
            let number = self.next;
            (number < self.limit).then(|| self.next += 1)?;
            Some(number)
        })
    }
}

/// What a file's header starts from.
#[derive(Clone, Copy, Debug, Default)]
pub struct Start {
    /// Bytes.
    pub size: u64,
    /// Last modification, nanoseconds since 1970.
    pub modified_ns: u64,
    /// Last read, nanoseconds since 1970.
    pub accessed_ns: u64,
    /// Bytes below this without a chunk lie in the backing.
    pub backed_bytes: u64,
}

/// The memory tier of one server.
pub struct Ram {
    memory: Arc<Memory>,
    allocator: Allocator,
    slots: Numbers,
    map_pages: Numbers,
    generation: u32,
    quarantine: Vec<(PageNumber, u8)>,
    /// Places of the spill.
    places: Numbers,
    /// Those that are free, and of which the disk still keeps the room.
    stale: Vec<SpillPlace>,
    spilled_pages: u64,
    /// What the drain was just taking from when its file lost it, with the flag of [`Ram::free`].
    in_hand: Vec<(MapEntry, bool)>,
}

impl Ram {
    /// The tier over `memory`, with nothing in it.
    pub fn new(memory: Arc<Memory>) -> Self {
        let geometry = memory.geometry;
        let numbers = |limit| Numbers { next: 0, limit, free: Vec::new() };
        Ram {
            allocator: Allocator::new(geometry.segments),
            slots: numbers(geometry.files),
            map_pages: numbers(geometry.map_pages),
            generation: 1,
            quarantine: Vec::new(),
            places: numbers(memory.spill().map_or(0, Spill::places)),
            stale: Vec::new(),
            in_hand: Vec::new(),
            spilled_pages: 0,
            memory,
        }
    }

    /// The shared memory below.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// Which pages are free.
    pub fn allocator(&mut self) -> &mut Allocator {
        &mut self.allocator
    }

    /// Segments there are.
    pub fn segments(&self) -> u32 {
        self.allocator.segments()
    }

    /// Bytes in use by files.
    pub fn used_bytes(&self) -> u64 {
        self.allocator.used_pages() * PAGE_BYTES as u64
    }

    /// Bytes that are free in warm segments.
    pub fn warm_bytes(&self) -> u64 {
        self.allocator.warm_pages() * PAGE_BYTES as u64
    }

    /// Whether what others keep in its file system leaves the arena less than its bound.
    pub fn is_cramped(&self) -> bool {
        let short = || self.memory.arena().room_bytes() < SEGMENT_BYTES as u64 + ROOM_KEPT_BYTES;
        self.allocator.segments() < self.memory.geometry.segments && short()
    }

    // Restart.

    /// After a restart: the segments that exist, before any file is adopted.
    pub fn adopt_segments(&mut self, count: u32) {
        for index in 0..count.min(self.memory.geometry.segments) {
            // They exist since it was made.
            let _ = self.memory.prepare_lanes(index);
            self.allocator.grow();
            if self.memory.segment_state(index).load(Ordering::SeqCst) != segment::SPARSE {
                self.allocator.warmed(index);
            }
        }
    }

    /// After a restart: takes over a file's record, map and chunks as they are in shared memory.
    /// Entries that name no possible chunk are cleared. Gives the bytes it holds.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if the record is not this file's.
    pub fn adopt(&mut self, slot: FileSlot, ino: Ino) -> Result<u64> {
        let found = self.memory.record(slot).ino().load(Ordering::SeqCst);
        if slot.0 >= self.memory.geometry.files || found != ino.0 {
            let context = format!("record {slot} of file {ino}");
            return Err(Error::new(ErrorKind::Corrupt, context));
        }
        adopt_number(&mut self.slots, slot.0);
        self.memory.adopt_size(slot);
        for page in self.map_pages_of(slot) {
            adopt_number(&mut self.map_pages, page);
        }
        let mut bytes = 0;
        if self.entries(slot).iter().any(|(_, entry)| entry.is_recalled()) {
            // Whoever was overtaken in the recall that was not finished must not count.
            self.memory.bump_size(slot);
        }
        for (index, entry) in self.entries(slot) {
            self.generation = self.generation.max((entry.0 >> 40) as u32 + 1);
            if entry.with().is_some() {
                self.unrecall(slot, index, entry);
                continue;
            }
            if let Some(place) = entry.place() {
                // Of one of which nothing is known there, what is read is an error.
                if self.memory.holds(place, ino, index) {
                    adopt_number(&mut self.places, place.0);
                }
                self.spilled_pages += u64::from(entry.pages());
                self.unrecall(slot, index, entry);
                continue;
            }
            let whole = entry.unrecalled();
            let kept = self.allocator.adopt(entry.page(), entry.order());
            if let Some(word) = self.memory.entry_word(slot, index) {
                if kept { whole } else { MapEntry::ABSENT }.store(word);
            }
            bytes += if kept { u64::from(entry.pages()) * PAGE_BYTES as u64 } else { 0 };
        }
        Ok(bytes)
    }

    /// After all files were adopted: sorts the numbers, and keeps out of the free list a chunk that
    /// a slot still names, or somebody has mapped. How long it is nobody knows: it lies in the
    /// largest block there of which nobody has anything.
    pub fn adopted(&mut self, pinned: &[PageNumber]) {
        for numbers in [&mut self.slots, &mut self.map_pages, &mut self.places] {
            let used: std::collections::HashSet<u32> = numbers.free.drain(..).collect();
            numbers.free = (0..numbers.next).filter(|n| !used.contains(n)).rev().collect();
        }
        for page in pinned {
            if page.0 / SEGMENT_PAGES < self.allocator.segments() {
                let block = |order: u8| (PageNumber(page.0 & !((1 << order) - 1)), order);
                let free = |(at, order): &_| self.allocator.adopt(*at, *order);
                self.quarantine.extend((0..=CHUNK_ORDER).rev().map(block).find(free));
            }
        }
    }

    // Files.

    /// Gives a file a record and a header.
    ///
    /// # Errors
    /// [`ErrorKind::TooMany`] if the table is full.
    pub fn attach(&mut self, ino: Ino, start: Start) -> Result<FileSlot> {
        let full = || Error::new(ErrorKind::TooMany, "too many files open or in memory");
        let slot = FileSlot(self.slots.take().ok_or_else(full)?);
        if let Err(error) = self.memory.prepare_file(slot) {
            self.slots.free.push(slot.0);
            return Err(error);
        }
        let (record, header) = (self.memory.record(slot), self.memory.header(slot));
        header.ticket().store(0, Ordering::SeqCst);
        self.memory.begin_size(slot, start.size);
        header.modified_ns().store(start.modified_ns, Ordering::SeqCst);
        header.accessed_ns().store(start.accessed_ns, Ordering::SeqCst);
        header.changed_ns().store(0, Ordering::SeqCst);
        header.holes().store(0, Ordering::SeqCst);
        header.hint().store(0, Ordering::SeqCst);
        header.fence().store(0, Ordering::SeqCst);
        record.applied().store(0, Ordering::SeqCst);
        record.root().store(0, Ordering::SeqCst);
        for index in 0..INLINE_ENTRIES as u64 {
            if let Some(word) = self.memory.entry_word(slot, index) {
                MapEntry::ABSENT.store(word);
            }
        }
        record.backed_bytes().store(start.backed_bytes, Ordering::SeqCst);
        record.ino().store(ino.0, Ordering::SeqCst);
        Ok(slot)
    }

    /// Takes a file's record back. It must have no chunks any more.
    pub fn detach(&mut self, slot: FileSlot) {
        debug_assert!(self.entries(slot).is_empty(), "a detached file has no chunks");
        let record = self.memory.record(slot);
        record.ino().store(0, Ordering::SeqCst);
        let pages = self.map_pages_of(slot);
        record.root().store(0, Ordering::SeqCst);
        self.map_pages.free.extend(pages);
        self.slots.free.push(slot.0);
    }

    /// Size of a file as its header has it, cut to what a file can have.
    pub fn size(&self, slot: FileSlot) -> u64 {
        SizeWord::load(self.memory.header(slot).size()).size().min(FILE_BYTES_MAX)
    }

    fn map_pages_of(&self, slot: FileSlot) -> Vec<u32> {
        let mut found = Vec::new();
        let limit = u64::from(self.memory.geometry.map_pages);
        let root = self.memory.record(slot).root().load(Ordering::SeqCst);
        let mut level: Vec<u64> = vec![root];
        for depth in 0..3 {
            let mut below = Vec::new();
            for page in level.into_iter().filter(|page| (1..=limit).contains(page)) {
                found.push(page as u32 - 1);
                if depth < 2 {
                    let words = self.memory.map_page(page as u32 - 1);
                    below.extend(words.iter().map(|word| word.load(Ordering::SeqCst)));
                }
            }
            level = below;
        }
        found
    }

    /// A file's chunks, in memory or spilled, by index.
    pub fn entries(&self, slot: FileSlot) -> Vec<(u64, MapEntry)> {
        entries(&self.memory, slot)
    }

    fn entry_word_made(&mut self, slot: FileSlot, index: u64) -> Result<()> {
        let Some(path) = path_of(index) else { return Ok(()) };
        let memory = self.memory.clone();
        let record = memory.record(slot);
        let mut word = record.root();
        for place in path {
            let mut page = word.load(Ordering::SeqCst);
            if page == 0 {
                let full = || Error::new(ErrorKind::TooMany, "too many chunks");
                let new = self.map_pages.take().ok_or_else(full)?;
                if let Err(error) = memory.prepare_map_page(new) {
                    self.map_pages.free.push(new);
                    return Err(error);
                }
                memory.map_page(new).iter().for_each(|word| word.store(0, Ordering::SeqCst));
                page = u64::from(new) + 1;
                word.store(page, Ordering::SeqCst);
            }
            word = &memory.map_page(page as u32 - 1)[place];
        }
        Ok(())
    }

    // Chunks.

    /// Finds a free chunk, making a segment if need be; its pages are all invalid.
    ///
    /// # Errors
    /// [`ErrorKind::NoSpace`] if the bound or the file system is reached.
    pub fn take_chunk(&mut self, order: u8, near: Option<u32>) -> Result<MapEntry> {
        self.free_put_down();
        let page = match self.allocator.allocate(order, near) {
            Some(page) => page,
            None => {
                let grown = self.grow();
                if grown.is_err() {
                    // Room where memory is just being made ready is room.
                    self.allocator.prepares(None);
                }
                let full = || grown.err().unwrap_or(Error::new(ErrorKind::NoSpace, "memory tier"));
                self.allocator.allocate(order, near).ok_or_else(full)?
            }
        };
        pages::reset(self.memory.lanes(), page.0, page.0 + (1 << order));
        self.generation = self.generation.wrapping_add(1);
        Ok(MapEntry::new(page, order, self.generation))
    }

    /// One more segment, if the bound and the file system allow it. Gives its number.
    pub fn grow(&mut self) -> Result<u32> {
        let full = || Error::new(ErrorKind::NoSpace, "memory tier");
        if !self.allocator.may_grow() {
            return Err(full());
        }
        let unborn: u64 = (0..self.allocator.segments())
            .filter(|at| self.memory.segment_state(*at).load(Ordering::SeqCst) == segment::SPARSE)
            .count() as u64;
        let needed = (unborn + 1) * SEGMENT_BYTES as u64 + ROOM_KEPT_BYTES;
        if self.memory.arena().room_bytes() < needed {
            return Err(full());
        }
        self.memory.prepare_lanes(self.allocator.segments())?;
        self.memory.arena().create(self.allocator.segments())?;
        Ok(self.allocator.grow())
    }

    /// Makes `entry` chunk `index` of the file.
    pub fn install(&mut self, slot: FileSlot, index: u64, entry: MapEntry) -> Result<()> {
        self.entry_word_made(slot, index)?;
        match self.memory.entry_word(slot, index) {
            Some(word) => entry.store(word),
            None => return Err(Error::new(ErrorKind::TooLarge, format!("chunk {index}"))),
        }
        Ok(())
    }

    /// Raises the recall flag of a chunk that is in memory and gives its entry, unflagged.
    pub fn recall(&mut self, slot: FileSlot, index: u64) -> Option<MapEntry> {
        let word = self.memory.entry_word(slot, index)?;
        let entry = MapEntry::load(word).unrecalled();
        if !entry.is_here() {
            return None;
        }
        entry.recalled().store(word);
        Some(entry)
    }

    /// Lowers the flag again: the chunk stays.
    pub fn unrecall(&mut self, slot: FileSlot, index: u64, entry: MapEntry) {
        if let Some(word) = self.memory.entry_word(slot, index) {
            entry.unrecalled().store(word);
        }
    }

    /// The recalled chunk is the file's no more: its entry is cleared, and it becomes free, or is
    /// kept in quarantine while somebody may still store into it.
    pub fn release(&mut self, slot: FileSlot, index: u64, entry: MapEntry, quarantined: bool) {
        self.clear_entry(slot, index);
        self.lose(entry, quarantined);
    }

    /// From now on the chunk is absent.
    fn clear_entry(&self, slot: FileSlot, index: u64) {
        if let Some(word) = self.memory.entry_word(slot, index) {
            self.memory.record(slot).evictions().fetch_add(1, Ordering::SeqCst);
            MapEntry::ABSENT.store(word);
        }
    }

    /// Whether chunks become free once the drain does not take from them any more.
    pub fn has_lost(&self) -> bool {
        !self.in_hand.is_empty()
    }

    /// No entry names the chunk any more. The drain may just be taking its dirty marks: until it is
    /// through, nobody else gets them.
    fn lose(&mut self, entry: MapEntry, quarantined: bool) {
        if self.memory.is_in_hand(entry) {
            self.in_hand.push((entry, quarantined));
        } else {
            self.free(entry, quarantined);
        }
    }

    /// Frees a chunk no entry names.
    pub fn free(&mut self, entry: MapEntry, quarantined: bool) {
        if quarantined {
            self.quarantine.push((entry.page(), entry.order()));
        } else {
            self.allocator.release(entry.page(), entry.order());
        }
    }

    /// Frees quarantined chunks (first page and order) that are not `is_pinned` any more.
    pub fn leave_quarantine(&mut self, is_pinned: impl Fn(PageNumber, u8) -> bool) {
        let (kept, freed) = std::mem::take(&mut self.quarantine)
            .into_iter()
            .partition(|(page, order)| is_pinned(*page, *order));
        self.quarantine = kept;
        self.free_put_down();
        let freed: Vec<(PageNumber, u8)> = freed;
        for (page, order) in freed {
            self.allocator.release(page, order);
        }
    }
}

fn adopt_number(numbers: &mut Numbers, number: u32) {
    // Until `adopted`, `free` collects the numbers in use.
    numbers.next = numbers.next.max(number + 1);
    numbers.free.push(number);
}

/// A file's chunks, in memory or spilled, by index.
pub fn entries(memory: &Memory, slot: FileSlot) -> Vec<(u64, MapEntry)> {
    let inline = (0..INLINE_ENTRIES as u64).map(|index| (index, memory.entry(slot, index)));
    let mut found: Vec<_> = inline.filter(|(_, entry)| !entry.is_absent()).collect();
    let limit = u64::from(memory.geometry.map_pages);
    let child = |page: u64| (1..=limit).contains(&page).then(|| memory.map_page(page as u32 - 1));
    let fanout = MAP_FANOUT as u64;
    // A file has few map pages, which have many words.
    let below = |word: &AtomicU64| {
        let page = child(word.load(Ordering::SeqCst)).unwrap_or_default();
        page.iter().enumerate()
    };
    for (top, word) in below(memory.record(slot).root()) {
        for (mid, word) in below(word) {
            for (low, word) in below(word) {
                let entry = MapEntry::load(word);
                if !entry.is_absent() {
                    let at = (top as u64 * fanout + mid as u64) * fanout + low as u64;
                    found.push((at + INLINE_ENTRIES as u64, entry));
                }
            }
        }
    }
    found
}

/// log2 of the pages of a chunk that has room for so many bytes, at most [`CHUNK_BYTES`].
pub fn order_of(bytes: usize) -> u8 {
    let pages = (bytes.div_ceil(PAGE_BYTES) as u32).max(1);
    // One that is more than half full gets no larger.
    if bytes as u64 > CHUNK_BYTES / 2 {
        CHUNK_ORDER
    } else {
        pages.next_power_of_two().trailing_zeros() as u8
    }
}

#[cfg(test)]
mod tests {
    use super::{Ram, Start};
    use crate::memory::Memory;
    use crate::private::{Private, PrivateArena};
    use std::sync::Arc;
    use terral_format::ids::{FileSlot, Ino, PageNumber};
    use terral_format::local::entry::MapEntry;
    use terral_format::local::geometry::{CHUNK_ORDER, Geometry, PAGE_BYTES};
    use terral_format::local::pages::{self, PageState};

    pub(super) fn ram() -> Ram {
        ram_in(&Arc::default())
    }

    pub(super) fn ram_in(arena: &Arc<PrivateArena>) -> Ram {
        let geometry =
            Geometry { segments: 1, files: 16, map_pages: 16, descriptions: 16, inodes: 16 };
        let bytes = [geometry.tables_bytes(), geometry.headers_bytes(), geometry.pages_bytes()];
        Ram::new(Arc::new(Memory::new(geometry, bytes.map(Private::boxed), arena.clone())))
    }

    #[test]
    fn a_chunk_of_a_file_is_never_seen_with_another_files_bytes() {
        let mut ram = ram();
        let slot = ram.attach(Ino(5), Start::default()).expect("room");
        let entry = ram.take_chunk(CHUNK_ORDER, None).expect("room");
        ram.install(slot, 700, entry).expect("map");
        pages::fill(ram.memory().lanes(), entry.page().0, entry.page().0 + 3, true);
        assert_eq!(ram.entries(slot), [(700, entry)]);
        let recalled = ram.recall(slot, 700).expect("there");
        assert!(ram.memory().entry(slot, 700).is_recalled());
        ram.release(slot, 700, recalled, false);
        ram.detach(slot);
        let again = ram.take_chunk(CHUNK_ORDER, None).expect("room");
        assert_eq!(again.page(), entry.page());
        assert_ne!(again, entry);
        assert_eq!(pages::state(ram.memory().lanes(), again.page().0), PageState::Invalid);
    }

    #[test]
    fn a_quarantined_chunk_comes_back_only_when_nobody_holds_it() {
        let mut ram = ram();
        let slot = ram.attach(Ino(5), Start::default()).expect("room");
        let entry = ram.take_chunk(CHUNK_ORDER, None).expect("room");
        ram.install(slot, 0, entry).expect("map");
        ram.recall(slot, 0);
        ram.release(slot, 0, entry, true);
        let used = ram.used_bytes();
        ram.leave_quarantine(|page, order| (page, order) == (entry.page(), entry.order()));
        assert_eq!(ram.used_bytes(), used);
        ram.leave_quarantine(|_, _| false);
        assert_eq!(ram.used_bytes(), 0);
    }

    #[test]
    fn a_chunk_that_is_still_written_to_after_a_restart_is_kept_whole() {
        for (others, pages) in [(None, 512), (Some((16, 4)), 16), (Some((4, 2)), 4)] {
            let mut ram = ram();
            ram.grow().expect("room");
            let used = others.map_or(0, |(page, order)| {
                assert!(ram.allocator().adopt(PageNumber(page), order));
                1 << order
            });
            let named = others.map_or(0, |(page, _)| page);
            ram.adopted(&[PageNumber(0), PageNumber(named), PageNumber(u32::MAX)]);
            assert_eq!(ram.used_bytes(), (pages + used) * PAGE_BYTES as u64, "{others:?}");
            ram.leave_quarantine(|page, order| page.0 == 0 && 1 << order == pages);
            assert_eq!(ram.used_bytes(), (pages + used) * PAGE_BYTES as u64, "{others:?}");
            ram.leave_quarantine(|_, _| false);
            assert_eq!(ram.used_bytes(), used * PAGE_BYTES as u64, "what a file has stays");
        }
    }

    #[test]
    fn a_restart_finds_the_chunks_and_frees_what_no_entry_names() {
        let mut ram = ram();
        let slot = ram.attach(Ino(5), Start::default()).expect("room");
        let kept = ram.take_chunk(3, None).expect("room");
        ram.install(slot, 3, kept).expect("map");
        let _lost = ram.take_chunk(CHUNK_ORDER, None).expect("room");
        ram.recall(slot, 3);

        let mut again = Ram::new(ram.memory().clone());
        again.adopt_segments(1);
        assert!(again.adopt(slot, Ino(6)).is_err());
        assert_eq!(again.adopt(slot, Ino(5)).expect("is there"), 8 * PAGE_BYTES as u64);
        let stray = PageNumber(1024 + 7);
        again.adopted(&[stray]);
        assert_eq!(again.memory().entry(slot, 3), kept);
        assert_eq!(again.used_bytes(), (8 + 512) * PAGE_BYTES as u64);
        assert_ne!(again.attach(Ino(9), Start::default()).expect("room"), FileSlot(slot.0));
        let next = again.take_chunk(0, None).expect("room");
        assert!(next != MapEntry::ABSENT && next.page() != kept.page());
    }
}
