//! What is known of chunks whose bytes are in the spill: a table in shared memory, in the file
//! `spilled` of the instance, which only the server reads and writes. Native-endian.
//!
//! A place is in use if and only if a map entry names it ([`crate::local::entry`]): its record is
//! written before that entry, and means nothing without one. So a server that dies in between
//! leaves a place that is free.

use crate::local::geometry::{CHUNK_PAGES, PAGE_BYTES};
use crate::local::sync::{AtomicU64, Ordering};

/// Most places: 2 TiB of whole chunks.
pub const PLACES_MAX: u32 = 1 << 20;
/// Words of a place's record: 256 bytes.
pub const RECORD_WORDS: usize = 32;
/// Words with a bit for each page of a chunk.
pub const BITMAP_WORDS: usize = CHUNK_PAGES as usize / 64;
/// Bytes of the table.
pub const TABLE_BYTES: usize = PLACES_MAX as usize * RECORD_WORDS * 8;

const INO: usize = 0;
const INDEX: usize = 1;
const SUM: usize = 2;
const BYTES: usize = 3;
const KEPT: usize = 4;
/// With the number of bytes: they are packed. To a server of before these are more than a chunk
/// has: it does not read them, cuts them as we do, and what it puts in the place has no such mark.
const PACKED: u64 = 1 << 63;
const VALID: usize = 8;
const DIRTY: usize = VALID + BITMAP_WORDS;
const _: () = assert!(DIRTY + BITMAP_WORDS <= RECORD_WORDS);

/// A bit for each page of a chunk.
pub type Bitmap = [u64; BITMAP_WORDS];

/// A chunk as it is described when it is spilled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Description {
    /// Of which file.
    pub ino: u64,
    /// Which chunk of it.
    pub index: u64,
    /// Checksum of its bytes.
    pub sum: u64,
    /// How many these are: those of the pages that are no holes, one behind the other.
    pub bytes: u64,
    /// Where the last of them ends in the chunk.
    pub end: u64,
    /// Pages that are no holes.
    pub valid: Bitmap,
    /// Those of them that were not drained.
    pub dirty: Bitmap,
}

/// Bytes of a chunk that lie one behind the other in its place, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where they begin in the chunk, which is where a page does.
    pub from: usize,
    /// Where they end there.
    pub to: usize,
    /// Where they begin in the place.
    pub at: usize,
}

/// The record of a place.
#[derive(Clone, Copy)]
pub struct Record<'t>(&'t [AtomicU64]);

/// The runs of set bits: first page, and the one behind the last.
pub fn runs(bitmap: &Bitmap) -> Vec<(u32, u32)> {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for page in (0..CHUNK_PAGES).filter(|page| has(bitmap, *page)) {
        match runs.last_mut() {
            Some(run) if run.1 == page => run.1 = page + 1,
            _ => runs.push((page, page + 1)),
        }
    }
    runs
}

/// Whether the bit of a page is set.
pub fn has(bitmap: &Bitmap, page: u32) -> bool {
    bitmap[page as usize / 64] >> (page % 64) & 1 != 0
}

/// Sets the bit of a page.
pub fn set(bitmap: &mut Bitmap, page: u32) {
    bitmap[page as usize / 64] |= 1 << (page % 64);
}

impl<'t> Record<'t> {
    /// Over the words of a place, of which there are [`RECORD_WORDS`].
    pub fn new(words: &'t [AtomicU64]) -> Self {
        Record(words)
    }

    fn load(self, at: usize) -> u64 {
        self.0[at].load(Ordering::SeqCst)
    }

    fn bitmap(self, at: usize) -> Bitmap {
        std::array::from_fn(|word| self.load(at + word))
    }

    /// Describes the chunk that the place holds from now on.
    pub fn describe(self, chunk: &Description) {
        let Description { ino, index, sum, bytes, end, valid, dirty } = chunk;
        let bytes = &(bytes | PACKED);
        for (at, value) in [(INO, ino), (INDEX, index), (SUM, sum), (BYTES, bytes), (KEPT, end)] {
            self.0[at].store(*value, Ordering::SeqCst);
        }
        for (at, words) in [(VALID, valid), (DIRTY, dirty)] {
            for (word, bits) in self.0[at..].iter().zip(words) {
                word.store(*bits, Ordering::SeqCst);
            }
        }
    }

    /// Whether the place holds this chunk.
    pub fn is_of(self, ino: u64, index: u64) -> bool {
        (self.load(INO), self.load(INDEX)) == (ino, index)
    }

    /// Checksum, and how many bytes it is of.
    pub fn sum(self) -> (u64, u64) {
        (self.load(SUM), self.load(BYTES) & !PACKED)
    }

    /// So many bytes of the chunk count; zeros follow.
    pub fn kept_bytes(self) -> u64 {
        self.load(KEPT)
    }

    /// Where what counts of the chunk lies in its place: pages that are no holes, one behind the
    /// other. What was written before holes were left out has them, as zeros.
    pub fn parts(self) -> Vec<Part> {
        let packed = self.load(BYTES) & PACKED != 0;
        let kept = self.kept_bytes() as usize;
        let mut packed_bytes = 0;
        let mut parts = Vec::new();
        for (from, to) in runs(&self.valid()) {
            let (from, to) = (from as usize * PAGE_BYTES, to as usize * PAGE_BYTES);
            let at = if packed { packed_bytes } else { from };
            packed_bytes += to - from;
            // Cuts leave the pages before them where they were.
            if from < kept {
                parts.push(Part { from, to: to.min(kept), at });
            }
        }
        parts
    }

    /// Pages that are no holes.
    pub fn valid(self) -> Bitmap {
        self.bitmap(VALID)
    }

