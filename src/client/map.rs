//! From a chunk's index to its entry, in tables only the server writes.
//!
//! Map pages of a truncated file may come to serve another one while a reader is between two
//! levels; entries are unlike each other for ever, so whoever walks twice and finds the same entry
//! twice has found his own.

use std::sync::atomic::Ordering;

use terral_format::entry::MapEntry;
use terral_format::geometry::{INLINE_ENTRIES, MAP_FANOUT};
use terral_format::tables::FileRecord;

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
