//! What of the drain's work fails again and again, beside the copying of one file: why, until when
//! it is not tried, and how often it has failed since it went well. Each kind of work has a pause
//! of its own: what fails of the one is no reason not to do the other.

use crate::core::world::Tick;
use crate::debts::policy::Policy;

/// What may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// To write the log, without which nothing is done in the store.
    Log,
    /// To find out what became of versions.
    Versions,
    /// To throw versions away.
    Discards,
    /// The next name operation.
    Names,
    /// To have the store keep what it has.
    Sync,
    /// What is looked after now and then; that has a clock of its own.
    Tending,
}

impl Work {
    const COUNT: usize = Work::Tending as usize + 1;
}

struct Failure {
    why: String,
    until: Tick,
    times: u32,
}

/// What has failed, and not gone well since.
#[derive(Default)]
pub struct Failures([Option<Failure>; Work::COUNT]);

impl Failures {
    /// It failed. Gives when it may be tried again.
    pub fn failed(&mut self, work: Work, why: String, policy: &dyn Policy, now: Tick) -> Tick {
        let slot = &mut self.0[work as usize];
        let times = slot.as_ref().map_or(0, |failure| failure.times).saturating_add(1);
        let until = now + policy.pause(times);
        *slot = Some(Failure { why, until, times });
        until
    }

    /// It went well, or there is nothing of it to do.
    pub fn went_well(&mut self, work: Work) {
        self.0[work as usize] = None;
    }

    /// Until when it is not tried, if it is not now.
    pub fn paused(&self, work: Work, now: Tick) -> Option<Tick> {
        self.0[work as usize].as_ref().map(|failure| failure.until).filter(|until| *until > now)
    }

    /// Why it has failed, if it has not gone well since.
    pub fn why(&self, work: Work) -> Option<&str> {
        self.0[work as usize].as_ref().map(|failure| &*failure.why)
    }

    /// The same of all.
    pub fn all(&self) -> impl Iterator<Item = &str> {
        self.0.iter().flatten().map(|failure| &*failure.why)
    }
}

#[cfg(test)]
mod tests {
    use super::{Failures, Tick, Work};
    use crate::debts::policy::{Policy, Usual};

    #[test]
    fn each_work_pauses_for_itself_and_for_longer_each_time_it_fails() {
        let mut failures = Failures::default();
        let (first, now) = (Usual.pause(1), Tick(7));
        assert_eq!(failures.failed(Work::Sync, "away".into(), &Usual, now), now + first);
        assert_eq!(failures.failed(Work::Sync, "still".into(), &Usual, now), now + Usual.pause(2));
        assert_eq!(failures.failed(Work::Names, "full".into(), &Usual, now), now + first);
        assert_eq!(failures.all().collect::<Vec<_>>(), ["full", "still"]);
        assert_eq!(failures.paused(Work::Sync, now), Some(now + Usual.pause(2)));
        assert_eq!(failures.paused(Work::Sync, now + Usual.pause(2)), None, "it may be tried");
        assert_eq!(failures.paused(Work::Log, now), None);
        failures.went_well(Work::Names);
        assert_eq!((failures.why(Work::Sync), failures.why(Work::Names)), (Some("still"), None));
        assert_eq!(failures.failed(Work::Names, "again".into(), &Usual, now), now + first);
    }
}
