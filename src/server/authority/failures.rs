//! Logins that failed: who tries the same proof again and again is not looked at any more for a
//! while, nor is anybody where too many different ones fail. So they cost a bounded time, and a
//! bounded number of lines in `audit`.

use std::collections::BTreeMap;
use std::time::Duration;

use terral_format::{Error, ErrorKind, Result};

use crate::core::world::Tick;

/// What failed is remembered for so long.
const LASTS: Duration = Duration::from_secs(60);
/// Most failures of one key, or token, in that time; and of all.
const MOST: (u32, u32) = (8, 1024);

/// Those of the last minute.
#[derive(Default)]
pub struct Failures {
    /// By what tells one key, or token, from another: when the first was, and how many.
    all: BTreeMap<u64, (Tick, u32)>,
}

impl Failures {
    /// Whether a proof may be looked at.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] if not now.
    pub fn admit(&mut self, now: Tick, who: u64) -> Result<()> {
        self.all.retain(|_, (first, _)| now.since(*first) < LASTS);
        let own = self.all.get(&who).map_or(0, |(_, count)| *count);
        let all: u32 = self.all.values().map(|(_, count)| *count).sum();
        if own >= MOST.0 || all >= MOST.1 {
            let what = "too many logins failed: try again in a minute";
            return Err(Error::new(ErrorKind::Busy, what));
        }
        Ok(())
    }

    /// One has failed.
    pub fn add(&mut self, now: Tick, who: u64) {
        self.all.entry(who).or_insert((now, 0)).1 += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::{Failures, LASTS, MOST, Tick};
    use std::time::Duration;

    #[test]
    fn who_fails_again_and_again_waits_and_others_do_not() {
        let (mut failures, now) = (Failures::default(), Tick(5));
        for _ in 0..MOST.0 {
            assert!(failures.admit(now, 1).is_ok());
            failures.add(now, 1);
        }
        assert!(failures.admit(now, 1).is_err() && failures.admit(now, 2).is_ok());
        assert!(failures.admit(now + (LASTS - Duration::from_nanos(1)), 1).is_err());
        assert!(failures.admit(now + LASTS, 1).is_ok());
    }

    #[test]
    fn all_together_are_bounded() {
        let (mut failures, now) = (Failures::default(), Tick(5));
        let tried = (0..10_000).take_while(|who| {
            let may = failures.admit(now, *who).is_ok();
            failures.add(now, *who);
            may
        });
        assert_eq!(tried.count(), MOST.1 as usize);
        assert!(failures.admit(now + LASTS, 0).is_ok());
    }
}
