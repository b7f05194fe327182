//! The table of locks: who holds which bytes of which file, and who waits for whom.
//!
//! Changes by [`Locks::set`], [`Locks::release`] and [`Locks::forget`] only, which follow from
//! records; who waits is not logged, since those who wait ask again. No I/O, no clock.
//!
//! Invariant: the ranges of one owner on one file neither overlap nor touch with the same kind.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use terral_format::ids::{Ino, SessionSlot};
use terral_format::locks::{LockKind, LockOwner, LockRange};
use terral_format::message::WAIT_REFRESH_MS;
use terral_format::record::Record;

/// Who waits and has not asked again for so long waits no more.
const WAITS: Duration = Duration::from_millis(3 * WAIT_REFRESH_MS);

/// A lock as it is asked for, or held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    /// Of which file.
    pub ino: Ino,
    /// Whose.
    pub owner: LockOwner,
    /// Where.
    pub range: LockRange,
    /// Shared or exclusive.
    pub kind: LockKind,
}

/// A thread that waits.
struct Wait {
    session: SessionSlot,
    thread: u32,
    lock: Lock,
    until: Instant,
}

/// The locks of one owner on one file: first byte → last byte and kind.
type Ranges = BTreeMap<u64, (u64, LockKind)>;

/// Those of `ranges` that have a byte in common with `range`, in order.
fn within(ranges: &Ranges, range: LockRange) -> impl Iterator<Item = (LockRange, LockKind)> {
    // They do not overlap: only one that begins before can reach into it.
    let before = ranges.range(..=range.first).next_back();
    let from = before.map_or(range.first, |(first, _)| *first);
    let found = ranges.range(from..=range.last);
    found
        .map(|(first, (last, kind))| (LockRange { first: *first, last: *last }, *kind))
        .filter(move |(found, _)| found.overlaps(&range))
}

/// All locks of one server.
#[derive(Default)]
pub struct Locks {
    /// The owners in the order in which they came: of several in the way, Linux names the first.
    files: HashMap<Ino, Vec<(LockOwner, Ranges)>>,
    owners: HashMap<LockOwner, BTreeSet<Ino>>,
    waits: Vec<Wait>,
    released: BTreeSet<Ino>,
}

/// Whether two owners can be in each other's way at all.
fn compete(one: LockOwner, other: LockOwner) -> bool {
    let flock = |owner| matches!(owner, LockOwner::Flock(_));
    one != other && flock(one) == flock(other)
}

/// `from` without what of it lies in `taken`, as one piece before that and one after.
fn rest(from: LockRange, taken: LockRange) -> [Option<LockRange>; 2] {
    [
        (from.first < taken.first).then(|| LockRange { first: from.first, last: taken.first - 1 }),
        (from.last > taken.last).then(|| LockRange { first: taken.last + 1, last: from.last }),
    ]
}

impl Locks {
    // What is held.

    /// What is in the way of `lock`, if something is.
    pub fn conflict(&self, lock: &Lock) -> Option<Lock> {
        self.conflicts(lock).next()
    }

    fn conflicts<'l>(&'l self, lock: &'l Lock) -> impl Iterator<Item = Lock> + 'l {
        let owners = self.files.get(&lock.ino).into_iter().flatten();
        let others = owners.filter(|(owner, _)| compete(*owner, lock.owner));
        others.flat_map(|(owner, ranges)| {
            let strict = |kind| kind == LockKind::Exclusive || lock.kind == LockKind::Exclusive;
            within(ranges, lock.range)
                .filter(move |(_, kind)| strict(*kind))
                .map(|(range, kind)| Lock { ino: lock.ino, owner: *owner, range, kind })
        })
    }

    /// Whether an owner holds anything.
    pub fn holds(&self, owner: LockOwner) -> bool {
        self.owners.contains_key(&owner)
    }

    /// What an owner holds on a file within `range`, in order.
    fn within(&self, ino: Ino, owner: LockOwner, range: LockRange) -> Vec<(LockRange, LockKind)> {
        let owners = self.files.get(&ino).into_iter().flatten();
        let its = owners.filter(|(of, _)| *of == owner);
        its.flat_map(|(_, ranges)| within(ranges, range)).collect()
    }

