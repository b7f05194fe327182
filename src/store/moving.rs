//! Copies a chunk out of memory into the spill, without the server's lock, and without keeping
//! anybody from writing to it: whoever concludes looks whether it is still as it was copied.

use std::sync::atomic::{Ordering, fence};

use terral_format::Result;
use terral_format::ids::{Ino, SpillPlace};
use terral_format::local::entry::MapEntry;
use terral_format::local::geometry::PAGE_BYTES;
use terral_format::local::pages::{self, Met, WORDS};
use terral_format::local::spill::{self, BITMAP_WORDS, Description};

use crate::memory::Memory;
use crate::spill::{Block, Spill};

/// A chunk as it was copied.
pub struct Copied {
    /// What its place has now; which pages are owed is not in it.
    pub description: Description,
    entry: MapEntry,
    seen: [u64; WORDS],
}

/// Copies chunk `index` of a file. `None`: somebody writes to it, or it has nothing but holes.
///
/// # Errors
/// Those of [`Spill::write`].
pub fn copy(
    memory: &Memory,
    spill: &Spill,
    (ino, index): (Ino, u64),
    (entry, place): (MapEntry, SpillPlace),
    block: &mut Block,
) -> Result<Option<Copied>> {
    let (first, last) = (entry.page().0, entry.page().0 + entry.pages());
    let mut seen = [0; WORDS];
    if let Met::Writer(..) = pages::observe(memory.lanes(), first, last, &mut seen) {
        return Ok(None);
    }
    let mut valid = [0; BITMAP_WORDS];
    for page in (0..entry.pages()).filter(|page| pages::was_valid(&seen, first, first + page)) {
        spill::set(&mut valid, page);
    }
    let (mut filled, mut end) = (0, 0);
    for (from, to) in spill::runs(&valid) {
        let (start, bytes) = (from as usize * PAGE_BYTES, (to - from) as usize * PAGE_BYTES);
        memory.read(entry.page(), start as u64, &mut block[filled..filled + bytes])?;
        (filled, end) = (filled + bytes, (start + bytes) as u64);
    }
    fence(Ordering::Acquire);
    if !pages::is_unchanged(memory.lanes(), first, last, &seen) {
        return Ok(None);
    }
    if filled == 0 {
        // Its last bytes were just cut off.
        return Ok(None);
    }
    let sum = spill.write(place, block, filled)?;
    let (bytes, dirty) = (filled as u64, [0; BITMAP_WORDS]);
    let description = Description { ino: ino.0, index, sum, bytes, end, valid, dirty };
    Ok(Some(Copied { description, entry, seen }))
}

impl Copied {
    /// Whether nobody has written to the chunk since. To be asked when nobody can.
    pub fn is_still(&self, memory: &Memory) -> bool {
        let (first, last) = (self.entry.page().0, self.entry.page().0 + self.entry.pages());
        pages::is_unchanged(memory.lanes(), first, last, &self.seen)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex};

    use terral_format::ids::FileSlot;
    use terral_format::local::geometry::{CHUNK_ORDER, CHUNK_PAGES, Geometry};
    use terral_format::local::pages::PageState;
    use terral_format::local::spill::RECORD_WORDS;

    use super::{Block, Ino, MapEntry, Memory, PAGE_BYTES, Result, Spill, SpillPlace, copy, pages};
    use crate::private::{Private, PrivateArena};
    use crate::ram::{Ram, Start};
    use crate::sparse::{Piece, Sparse};
    use crate::spill::{Disk, unpack};

    /// What was written, by place.
    #[derive(Clone, Default)]
    struct Held(Arc<Mutex<BTreeMap<u32, Vec<u8>>>>);

    impl Disk for Held {
        fn describe(&self) -> String {
            "a map".into()
        }

        fn places(&self) -> u32 {
            4
        }

        fn write(&self, place: SpillPlace, block: &Block, bytes: usize) -> Result<()> {
            self.0.lock().expect("unharmed").insert(place.0, block[..bytes].to_vec());
            Ok(())
        }

        fn read(&self, place: SpillPlace, block: &mut Block, bytes: usize) -> Result<()> {
            block[..bytes].copy_from_slice(&self.0.lock().expect("unharmed")[&place.0]);
            Ok(())
        }

        fn free(&self, _: SpillPlace) {}
    }

    const INO: Ino = Ino(5);
    const PAGE: usize = PAGE_BYTES;

