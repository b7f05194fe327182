//! When what is dirty is brought to the permanent directory, and what of it: decided of facts that
//! the ledger keeps, and of the moment it is told. It has no state and no clock of its own.
//!
//! Not here: what must come before what (`drain`), which is no matter of taste.

use std::time::Duration;

use terral_format::local::geometry::CHUNK_BYTES;
use terral_format::local::names::{Inode, flag};

use crate::core::world::Tick;

/// What is known beside one debt.
#[derive(Clone, Copy, Default)]
pub struct Facts {
    /// When clients last changed names, if they did.
    pub names_changed: Option<Tick>,
    /// Somebody waits for the memory that a paid debt frees, or until all is safe.
    pub awaited: bool,
}

/// What is known of a file's debt.
#[derive(Clone, Copy)]
pub struct Standing {
    /// The drain has never looked at it.
    pub young: bool,
    /// The drain is at it.
    pub draining: bool,
    /// So often it failed since it went well.
    pub failures: u32,
}

/// What has happened to a file of which something is owed.
#[derive(Clone, Copy)]
pub enum Event {
    /// Somebody began to wait for any debt to be paid.
    Awaited,
    /// Somebody asked for all of it, and may have mended what was in the way.
    Asked,
    /// A writer was given memory from this offset on.
    Grown(u64),
    /// Nobody writes to it any more, and it has so many bytes.
    Closed(u64),
    /// The drain is through with it for now; somebody may change it further, or nobody.
    Passed {
        /// Somebody may.
        open: bool,
    },
    /// The drain could not do it; that is in what is known of it.
    Failed,
}

/// When, and to whom.
pub trait Policy: Send + Sync {
    /// Whether the directory is to get this file.
    fn takes(&self, file: &Inode) -> bool;

    /// When a debt that came at `since`, which nobody has looked at, may be paid; no earlier for
    /// one that came later.
    fn ripe(&self, since: Tick, facts: Facts) -> Tick;

    /// When a file has its turn after this; `None`: when it would have had it before.
    fn turn(&self, event: Event, of: Standing, now: Tick) -> Option<Tick>;

    /// How long nothing is tried that has failed so often, once or more.
    fn pause(&self, failures: u32) -> Duration;
}

/// A new debt waits so long, and while clients go on changing names up to the longer one: what is
/// removed, renamed or written again meanwhile costs the directory nothing, and the drain does not
/// take the cores from a program that makes many small files.
const LINGER: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));
/// Clients that have changed no name for so long do not go on.
const CALM: Duration = Duration::from_millis(200);
/// First and longest pause after a failure.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));
/// A file that stays open is looked at this often.
const OPEN: Duration = Duration::from_millis(500);
/// A file with so many bytes need not wait for others to become as large.
const LARGE_BYTES: u64 = 2 * CHUNK_BYTES;

/// The usual policy: every file that has a name, small ones after a moment, large ones at once.
#[derive(Clone, Copy, Default)]
pub struct Usual;

impl Policy for Usual {
    fn takes(&self, file: &Inode) -> bool {
        file.is(flag::NAMED)
    }

    fn ripe(&self, since: Tick, facts: Facts) -> Tick {
        if facts.awaited {
            return since;
        }
        let calm = facts.names_changed.map_or(since, |changed| changed + CALM);
        calm.clamp(since + LINGER.0, since + LINGER.1)
    }

    fn turn(&self, event: Event, of: Standing, now: Tick) -> Option<Tick> {
        let steady = of.failures == 0 && !of.draining;
        match event {
            // What failed would be tried as often as memory lacks.
            Event::Awaited => (of.failures == 0).then_some(now),
            Event::Asked => Some(now),
            Event::Grown(bytes) => (steady && of.young && bytes >= LARGE_BYTES).then_some(now),
            Event::Closed(bytes) => (steady && bytes >= LARGE_BYTES).then_some(now),
            Event::Passed { open } => Some(if open { now + OPEN } else { now }),
            Event::Failed => Some(now + self.pause(of.failures)),
        }
    }

    fn pause(&self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(30);
        PAUSE.0.saturating_mul(1 << doublings).min(PAUSE.1)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{CALM, Event, Facts, LARGE_BYTES, LINGER, OPEN, PAUSE, Policy, Standing, Usual};
    use crate::core::world::Tick;

    const NOW: Tick = Tick(1 << 40);
    const NEW: Standing = Standing { young: true, draining: false, failures: 0 };

    fn ripe(changed: Option<Tick>, awaited: bool) -> Duration {
        Usual.ripe(NOW, Facts { names_changed: changed, awaited }).since(NOW)
    }

    #[test]
    fn a_new_debt_waits_a_moment_and_longer_while_names_change_but_not_for_ever() {
        assert_eq!(ripe(None, false), LINGER.0);
        assert_eq!(ripe(Some(NOW), false), LINGER.0);
        let late = NOW + Duration::from_secs(3);
        assert_eq!(ripe(Some(late), false), Duration::from_secs(3) + CALM);
        assert_eq!(ripe(Some(NOW + 2 * LINGER.1), false), LINGER.1);
    }

    #[test]
    fn what_somebody_waits_for_is_due_at_once_unless_it_failed() {
        assert_eq!(ripe(Some(NOW + Duration::from_secs(3)), true), Duration::ZERO);
        assert_eq!(Usual.turn(Event::Awaited, NEW, NOW), Some(NOW));
        let failed = Standing { failures: 1, ..NEW };
        assert_eq!(Usual.turn(Event::Awaited, failed, NOW), None, "after its pause");
        assert_eq!(Usual.turn(Event::Asked, failed, NOW), Some(NOW), "who asks says when");
    }

    #[test]
    fn a_large_file_does_not_wait_for_its_turn_unless_it_failed_or_is_being_copied() {
        let large = [Event::Grown(LARGE_BYTES), Event::Closed(LARGE_BYTES)];
        let small = [Event::Grown(LARGE_BYTES - 1), Event::Closed(LARGE_BYTES - 1)];
        for (large, small) in large.into_iter().zip(small) {
            assert_eq!(Usual.turn(large, NEW, NOW), Some(NOW));
            assert_eq!(Usual.turn(small, NEW, NOW), None);
            let failed = Standing { failures: 1, ..NEW };
            let copied = Standing { draining: true, ..NEW };
            assert_eq!(Usual.turn(large, failed, NOW), None);
            assert_eq!(Usual.turn(large, copied, NOW), None);
        }
        let seen = Standing { young: false, ..NEW };
        assert_eq!(Usual.turn(Event::Grown(LARGE_BYTES), seen, NOW), None);
        assert_eq!(Usual.turn(Event::Closed(LARGE_BYTES), seen, NOW), Some(NOW));
    }

    #[test]
    fn what_failed_is_tried_again_after_a_pause_that_grows_up_to_a_bound() {
        let pauses: Vec<u128> = (1..=9).map(|times| Usual.pause(times).as_millis()).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 6400, 10000, 10000]);
        assert_eq!(Usual.pause(u32::MAX), PAUSE.1);
        let thrice = Standing { failures: 3, ..NEW };
        assert_eq!(Usual.turn(Event::Failed, thrice, NOW), Some(NOW + Duration::from_millis(400)));
    }

    #[test]
    fn a_file_that_stays_open_is_looked_at_now_and_then() {
        assert_eq!(Usual.turn(Event::Passed { open: true }, NEW, NOW), Some(NOW + OPEN));
        assert_eq!(Usual.turn(Event::Passed { open: false }, NEW, NOW), Some(NOW));
    }
}
