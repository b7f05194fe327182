//! Locks on files: kinds, ranges and owners, in the terms of fcntl(2) and flock(2).
//!
//! Not here: several of them together (`lock_set`), and where they are kept (`lock_table`).

use serde::{Deserialize, Serialize};

use crate::ids::{DescriptionSlot, Ino, Member};
use crate::{Error, ErrorKind, Result};

/// The largest offset of the operating system. A range that ends there has no end.
const LAST: u64 = i64::MAX as u64;
/// `EOVERFLOW`.
const OVERFLOW: i32 = 75;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockKind {
    /// No lock: what is held there is given back.
    Unlock,
    /// Others may have shared locks there, but no exclusive one (`F_RDLCK`, `LOCK_SH`).
    Shared,
    /// Nobody else may have a lock there (`F_WRLCK`, `LOCK_EX`).
    Exclusive,
}

/// Bytes of a file, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockRange {
    /// The first byte.
    pub first: u64,
    /// The last byte; [`i64::MAX`] is beyond every file's end.
    pub last: u64,
}

impl LockRange {
    /// The whole file, however long it becomes.
    pub const ALL: LockRange = LockRange { first: 0, last: LAST };

    /// The range of a `struct flock`: `start` counted from the file's begin, `length` as in
    /// `l_len`, where 0 means without end and a negative one the bytes before `start`.
    ///
    /// # Errors
    /// `EINVAL` if it begins before the file, `EOVERFLOW` if it ends beyond what an offset can say.
    pub fn of(start: i64, length: i64) -> Result<Self> {
        let refuse = |kind, errno| Error { kind, errno, context: "range of a lock".into() };
        let invalid = || refuse(ErrorKind::Invalid, ErrorKind::Invalid.to_errno());
        let (first, last) = match length {
            0 => (start, i64::MAX),
            1.. => {
                let end = start.checked_add(length - 1);
                (start, end.ok_or_else(|| refuse(ErrorKind::TooLarge, OVERFLOW))?)
            }
            _ => (start.checked_add(length).ok_or_else(invalid)?, start - 1),
        };
        match u64::try_from(first) {
            Ok(first) => Ok(LockRange { first, last: last as u64 }),
            Err(_) => Err(invalid()),
        }
    }

    /// `l_len` of a `struct flock` whose `l_start` is [`LockRange::first`].
    pub fn length(&self) -> i64 {
        if self.last >= LAST { 0 } else { (self.last - self.first + 1) as i64 }
    }

    /// Whether it is one: in order, and within what an offset can say.
    pub fn is_sane(&self) -> bool {
        self.first <= self.last && self.last <= LAST
    }

    /// Whether both have a byte in common.
    pub fn overlaps(&self, other: &LockRange) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// Which of the three kinds of locks: the first two get in each other's way, the third only in its
/// own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Locker {
    /// The process: `F_SETLK`. Released when it closes any descriptor of the file, or ends.
    Process,
    /// The open-file description: `F_OFD_SETLK`. Released when that ends.
    Description,
    /// The open-file description, by `flock(2)`: always the whole file.
    Flock,
}

/// Who holds a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LockOwner {
    /// A process, for [`Locker::Process`]: through `exec` it stays the same one.
    Process {
        /// Its number.
        pid: u32,
        /// When it started, in clock ticks since boot, modulo 2^40: a number alone may be somebody
        /// else's.
        started_ticks: u64,
    },
    /// A description and its nonce, for [`Locker::Description`].
    Description(DescriptionSlot, u32),
    /// A description and its nonce, for [`Locker::Flock`].
    Flock(DescriptionSlot, u32),
    /// Somebody on another machine.
    Far(FarOwner),
}

/// Who holds a lock of a file that was born on this machine, on another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FarOwner {
    /// That machine.
    pub by: Member,
    /// What it is there.
    pub locker: Locker,
    /// Its process's number, or that of its description, 24 bits: another one gets it only once all
    /// locks of this one are given back.
    pub number: u32,
}

impl FarOwner {
    /// What an owner is for other machines than this one, which is `me`; `None`: it is not of this
    /// one.
    pub fn of(me: Member, owner: LockOwner) -> Option<Self> {
        (!matches!(owner, LockOwner::Far(_))).then(|| Self::everywhere(me, owner))
    }