    /// Whether [`Locks::set`] with this would change nothing.
    pub fn is_so(&self, lock: &Lock) -> bool {
        let held = self.within(lock.ino, lock.owner, lock.range);
        match held.as_slice() {
            [] => lock.kind == LockKind::Unlock,
            [(held, kind)] => *kind == lock.kind && rest(lock.range, *held) == [None, None],
            _ => false,
        }
    }

    /// What an owner has on a file anywhere.
    pub fn held(&self, ino: Ino, owner: LockOwner) -> Option<LockKind> {
        self.within(ino, owner, LockRange::ALL).first().map(|(_, kind)| *kind)
    }

    /// Gives the owner this lock there, in place of what it has there; nothing may be in the way.
    pub fn set(&mut self, lock: &Lock) {
        let Lock { ino, owner, range, kind } = *lock;
        let first = range.first.saturating_sub(1);
        let near = self.within(ino, owner, LockRange { first, last: range.last.saturating_add(1) });
        let owners = self.files.entry(ino).or_default();
        let at = owners.iter().position(|(of, _)| *of == owner).unwrap_or(owners.len());
        if at == owners.len() {
            owners.push((owner, Ranges::new()));
        }
        let held = &mut owners[at].1;
        let mut new = range;
        let mut released = false;
        for (was, is) in near {
            if is == kind {
                held.remove(&was.first);
                new.first = new.first.min(was.first);
                new.last = new.last.max(was.last);
            } else if was.overlaps(&range) {
                held.remove(&was.first);
                for left in rest(was, range).into_iter().flatten() {
                    held.insert(left.first, (left.last, is));
                }
                released |= kind != LockKind::Exclusive;
            }
        }
        if kind != LockKind::Unlock {
            held.insert(new.first, (new.last, kind));
        }
        if held.is_empty() {
            self.drop_owner(ino, owner);
        } else {
            self.owners.entry(owner).or_default().insert(ino);
        }
        if released {
            self.let_go(ino);
        }
    }

    /// An owner has nothing of this file any more.
    fn drop_owner(&mut self, ino: Ino, owner: LockOwner) {
        if let Some(owners) = self.files.get_mut(&ino) {
            owners.retain(|(of, _)| *of != owner);
            if owners.is_empty() {
                self.files.remove(&ino);
            }
        }
        if let Some(files) = self.owners.get_mut(&owner) {
            files.remove(&ino);
            if files.is_empty() {
                self.owners.remove(&owner);
            }
        }
    }

    /// The owner is no more.
    pub fn release(&mut self, owner: LockOwner) {
        for ino in self.owners.get(&owner).cloned().unwrap_or_default() {
            self.drop_owner(ino, owner);
            self.let_go(ino);
        }
    }

    /// The file is no more.
    pub fn forget(&mut self, ino: Ino) {
        let owners = self.files.get(&ino).into_iter().flatten();
        let owners: Vec<LockOwner> = owners.map(|(owner, _)| *owner).collect();
        owners.into_iter().for_each(|owner| self.drop_owner(ino, owner));
    }

    /// Records from which [`Locks::set`] makes the same locks again.
    pub fn snapshot(&self) -> impl Iterator<Item = Record> {
        let owners = self.files.iter().flat_map(|(ino, owners)| {
            owners.iter().map(move |(owner, ranges)| (*ino, *owner, ranges))
        });
        owners.flat_map(|(ino, owner, ranges)| {
            within(ranges, LockRange::ALL).map(move |(range, kind)| Record::Locked {
                ino,
                owner,
                range,
                kind,
            })
        })
    }

    // Who waits.

    /// A thread waits for `lock`, as of `now`.
    pub fn wait(&mut self, session: SessionSlot, thread: u32, lock: Lock, now: Instant) {
        self.waits.retain(|wait| wait.until > now);
        self.stop_waiting(session, thread);
        self.waits.push(Wait { session, thread, lock, until: now + WAITS });
    }

    /// A thread does not wait any more.
    pub fn stop_waiting(&mut self, session: SessionSlot, thread: u32) {
        self.waits.retain(|wait| wait.session != session || wait.thread != thread);
    }

    /// No thread of this session waits any more.
    pub fn ended(&mut self, session: SessionSlot) {
        self.waits.retain(|wait| wait.session != session);
    }