    /// A file whose first chunk has these pages, each full of its number, and its entry.
    fn with(valid: &[u32], held: &Held) -> (Ram, FileSlot, MapEntry) {
        let geometry =
            Geometry { segments: 1, files: 16, map_pages: 16, descriptions: 16, inodes: 16 };
        let bytes = [geometry.tables_bytes(), geometry.headers_bytes(), geometry.pages_bytes()];
        let arena: Arc<PrivateArena> = Arc::default();
        // No more is touched than that of few places.
        let table = Private::boxed(4 * RECORD_WORDS * 8);
        let memory = Memory::new(geometry, bytes.map(Private::boxed), arena);
        let memory = memory.with_spill(Some(Spill::new(Box::new(held.clone()), table)));
        let mut ram = Ram::new(Arc::new(memory));
        let slot = ram.attach(INO, Start::default()).expect("room");
        let entry = ram.take_chunk(CHUNK_ORDER, None).expect("room");
        for page in valid {
            let (at, bytes) = (*page as usize * PAGE, [*page as u8 + 1; PAGE]);
            ram.memory().write(entry.page(), at as u64, &bytes).expect("writes");
            let page = entry.page().0 + page;
            pages::fill(ram.memory().lanes(), page, page + 1, true);
        }
        ram.install(slot, 0, entry).expect("room");
        (ram, slot, entry)
    }

    #[test]
    fn only_pages_that_are_no_holes_go_and_they_come_back_to_where_they_were() {
        let all: Vec<u32> = (0..CHUNK_PAGES).collect();
        for valid in [&[0][..], &[511], &[3, 4, 200], &[0, 63, 64, 65, 511], &all] {
            for cut in [None, Some(64 * PAGE + 100), Some(1)] {
                let held = Held::default();
                let (mut ram, slot, entry) = with(valid, &held);
                let memory = ram.memory().clone();
                let place = ram.take_place().expect("room");
                let (spill, mut block) = (memory.spill().expect("is one"), Block::default());
                let way = (entry, place);
                let copied = copy(&memory, spill, (INO, 0), way, &mut block).expect("a disk");
                let copied = copied.expect("nobody writes");
                let went = held.0.lock().expect("unharmed")[&place.0].len();
                assert_eq!(went, valid.len() * PAGE);
                let recalled = ram.recall(slot, 0).expect("is here");
                ram.spill((slot, 0), recalled, place, &copied.description);

                let mut block = memory.read_spilled(place, (INO, 0)).expect("is there");
                let entry = memory.entry(slot, 0);
                cut.iter().for_each(|within| ram.cut_spilled(entry, *within as u64));
                let end = cut.unwrap_or(CHUNK_PAGES as usize * PAGE);
                let mut must = vec![0; CHUNK_PAGES as usize * PAGE];
                for page in valid {
                    let at = *page as usize * PAGE;
                    must[at..at + PAGE].fill(*page as u8 + 1);
                }
                must[end..].fill(0);
                let record = memory.place(place).expect("is one");
                let mut sparse = Sparse::default();
                for (from, to) in [(0, must.len()), (5, 64 * PAGE + 7), (PAGE, 4 * PAGE)] {
                    unpack(record, &block, (from, to), &mut sparse).expect("its bytes");
                    assert!(sparse.is(Piece::Bytes(&must[from..to])), "{valid:?} {cut:?}");
                }
                ram.unspill((slot, 0), entry, &mut block).expect("room");
                let entry = memory.entry(slot, 0);
                for page in 0..CHUNK_PAGES {
                    let at = page as usize * PAGE;
                    let there = valid.contains(&page) && at < end;
                    let state = pages::state(memory.lanes(), entry.page().0 + page);
                    assert_eq!(state == PageState::Valid { dirty: true }, there, "{page}");
                    let mut found = [0; PAGE];
                    if there {
                        memory.read(entry.page(), at as u64, &mut found).expect("is there");
                    }
                    assert!(found == must[at..at + PAGE], "{valid:?} {cut:?} {page}");
                }
            }
        }
    }

    #[test]
    fn a_chunk_with_nothing_but_holes_does_not_go() {
        let held = Held::default();
        let (mut ram, _, entry) = with(&[], &held);
        let memory = ram.memory().clone();
        let way = (entry, ram.take_place().expect("room"));
        let (spill, mut block) = (memory.spill().expect("is one"), Block::default());
        // No file system makes room for nothing: that would be a disk that fails.
        let copied = copy(&memory, spill, (INO, 0), way, &mut block).expect("a disk");
        assert!(copied.is_none() && held.0.lock().expect("unharmed").is_empty());
    }
}
