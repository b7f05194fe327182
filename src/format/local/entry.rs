//! The map entry: the one word that decides which chunk holds a file's bytes.
//!
//! Only the server writes entries; clients read them. Layout, from bit 0: first page (31), a flag
//! (borrowed), log2 of the chunk's pages (4), flags (4: recalled, mappable, stored, spilled),
//! generation (24). 0 is absent. A chunk belongs to a file if and only if an entry of that file
//! names it: grant and release are one store of one word, so a server that dies between two
//! instructions leaves either the old truth or the new one. Of a spilled chunk the bytes are not in
//! memory but in a place of the spill, whose number stands where else the page does; whoever wants
//! them asks the server. So it is with a chunk that is away: another member has its bytes, whose
//! number stands there, with the highest bit of a place set.

use crate::ids::{Member, PageNumber, SpillPlace};
use crate::local::sync::{AtomicU64, Ordering};

const PAGE: u64 = (1 << 31) - 1;
const BORROWED: u64 = 1 << 31;
const ORDER_SHIFT: u32 = 32;
const RECALLED: u64 = 1 << 36;
const MAPPABLE: u64 = 1 << 37;
const STORED: u64 = 1 << 38;
const SPILLED: u64 = 1 << 39;
/// In place of a page: a member's number, and not a place of the spill.
const AWAY: u64 = 1 << 30;
const GENERATION_SHIFT: u32 = 40;

/// One decoded entry. Two entries compare equal only when they are the same grant of the same
/// chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapEntry(pub u64);

impl MapEntry {
    /// No chunk: the bytes are a hole, or lie in the backing.
    pub const ABSENT: MapEntry = MapEntry(0);

    /// An entry for the chunk of `1 << order` pages at `page`; `generation` makes it unlike any
    /// other grant (its low 24 bits count, and 0 is skipped so that no entry is 0).
    pub fn new(page: PageNumber, order: u8, generation: u32) -> Self {
        debug_assert!(order < 16 && u64::from(page.0) <= PAGE);
        let generation = u64::from(generation & 0xff_ffff).max(1);
        MapEntry(
            u64::from(page.0) & PAGE
                | u64::from(order) << ORDER_SHIFT
                | generation << GENERATION_SHIFT,
        )
    }

    /// An entry for a chunk of `1 << order` pages whose bytes are in a place of the spill.
    pub fn spilled(place: SpillPlace, order: u8, generation: u32) -> Self {
        MapEntry(Self::new(PageNumber(place.0), order, generation).0 | SPILLED)
    }

    /// An entry for a chunk of `1 << order` pages whose bytes another member has.
    pub fn away(with: Member, order: u8, generation: u32) -> Self {
        let with = PageNumber(u32::from(with.number()) | AWAY as u32);
        MapEntry(Self::new(with, order, generation).0 | SPILLED)
    }

    /// The same chunk, granted anew.
    pub fn again(self, generation: u32) -> Self {
        let of = Self::new(PageNumber(0), 0, generation);
        MapEntry(self.0 & ((1 << GENERATION_SHIFT) - 1) | of.0)
    }

    /// Whether there is no chunk.
    #[inline]
    pub fn is_absent(self) -> bool {
        self.0 == 0
    }

    /// Whether there is one, in memory.
    pub fn is_here(self) -> bool {
        !self.is_absent() && self.0 & SPILLED == 0
    }

    /// Where its bytes are, if that is the spill.
    pub fn place(self) -> Option<SpillPlace> {
        (self.0 & SPILLED != 0 && self.0 & AWAY == 0).then_some(SpillPlace((self.0 & PAGE) as u32))
    }

    /// Who has its bytes, if another member does.
    pub fn with(self) -> Option<Member> {
        let number = (self.0 & PAGE & !AWAY) as u16;
        (self.0 & SPILLED != 0 && self.0 & AWAY != 0).then(|| Member::new(number)).flatten()
    }

    /// Whether the server wants the chunk back: writers must ask, readers may go on.
    pub fn is_recalled(self) -> bool {
        self.0 & RECALLED != 0
    }

    /// First page of a chunk that is in memory.
    pub fn page(self) -> PageNumber {
        PageNumber((self.0 & PAGE) as u32)
    }

    /// log2 of the chunk's pages.
    pub fn order(self) -> u8 {
        (self.0 >> ORDER_SHIFT & 0xf) as u8
    }

    /// Pages of the chunk.
    pub fn pages(self) -> u32 {
        1 << self.order()
    }

    /// The same entry with the recall flag up.
    pub fn recalled(self) -> Self {
        MapEntry(self.0 | RECALLED)
    }

    /// The same entry with the recall flag down.
    pub fn unrecalled(self) -> Self {
        MapEntry(self.0 & !RECALLED)
    }

