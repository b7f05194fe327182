//! When something was done for whom, in a while that has not passed yet.
//!
//! Invariant: nothing is kept of who has asked for nothing since. Not here: how many are too many
//! (`bounds`).

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// Moments in the last while, by who has asked.
#[derive(Default)]
pub struct Times(BTreeMap<u32, VecDeque<Instant>>);

impl Times {
    /// Those before are forgotten.
    pub fn forget(&mut self, long: Duration, now: Instant) {
        self.0.retain(|_, times| {
            times.retain(|at| now.duration_since(*at) < long);
            !times.is_empty()
        });
    }

    /// How many of one.
    pub fn of(&self, asker: u32) -> usize {
        self.0.get(&asker).map_or(0, VecDeque::len)
    }

    /// How many of all.
    pub fn all(&self) -> usize {
        self.0.values().map(VecDeque::len).sum()
    }

    /// One more of his.
    pub fn has_one(&mut self, asker: u32, now: Instant) {
        self.0.entry(asker).or_default().push_back(now);
    }
}
