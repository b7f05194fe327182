//! Which pages of the arena are free: a buddy allocator in each segment.
//!
//! It holds no truth of its own: after a restart it is rebuilt from the map entries. Segments are
//! made when needed, never given back. A writer is kept in the segment it wrote to last, because
//! `pwrite` to one file by two processes is serialised on its inode.

use std::collections::BTreeSet;

use terral_format::ids::PageNumber;
use terral_format::local::geometry::{CHUNK_ORDER, CHUNK_PAGES, SEGMENT_PAGES};

const ORDERS: usize = CHUNK_ORDER as usize + 1;

/// Free blocks of one segment, by order.
struct Segment {
    free: [BTreeSet<u32>; ORDERS],
    free_pages: u32,
    warm: bool,
    writers: u32,
}

impl Segment {
    fn new() -> Self {
        let mut free: [BTreeSet<u32>; ORDERS] = Default::default();
        free[CHUNK_ORDER as usize].extend((0..SEGMENT_PAGES).step_by(CHUNK_PAGES as usize));
        Segment { free, free_pages: SEGMENT_PAGES, warm: false, writers: 0 }
    }

    fn has(&self, order: u8) -> bool {
        self.free[order as usize..].iter().any(|blocks| !blocks.is_empty())
    }

    fn take(&mut self, order: u8) -> Option<u32> {
        let from = (order..=CHUNK_ORDER).find(|o| !self.free[*o as usize].is_empty())?;
        let page = self.free[from as usize].pop_first()?;
        for half in (order..from).rev() {
            self.free[half as usize].insert(page + (1 << half));
        }
        self.free_pages -= 1 << order;
        Some(page)
    }

    fn give(&mut self, mut page: u32, order: u8) {
        self.free_pages += 1 << order;
        let mut order = order;
        while order < CHUNK_ORDER && self.free[order as usize].remove(&(page ^ (1 << order))) {
            page &= !(1 << order);
            order += 1;
        }
        let new = self.free[order as usize].insert(page);
        assert!(new, "a chunk is freed once");
    }

    /// Takes exactly the block at `page`, which must be free.
    fn carve(&mut self, page: u32, order: u8) -> bool {
        let holder = (order..=CHUNK_ORDER)
            .find(|o| self.free[*o as usize].contains(&(page & !((1 << o) - 1))));
        let Some(mut at) = holder else { return false };
        let mut start = page & !((1 << at) - 1);
        self.free[at as usize].remove(&start);
        while at > order {
            at -= 1;
            let upper = start + (1 << at);
            let (keep, spare) = if page >= upper { (upper, start) } else { (start, upper) };
            self.free[at as usize].insert(spare);
            start = keep;
        }
        self.free_pages -= 1 << order;
        true
    }
}

/// All segments of the arena.
pub struct Allocator {
    segments: Vec<Segment>,
    limit: u32,
    stopped: bool,
    preparing: Option<u32>,
}

impl Allocator {
    /// No segments yet, at most `limit`.
    pub fn new(limit: u32) -> Self {
        Allocator { segments: Vec::new(), limit, stopped: false, preparing: None }
    }

    /// Segments there are.
    pub fn segments(&self) -> u32 {
        self.segments.len() as u32
    }

    /// Whether another segment may be made.
    pub fn may_grow(&self) -> bool {
        self.segments() < self.limit && !self.stopped
    }

    /// No more segments from now on, or as many as before: what they would lie in is full.
    pub fn stop_growing(&mut self, stop: bool) {
        self.stopped = stop;
    }

    /// One more segment, all free; its file exists.
    pub fn grow(&mut self) -> u32 {
        self.segments.push(Segment::new());
        self.segments() - 1
    }

    /// Marks a segment as ready for stores.
    pub fn warmed(&mut self, segment: u32) {
        if let Some(segment) = self.segments.get_mut(segment as usize) {
            segment.warm = true;
        }
    }

    /// Which segment a process at the least of all priorities is making ready: who writes there may
    /// wait for it in the kernel, however long that has no core, so nobody is sent there as long as
    /// there is, or can be, another.
    pub fn prepares(&mut self, segment: Option<u32>) {
        self.preparing = segment;
    }

    /// A segment that nobody uses and that is not ready for stores.
    pub fn unused_cold(&self) -> Option<u32> {
        let unused = |segment: &Segment| !segment.warm && segment.free_pages == SEGMENT_PAGES;
        self.segments.iter().position(unused).map(|at| at as u32)
    }

    /// Pages free in the segments there are.
    pub fn free_pages(&self) -> u64 {
        self.segments.iter().map(|segment| u64::from(segment.free_pages)).sum()
    }

    /// Pages free in warm segments.
    pub fn warm_pages(&self) -> u64 {
        self.segments.iter().filter(|s| s.warm).map(|s| u64::from(s.free_pages)).sum()
    }

    /// Pages in use.
    pub fn used_pages(&self) -> u64 {
        u64::from(self.segments()) * u64::from(SEGMENT_PAGES) - self.free_pages()
    }

