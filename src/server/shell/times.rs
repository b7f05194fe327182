//! The partition's time is that of the control's machine. Each other member asks it what time it
//! has when they meet, before it says where it can be reached, and then now and then, as clocks
//! drift and are set; what its own clock lacks goes into shared memory, for all that stamps files.
//!
//! Invariant: as long as what was heard leaves the offset possible it stays as it is, so time does
//! not jump by what a frame happens to take. Not here: what is stamped (`format/local/clock`).

use std::sync::atomic::Ordering;
use std::time::Duration;

use terral_format::moment::Moment;

use crate::core::state::State;

/// How often it is asked again.
pub const EVERY: Duration = Duration::from_secs(10);

/// What the control has said: that it had `time_ns` at some moment since it was `asked`.
pub fn heard(state: &State, asked: Moment, time_ns: u64, now: Moment) {
    let word = state.storage.memory().clock_offset();
    let known = word.load(Ordering::Relaxed) as i64;
    let way_ns = now.0.saturating_sub(asked.0);
    let offset = offset(known, time_ns, state.world.wall_ns(), way_ns);
    word.store(offset as u64, Ordering::Relaxed);
}

/// What this machine's clock lacks, if it shows `wall_ns` now and the control's showed `time_ns` at
/// some moment of the last `way_ns`.
fn offset(known: i64, time_ns: u64, wall_ns: u64, way_ns: u64) -> i64 {
    // The control's clock shows something between the two now.
    let least = (i128::from(time_ns) - i128::from(wall_ns)).clamp(i64::MIN.into(), i64::MAX.into());
    let least = least as i64;
    let most = least.saturating_add_unsigned(way_ns);
    if (least..=most).contains(&known) { known } else { least.saturating_add_unsigned(way_ns / 2) }
}

#[cfg(test)]
mod tests {
    use super::offset;

    #[test]
    fn an_offset_that_may_be_right_stays_and_another_one_is_set_right_within_half_the_way() {
        for (known, ahead, way, expected) in [
            (0, 0, 100, 0),
            (0, 900, 100, 950),
            (980, 900, 100, 980),
            (1001, 900, 100, 950),
            (0, -700, 100, -650),
            (-600, -700, 100, -600),
            (5, 7, 0, 7),
        ] {
            let found = offset(known, 10_000, (10_000 - ahead) as u64, way);
            assert_eq!(found, expected, "{known} {ahead} {way}");
        }
    }

    #[test]
    fn no_time_that_is_said_is_beyond_what_there_is() {
        assert_eq!(offset(0, u64::MAX, 0, u64::MAX), i64::MAX);
        assert_eq!(offset(1, 0, u64::MAX, 0), i64::MIN);
    }
}
