//! How long things last: the lease, how long one waits, when it is calm.
//!
//! Not here: a clock. Each input says when it is.

use std::time::Duration;

pub use terral_format::moment::Moment;

/// How long things last. The same for all members of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Terms {
    /// The lease of a pair: how long what was shown may be used, from when its holder asked.
    pub lease: Duration,
    /// How far two clocks may differ in what they count, in parts of a thousand.
    pub drift_per_mille: u32,
    /// How long an operation waits for a member that says nothing, before it is an error.
    pub patience: Duration,
    /// After so long without changes by more than one member a thing may be lent again.
    pub calm: Duration,
}

impl Terms {
    /// Those of every partition.
    pub const USUAL: Terms = Terms {
        lease: Duration::from_secs(5),
        drift_per_mille: 10,
        patience: Duration::from_secs(60),
        calm: Duration::from_secs(1),
    };

    /// How long the lender waits: a term by its holder's clock, which is slower by the drift.
    pub fn promise(&self) -> Duration {
        self.lease + self.lease * self.drift_per_mille / 1000 + Duration::from_nanos(1)
    }
}

#[cfg(test)]
mod tests {
    use super::Terms;

    #[test]
    fn who_lent_waits_longer_than_the_slowest_clock_makes_a_term() {
        let Terms { lease, .. } = Terms::USUAL;
        let by_a_slow_clock = lease.as_nanos() * 1000 / 991;
        assert!(Terms::USUAL.promise().as_nanos() > by_a_slow_clock);
        assert!(Terms::USUAL.promise() < lease * 102 / 100);
    }
}
