//! Who waits for locks, and which waits would never end.
//!
//! Who holds which is in shared memory (`terral_format::local::lock_table`). Waits are not logged:
//! those who wait say so again. No I/O, no clock.

use std::collections::BTreeSet;
use std::time::Duration;

use terral_format::ids::SessionSlot;
use terral_format::wire::locks::{Lock, LockOwner};
use terral_format::wire::message::WAIT_REFRESH_MS;

use crate::core::world::Tick;

/// Who waits and has not said so again for so long waits no more.
const WAITS: Duration = Duration::from_millis(3 * WAIT_REFRESH_MS);
/// The same of one on another machine, who asks much more often, and does not say that he has given
/// up.
const WAITS_FAR: Duration = Duration::from_millis(500);

/// A thread that waits.
struct Wait {
    session: SessionSlot,
    thread: u32,
    lock: Lock,
    until: Tick,
}

/// All threads that have waited for a while.
#[derive(Default)]
pub struct Waits(Vec<Wait>);

impl Waits {
    /// A thread waits for `lock`, as of `now`.
    pub fn wait(&mut self, session: SessionSlot, thread: u32, lock: Lock, now: Tick) {
        self.0.retain(|wait| wait.until > now);
        self.stop(session, thread);
        let far = matches!(lock.owner, LockOwner::Far(_));
        let until = now + if far { WAITS_FAR } else { WAITS };
        self.0.push(Wait { session, thread, lock, until });
    }

    /// A thread does not wait any more.
    pub fn stop(&mut self, session: SessionSlot, thread: u32) {
        self.0.retain(|wait| wait.session != session || wait.thread != thread);
    }

    /// No thread of this session waits any more.
    pub fn ended(&mut self, session: SessionSlot) {
        self.0.retain(|wait| wait.session != session);
    }

    /// Whether somebody whom `lock` would wait for waits, himself or through others, for its owner;
    /// `holders` are those in the way of a lock. As the kernel has it, only processes count, not
    /// descriptions (fcntl(2)).
    pub fn is_deadlock(
        &mut self,
        lock: &Lock,
        now: Tick,
        holders: impl Fn(&Lock) -> Vec<LockOwner>,
    ) -> bool {
        self.0.retain(|wait| wait.until > now);
        let process = |owner: &LockOwner| owner.is_process();
        if !process(&lock.owner) {
            return false;
        }
        let mut reached = BTreeSet::new();
        let mut next = holders(lock);
        while let Some(owner) = next.pop() {
            if owner == lock.owner {
                return true;
            }
            if process(&owner) && reached.insert(owner) {
                let waits = self.0.iter().filter(|wait| wait.lock.owner == owner);
                next.extend(waits.flat_map(|wait| holders(&wait.lock)));
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use crate::core::world::Tick;
    use std::time::Duration;

    use terral_format::ids::{DescriptionSlot, Ino, SessionSlot};
    use terral_format::local::lock_set;
    use terral_format::wire::locks::{Lock, LockKind, LockOwner, LockRange};

    use super::Waits;

    fn owner(number: u32) -> LockOwner {
        match number {
            0 | 1 => LockOwner::process(number, 1),
            _ => LockOwner::Description(DescriptionSlot(9), 1),
        }
    }

    fn lock(of: u32, at: u64, kind: LockKind) -> Lock {
        Lock { ino: Ino(7), owner: owner(of), range: LockRange { first: at, last: at }, kind }
    }

    #[test]
    fn a_circle_of_processes_is_a_deadlock_until_one_stops_waiting() {
        let (mut waits, now) = (Waits::default(), Tick(0));
        let held = [
            lock(2, 0, LockKind::Shared),
            lock(0, 0, LockKind::Exclusive),
            lock(1, 1, LockKind::Exclusive),
        ];
        let holders = |lock: &Lock| -> Vec<LockOwner> {
            lock_set::conflicts(&held, lock).map(|held| held.owner).collect()
        };
        let wants = lock(0, 1, LockKind::Shared);
        assert!(!waits.is_deadlock(&wants, now, holders));
        waits.wait(SessionSlot(0), 1, wants, now);
        let other = lock(1, 0, LockKind::Exclusive);
        assert!(waits.is_deadlock(&other, now, holders));
        assert!(!waits.is_deadlock(&lock(2, 0, LockKind::Exclusive), now, holders));
        waits.stop(SessionSlot(0), 1);
        assert!(!waits.is_deadlock(&other, now, holders));
        waits.wait(SessionSlot(0), 1, wants, now);
        let late = now + Duration::from_secs(60);
        assert!(!waits.is_deadlock(&other, late, holders), "it does not say so again");
    }
}