    /// What an owner is for all machines, as the one that is `me` knows him.
    pub fn everywhere(me: Member, owner: LockOwner) -> Self {
        match owner {
            LockOwner::Far(far) => far,
            LockOwner::Process { pid: number, .. } => Self::here(me, Locker::Process, number),
            LockOwner::Description(slot, _) => Self::here(me, Locker::Description, slot.0),
            LockOwner::Flock(slot, _) => Self::here(me, Locker::Flock, slot.0),
        }
    }

    fn here(me: Member, locker: Locker, number: u32) -> Self {
        FarOwner { by: me, locker, number: number & SLOT as u32 }
    }
}

/// What another machine wants of a file that was born on this one: a lock taken, changed or given
/// back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FarLock {
    /// For whom.
    pub owner: FarOwner,
    /// Where.
    pub range: LockRange,
    /// What.
    pub kind: LockKind,
    /// Which of his waits this is, who will ask again until he has it; 0: he does not wait.
    pub wait: u32,
}

impl FarLock {
    /// As a lock of that file.
    pub fn of(&self, ino: Ino) -> Lock {
        Lock { ino, owner: LockOwner::Far(self.owner), range: self.range, kind: self.kind }
    }
}

const TICKS: u64 = (1 << 40) - 1;
const PID_SHIFT: u32 = 40;
const SLOT_SHIFT: u32 = 32;
const SLOT: u64 = (1 << 24) - 1;
const FAR_SHIFT: u32 = 24;
const MEMBER_SHIFT: u32 = 26;
const OWNER_SHIFT: u32 = 62;

impl LockOwner {
    /// The process `pid` that started at `ticks`.
    pub fn process(pid: u32, ticks: u64) -> Self {
        LockOwner::Process { pid, started_ticks: ticks & TICKS }
    }

    /// As one word, never 0. From bit 0: a process's start (40) and number (22), or a description's
    /// nonce (32) and number (24); in the highest two 1 for a process, 2 for a description, 3 for
    /// one by `flock(2)`; there 0 for one on another machine: its number (24), which of these three
    /// (2), and its machine (14).
    pub fn word(self) -> u64 {
        let (kind, rest) = match self {
            LockOwner::Process { pid, started_ticks } => {
                (1, u64::from(pid) << PID_SHIFT & !(3 << OWNER_SHIFT) | started_ticks & TICKS)
            }
            LockOwner::Description(slot, nonce) => (2, described(slot, nonce)),
            LockOwner::Flock(slot, nonce) => (3, described(slot, nonce)),
            LockOwner::Far(FarOwner { by, locker, number }) => {
                let which = match locker {
                    Locker::Process => 1,
                    Locker::Description => 2,
                    Locker::Flock => 3,
                };
                let rest = u64::from(number) & SLOT | which << FAR_SHIFT;
                (0, u64::from(by.number()) << MEMBER_SHIFT | rest)
            }
        };
        kind << OWNER_SHIFT | rest
    }

    /// What a word says, if it is one of those.
    pub fn of(word: u64) -> Option<Self> {
        let rest = word & !(3 << OWNER_SHIFT);
        let (slot, nonce) = (DescriptionSlot((rest >> SLOT_SHIFT & SLOT) as u32), rest as u32);
        match word >> OWNER_SHIFT {
            1 => Some(LockOwner::process((rest >> PID_SHIFT) as u32, rest)),
            2 => Some(LockOwner::Description(slot, nonce)),
            3 => Some(LockOwner::Flock(slot, nonce)),
            _ => {
                let locker = match rest >> FAR_SHIFT & 3 {
                    1 => Locker::Process,
                    2 => Locker::Description,
                    3 => Locker::Flock,
                    _ => return None,
                };
                let by = Member::new(u16::try_from(rest >> MEMBER_SHIFT).ok()?)?;
                let number = (rest & SLOT) as u32;
                Some(LockOwner::Far(FarOwner { by, locker, number }))
            }
        }
    }

    /// Whether the two can be in each other's way at all.
    pub fn competes(self, other: LockOwner) -> bool {
        self != other && self.is_flock() == other.is_flock()
    }

    /// Whether it is a description's lock by `flock(2)`.
    pub fn is_flock(self) -> bool {
        match self {
            LockOwner::Process { .. } | LockOwner::Description(..) => false,
            LockOwner::Flock(..) => true,
            LockOwner::Far(owner) => owner.locker == Locker::Flock,
        }
    }

