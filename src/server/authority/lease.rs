//! Until when a capability that another member has issued is known not to be revoked: as long as
//! the control has said so of late.
//!
//! Invariants: the term counts from when the control was asked, so it is over here before the
//! control thinks so; one question at a time. Not here: how it is asked (`sharing/leasing`).

use std::time::Duration;

use crate::core::world::Tick;

/// For how long the control's word counts.
pub const TERM: Duration = Duration::from_secs(5);
/// It is asked again once it is so old.
const RENEW: Duration = Duration::from_millis(1500);
/// Who waits for it gives up once it is so late.
const PATIENCE: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Debug, Default)]
pub struct Lease {
    /// How many questions there were: the number of the last.
    question: u64,
    /// When that was asked, if it has no answer.
    asked: Option<Tick>,
    until: Tick,
    /// When it was wanted first, of those times that followed each other, and last.
    wanted: Option<(Tick, Tick)>,
}

impl Lease {
    /// Until when it is good.
    pub fn until(&self) -> Tick {
        self.until
    }

    /// Whether it is good.
    pub fn is_good(&self, now: Tick) -> bool {
        now < self.until
    }

    /// Somebody needs it, and it is not good. False: it will not come.
    pub fn is_awaited(&mut self, now: Tick) -> bool {
        // Who wanted it before, and had no more patience, is no reason to have none now.
        let lately = self.wanted.filter(|(_, last)| now.since(*last) < TERM);
        let first = lately.map_or(now, |(first, _)| first);
        self.wanted = Some((first, now));
        now.since(self.until.max(first)) < PATIENCE
    }

    /// Whether the control was asked, and has not answered.
    pub fn is_asking(&self) -> bool {
        self.asked.is_some()
    }

    /// The question that the control is to be asked now, or was asked; if there is one.
    pub fn asks(&mut self, now: Tick) -> Option<u64> {
        let waits = self.asked.is_some_and(|asked| now.since(asked) < TERM);
        let fresh = self.until.since(now) > TERM - RENEW;
        if !waits && fresh {
            return None;
        }
        if !waits {
            (self.question, self.asked) = (self.question + 1, Some(now));
        }
        Some(self.question)
    }

    /// The control has answered that question: nothing was revoked that is not known here, or
    /// something was, which comes by itself.
    pub fn hears(&mut self, question: u64, is_known: bool) {
        let asked = self.asked.take_if(|_| question == self.question);
        if let Some(asked) = asked.filter(|_| is_known) {
            self.until = self.until.max(asked + TERM);
            self.wanted = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Lease, PATIENCE, TERM, Tick};

    fn at(millis: u64) -> Tick {
        Tick(0) + Duration::from_millis(millis)
    }

    #[test]
    fn a_term_counts_from_the_question_however_late_its_answer_is() {
        let mut lease = Lease::default();
        assert!(!lease.is_good(at(0)));
        let first = lease.asks(at(10)).expect("nothing is known");
        assert_eq!(lease.asks(at(3000)), Some(first), "it has no answer");
        lease.hears(first, true);
        assert!(lease.is_good(at(5009)) && !lease.is_good(at(5010)));
        // What is answered once more says nothing.
        lease.hears(first, true);
        assert_eq!(lease.until(), at(5010));
    }

    #[test]
    fn it_is_asked_for_again_in_good_time_and_a_lost_question_is_asked_anew() {
        let mut lease = Lease::default();
        let first = lease.asks(at(0)).expect("nothing is known");
        lease.hears(first, true);
        assert_eq!(lease.asks(at(1499)), None);
        let second = lease.asks(at(1500)).expect("it is old");
        assert_ne!(first, second);
        assert!(lease.is_good(at(4999)));
        let third = lease.asks(at(6500)).expect("it was lost");
        lease.hears(second, true);
        assert!(!lease.is_good(at(6501)), "that was asked too long ago");
        lease.hears(third, false);
        assert!(!lease.is_good(at(6501)), "there is more than is known here");
        let fourth = lease.asks(at(6502)).expect("it is not good");
        lease.hears(fourth, true);
        assert!(lease.is_good(at(6503)));
    }

    #[test]
    fn nobody_waits_for_it_for_ever() {
        let mut lease = Lease::default();
        let patience = PATIENCE.as_millis() as u64;
        let waits = |lease: &mut Lease, from: u64| {
            // They ask again and again.
            assert!((0..patience).step_by(1000).all(|late| lease.is_awaited(at(from + late))));
            assert!(!lease.is_awaited(at(from + patience)));
        };
        waits(&mut lease, 1000);
        // Long after.
        waits(&mut lease, 100_000);
        let first = lease.asks(at(200_000)).expect("it is not good");
        assert!(lease.is_asking());
        lease.hears(first, true);
        assert!(!lease.is_asking());
        waits(&mut lease, 200_000 + TERM.as_millis() as u64);
    }
}
