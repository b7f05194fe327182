//! Sizes that both sides of the shared memory must agree on, and where things lie in it.
//!
//! Regions of one instance, each a file in its directory (mode 0600, owned by the server):
//! `tables` (the server writes, clients map read-only), `headers` (file headers, open-file
//! descriptions and the doorbell; clients write), `pages` (a state lane per arena page; clients
//! write), `seg-N` (the bytes), `session-N` (one client's own).

use serde::{Deserialize, Serialize};

/// Bytes of an arena page, the grain of validity and dirtiness.
pub const PAGE_BYTES: usize = 4096;
/// Bytes of a segment: one file of the arena, cut into chunks.
pub const SEGMENT_BYTES: usize = 64 << 20;
/// Pages of a segment.
pub const SEGMENT_PAGES: u32 = (SEGMENT_BYTES / PAGE_BYTES) as u32;
/// log2 of the pages of the largest chunk, which is also every file's chunk size: 512 pages, 2 MiB.
pub const CHUNK_ORDER: u8 = 9;
/// Pages of a file's chunk.
pub const CHUNK_PAGES: u32 = 1 << CHUNK_ORDER;
/// Bytes of a file's chunk.
pub const CHUNK_BYTES: u64 = CHUNK_PAGES as u64 * PAGE_BYTES as u64;
/// Chunks of a segment.
pub const SEGMENT_CHUNKS: u32 = SEGMENT_PAGES / CHUNK_PAGES;

/// Entries of one page of a file's map.
pub const MAP_FANOUT: usize = PAGE_BYTES / 8;
/// Chunks whose entries lie in the file's record itself.
pub const INLINE_ENTRIES: usize = 2;
/// Largest file: what three levels of map pages reach, 256 TiB, which is also what a size word
/// holds.
pub const FILE_BYTES_MAX: u64 = (1 << 48) - 1;

/// Sessions of one server at a time.
pub const SESSIONS: usize = 1023;
/// Hazard slots of a session: threads of one process that may be copying at the same moment.
pub const HAZARDS: usize = 16;
/// Descriptions that a session may have in hand.
pub const HAND_DESCRIPTIONS: usize = 64;
/// Inode numbers that a session may have in hand.
pub const HAND_INOS: usize = 64;
/// And as many more, at the end of its page.
pub const HAND_MORE_INOS: usize = 192;
/// Requests a session may have in flight.
pub const REQUESTS: usize = 4;
/// Bytes of one request's or reply's message: two paths of `PATH_MAX` and their envelope.
pub const MESSAGE_BYTES: usize = 16 << 10;
/// Longest file name in bytes, as on every Linux file system.
pub const NAME_MAX: usize = 255;
/// Longest path in bytes, its terminating zero included.
pub const PATH_MAX: usize = 4096;
/// Descriptions that share one lock directory (see `docs/decisions`).
pub const DESCRIPTIONS_PER_DIRECTORY: u32 = 64;

/// Words of a slot of the table of names: 128 bytes.
pub const SLOT_WORDS: usize = 16;
/// Bytes of a granule of its heap.
pub const GRANULE_BYTES: usize = 16;
/// Granules there are for each slot.
const GRANULES_PER_SLOT: u32 = 2;
/// Bits of an inode number that say which slot; those above make it unique.
pub const INDEX_BITS: u32 = 24;
/// Words before the buckets: counters.
const NAMES_HEADER_WORDS: usize = 512;

/// Largest arena in segments: 1 TiB.
pub const SEGMENTS_MAX: usize = 16384;

const SUPERBLOCK_BYTES: usize = 256 << 10;
const DOORBELL_BYTES: usize = PAGE_BYTES;

/// What a server decided at its first start. Virtual sizes: memory is taken when touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Geometry {
    /// Segments the arena may grow to.
    pub segments: u32,
    /// Files that may be open or have bytes in memory at a time.
    pub files: u32,
    /// Pages for the maps of files with more than [`INLINE_ENTRIES`] chunks.
    pub map_pages: u32,
    /// Open-file descriptions at a time.
    pub descriptions: u32,
    /// Files, directories and links there may be.
    pub inodes: u32,
}