    /// Whether it is a process, for which waits that would never end are looked for (fcntl(2)).
    pub fn is_process(self) -> bool {
        match self {
            LockOwner::Process { .. } => true,
            LockOwner::Description(..) | LockOwner::Flock(..) => false,
            LockOwner::Far(owner) => owner.locker == Locker::Process,
        }
    }
}

fn described(slot: DescriptionSlot, nonce: u32) -> u64 {
    (u64::from(slot.0) & SLOT) << SLOT_SHIFT | u64::from(nonce)
}

/// A lock that is asked for, through an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockAsk {
    /// Which file.
    pub ino: Ino,
    /// Through which description.
    pub description: DescriptionSlot,
    /// Must match.
    pub nonce: u32,
    /// On whose behalf.
    pub locker: Locker,
    /// Where.
    pub range: LockRange,
    /// What.
    pub kind: LockKind,
}

/// A lock, held or asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    /// Of which file.
    pub ino: Ino,
    /// Whose.
    pub owner: LockOwner,
    /// Where.
    pub range: LockRange,
    /// Shared or exclusive; as something asked for also to give back what is there.
    pub kind: LockKind,
}

/// A process that waits for a lock, as the home of the file says it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// Which.
    pub waiter: FarOwner,
    /// Since when, as that machine counts nanoseconds: it tells its waits apart.
    pub since_ns: u64,
    /// The processes that have what is in its way.
    pub holders: Vec<FarOwner>,
}

/// A lock that is in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldLock {
    /// The process that holds it; 0 if an open-file description does, or somebody on another
    /// machine (`l_pid` is −1 then).
    pub pid: u32,
    /// Where.
    pub range: LockRange,
    /// Shared or exclusive.
    pub kind: LockKind,
}

impl From<Lock> for HeldLock {
    fn from(lock: Lock) -> Self {
        let pid = match lock.owner {
            LockOwner::Process { pid, .. } => pid,
            LockOwner::Description(..) | LockOwner::Flock(..) | LockOwner::Far(_) => 0,
        };
        HeldLock { pid, range: lock.range, kind: lock.kind }
    }
}

#[cfg(test)]
mod tests {
    use super::{FarOwner, LockOwner, LockRange};
    use crate::ids::{DescriptionSlot, Member};

    #[test]
    fn an_owner_is_one_word() {
        let (slot, nonce) = (DescriptionSlot((1 << 24) - 1), 0x7fff_ffff);
        let owners = [
            LockOwner::process((1 << 22) - 1, u64::MAX),
            LockOwner::process(1, 2),
            LockOwner::Description(slot, nonce),
            LockOwner::Flock(slot, nonce),
        ];
        let by = Member::new(Member::MAX - 1).expect("14 bits");
        let far = |owner| LockOwner::Far(FarOwner::of(by, owner).expect("it is here"));
        let owners: Vec<LockOwner> = owners.into_iter().chain(owners.map(far)).collect();
        for owner in owners.iter().copied() {
            assert_eq!(LockOwner::of(owner.word()), Some(owner));
        }
        let words: std::collections::BTreeSet<u64> = owners.iter().map(|it| it.word()).collect();
        assert_eq!((words.len(), LockOwner::of(7)), (owners.len(), None));
    }

    #[test]
    fn ranges_are_those_of_fcntl() {
        let of = |start, length| LockRange::of(start, length).map(|r| (r.first, r.last));
        assert_eq!(of(10, 5).ok(), Some((10, 14)));
        assert_eq!(of(10, -5).ok(), Some((5, 9)));
        assert_eq!(of(10, 0).ok(), Some((10, i64::MAX as u64)));
        let errno = |start, length| LockRange::of(start, length).map_err(|e| e.to_errno()).err();
        assert_eq!(errno(-1, 5), Some(22));
        assert_eq!(errno(3, -4), Some(22));
        assert_eq!(errno(i64::MIN, -1), Some(22));
        assert_eq!(errno(i64::MAX, 2), Some(75));
        assert_eq!(LockRange::ALL.length(), 0);
        assert_eq!(LockRange { first: 3, last: 3 }.length(), 1);
    }
}
