//! Who waits for locks, and which waits would never end.
//!
//! Who holds which is in shared memory (`terral_format::local::lock_table`). Waits are not logged:
//! those who wait say so again. No I/O, no clock.

use std::collections::BTreeSet;
use std::time::Duration;

use terral_format::ids::{Ino, Member, SessionSlot};
use terral_format::wire::locks::{FarOwner, Lock, LockOwner, Locker, Waiting};
use terral_format::wire::message::WAIT_REFRESH_MS;

use crate::core::world::Tick;

/// Who waits and has not said so again for so long waits no more.
const WAITS: Duration = Duration::from_millis(3 * WAIT_REFRESH_MS);
/// The same of one on another machine, who asks much more often, and does not say that he has given
/// up.
pub(super) const WAITS_FAR: Duration = Duration::from_millis(500);
/// Who was found to wait for ever, on several machines, is told so if he asks within this.
const DOOMED: Duration = Duration::from_millis(2 * WAIT_REFRESH_MS);
/// Most waits of which others are told.
const TOLD_MAX: usize = 4096;
/// Most holders of what one of them waits for.
const HOLDERS_MAX: usize = 64;

/// Who waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiter {
    /// A thread of a session.
    Thread(SessionSlot, u32),
    /// Somebody on another machine, in this one of his waits.
    Far(FarOwner, u32),
}

/// One that waits.
struct Wait {
    waiter: Waiter,
    lock: Lock,
    since: Tick,
    until: Tick,
    /// It would for ever; to be said until then.
    doomed: Option<Tick>,
}

/// All threads that have waited for a while.
#[derive(Default)]
pub struct Waits(Vec<Wait>);

impl Waits {
    /// Somebody waits for `lock`, still or from now on.
    pub fn wait(&mut self, waiter: Waiter, lock: Lock, now: Tick) {
        self.0.retain(|wait| wait.until > now);
        let far = matches!(waiter, Waiter::Far(..));
        let until = now + if far { WAITS_FAR } else { WAITS };
        match self.0.iter_mut().find(|wait| wait.waiter == waiter && wait.lock == lock) {
            Some(wait) => wait.until = until,
            None => {
                self.stop(waiter);
                self.0.push(Wait { waiter, lock, since: now, until, doomed: None });
            }
        }
    }

    /// Somebody does not wait any more.
    pub fn stop(&mut self, waiter: Waiter) {
        self.0.retain(|wait| wait.waiter != waiter);
    }

    /// No thread of this session waits any more.
    pub fn ended(&mut self, session: SessionSlot) {
        self.0.retain(|wait| !matches!(wait.waiter, Waiter::Thread(of, _) if of == session));
    }

    /// Whether somebody waits for a lock of a file.
    pub fn is_wanted(&self, ino: Ino, now: Tick) -> bool {
        self.0.iter().any(|wait| wait.lock.ino == ino && wait.counts(now))
    }

    /// Whether anybody waits.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The processes that wait, and for whom; those that are on other machines, and those on this
    /// one, `me`.
    pub fn told(
        &self,
        me: Member,
        now: Tick,
        holders: impl Fn(&Lock) -> Vec<LockOwner>,
    ) -> Vec<Waiting> {
        let everywhere = |owner| FarOwner::everywhere(me, owner);
        let told = |wait: &Wait| {
            let its = holders(&wait.lock).into_iter().map(everywhere);
            let processes = its.filter(|holder| holder.locker == Locker::Process);
            let holders = processes.take(HOLDERS_MAX).collect();
            let (waiter, since_ns) = (everywhere(wait.lock.owner), wait.since.0);
            Waiting { waiter, since_ns, holders }
        };
        let waits = self.0.iter().filter(|wait| wait.counts(now) && wait.lock.owner.is_process());
        waits.take(TOLD_MAX).map(told).collect()
    }

    /// This wait of a process would never end: who waits so is told.
    pub fn doom(&mut self, me: Member, (waiter, since_ns): (FarOwner, u64), now: Tick) {
        let is_it = |wait: &&mut Wait| {
            wait.since.0 == since_ns && FarOwner::everywhere(me, wait.lock.owner) == waiter
        };
        let its = self.0.iter_mut().filter(is_it);
        its.for_each(|wait| wait.doomed = Some(now + DOOMED));
    }

    /// Whether that was found of one who asks again.
    pub fn is_doomed(&self, waiter: Waiter, lock: &Lock, now: Tick) -> bool {
        let is_it = |wait: &&Wait| wait.waiter == waiter && wait.lock == *lock;
        let doomed = self.0.iter().find(is_it).and_then(|wait| wait.doomed);
        doomed.is_some_and(|until| now < until)
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
                let its = |wait: &&Wait| wait.lock.owner == owner && wait.counts(now);
                let waits = self.0.iter().filter(its);
                next.extend(waits.flat_map(|wait| holders(&wait.lock)));
            }
        }
        false
    }
}

impl Wait {
    /// Whether it is there still, and not about to end.
    fn counts(&self, now: Tick) -> bool {
        now < self.until && self.doomed.is_none()
    }
}

#[cfg(test)]
mod tests {
    use crate::core::world::Tick;
    use std::time::Duration;

    use terral_format::ids::{DescriptionSlot, Ino, SessionSlot};
    use terral_format::local::lock_set;
    use terral_format::wire::locks::{Lock, LockKind, LockOwner, LockRange};

    use super::{Waiter, Waits};

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
        let waiter = Waiter::Thread(SessionSlot(0), 1);
        waits.wait(waiter, wants, now);
        let other = lock(1, 0, LockKind::Exclusive);
        assert!(waits.is_deadlock(&other, now, holders));
        assert!(!waits.is_deadlock(&lock(2, 0, LockKind::Exclusive), now, holders));
        waits.stop(waiter);
        assert!(!waits.is_deadlock(&other, now, holders));
        let waiter = Waiter::Thread(SessionSlot(0), 1);
        waits.wait(waiter, wants, now);
        let late = now + Duration::from_secs(60);
        assert!(!waits.is_deadlock(&other, late, holders), "it does not say so again");
    }
}