    /// Pages that were not drained.
    pub fn dirty(self) -> Bitmap {
        self.bitmap(DIRTY)
    }

    /// How many those are.
    pub fn count_dirty(self) -> u32 {
        self.dirty().iter().map(|word| word.count_ones()).sum()
    }

    /// All pages that are no holes were not drained.
    pub fn mark_dirty(self) {
        self.add_dirty(&self.valid());
    }

    /// These pages, too, were not drained.
    pub fn add_dirty(self, pages: &Bitmap) {
        for (word, bits) in self.0[DIRTY..].iter().zip(pages) {
            word.fetch_or(*bits, Ordering::SeqCst);
        }
    }

    /// Takes the dirty marks; gives which they were.
    pub fn take_dirty(self) -> Bitmap {
        std::array::from_fn(|word| self.0[DIRTY + word].swap(0, Ordering::SeqCst))
    }

    /// Cuts the chunk: from `within` on it is a hole. What is left is not drained.
    pub fn cut(self, within: u64) {
        self.0[KEPT].store(within.min(self.kept_bytes()), Ordering::SeqCst);
        let left = within.div_ceil(PAGE_BYTES as u64);
        for word in 0..BITMAP_WORDS as u64 {
            let bits = left.saturating_sub(word * 64).min(64);
            let mask = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
            let valid = self.0[VALID + word as usize].fetch_and(mask, Ordering::SeqCst) & mask;
            self.0[DIRTY + word as usize].store(valid, Ordering::SeqCst);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{
        BITMAP_WORDS, BYTES, Description, KEPT, Part, RECORD_WORDS, Record, SUM, VALID, has, runs,
        set,
    };
    use crate::local::geometry::CHUNK_BYTES;
    use std::sync::atomic::{AtomicU64, Ordering};

    fn words() -> Vec<AtomicU64> {
        (0..RECORD_WORDS).map(|_| AtomicU64::new(0)).collect()
    }

    fn described(words: &[AtomicU64]) -> Record<'_> {
        let (mut valid, mut dirty) = ([0; BITMAP_WORDS], [0; BITMAP_WORDS]);
        for page in [0, 63, 64, 65, 511] {
            set(&mut valid, page);
        }
        set(&mut dirty, 64);
        let record = Record::new(words);
        let (bytes, end) = (5 * 4096, 512 * 4096);
        record.describe(&Description { ino: 7, index: 9, sum: 11, bytes, end, valid, dirty });
        record
    }

    #[test]
    fn what_was_described_is_found_and_dirty_marks_are_taken_once() {
        let words = words();
        let record = described(&words);
        assert!(record.is_of(7, 9) && !record.is_of(7, 8) && !record.is_of(8, 9));
        assert_eq!(record.sum(), (11, 5 * 4096));
        assert_eq!(runs(&record.valid()), [(0, 1), (63, 66), (511, 512)]);
        assert_eq!(runs(&record.take_dirty()), [(64, 65)]);
        assert_eq!(record.count_dirty(), 0);
        record.mark_dirty();
        assert_eq!(record.dirty(), record.valid());
    }

    #[test]
    fn pages_that_are_no_holes_lie_one_behind_the_other() {
        let words = words();
        let record = described(&words);
        let pages = |(from, to, at): (usize, usize, usize)| Part {
            from: from * 4096,
            to: to * 4096,
            at: at * 4096,
        };
        assert_eq!(record.parts(), [(0, 1, 0), (63, 66, 1), (511, 512, 4)].map(pages));
        record.cut(64 * 4096 + 5);
        let last = Part { to: 64 * 4096 + 5, ..pages((63, 66, 1)) };
        assert_eq!(record.parts(), [pages((0, 1, 0)), last]);
        record.cut(0);
        assert_eq!(record.parts(), []);
    }

    #[test]
    fn what_a_server_of_before_cuts_or_puts_in_the_place_is_what_it_says() {
        let words = words();
        let record = described(&words);
        let load = |at: usize| words[at].load(Ordering::SeqCst);
        // It reads no more than a chunk has, and of what it cuts no more than there are bytes.
        assert!(load(BYTES) > CHUNK_BYTES);
        words[KEPT].store((64 * 4096 + 5).min(load(KEPT).min(load(BYTES))), Ordering::SeqCst);
        let (page, at) = (|page: usize| page * 4096, |part: &Part| (part.from, part.to, part.at));
        let found: Vec<_> = record.parts().iter().map(at).collect();
        assert_eq!(found, [(0, page(1), 0), (page(63), page(64) + 5, page(1))]);
        // What it leaves there itself has its holes, as zeros.
        for (at, value) in [(SUM, 12), (BYTES, 66 * 4096), (KEPT, 64 * 4096 + 5), (VALID + 7, 0)] {
            words[at].store(value, Ordering::SeqCst);
        }
        assert_eq!(record.sum(), (12, 66 * 4096));
        let found: Vec<_> = record.parts().iter().map(at).collect();
        assert_eq!(found, [(0, page(1), 0), (page(63), page(64) + 5, page(63))]);
    }

    #[test]
    fn a_cut_chunk_ends_there_and_is_owed() {
        for (within, pages) in [(0, 0), (1, 1), (64 * 4096, 2), (64 * 4096 + 1, 3), (1 << 21, 5)] {
            let words = words();
            let record = described(&words);
            record.cut(within);
            assert_eq!(record.kept_bytes(), within);
            assert_eq!(record.count_dirty(), pages);
            assert_eq!(record.valid(), record.dirty());
            record.cut(1 << 21);
            assert_eq!(record.kept_bytes(), within, "it does not grow again");
            assert_eq!(has(&record.valid(), 0), within > 0);
        }
    }
}
