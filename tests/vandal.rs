//! A process that went wild: writes what it likes into the memory that clients share with the
//! server, as any of them could.
#![allow(dead_code)] // Each test file uses its part.

use std::fs::{File, OpenOptions};
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::path::Path;

use terral_format::ids::Ino;
use terral_format::local::entry::MapEntry;
use terral_format::local::geometry::{Geometry, SLOT_WORDS};
use terral_format::local::names::{self, flag};
use terral_format::local::tables::Superblock;

/// Where the fields lie that are read here.
const GEOMETRY_AT: u64 = 40;
const INLINE_AT: u64 = 16;
const BACKED_AT: u64 = 8;
const TICKET_AT: u64 = 8;
const COUNTERS_AT: u64 = 64;
const COUNTERS: usize = 8;

/// What it can reach.
pub struct Vandal {
    geometry: Geometry,
    tables: File,
    headers: File,
    pages: File,
}

fn word(file: &File, at: u64) -> u64 {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, at).expect("reads");
    u64::from_ne_bytes(bytes)
}

impl Vandal {
    /// One that has the memory of this instance.
    pub fn new(instance: &Path) -> Self {
        let open = |name| {
            let mut how = OpenOptions::new();
            how.read(true).write(true).open(instance.join(name)).expect("opens")
        };
        let tables = open("tables");
        let [segments, files, map_pages, descriptions, inodes] =
            [0, 1, 2, 3, 4].map(|at| word(&tables, GEOMETRY_AT + at * 8) as u32);
        let geometry = Geometry { segments, files, map_pages, descriptions, inodes };
        Vandal { geometry, tables, headers: open("headers"), pages: open("pages") }
    }

    fn slot(&self, ino: u64) -> u32 {
        let is = |slot: &u32| word(&self.tables, self.geometry.record_at(*slot) as u64) == ino;
        (0..10_000).find(is).expect("the file is open or has bytes in memory")
    }

    /// Writes over a file's size word; `change` makes the new one of the old.
    pub fn size(&self, ino: Ino, change: impl Fn(u64) -> u64) {
        let at = self.geometry.header_at(self.slot(ino.0)) as u64;
        let new = change(word(&self.headers, at));
        self.headers.write_all_at(&new.to_ne_bytes(), at).expect("writes");
    }

    /// Writes over a file's append ticket.
    pub fn ticket(&self, ino: Ino, value: u64) {
        let at = self.geometry.header_at(self.slot(ino.0)) as u64 + TICKET_AT;
        self.headers.write_all_at(&value.to_ne_bytes(), at).expect("writes");
    }

    /// Writes over the state of a page of a file's first chunk; `change` makes the new one.
    pub fn page(&self, ino: Ino, page: u32, change: impl Fn(u16) -> u16) {
        let record = self.geometry.record_at(self.slot(ino.0)) as u64;
        let entry = MapEntry(word(&self.tables, record + INLINE_AT));
        assert!(!entry.is_absent() && page < entry.pages(), "no such page");
        let at = u64::from(entry.page().0 + page) * 2;
        let mut lane = [0; 2];
        self.pages.read_exact_at(&mut lane, at).expect("reads");
        let lane = change(u16::from_ne_bytes(lane));
        self.pages.write_all_at(&lane.to_ne_bytes(), at).expect("writes");
    }
}

/// Writes over all that a process has counted, in the page of its session.
pub fn spoil_counters(page: &Path, value: u64) {
    let page = OpenOptions::new().write(true).open(page).expect("opens");
    page.write_all_at(&value.to_ne_bytes().repeat(COUNTERS), COUNTERS_AT).expect("writes");
}

/// A server's own words, which only it writes: to bring about what takes it long.
impl Vandal {
    /// What the backing has of a file, as the server says.
    pub fn backed(&self, instance: &Path, ino: Ino, bytes: u64) {
        let mut how = OpenOptions::new();
        let tables = how.write(true).open(instance.join("tables")).expect("opens");
        let at = self.geometry.record_at(self.slot(ino.0)) as u64 + BACKED_AT;
        tables.write_all_at(&bytes.to_ne_bytes(), at).expect("writes");
    }

    /// Has a file lose its first chunk, as if it had been evicted.
    pub fn evict(&self, instance: &Path, ino: Ino) {
        let mut how = OpenOptions::new();
        let tables = how.write(true).open(instance.join("tables")).expect("opens");
        let at = self.geometry.record_at(self.slot(ino.0)) as u64 + INLINE_AT;
        tables.write_all_at(&[0; 8], at).expect("writes");
    }
}

/// What a server does that has borrowed something from another machine.
impl Vandal {
    fn table(&self, instance: &Path) -> File {
        OpenOptions::new().write(true).open(instance.join("tables")).expect("opens")
    }

    /// Until when what is borrowed may be used without asking, by the clock of
    /// `terral_transport::boottime`.
    pub fn deadline(&self, instance: &Path, until_ns: u64) {
        let at = offset_of!(Superblock, deadline) as u64;
        self.table(instance).write_all_at(&until_ns.to_ne_bytes(), at).expect("writes");
    }

    /// The entry of a file's first chunk.
    pub fn entry(&self, ino: Ino) -> MapEntry {
        MapEntry(word(&self.tables, self.entry_at(ino)))
    }

    fn entry_at(&self, ino: Ino) -> u64 {
        self.geometry.record_at(self.slot(ino.0)) as u64 + INLINE_AT
    }

    /// Marks a file's first chunk as borrowed.
    pub fn lend_chunk(&self, instance: &Path, ino: Ino) {
        let entry = self.entry(ino).borrowed();
        let at = self.entry_at(ino);
        self.table(instance).write_all_at(&entry.0.to_ne_bytes(), at).expect("writes");
    }

    fn flags_at(&self, ino: Ino) -> u64 {
        let slot = self.geometry.names().slot_at(names::index_of(ino)) + SLOT_WORDS - 1;
        (self.geometry.names_at() + slot * 8) as u64
    }

    /// Whether the attributes of an inode, or a directory's names, are marked as borrowed.
    pub fn is_lent(&self, ino: Ino) -> bool {
        (word(&self.tables, self.flags_at(ino)) >> 48) as u16 & flag::BORROWED != 0
    }

    /// Marks them as borrowed.
    pub fn lend(&self, instance: &Path, ino: Ino) {
        self.mark(instance, ino, flag::BORROWED);
    }

    /// Marks them by these flags.
    pub fn mark(&self, instance: &Path, ino: Ino, flags: u16) {
        let at = self.flags_at(ino);
        let marked = word(&self.tables, at) | u64::from(flags) << 48;
        self.table(instance).write_all_at(&marked.to_ne_bytes(), at).expect("writes");
    }
}