impl Geometry {
    /// The geometry of an arena of at most `memory_bytes`, rounded up to a segment, at most 1 TiB.
    pub fn for_memory(memory_bytes: u64) -> Self {
        let wanted = memory_bytes.div_ceil(SEGMENT_BYTES as u64);
        let segments = wanted.clamp(1, SEGMENTS_MAX as u64) as u32;
        Geometry {
            segments,
            files: 1 << 20,
            map_pages: (1 << 16) + segments * SEGMENT_CHUNKS,
            descriptions: 1 << 16,
            inodes: 1 << 23,
        }
    }

    /// Whether every field lies within what this version can address.
    pub fn is_sane(&self) -> bool {
        self.segments >= 1
            && self.segments as usize <= SEGMENTS_MAX
            && self.files <= 1 << 24
            && self.map_pages <= 1 << 24
            && self.descriptions <= 1 << 24
            && self.inodes >= 2
            && self.inodes <= 1 << INDEX_BITS
    }

    /// Pages of the whole arena.
    pub fn arena_pages(&self) -> u32 {
        self.segments * SEGMENT_PAGES
    }

    /// Bytes of the whole arena.
    pub fn arena_bytes(&self) -> u64 {
        self.segments as u64 * SEGMENT_BYTES as u64
    }

    /// Byte offset of file record `slot` in `tables`.
    pub fn record_at(&self, slot: u32) -> usize {
        SUPERBLOCK_BYTES + slot as usize * 64
    }

    /// Byte offset of map page `page` in `tables`.
    pub fn map_page_at(&self, page: u32) -> usize {
        self.record_at(self.files).next_multiple_of(PAGE_BYTES) + page as usize * PAGE_BYTES
    }

    /// Where things lie in the table of names.
    pub fn names(&self) -> NamesLayout {
        NamesLayout::new(self.inodes)
    }

    /// Byte offset of the table of names in `tables`.
    pub fn names_at(&self) -> usize {
        self.map_page_at(self.map_pages)
    }

    /// Bytes of `tables`.
    pub fn tables_bytes(&self) -> usize {
        (self.names_at() + self.names().bytes()).next_multiple_of(PAGE_BYTES)
    }

    /// Byte offset of file header `slot` in `headers`; the doorbell lies before them.
    pub fn header_at(&self, slot: u32) -> usize {
        DOORBELL_BYTES + slot as usize * 64
    }

    /// Byte offset of open-file description `slot` in `headers`.
    pub fn description_at(&self, slot: u32) -> usize {
        self.header_at(self.files) + slot as usize * 64
    }

    /// Byte offset of the deferred changes in `headers`.
    pub fn deferred_at(&self) -> usize {
        self.description_at(self.descriptions).next_multiple_of(PAGE_BYTES)
    }

    /// Byte offset of the table of locks in `headers`.
    pub fn locks_at(&self) -> usize {
        (self.deferred_at() + crate::local::deferred::WORDS * 8).next_multiple_of(PAGE_BYTES)
    }

    /// Bytes of `headers`.
    pub fn headers_bytes(&self) -> usize {
        (self.locks_at() + crate::local::lock_table::WORDS * 8).next_multiple_of(PAGE_BYTES)
    }

    /// Bytes of `pages`: two per arena page.
    pub fn pages_bytes(&self) -> usize {
        self.arena_pages() as usize * 2
    }
}

/// Where things lie in a table for so many slots, in words.
#[derive(Clone, Copy, Debug)]
pub struct NamesLayout {
    inodes: u32,
}

impl NamesLayout {
    /// For `inodes` slots; slot 0 is never used.
    pub fn new(inodes: u32) -> Self {
        NamesLayout { inodes }
    }

    /// Slots.
    pub fn inodes(&self) -> u32 {
        self.inodes
    }

    /// Granules of the heap; granule 0 is never used.
    pub fn granules(&self) -> u32 {
        self.inodes * GRANULES_PER_SLOT
    }

    /// Bytes of the whole table.
    pub fn bytes(&self) -> usize {
        self.granule_at(self.granules()) * 8
    }

    /// The word that has a bucket and its neighbour.
    pub fn bucket_at(&self, bucket: u32) -> usize {
        NAMES_HEADER_WORDS + bucket as usize / 2
    }

    /// First word of a slot.
    pub fn slot_at(&self, index: u32) -> usize {
        NAMES_HEADER_WORDS + self.inodes as usize / 2 + index as usize * SLOT_WORDS
    }

    /// First word of a granule.
    pub fn granule_at(&self, granule: u32) -> usize {
        self.slot_at(self.inodes) + granule as usize * (GRANULE_BYTES / 8)
    }
}
