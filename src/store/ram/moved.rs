//! Chunks that move to another place in memory: larger, smaller, or away from who sleeps in them.
//!
//! Not here: who is waited for before (the caller), and what goes to the spill (`spilled`).

use terral_format::Result;
use terral_format::ids::FileSlot;
use terral_format::local::entry::MapEntry;
use terral_format::local::geometry::PAGE_BYTES;
use terral_format::local::pages::{self, PageState};

use super::Ram;
use crate::memory::Memory;

/// How a chunk moves.
#[derive(Clone, Copy, Debug)]
pub struct Move {
    /// log2 of the pages it gets.
    pub order: u8,
    /// Somebody may still store into the old one.
    pub quarantined: bool,
    /// No drain is at it: what it has copied once need not be copied again.
    pub at_rest: bool,
}

impl Ram {
    /// Moves the recalled chunk's valid pages to another chunk, as far as they fit it. They are
    /// dirty there unless all was at rest: a drain that was half-way through the old ones starts
    /// over, and of what is stored through maps nobody knows what changed.
    ///
    /// # Errors
    /// [`ErrorKind::NoSpace`] if memory is full; it stays where it is then, recalled.
    pub fn relocate(
        &mut self,
        slot: FileSlot,
        index: u64,
        entry: MapEntry,
        how: Move,
    ) -> Result<MapEntry> {
        // Who was overtaken may have half written to a page after its state was looked at.
        let all_dirty = !how.at_rest || how.quarantined || entry.is_stored();
        let new = self.copy_chunk((slot, index), entry, (how.order, all_dirty), |new| new)?;
        self.lose(entry, how.quarantined);
        Ok(new)
    }

    /// The same of a recalled chunk which stays so, and in which nobody is.
    ///
    /// # Errors
    /// As those of [`Ram::relocate`].
    pub fn enlarge(
        &mut self,
        slot: FileSlot,
        index: u64,
        entry: MapEntry,
        order: u8,
    ) -> Result<()> {
        self.copy_chunk((slot, index), entry, (order, true), MapEntry::recalled)?;
        self.lose(entry, false);
        Ok(())
    }

    fn copy_chunk(
        &mut self,
        (slot, index): (FileSlot, u64),
        entry: MapEntry,
        (order, all_dirty): (u8, bool),
        with: impl Fn(MapEntry) -> MapEntry,
    ) -> Result<MapEntry> {
        let new = self.take_chunk(order, None)?;
        let copied = copy_pages(&self.memory, entry, new, all_dirty);
        if let Err(error) = copied.and_then(|()| self.install(slot, index, with(new))) {
            self.free(new, false);
            return Err(error);
        }
        Ok(new)
    }
}

/// Copies the valid pages of one chunk to another, as far as they fit it.
pub(super) fn copy_pages(
    memory: &Memory,
    from: MapEntry,
    to: MapEntry,
    all_dirty: bool,
) -> Result<()> {
    let mut buffer = [0; PAGE_BYTES];
    for page in 0..from.pages().min(to.pages()) {
        let state = pages::state(memory.lanes(), from.page().0 + page);
        let PageState::Valid { dirty } = state else { continue };
        let at = u64::from(page) * PAGE_BYTES as u64;
        memory.read(from.page(), at, &mut buffer)?;
        memory.write(to.page(), at, &buffer)?;
        let copy = to.page().0 + page;
        pages::fill(memory.lanes(), copy, copy + 1, dirty || all_dirty);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use terral_format::ErrorKind;
    use terral_format::ids::Ino;
    use terral_format::local::geometry::{CHUNK_ORDER, PAGE_BYTES};
    use terral_format::local::pages;

    use super::Move;
    use crate::ram::Start;
    use crate::ram::tests::{ram, ram_in};

    #[test]
    fn what_moves_is_the_same_and_owed_again_if_a_drain_is_at_it() {
        let mut ram = ram();
        let slot = ram.attach(Ino(5), Start::default()).expect("room");
        ram.fill(slot, 0, &vec![9; 5000].into()).expect("room");
        for (order, at_rest, owed) in [(CHUNK_ORDER, true, 0), (1, false, 2), (3, true, 2)] {
            let entry = ram.recall(slot, 0).expect("is there");
            let how = Move { order, quarantined: false, at_rest };
            let moved = ram.relocate(slot, 0, entry, how).expect("room");
            let mut bytes = vec![0; 2 * PAGE_BYTES];
            ram.memory().read(moved.page(), 0, &mut bytes).expect("reads");
            let (ours, rest) = bytes.split_at(5000);
            assert!(ours.iter().all(|b| *b == 9) && rest.iter().all(|b| *b == 0));
            let (lanes, first) = (ram.memory().lanes(), moved.page().0);
            assert_eq!(pages::count_dirty(lanes, first, first + moved.pages()), owed);
        }
    }

    #[test]
    fn what_finds_no_memory_to_move_to_stays_and_takes_none() {
        let arena = Arc::default();
        let mut ram = ram_in(&arena);
        let slot = ram.attach(Ino(5), Start::default()).expect("room");
        ram.fill(slot, 0, &vec![9; 5000].into()).expect("room");
        let (entry, used) = (ram.recall(slot, 0).expect("is there"), ram.used_bytes());
        let how = Move { order: 3, quarantined: false, at_rest: true };
        arena.refuse_writes(1);
        let refused = ram.relocate(slot, 0, entry, how).expect_err("no memory");
        assert_eq!((refused.kind, ram.used_bytes()), (ErrorKind::NoSpace, used));
        let refused = ram.relocate(slot, u64::MAX, entry, how).expect_err("no such chunk");
        assert_eq!((refused.kind, ram.used_bytes()), (ErrorKind::TooLarge, used));
        assert_eq!(ram.memory().entry(slot, 0), entry.recalled());
        ram.relocate(slot, 0, entry, how).expect("there is room");
    }
}
