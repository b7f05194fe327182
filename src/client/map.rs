//! From a chunk's index to its entry, in tables only the server writes.
//!
//! Map pages of a truncated file may come to serve another one while a reader is between two
//! levels; entries are unlike each other for ever, so whoever walks twice and finds the same entry
//! twice has found his own.

use std::sync::atomic::{AtomicU64, Ordering};

use terral_format::local::entry::MapEntry;
use terral_format::local::geometry::{INLINE_ENTRIES, MAP_FANOUT};
use terral_format::local::tables::FileRecord;

use crate::session::Memory;

/// The entry of chunk `index`.
pub(crate) fn entry(memory: &Memory, record: &FileRecord, index: u64) -> MapEntry {
    if index < INLINE_ENTRIES as u64 {
        return MapEntry::load(&record.inline[index as usize]);
    }
    let (at, fanout) = (index - INLINE_ENTRIES as u64, MAP_FANOUT as u64);
    let places = [at / (fanout * fanout), at / fanout % fanout, at % fanout];
    if places[0] >= fanout {
        return MapEntry::ABSENT;
    }
    let mut page = record.root.load(Ordering::SeqCst);
    for (level, place) in places.into_iter().enumerate() {
        let Some(words) = page.checked_sub(1).and_then(|page| memory.map_page(page)) else {
            return MapEntry::ABSENT;
        };
        let word = &words.0[place as usize];
        if level == 2 {
            return MapEntry::load(word);
        }
        page = word.load(Ordering::SeqCst);
    }
    MapEntry::ABSENT
}

/// Has `see` see the index and the entry of each chunk that is there.
pub(crate) fn each(memory: &Memory, record: &FileRecord, mut see: impl FnMut(u64, MapEntry)) {
    let mut look = |index: u64, word: &AtomicU64| {
        let entry = MapEntry::load(word).unrecalled();
        if !entry.is_absent() {
            see(index, entry);
        }
    };
    for (index, word) in record.inline.iter().enumerate() {
        look(index as u64, word);
    }
    below(memory, record.root.load(Ordering::SeqCst), INLINE_ENTRIES as u64, 2, &mut look);
}

/// The words of the lowest level below a map page whose first chunk is `first`.
fn below(
    memory: &Memory,
    page: u64,
    first: u64,
    level: u32,
    look: &mut impl FnMut(u64, &AtomicU64),
) {
    let Some(words) = page.checked_sub(1).and_then(|page| memory.map_page(page)) else { return };
    let each = (MAP_FANOUT as u64).pow(level);
    for (place, word) in words.0.iter().enumerate() {
        let at = first + place as u64 * each;
        match level {
            0 => look(at, word),
            _ => below(memory, word.load(Ordering::SeqCst), at, level - 1, look),
        }
    }
}
