//! How long reads and writes take, for the counters of a session.
//!
//! Asking for the time takes as long as copying 1 KiB, so of many small transfers one in so many is
//! timed, and stands for the others. Not here: the counters.

use std::time::Instant;

/// From so many bytes on each is timed.
const LARGE: usize = 64 << 10;
/// So many of a session are timed in any case.
const FIRST: u64 = 64;
/// Of the others, one of so many.
const ONE_OF: u64 = 16;

/// A transfer that has begun.
pub(crate) struct Timed {
    begin: Option<Instant>,
    stands_for: u64,
}

impl Timed {
    /// Of so many bytes, after so many of its kind.
    #[inline]
    pub(crate) fn begin(bytes: usize, before: u64) -> Self {
        let each = bytes >= LARGE || before < FIRST;
        let timed = each || before.is_multiple_of(ONE_OF);
        let stands_for = if each { 1 } else { ONE_OF };
        Timed { begin: timed.then(Instant::now), stands_for }
    }

    /// Nanoseconds to count for it and those that it stands for.
    #[inline]
    pub(crate) fn ns(&self) -> u64 {
        self.begin.map_or(0, |begin| begin.elapsed().as_nanos() as u64 * self.stands_for)
    }
}

#[cfg(test)]
mod tests {
    use super::{FIRST, LARGE, ONE_OF, Timed};

    #[test]
    fn one_of_many_small_ones_stands_for_all() {
        let weight = |bytes, before| {
            let timed = Timed::begin(bytes, before);
            if timed.begin.is_some() { timed.stands_for } else { 0 }
        };
        let (few, many) = (0..FIRST, FIRST..FIRST + 10 * ONE_OF);
        assert_eq!(few.map(|before| weight(1, before)).sum::<u64>(), FIRST);
        assert_eq!(many.clone().map(|before| weight(1, before)).sum::<u64>(), 10 * ONE_OF);
        assert_eq!(many.map(|before| weight(LARGE, before)).sum::<u64>(), 10 * ONE_OF);
    }
}
