//! Whether a user's server is needed by nobody: it has nothing that its process must be there for,
//! and has said nothing to others for long.
//!
//! Invariant: one whose memory has anything that DIR has not, or that somebody has open, is needed.
//! Not here: what ends it (`host`), and what has it begin again (`users`).

use std::time::{Duration, Instant};

use terral_client::Status;

use crate::debt::is_safe;

/// What it had said to others when that was last more than before, and when.
#[derive(Default)]
pub struct Quiet(Option<(u64, Instant)>);

/// What a server has said to others, in all, and whether its process must be there.
pub fn needed(status: &Status) -> (u64, bool) {
    let said = status.partition.as_ref().map_or(0, |partition| partition.sent.operations);
    (said, status.sessions > 0 || status.open > 0 || !is_safe(&status.drain))
}

impl Quiet {
    /// Whether it has been so for that long, as far as was looked.
    pub fn for_long(&mut self, (said, must): (u64, bool), long: Duration, now: Instant) -> bool {
        let (before, since) = *self.0.get_or_insert((said, now));
        if must || said != before {
            self.0 = Some((said, now));
            return false;
        }
        now.duration_since(since) >= long
    }
}

#[cfg(test)]
mod tests {
    use super::{Duration, Instant, Quiet};

    #[test]
    fn it_is_quiet_once_nothing_was_said_and_it_has_nothing_for_long() {
        let (long, begin) = (Duration::from_secs(600), Instant::now());
        let at = |s| begin + Duration::from_secs(s);
        let mut quiet = Quiet::default();
        let mut is = |said, must, s| quiet.for_long((said, must), long, at(s));
        assert!(!is(0, false, 0) && !is(0, false, 599));
        // From when it is so no more.
        assert!(!is(1, false, 10_000) && !is(1, false, 10_599));
        assert!(!is(1, true, 20_000) && !is(1, false, 20_599));
        assert!(is(1, false, 20_600));
        assert!(!Quiet::default().for_long((1, false), long, at(30_000)), "who looks first waits");
    }
}