    /// A block of `1 << order` pages from the segments there are: from segment `near` if it has
    /// one, else from a warm segment, else from the one with the fewest writers. None also if only
    /// the one that is being made ready has room, and there may be more.
    pub fn allocate(&mut self, order: u8, near: Option<u32>) -> Option<PageNumber> {
        let prepared = |at: u32| self.preparing == Some(at);
        let near = near.filter(|at| self.segments.get(*at as usize).is_some_and(|s| s.has(order)));
        let chosen = near.filter(|at| !prepared(*at)).or_else(|| {
            let usable = (0u32..).zip(&self.segments).filter(|(_, s)| s.has(order));
            let best = usable.min_by_key(|(at, s)| (!s.warm, prepared(*at), s.writers, *at));
            best.map(|(at, _)| at).filter(|at| !prepared(*at) || !self.may_grow())
        })?;
        let page = self.segments[chosen as usize].take(order)?;
        Some(PageNumber(chosen * SEGMENT_PAGES + page))
    }

    /// One more (or one fewer) writer has its place in this segment.
    pub fn writer(&mut self, segment: u32, comes: bool) {
        if let Some(segment) = self.segments.get_mut(segment as usize) {
            let change = if comes { 1 } else { -1 };
            segment.writers = segment.writers.saturating_add_signed(change);
        }
    }

    /// Gives a block back.
    ///
    /// # Panics
    /// If it was free.
    pub fn release(&mut self, page: PageNumber, order: u8) {
        let (segment, page) = (page.0 / SEGMENT_PAGES, page.0 % SEGMENT_PAGES);
        self.segments[segment as usize].give(page, order);
    }

    /// After a restart: this block is in use. False if it overlaps another one or lies outside.
    #[must_use]
    pub fn adopt(&mut self, page: PageNumber, order: u8) -> bool {
        let (segment, page) = (page.0 / SEGMENT_PAGES, page.0 % SEGMENT_PAGES);
        let aligned = order <= CHUNK_ORDER && page.is_multiple_of(1 << order);
        let segment = self.segments.get_mut(segment as usize);
        aligned && segment.is_some_and(|segment| segment.carve(page, order))
    }
}

#[cfg(test)]
mod tests {
    use super::{Allocator, PageNumber};
    use proptest::prelude::{any, prop, proptest};
    use std::collections::BTreeMap;
    use terral_format::local::geometry::SEGMENT_PAGES;

    #[test]
    fn a_writer_stays_in_its_segment_while_there_is_room() {
        let mut allocator = Allocator::new(2);
        allocator.grow();
        allocator.grow();
        assert_eq!(allocator.unused_cold(), Some(0));
        let first = allocator.allocate(9, Some(1)).expect("room");
        assert_eq!(first.0 / SEGMENT_PAGES, 1);
        allocator.warmed(0);
        assert_eq!(allocator.unused_cold(), None, "one is used, one is warm");
        assert_eq!(allocator.allocate(9, None).expect("room").0 / SEGMENT_PAGES, 0);
    }

    #[test]
    fn nobody_is_sent_where_memory_is_being_made_ready_while_there_is_another_place() {
        let mut allocator = Allocator::new(2);
        allocator.grow();
        allocator.prepares(Some(0));
        assert_eq!(allocator.allocate(9, None), None, "another segment may be made");
        allocator.grow();
        let at = |page: Option<PageNumber>| page.map(|page| page.0 / SEGMENT_PAGES);
        for _ in (0..SEGMENT_PAGES).step_by(1 << 9) {
            assert_eq!(at(allocator.allocate(9, Some(0))), Some(1));
        }
        assert_eq!(at(allocator.allocate(9, Some(0))), Some(0), "there is no other place");
        allocator.prepares(None);
        assert_eq!(at(allocator.allocate(9, None)), Some(0));
    }

    proptest! {
        #[test]
        fn no_two_chunks_overlap_and_all_come_back(
            steps in prop::collection::vec(
                (0u8..=9, any::<prop::sample::Index>(), any::<bool>()),
                1..300
            )
        ) {
            let mut allocator = Allocator::new(1);
            allocator.grow();
            let mut held: BTreeMap<u32, u8> = BTreeMap::new();
            for (order, pick, give) in steps {
                if give && !held.is_empty() {
                    let page = *held.keys().nth(pick.index(held.len())).expect("one is there");
                    let order = held.remove(&page).expect("held");
                    allocator.release(PageNumber(page), order);
                } else if let Some(page) = allocator.allocate(order, None) {
                    held.insert(page.0, order);
                }
                let pages: u64 = held.values().map(|order| 1u64 << order).sum();
                assert_eq!(allocator.used_pages(), pages);
                let mut end = 0;
                for (page, order) in &held {
                    assert!(*page >= end);
                    end = page + (1 << order);
                }
            }
            let mut again = Allocator::new(1);
            again.grow();
            for (page, order) in &held {
                assert!(again.adopt(PageNumber(*page), *order));
                assert!(!again.adopt(PageNumber(*page), *order));
            }
            assert_eq!(again.free_pages(), allocator.free_pages());
        }
    }
}
