//! Who has revoked something, and waits until all members have heard of it.
//!
//! Not here: how they hear (`members/telling`).

use std::collections::BTreeMap;
use std::time::Duration;

use terral_format::ids::{Asker, SessionSlot};

use super::lease::TERM;
use crate::core::world::Tick;

/// The lease of a member that has not heard is over by then, whatever its clock.
const OVER: Duration = Duration::from_millis(TERM.as_millis() as u64 + 100);
/// Who does not come for his answer for so long is gone.
const GONE: Duration = Duration::from_secs(60);

/// What was revoked here, for somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun {
    /// From this version of the roster on it counts.
    pub version: u64,
    /// So many sessions here may do less.
    pub sessions: u32,
    /// When.
    pub since: Tick,
}

impl Begun {
    /// Whether a capability that was handed out is good nowhere any more, whoever has heard.
    pub fn is_over(&self, now: Tick) -> bool {
        now.since(self.since) >= OVER
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Hearing {
    begun: BTreeMap<Asker, Begun>,
    /// Who waits to begin, and since when.
    waits: BTreeMap<Asker, Tick>,
}

impl Hearing {
    /// What this one has revoked.
    pub fn of(&self, asker: Asker) -> Option<Begun> {
        self.begun.get(&asker).copied()
    }

    /// He waits to begin. Since when he does.
    pub fn waits(&mut self, asker: Asker, now: Tick) -> Tick {
        *self.waits.entry(asker).or_insert(now)
    }

    /// He does not any more.
    pub fn waits_no_more(&mut self, asker: Asker) {
        self.waits.remove(&asker);
    }

    /// He begins to wait.
    pub fn begins(&mut self, asker: Asker, begun: Begun) {
        self.begun.insert(asker, begun);
    }

    /// He has his answer.
    pub fn ends(&mut self, asker: Asker) {
        self.begun.remove(&asker);
    }

    /// A session is over: the next one of its number, which asks under the same numbers, has asked
    /// for nothing yet.
    pub fn has_ended(&mut self, session: SessionSlot) {
        self.begun.retain(|asker, _| asker.session != session);
        self.waits.retain(|asker, _| asker.session != session);
    }

    /// Whether somebody waits. Time has passed: who is gone does not.
    pub fn tick(&mut self, now: Tick) -> bool {
        self.begun.retain(|_, begun| now.since(begun.since) < GONE);
        self.waits.retain(|_, since| now.since(*since) < GONE);
        !self.begun.is_empty() || !self.waits.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::{Asker, Begun, Hearing, SessionSlot, Tick};

    #[test]
    fn what_a_program_began_that_was_killed_is_not_taken_for_what_the_next_one_asks() {
        let asker = |session| Asker { session: SessionSlot(session), index: 0, sequence: 1 };
        let begun = Begun { version: 7, sessions: 0, since: Tick(0) };
        let mut hearing = Hearing::default();
        for session in [1, 2] {
            hearing.begins(asker(session), begun);
            hearing.waits(asker(session), Tick(5));
        }
        hearing.has_ended(SessionSlot(1));
        assert_eq!([1, 2].map(|session| hearing.of(asker(session))), [None, Some(begun)]);
        assert_eq!(hearing.waits(asker(1), Tick(9)), Tick(9), "it has not waited yet");
        assert_eq!(hearing.waits(asker(2), Tick(9)), Tick(5));
    }
}
