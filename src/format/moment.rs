//! A moment on a machine's own clock. Not here: clocks, and the partition's time
//! ([`crate::local::clock`]).

use std::ops::Add;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A moment on the machine's `CLOCK_BOOTTIME`, in nanoseconds, as the deadline word is: it goes on
/// while the machine sleeps, and is the same for a process and the one after it. Never compared
/// with another machine's.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Moment(pub u64);

impl Add<Duration> for Moment {
    type Output = Moment;

    fn add(self, later: Duration) -> Moment {
        Moment(self.0.saturating_add(u64::try_from(later.as_nanos()).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::Moment;
    use std::time::Duration;

    #[test]
    fn there_is_a_last_moment() {
        assert_eq!(Moment(1) + Duration::from_secs(1), Moment(1_000_000_001));
        assert_eq!(Moment(u64::MAX) + Duration::from_secs(1), Moment(u64::MAX));
        assert_eq!(Moment(1) + Duration::MAX, Moment(u64::MAX));
    }
}
