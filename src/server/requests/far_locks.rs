//! Requests about locks of files whose bytes are on another machine, and what that one asks itself
//! for those that ask it. Not here: how it is asked (`far/locking`).

use terral_format::ids::{Ino, Member, Number, SessionSlot};
use terral_format::local::names::flag;
use terral_format::wire::locks::{
    FarLock, FarOwner, HeldLock, Lock, LockAsk, LockKind, LockOwner, LockRange,
};
use terral_format::wire::message::Kind;
use terral_format::{Error, ErrorKind, Result};

use crate::core::left_out::{Step, does};
use crate::core::state::State;
use crate::far::{asking, committing, locking};
use crate::locks::Waiter;
use crate::requests::locking::{asked, is_blocked};

/// A lock of a file whose bytes are on another machine.
///
/// # Errors
/// As those of [`locking::set`]; `ENOLCK` if there is no place for it here.
pub fn lock(state: &mut State, session: SessionSlot, ask: &LockAsk, wait: u32) -> Result<()> {
    let lock = asked(state, session, ask)?;
    let (file, wanted) = wanted(state, &lock, wait)?;
    // What was written before is seen by who has the next lock.
    committing::commit(state, file)?;
    let mark = locking::mark(&lock);
    if lock.kind != LockKind::Unlock && does(Step::MarkLocks) {
        state.locks.set(&mark)?;
    }
    asking::has_open(state, file);
    locking::set(state, file, wanted)?;
    match (lock.kind, lock.range) {
        (LockKind::Unlock, LockRange::ALL) => state.locks.set(&Lock { kind: lock.kind, ..mark }),
        _ => Ok(()),
    }
}

/// What would be in the way of such a lock.
///
/// # Errors
/// As those of [`locking::test`].
pub fn test(state: &mut State, session: SessionSlot, ask: &LockAsk) -> Result<Option<HeldLock>> {
    let lock = asked(state, session, ask)?;
    let (file, wanted) = wanted(state, &lock, 0)?;
    locking::test(state, file, wanted)
}

fn wanted(state: &State, lock: &Lock, wait: u32) -> Result<(Number, FarLock)> {
    let stale = || Error::new(ErrorKind::BadHandle, format!("file {}", lock.ino));
    let file = asking::number_of(state, lock.ino).ok_or_else(stale)?;
    let me = state.members.as_ref().map(|members| members.me());
    let owner = me.and_then(|me| FarOwner::of(me, lock.owner)).ok_or_else(stale)?;
    Ok((file, FarLock { owner, range: lock.range, kind: lock.kind, wait }))
}

/// A lock of what was born here, for somebody on another machine.
///
/// # Errors
/// As those of [`super::locking::lock_blocked`], and [`ErrorKind::NotFound`].
pub fn lock_for(state: &mut State, ino: Ino, far: &FarLock) -> Result<()> {
    let lock = locked_for(state, ino, far)?;
    let waiter = Waiter::Far(far.owner, far.wait);
    if lock.kind == LockKind::Unlock || !is_blocked(state, &lock)? {
        state.locks.stop_waiting(waiter);
        return state.locks.set(&lock);
    }
    if lock.owner.is_flock() {
        state.locks.set(&Lock { kind: LockKind::Unlock, ..lock })?;
    }
    if far.wait != 0 {
        state.locks.wait(waiter, lock, state.world.now())?;
    }
    Err(Error::new(ErrorKind::WouldBlock, format!("file {ino}")))
}

/// What would be in the way of such a lock.
///
/// # Errors
/// As those of [`lock_for`].
pub fn test_for(state: &mut State, ino: Ino, far: &FarLock) -> Result<Option<HeldLock>> {
    let lock = locked_for(state, ino, far)?;
    let blocked = is_blocked(state, &lock)?;
    let held = state.locks.in_the_way(&lock).filter(|_| blocked).map(HeldLock::from);
    // A process has its number on this machine only.
    Ok(held.map(|held| HeldLock { pid: 0, ..held }))
}

fn locked_for(state: &State, ino: Ino, far: &FarLock) -> Result<Lock> {
    let file = state.names.inode(ino).filter(|inode| inode.kind == Kind::File);
    match file.is_some_and(|inode| !inode.is(flag::FAR)) {
        false => Err(Error::new(ErrorKind::NotFound, format!("file {ino}"))),
        true if !far.range.is_sane() => Err(Error::new(ErrorKind::Invalid, "range of a lock")),
        true => Ok(far.of(ino)),
    }
}

/// All locks of a member on what was born here are over.
pub fn unlock_all(state: &mut State, ino: Ino, of: Member) {
    let its = |owner| matches!(owner, LockOwner::Far(far) if far.by == of);
    state.locks.release(ino, |lock| lock.ino == ino && its(lock.owner));
}
