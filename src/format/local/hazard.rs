//! The hazard slot: how a writer pins a chunk, and how the server takes it back all the same.
//!
//! A writer *enters* (one compare-and-swap, which is also the full fence the protocol needs),
//! re-reads the map entry, copies, publishes, and *leaves* by a second compare-and-swap. The
//! server, recalling a chunk, raises the entry's flag and waits until no slot names the chunk. A
//! slot that a stopped process holds is *overtaken*: exactly one of leave and overtake succeeds,
//! and that is where the write takes effect or is redone. An overtaken slot keeps naming its chunk,
//! which therefore stays in quarantine, until its owner wakes and clears it, or dies.
//!
//! Layout, from bit 0: chunk's first page (32), phase (2), operation number (30). 0 is idle.

use crate::ids::PageNumber;
use crate::local::sync::{AtomicU64, Ordering};

const PHASE_SHIFT: u32 = 32;
const OPERATION_SHIFT: u32 = 34;
const WRITING: u64 = 1;
const OVERTAKEN: u64 = 2;

/// What a slot holds, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HazardWord(pub u64);

impl HazardWord {
    /// Nobody is copying through this slot.
    pub const IDLE: HazardWord = HazardWord(0);

    fn writing(page: PageNumber, operation: u32) -> Self {
        let operation = u64::from(operation & 0x3fff_ffff);
        HazardWord(u64::from(page.0) | WRITING << PHASE_SHIFT | operation << OPERATION_SHIFT)
    }

    fn phase(self) -> u64 {
        self.0 >> PHASE_SHIFT & 3
    }

    /// The pinned chunk's first page, if the slot pins one (overtaken or not).
    pub fn page(self) -> Option<PageNumber> {
        (self.phase() == WRITING || self.phase() == OVERTAKEN).then_some(PageNumber(self.0 as u32))
    }

    /// Whether the server has overtaken this write.
    pub fn is_overtaken(self) -> bool {
        self.phase() == OVERTAKEN
    }
}

/// Reads a slot; any bit pattern is possible, since its session can write it.
pub fn observe(slot: &AtomicU64) -> HazardWord {
    HazardWord(slot.load(Ordering::SeqCst))
}

/// Pins the chunk at `page` through an idle slot. `None` if another thread uses the slot.
///
/// The caller must re-read the map entry afterwards and leave at once if it changed.
pub fn enter(slot: &AtomicU64, page: PageNumber, operation: u32) -> Option<HazardWord> {
    let word = HazardWord::writing(page, operation);
    let swap = slot.compare_exchange(0, word.0, Ordering::SeqCst, Ordering::SeqCst);
    swap.is_ok().then_some(word)
}

/// Ends the pin that [`enter`] returned. False: the server overtook the write; whatever was copied
/// may have gone to a chunk the file no longer has, and the write must be redone.
#[must_use]
pub fn leave(slot: &AtomicU64, entered: HazardWord) -> bool {
    if slot.compare_exchange(entered.0, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
        return true;
    }
    slot.store(0, Ordering::SeqCst);
    false
}

/// Overtakes the write seen as `seen`. True: its owner's [`leave`] will fail. (Server only.)
pub fn overtake(slot: &AtomicU64, seen: HazardWord) -> bool {
    let word = seen.0 & !(3 << PHASE_SHIFT) | OVERTAKEN << PHASE_SHIFT;
    slot.compare_exchange(seen.0, word, Ordering::SeqCst, Ordering::SeqCst).is_ok()
}

/// Frees a slot whose process is dead. (Server only.)
pub fn drop_dead(slot: &AtomicU64) {
    slot.store(0, Ordering::SeqCst);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{HazardWord, enter, leave, observe, overtake};
    use crate::ids::PageNumber;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn either_leave_or_overtake_wins() {
        let slot = AtomicU64::new(0);
        let word = enter(&slot, PageNumber(7), 1).expect("idle");
        assert!(enter(&slot, PageNumber(8), 2).is_none());
        assert_eq!(observe(&slot).page(), Some(PageNumber(7)));
        assert!(overtake(&slot, word));
        assert_eq!(observe(&slot).page(), Some(PageNumber(7)));
        assert!(!leave(&slot, word));
        assert_eq!(observe(&slot), HazardWord::IDLE);

        let word = enter(&slot, PageNumber(7), 3).expect("idle");
        assert!(leave(&slot, word));
        assert!(!overtake(&slot, word));
    }
}
