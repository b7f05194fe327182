//! The name operations' debt: since when they wait, up to which one they are just being brought,
//! and what has kept them. Which are owed, the namespace knows.

use terral_format::ids::Lsn;

use crate::core::world::Tick;
use crate::debts::policy::Policy;

/// All that.
#[derive(Default)]
pub struct NamesOwed {
    /// Why they stand still, until when, and how often they failed.
    failure: Option<(String, Tick, u32)>,
    since: Option<Tick>,
    /// Those up to this one are just being brought, one after the other.
    until: Option<Lsn>,
}

impl NamesOwed {
    /// One failed, and may be tried again then.
    pub fn failed(&mut self, why: String, policy: &dyn Policy, now: Tick) -> Tick {
        let failures = self.failure.as_ref().map_or(0, |(.., failures)| *failures) + 1;
        let until = now + policy.pause(failures);
        self.failure = Some((why, until, failures));
        until
    }

    /// One went well.
    pub fn went_well(&mut self) {
        self.failure = None;
    }

    /// None is owed.
    pub fn paid(&mut self) {
        *self = NamesOwed::default();
    }

    /// Why they stand still, if they do.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_ref().map(|(why, ..)| &**why)
    }

    /// Until when nothing is tried, after a failure.
    pub fn paused_until(&self) -> Option<Tick> {
        self.failure.as_ref().map(|(_, until, _)| *until)
    }

    /// Since when the oldest waits.
    pub fn since(&self) -> Option<Tick> {
        self.since
    }

    /// Whether the operation `next` must wait for the turn of those that came with it: since when
    /// they do. All that are owed when a turn begins go together; those that come meanwhile wait
    /// for their own.
    pub fn waits_since(&mut self, next: Lsn, now: Tick) -> Option<Tick> {
        if self.until.is_some_and(|until| until >= next) {
            return None;
        }
        if self.until.take().is_some() {
            self.since = None;
        }
        Some(*self.since.get_or_insert(now))
    }

    /// The turn begins, of those up to this one.
    pub fn begin(&mut self, last: Option<Lsn>) {
        self.until = last;
    }
}

#[cfg(test)]
mod tests {
    use super::{Lsn, NamesOwed, Tick};
    use crate::debts::policy::{Policy, Usual};

    #[test]
    fn what_comes_during_a_turn_waits_for_its_own() {
        let mut names = NamesOwed::default();
        assert_eq!(names.waits_since(Lsn(1), Tick(5)), Some(Tick(5)));
        assert_eq!(names.waits_since(Lsn(1), Tick(9)), Some(Tick(5)));
        names.begin(Some(Lsn(2)));
        assert_eq!(names.waits_since(Lsn(1), Tick(10)), None);
        assert_eq!(names.waits_since(Lsn(2), Tick(11)), None);
        assert_eq!(names.waits_since(Lsn(3), Tick(12)), Some(Tick(12)), "came meanwhile");
        names.paid();
        assert_eq!(names.since(), None);
    }

    #[test]
    fn failures_pause_all_names_for_longer_each_time() {
        let mut names = NamesOwed::default();
        let (first, now) = (Usual.pause(1), Tick(7));
        assert_eq!(names.failed("away".into(), &Usual, now), now + first);
        assert_eq!(names.failed("still".into(), &Usual, now), now + Usual.pause(2));
        assert_eq!(names.failure(), Some("still"));
        names.went_well();
        assert_eq!((names.failure(), names.paused_until()), (None, None));
        assert_eq!(names.failed("again".into(), &Usual, now), now + first);
    }
}
