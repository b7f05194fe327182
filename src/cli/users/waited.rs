//! How long a user's server that was told to leave is waited for.
//!
//! Invariant: one that says nothing for so long, that owes no less (programs that use it count), or
//! that has owed nothing so long ago, and has not left, is not waited for. One that says that it
//! brings something all the time is, as nobody else knows what it owes: signals end that. Not here:
//! what becomes of it (`leaving`).

use std::time::{Duration, Instant};

use crate::gathering::Standing;

/// What is heard of one.
pub(super) struct Waited {
    /// When it has said something last.
    heard: Instant,
    /// When it has owed nothing first; that it owes something again is no progress.
    rests: Option<Instant>,
    standing: Option<Standing>,
    /// It has got no further for too long.
    stands: bool,
}

impl Waited {
    /// It was told to leave now.
    pub fn since(now: Instant) -> Self {
        Waited { heard: now, rests: None, standing: None, stands: false }
    }

    /// It says now that it owes so much.
    pub fn says(&mut self, owed: u64, now: Instant, deaf: Duration) {
        self.heard = now;
        self.rests = self.rests.or((owed == 0).then_some(now));
        let standing = self.standing.get_or_insert_with(|| Standing::first(owed, now));
        self.stands |= standing.is(owed, now, deaf);
    }

    /// Whether it has owed nothing for so long.
    pub fn has_rested(&self, now: Instant, long: Duration) -> bool {
        self.rests.is_some_and(|since| now.duration_since(since) > long)
    }

    /// Whether it is not waited for any longer.
    pub fn is_over(&self, now: Instant, deaf: Duration) -> bool {
        let is_deaf = now.duration_since(self.heard) > deaf;
        self.stands || is_deaf || self.has_rested(now, deaf)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::Waited;

    const DEAF: Duration = Duration::from_secs(60);
    const SECOND: Duration = Duration::from_secs(1);

    /// After how many seconds one is not waited for that says this each second.
    fn waited(says: impl Fn(u32) -> Option<u64>) -> Option<u32> {
        let begin = Instant::now();
        let mut waited = Waited::since(begin);
        (1..1000).find(|second| {
            let now = begin + SECOND * *second;
            if let Some(owed) = says(*second) {
                waited.says(owed, now, DEAF);
            }
            waited.is_over(now, DEAF)
        })
    }

    #[test]
    fn one_that_owes_nothing_and_does_not_leave_is_not_waited_for() {
        assert_eq!(waited(|_| Some(0)), Some(62));
        assert_eq!(waited(|second| Some(u64::from(second % 20 == 0))), Some(62));
        assert_eq!(waited(|second| Some(u64::from(200_u32.saturating_sub(second)))), Some(261));
    }

    #[test]
    fn one_that_brings_something_is_waited_for_and_one_that_gets_no_further_is_not() {
        assert_eq!(waited(|second| Some(u64::from(5000 - second))), None);
        assert_eq!(waited(|_| Some(7)), Some(62));
        // It cannot say that it brings more than it does.
        assert_eq!(waited(|second| Some(1 + u64::from(second % 2))), Some(63));
        assert!(waited(|second| Some(u64::from(second))).is_some_and(|after| after < 100));
    }

    #[test]
    fn one_that_says_nothing_is_not_waited_for() {
        assert_eq!(waited(|_| None), Some(61));
        let until_100 = |second| Some(u64::from(1000 - second)).filter(|_| second <= 100);
        assert_eq!(waited(until_100), Some(161));
    }
}
