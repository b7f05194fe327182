//! The partition's time: what a machine's own clock says, and an offset that its server keeps in
//! shared memory. Times of files are by it, on every machine alike. Of a server that is alone the
//! offset is 0.
//!
//! Only the server writes the word; who stamps a file adds it. Not by it: when a capability runs
//! out, and all that is measured.

use crate::local::sync::{AtomicU64, Ordering};

/// The partition's time, when this machine's clock says `wall_ns` (both nanoseconds since 1970).
#[inline]
pub fn time_ns(offset: &AtomicU64, wall_ns: u64) -> u64 {
    wall_ns.saturating_add_signed(offset.load(Ordering::Relaxed) as i64)
}

/// What this machine's clock says when the partition's time is `time_ns`.
#[inline]
pub fn wall_ns(offset: &AtomicU64, time_ns: u64) -> u64 {
    time_ns.saturating_sub_signed(offset.load(Ordering::Relaxed) as i64)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{time_ns, wall_ns};
    use std::sync::atomic::AtomicU64;

    #[test]
    fn a_clock_behind_or_ahead_is_set_right_and_back() {
        for (offset, time) in [(0, 1000), (30, 1030), (-30, 970)] {
            let word = AtomicU64::new(offset as u64);
            assert_eq!((time_ns(&word, 1000), wall_ns(&word, time)), (time, 1000));
        }
    }

    #[test]
    fn no_offset_takes_a_time_beyond_what_there_is() {
        let word = |offset: i64| AtomicU64::new(offset as u64);
        assert_eq!((time_ns(&word(-5), 3), wall_ns(&word(5), 3)), (0, 0));
        assert_eq!(time_ns(&word(i64::MAX), u64::MAX), u64::MAX);
        assert_eq!(wall_ns(&word(i64::MIN), u64::MAX), u64::MAX);
    }
}
