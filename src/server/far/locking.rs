//! Locks of files whose bytes are on another machine: the list there says who has what, for all
//! machines; in that of this one each of its programs that may have any is marked, so that what
//! ends here takes its locks along.
//!
//! Invariant: who has a lock there is marked here from before he asks for it until its home has
//! heard that he has none, whoever dies. A mark is a shared lock of all of the file, which is in
//! nobody's way. Not here: either list (`locks`).

use terral_format::ids::Number;
use terral_format::wire::far::{Act, Done};
use terral_format::wire::locks::{
    FarLock, FarOwner, HeldLock, Lock, LockKind, LockOwner, LockRange,
};
use terral_format::{Error, ErrorKind, Result};

use super::asking::{self, Step, ask};
use super::role::Behind;
use crate::core::state::State;
use crate::locks::releasing::is_over;

fn malformed() -> Error {
    Error::new(ErrorKind::Malformed, "what another member says of a lock")
}

/// Has a lock taken, changed or given back at the file's home.
///
/// # Errors
/// As those of [`ask`]; [`ErrorKind::WouldBlock`] if another one is in the way,
/// [`ErrorKind::Deadlock`] if who waits for it would for ever.
pub fn set(state: &mut State, file: Number, lock: FarLock) -> Result<()> {
    // Who had the same number before is to be heard to have ended first.
    asking::say_unlocked(state);
    match ask(state, (file, Act::Lock(lock)), Step::Lock, |_| Behind::Nothing)?.0 {
        Done::Done => Ok(()),
        _ => Err(malformed()),
    }
}

/// What would be in the way of a lock at the file's home.
///
/// # Errors
/// As those of [`ask`].
pub fn test(state: &mut State, file: Number, lock: FarLock) -> Result<Option<HeldLock>> {
    match ask(state, (file, Act::TestLock(lock)), Step::TestLock, |_| Behind::Nothing)?.0 {
        Done::Done => Ok(None),
        Done::Held(held) => Ok(Some(held)),
        _ => Err(malformed()),
    }
}

/// The mark of who may have locks of a file.
pub fn mark(lock: &Lock) -> Lock {
    Lock { range: LockRange::ALL, kind: LockKind::Shared, ..*lock }
}

/// A home has heard of it.
pub(super) fn was_unlocked(state: &mut State, file: Number, owner: FarOwner) {
    let Some(members) = &state.members else { return };
    let Some(ino) = members.place(file) else { return };
    let is_it = |of: LockOwner| FarOwner::of(members.me(), of) == Some(owner);
    let marks = state.locks.owners(ino).into_iter();
    let over: Vec<LockOwner> = marks.filter(|of| is_it(*of) && is_over(state, *of)).collect();
    state.locks.release(ino, |lock| lock.ino == ino && over.contains(&lock.owner));
}

/// Those who have ended since the process before this one heard of it are marked yet. One whose
/// place another one has by now goes with that one.
pub(super) fn resume(state: &mut State) {
    let Some(members) = &state.members else { return };
    let me = members.me();
    let mut left = Vec::new();
    for (ino, _) in members.foreign() {
        let (over, lives): (Vec<LockOwner>, Vec<LockOwner>) =
            state.locks.owners(ino).into_iter().partition(|of| is_over(state, *of));
        let lives: Vec<_> = lives.into_iter().map(|of| FarOwner::of(me, of)).collect();
        let alone = over.into_iter().filter(|of| !lives.contains(&FarOwner::of(me, *of)));
        left.extend(alone.map(|owner| (ino, owner)));
    }
    left.into_iter().for_each(|(ino, owner)| state.locks.has_gone(ino, owner));
}

/// An end that a home could not take note of is not said again if who has the same number by now
/// may have locks there: they would end with it. What was left goes with them.
pub(super) fn drop_superseded(state: &mut State) {
    for (file, owner) in state.far.unheard_ends() {
        let Some(members) = &state.members else { return };
        let (me, place) = (members.me(), members.place(file));
        let marks = place.map(|ino| state.locks.owners(ino)).unwrap_or_default();
        let lives = |of: LockOwner| FarOwner::of(me, of) == Some(owner) && !is_over(state, of);
        if marks.into_iter().any(lives) {
            state.far.forget_end(file, owner);
            was_unlocked(state, file, owner);
        }
    }
}
