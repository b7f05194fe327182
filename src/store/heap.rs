//! Which granules of a heap are free: by length, and beyond the last one in use.
//!
//! It holds no truth of its own: after a restart it follows from what is in use.

/// Free places of a heap. Granule 0 is never used.
#[derive(Default)]
pub struct Heap {
    next: u32,
    free: Vec<Vec<u32>>,
}

impl Heap {
    /// One in which these places are in use: first granule and length, in any order.
    pub fn with(mut used: Vec<(u32, u32)>) -> Self {
        used.sort_unstable();
        let mut heap = Heap { next: 1, free: Vec::new() };
        for (place, granules) in used {
            heap.give(heap.next, place.saturating_sub(heap.next));
            heap.next = heap.next.max(place + granules);
        }
        heap
    }

    /// Granules from here on were never used.
    pub fn end(&self) -> u32 {
        self.next.max(1)
    }

    /// A free place of so many granules.
    pub fn take(&mut self, granules: u32) -> u32 {
        if let Some(place) = self.free.get_mut(granules as usize).and_then(Vec::pop) {
            return place;
        }
        let place = self.end();
        self.next = place + granules;
        place
    }

    /// A place is free again.
    pub fn give(&mut self, place: u32, granules: u32) {
        if granules == 0 {
            return;
        }
        if granules as usize >= self.free.len() {
            self.free.resize(granules as usize + 1, Vec::new());
        }
        self.free[granules as usize].push(place);
    }
}

#[cfg(test)]
mod tests {
    use super::Heap;

    #[test]
    fn what_is_in_use_is_never_given_and_gaps_are_used_again() {
        let mut heap = Heap::with(vec![(10, 2), (1, 3)]);
        assert_eq!(heap.take(6), 4);
        assert_eq!(heap.take(6), 12);
        heap.give(1, 3);
        assert_eq!((heap.take(3), heap.take(3)), (1, 18));
    }
}
