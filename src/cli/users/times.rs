//! Whose server was started for whom, in a while that has not passed yet.
//!
//! Invariants: an owner counts once, however often his was started for the same asker; nothing is
//! kept of who has asked for nothing since. Not here: how many are too many (`bounds`).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// When last, by who has asked, and whose it was.
#[derive(Default)]
pub struct Times(BTreeMap<(u32, u32), Instant>);

impl Times {
    /// Those before are forgotten.
    pub fn forget(&mut self, long: Duration, now: Instant) {
        self.0.retain(|_, at| now.saturating_duration_since(*at) < long);
    }

    /// How many owners there were for one asker.
    pub fn of(&self, asker: u32) -> usize {
        self.0.range((asker, 0)..=(asker, u32::MAX)).count()
    }

    /// Whether this was one of them.
    pub fn knows(&self, asker: u32, owner: u32) -> bool {
        self.0.contains_key(&(asker, owner))
    }

    /// How many for all.
    pub fn all(&self) -> usize {
        self.0.len()
    }

    /// One more for him.
    pub fn has_one(&mut self, asker: u32, owner: u32, now: Instant) {
        self.0.insert((asker, owner), now);
    }
}
