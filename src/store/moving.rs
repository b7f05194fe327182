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

/// Copies chunk `index` of a file. `None`: somebody writes to it.
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
    let mut filled = 0;
    for (from, to) in spill::runs(&valid) {
        let (start, end) = (from as usize * PAGE_BYTES, to as usize * PAGE_BYTES);
        block[filled..start].fill(0);
        memory.read(entry.page(), start as u64, &mut block[start..end])?;
        filled = end;
    }
    fence(Ordering::Acquire);
    if !pages::is_unchanged(memory.lanes(), first, last, &seen) {
        return Ok(None);
    }
    let sum = spill.write(place, block, filled)?;
    let (bytes, dirty) = (filled as u64, [0; BITMAP_WORDS]);
    let description = Description { ino: ino.0, index, sum, bytes, valid, dirty };
    Ok(Some(Copied { description, entry, seen }))
}

impl Copied {
    /// Whether nobody has written to the chunk since. To be asked when nobody can.
    pub fn is_still(&self, memory: &Memory) -> bool {
        let (first, last) = (self.entry.page().0, self.entry.page().0 + self.entry.pages());
        pages::is_unchanged(memory.lanes(), first, last, &self.seen)
    }
}