    /// Whether somebody whom `lock` would wait for waits, himself or through others, for its owner.
    /// As the kernel has it, only processes count, not descriptions (fcntl(2)).
    pub fn is_deadlock(&mut self, lock: &Lock, now: Instant) -> bool {
        self.waits.retain(|wait| wait.until > now);
        let process = |owner: &LockOwner| matches!(owner, LockOwner::Process { .. });
        if !process(&lock.owner) {
            return false;
        }
        let holders = |lock: &Lock| -> Vec<LockOwner> {
            self.conflicts(lock).map(|held| held.owner).filter(process).collect()
        };
        let mut reached = BTreeSet::new();
        let mut next = holders(lock);
        while let Some(owner) = next.pop() {
            if owner == lock.owner {
                return true;
            }
            if reached.insert(owner) {
                let waits = self.waits.iter().filter(|wait| wait.lock.owner == owner);
                next.extend(waits.flat_map(|wait| holders(&wait.lock)));
            }
        }
        false
    }

    /// Something of this file was released: whoever waits for it shall ask again.
    fn let_go(&mut self, ino: Ino) {
        if self.waits.iter().any(|wait| wait.lock.ino == ino) {
            self.released.insert(ino);
        }
    }

    /// Files of which something was released since the last call, and somebody waits.
    pub fn take_released(&mut self) -> BTreeSet<Ino> {
        std::mem::take(&mut self.released)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use proptest::prelude::{Strategy, prop, prop_oneof, proptest};
    use terral_format::ids::{DescriptionSlot, Ino, SessionSlot};
    use terral_format::locks::{LockKind, LockOwner, LockRange};
    use terral_format::record::Record;

    use super::{Lock, Locks};

    const BYTES: u64 = 24;
    const INO: Ino = Ino(7);

    fn owner(number: u32) -> LockOwner {
        match number {
            0 | 1 => LockOwner::Process { pid: number, started_ticks: 1 },
            2 => LockOwner::Description(DescriptionSlot(9)),
            3 => LockOwner::Flock(DescriptionSlot(9)),
            _ => LockOwner::Flock(DescriptionSlot(10)),
        }
    }

    fn kind() -> impl Strategy<Value = LockKind> {
        prop_oneof![
            prop::strategy::Just(LockKind::Unlock),
            prop::strategy::Just(LockKind::Shared),
            prop::strategy::Just(LockKind::Exclusive),
        ]
    }

    fn lock(of: u32, first: u64, last: u64, kind: LockKind) -> Lock {
        Lock { ino: INO, owner: owner(of), range: LockRange { first, last }, kind }
    }

    /// What each owner has on each byte.
    type Model = [[LockKind; BYTES as usize]; 5];

    fn blocked(model: &Model, lock: &Lock) -> bool {
        let flock = |owner| matches!(owner, LockOwner::Flock(_));
        (0..5).filter(|of| owner(*of) != lock.owner && flock(owner(*of)) == flock(lock.owner)).any(
            |of| {
                (lock.range.first..=lock.range.last).any(|at| {
                    let is = model[of as usize][at as usize];
                    let strict = LockKind::Exclusive;
                    is != LockKind::Unlock && (is == strict || lock.kind == strict)
                })
            },
        )
    }

    /// The ranges of one owner are as few as the bytes allow, and say what the model says.
    fn agrees(locks: &Locks, model: &Model) {
        for of in 0..5 {
            let mut bytes = [LockKind::Unlock; BYTES as usize];
            let near = locks.within(INO, owner(of), LockRange::ALL);
            for (range, kind) in &near {
                for at in range.first..=range.last {
                    assert_eq!(bytes[at as usize], LockKind::Unlock, "two locks on one byte");
                    bytes[at as usize] = *kind;
                }
            }
            assert_eq!(bytes, model[of as usize]);
            let merged = near
                .windows(2)
                .all(|two| two[0].0.last + 1 < two[1].0.first || two[0].1 != two[1].1);
            assert!(merged, "neighbours of one kind: {near:?}");
            assert_eq!(locks.holds(owner(of)), !near.is_empty());
        }
    }

    proptest! {
        #[test]
        fn the_table_is_an_array_of_bytes(steps in prop::collection::vec(
            (0u32..5, 0..BYTES, 0..BYTES, kind(), 0u32..20), 1..60,
        )) {
            let mut locks = Locks::default();
            let mut model = [[LockKind::Unlock; BYTES as usize]; 5];
            for (of, one, other, kind, end) in steps {
                let asked = lock(of, one.min(other), one.max(other), kind);
                if end == 0 {
                    locks.release(owner(of));
                    model[of as usize] = [LockKind::Unlock; BYTES as usize];
                } else if kind != LockKind::Unlock && blocked(&model, &asked) {
                    let found = locks.conflict(&asked).expect("the table must say so, too");
                    assert!(found.range.overlaps(&asked.range) && found.owner != asked.owner);
                } else {
                    if kind != LockKind::Unlock {
                        assert_eq!(locks.conflict(&asked), None);
                    }
                    let row = &mut model[of as usize];
                    let before = *row;
                    let (first, last) = (asked.range.first as usize, asked.range.last as usize);
                    row[first..=last].fill(kind);
                    assert_eq!(locks.is_so(&asked), before == *row);
                    locks.set(&asked);
                }
                agrees(&locks, &model);
            }
            let mut again = Locks::default();
            for record in locks.snapshot() {
                let Record::Locked { ino, owner, range, kind } = record else { panic!("a lock") };
                again.set(&Lock { ino, owner, range, kind });
            }
            agrees(&again, &model);
            locks.forget(INO);
            agrees(&locks, &[[LockKind::Unlock; BYTES as usize]; 5]);
        }
    }

    #[test]
    fn of_several_locks_in_the_way_the_owners_who_came_first_is_named() {
        let mut locks = Locks::default();
        for of in [2, 1, 0] {
            locks.set(&lock(of, 3, 9, LockKind::Shared));
        }
        let wanted = Lock {
            owner: LockOwner::Description(DescriptionSlot(1)),
            ..lock(0, 0, 9, LockKind::Exclusive)
        };
        let named = |locks: &Locks| locks.conflict(&wanted).map(|held| held.owner);
        assert_eq!(named(&locks), Some(owner(2)));
        locks.set(&lock(2, 5, 5, LockKind::Unlock));
        assert_eq!(named(&locks), Some(owner(2)));
        locks.set(&lock(2, 0, 9, LockKind::Unlock));
        locks.set(&lock(2, 0, 9, LockKind::Shared));
        assert_eq!(named(&locks), Some(owner(1)), "it came back after the others");
    }

    #[test]
    fn a_circle_of_processes_is_a_deadlock_until_one_stops_waiting() {
        let (mut locks, now) = (Locks::default(), Instant::now());
        locks.set(&lock(0, 0, 0, LockKind::Exclusive));
        locks.set(&lock(1, 1, 1, LockKind::Exclusive));
        let wants = lock(0, 1, 1, LockKind::Shared);
        assert!(!locks.is_deadlock(&wants, now));
        locks.wait(SessionSlot(0), 1, wants, now);
        let other = lock(1, 0, 0, LockKind::Shared);
        assert!(locks.is_deadlock(&other, now));
        assert!(!locks.is_deadlock(&lock(2, 0, 0, LockKind::Shared), now));
        locks.stop_waiting(SessionSlot(0), 1);
        assert!(!locks.is_deadlock(&other, now));
        locks.wait(SessionSlot(0), 1, wants, now);
        assert!(!locks.is_deadlock(&other, now + Duration::from_secs(60)), "it does not ask again");
    }

    #[test]
    fn who_waits_is_woken_by_what_was_released_and_not_by_what_was_taken() {
        let (mut locks, now) = (Locks::default(), Instant::now());
        locks.set(&lock(0, 0, 9, LockKind::Exclusive));
        locks.set(&lock(0, 0, 9, LockKind::Unlock));
        assert!(locks.take_released().is_empty(), "nobody waits");
        locks.wait(SessionSlot(0), 1, lock(1, 0, 0, LockKind::Shared), now);
        locks.set(&lock(0, 0, 9, LockKind::Shared));
        locks.set(&lock(0, 0, 9, LockKind::Exclusive));
        assert!(locks.take_released().is_empty());
        locks.set(&lock(0, 4, 5, LockKind::Shared));
        assert_eq!(locks.take_released().into_iter().collect::<Vec<_>>(), [INO]);
        locks.release(owner(0));
        assert_eq!(locks.take_released().into_iter().collect::<Vec<_>>(), [INO]);
    }
}