    /// Whether every page that is not valid is zeros in memory, so that programs may map the chunk.
    pub fn is_mappable(self) -> bool {
        self.0 & MAPPABLE != 0
    }

    /// Whether programs may have stored into the chunk through maps: its page states do not say
    /// what changed, and all of it is owed.
    pub fn is_stored(self) -> bool {
        self.0 & STORED != 0
    }

    /// The same chunk, fit to be mapped.
    pub fn mappable(self) -> Self {
        MapEntry(self.0 | MAPPABLE)
    }

    /// The same chunk, not fit to be mapped any more.
    pub fn unmappable(self) -> Self {
        MapEntry(self.0 & !MAPPABLE)
    }

    /// The same chunk, fit to be mapped for writing.
    pub fn stored(self) -> Self {
        MapEntry(self.0 | STORED)
    }

    /// The same chunk, with page states that say all.
    pub fn unstored(self) -> Self {
        MapEntry(self.0 & !STORED)
    }

    /// Whether another machine has lent the chunk, so that it may be used without asking only until
    /// a deadline (see [`crate::local::lease`]).
    pub fn is_borrowed(self) -> bool {
        self.0 & BORROWED != 0
    }

    /// The same chunk, borrowed.
    pub fn borrowed(self) -> Self {
        MapEntry(self.0 | BORROWED)
    }

    /// The same chunk, this machine's own.
    pub fn owned(self) -> Self {
        MapEntry(self.0 & !BORROWED)
    }

    /// Whether both are the same grant of the same chunk, whatever their flags.
    pub fn is_chunk_of(self, other: Self) -> bool {
        (self.0 ^ other.0) & !(RECALLED | MAPPABLE | STORED | BORROWED) == 0
    }

    /// Reads an entry another process may be changing.
    #[inline]
    pub fn load(word: &AtomicU64) -> Self {
        MapEntry(word.load(Ordering::SeqCst))
    }

    /// Publishes this entry (server only).
    pub fn store(self, word: &AtomicU64) {
        word.store(self.0, Ordering::SeqCst);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::MapEntry;
    use crate::ids::{Member, PageNumber, SpillPlace};

    #[test]
    fn fields_survive_packing() {
        let page = u32::MAX >> 1;
        let entry = MapEntry::new(PageNumber(page), 9, 0x00ab_cdef);
        assert_eq!((entry.page().0, entry.order(), entry.pages()), (page, 9, 512));
        assert!(!entry.is_absent() && !entry.is_recalled());
        assert!(entry.recalled().is_recalled());
        assert_eq!(entry.recalled().unrecalled(), entry);
        let mapped = entry.mappable().stored();
        assert!(mapped.is_mappable() && mapped.is_stored() && !entry.is_mappable());
        assert_eq!((mapped.page(), mapped.order()), (entry.page(), entry.order()));
        assert_eq!(mapped.unstored().unmappable(), entry);
        let lent = mapped.borrowed();
        assert!(lent.is_borrowed() && !mapped.is_borrowed() && lent.owned() == mapped);
        assert_eq!((lent.page(), lent.order()), (entry.page(), entry.order()));
        assert!(mapped.recalled().is_chunk_of(entry) && lent.is_chunk_of(entry));
        assert!(!MapEntry::new(entry.page(), 9, 1).is_chunk_of(entry));
    }

    #[test]
    fn what_is_spilled_is_not_here_and_has_a_place() {
        let spilled = MapEntry::spilled(SpillPlace(77), 9, 3);
        assert_eq!((spilled.place(), spilled.pages()), (Some(SpillPlace(77)), 512));
        assert!(!spilled.is_absent() && !spilled.is_here());
        assert!(!spilled.is_mappable() && !spilled.is_stored() && !spilled.is_recalled());
        let entry = MapEntry::new(PageNumber(77), 9, 3);
        assert!(entry.is_here() && entry.place().is_none() && !entry.is_chunk_of(spilled));
        assert!(!MapEntry::ABSENT.is_here() && spilled.recalled().is_chunk_of(spilled));
    }

    #[test]
    fn what_is_away_is_neither_here_nor_in_the_spill() {
        let with = Member::new(Member::MAX - 1).expect("14 bits");
        let away = MapEntry::away(with, 9, 3);
        assert_eq!((away.with(), away.place(), away.pages()), (Some(with), None, 512));
        assert!(!away.is_absent() && !away.is_here() && away.recalled().with() == Some(with));
        assert!(MapEntry::spilled(SpillPlace(77), 9, 3).with().is_none());
        assert!(MapEntry::new(PageNumber(1 << 30), 9, 3).with().is_none());
    }

    #[test]
    fn no_entry_is_ever_the_absent_word() {
        assert!(!MapEntry::new(PageNumber(0), 0, 0).is_absent());
        assert!(!MapEntry::new(PageNumber(0), 0, 1 << 24).is_absent());
    }
}
