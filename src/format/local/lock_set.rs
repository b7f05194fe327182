//! Several locks together: what is in the way of one more, and what it changes.
//!
//! Invariants: the locks of one owner on one file stand together, in order of their bytes, and
//! neither overlap nor touch with the same kind; owners stand in the order in which they came, as
//! Linux names the first of several in the way. Not here: where the locks are kept (`lock_table`).

use crate::ids::Ino;
use crate::wire::locks::{Lock, LockKind, LockOwner, LockRange};

/// What of `locks` is in the way of `lock`, in order.
pub fn conflicts<'l>(locks: &'l [Lock], lock: &'l Lock) -> impl Iterator<Item = &'l Lock> {
    let strict = |kind| kind == LockKind::Exclusive;
    locks.iter().filter(move |held| {
        held.ino == lock.ino
            && held.owner.competes(lock.owner)
            && held.range.overlaps(&lock.range)
            && (strict(held.kind) || strict(lock.kind))
            && lock.kind != LockKind::Unlock
    })
}

/// What an owner has on a file anywhere.
pub fn held(locks: &[Lock], ino: Ino, owner: LockOwner) -> Option<LockKind> {
    let mut its = locks.iter().filter(|held| (held.ino, held.owner) == (ino, owner));
    its.next().map(|held| held.kind)
}

/// `from` without what of it lies in `taken`, as one piece before that and one after.
fn rest(from: LockRange, taken: LockRange) -> [Option<LockRange>; 2] {
    [
        (from.first < taken.first).then(|| LockRange { first: from.first, last: taken.first - 1 }),
        (from.last > taken.last).then(|| LockRange { first: taken.last + 1, last: from.last }),
    ]
}

/// Gives the owner this lock there, in place of what it has there; nothing may be in the way.
/// False: that changed nothing.
pub fn set(locks: &mut Vec<Lock>, lock: &Lock) -> bool {
    let its = |held: &Lock| (held.ino, held.owner) == (lock.ino, lock.owner);
    let begin = locks.iter().position(its).unwrap_or(locks.len());
    let count = locks[begin..].iter().take_while(|held| its(held)).count();
    let end = begin + count;
    let near = LockRange {
        first: lock.range.first.saturating_sub(1),
        last: lock.range.last.saturating_add(1),
    };
    let mut new = *lock;
    let mut pieces = Vec::new();
    for held in &locks[begin..end] {
        if held.kind == lock.kind && held.range.overlaps(&near) {
            new.range.first = new.range.first.min(held.range.first);
            new.range.last = new.range.last.max(held.range.last);
        } else if held.range.overlaps(&lock.range) {
            let left = rest(held.range, lock.range).into_iter().flatten();
            pieces.extend(left.map(|range| Lock { range, ..*held }));
        } else {
            pieces.push(*held);
        }
    }
    if lock.kind != LockKind::Unlock {
        let at = pieces.iter().position(|piece| piece.range.first > new.range.first);
        pieces.insert(at.unwrap_or(pieces.len()), new);
    }
    if pieces == locks[begin..end] {
        return false;
    }
    locks.splice(begin..end, pieces);
    true
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::{Strategy, prop, prop_oneof, proptest};

    use super::{conflicts, held, set};
    use crate::ids::{DescriptionSlot, Ino};
    use crate::wire::locks::{Lock, LockKind, LockOwner, LockRange};

    const BYTES: u64 = 24;
    const INO: Ino = Ino(7);

    fn owner(number: u32) -> LockOwner {
        match number {
            0 | 1 => LockOwner::process(number, 1),
            2 => LockOwner::Description(DescriptionSlot(9), 1),
            3 => LockOwner::Flock(DescriptionSlot(9), 1),
            _ => LockOwner::Flock(DescriptionSlot(10), 1),
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
        (0..5).filter(|of| owner(*of).competes(lock.owner)).any(|of| {
            (lock.range.first..=lock.range.last).any(|at| {
                let is = model[of as usize][at as usize];
                let strict = LockKind::Exclusive;
                is != LockKind::Unlock && (is == strict || lock.kind == strict)
            })
        })
    }

    /// The ranges of one owner are as few as the bytes allow, and say what the model says.
    fn agrees(locks: &[Lock], model: &Model) {
        for of in 0..5 {
            let mut bytes = [LockKind::Unlock; BYTES as usize];
            let its: Vec<&Lock> = locks.iter().filter(|held| held.owner == owner(of)).collect();
            for held in &its {
                for at in held.range.first..=held.range.last {
                    assert_eq!(bytes[at as usize], LockKind::Unlock, "two locks on one byte");
                    bytes[at as usize] = held.kind;
                }
            }
            assert_eq!(bytes, model[of as usize]);
            let merged = its.windows(2).all(|two| {
                two[0].range.last + 1 < two[1].range.first || two[0].kind != two[1].kind
            });
            assert!(merged, "neighbours of one kind: {its:?}");
            assert_eq!(held(locks, INO, owner(of)).is_some(), !its.is_empty());
        }
    }

    proptest! {
        #[test]
        fn the_locks_are_an_array_of_bytes(steps in prop::collection::vec(
            (0u32..5, 0..BYTES, 0..BYTES, kind()), 1..60,
        )) {
            let mut locks = vec![Lock { ino: Ino(8), ..lock(1, 0, BYTES, LockKind::Exclusive) }];
            let mut model = [[LockKind::Unlock; BYTES as usize]; 5];
            for (of, one, other, kind) in steps {
                let asked = lock(of, one.min(other), one.max(other), kind);
                let found = conflicts(&locks, &asked).next().copied();
                if kind != LockKind::Unlock && blocked(&model, &asked) {
                    let found = found.expect("the list must say so, too");
                    assert!(found.range.overlaps(&asked.range) && found.owner != asked.owner);
                    continue;
                }
                assert_eq!(found, None);
                let row = &mut model[of as usize];
                let before = *row;
                row[asked.range.first as usize..=asked.range.last as usize].fill(kind);
                assert_eq!(set(&mut locks, &asked), before != *row);
                let its: Vec<Lock> = locks.iter().filter(|l| l.ino == INO).copied().collect();
                agrees(&its, &model);
            }
            assert!(locks.iter().any(|held| held.ino == Ino(8)), "another file's is as it was");
        }
    }

    #[test]
    fn of_several_locks_in_the_way_the_owner_who_came_first_is_named() {
        let mut locks = Vec::new();
        for of in [2, 1, 0] {
            set(&mut locks, &lock(of, 3, 9, LockKind::Shared));
        }
        let wanted = Lock {
            owner: LockOwner::Description(DescriptionSlot(1), 1),
            ..lock(0, 0, 9, LockKind::Exclusive)
        };
        let named = |locks: &[Lock]| conflicts(locks, &wanted).next().map(|held| held.owner);
        assert_eq!(named(&locks), Some(owner(2)));
        set(&mut locks, &lock(2, 5, 5, LockKind::Unlock));
        assert_eq!(named(&locks), Some(owner(2)));
        set(&mut locks, &lock(2, 0, 9, LockKind::Unlock));
        set(&mut locks, &lock(2, 0, 9, LockKind::Shared));
        assert_eq!(named(&locks), Some(owner(1)), "it came back after the others");
    }
}
