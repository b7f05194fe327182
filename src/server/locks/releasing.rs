//! What ends takes its locks along. Not here: whether it has ended (`requests/locking`).

use terral_format::ids::{DescriptionSlot, Ino, SessionSlot};
use terral_format::local::names::flag;
use terral_format::wire::locks::LockOwner;

use crate::core::state::State;
use crate::sessions::descriptions::Open;

/// The blocks of sessions that are no more are others'.
pub fn reclaim_lock_blocks(state: &mut State) {
    let lives = |session| state.sessions.known().any(|(at, _)| at.0 == session);
    state.locks.reclaim_blocks(lives);
}

/// A description was closed.
pub fn unlock_closed(state: &mut State, at: DescriptionSlot, open: &Open) {
    let its = [LockOwner::Description(at, open.nonce), LockOwner::Flock(at, open.nonce)];
    its.into_iter().for_each(|owner| unlock(state, open.ino, owner));
}

/// An owner has ended. Of a file whose bytes are elsewhere he is forgotten once that has heard of
/// it.
fn unlock(state: &mut State, ino: Ino, owner: LockOwner) {
    let far = state.names.inode(ino).is_some_and(|inode| inode.is(flag::FAR));
    if !far {
        state.locks.release(ino, |lock| (lock.ino, lock.owner) == (ino, owner));
    } else if state.locks.owners(ino).contains(&owner) {
        state.locks.has_gone(ino, owner);
    }
}

/// Whether who holds a lock on this machine has ended.
pub fn is_over(state: &State, owner: LockOwner) -> bool {
    match owner {
        LockOwner::Process { pid, .. } => !lives(state, pid, owner),
        LockOwner::Description(at, nonce) | LockOwner::Flock(at, nonce) => {
            state.descriptions.get(at).is_none_or(|open| open.nonce != nonce)
        }
        LockOwner::Far(_) => false,
    }
}

/// A file is no more.
pub fn unlock_gone(state: &mut State, ino: Ino) {
    state.locks.release(ino, |lock| lock.ino == ino);
}

/// A session ended: its process may have, too, or became another program.
pub fn unlock_ended(state: &mut State, session: SessionSlot, process: Option<LockOwner>) {
    state.locks.ended(session);
    let Some(owner @ LockOwner::Process { pid, .. }) = process else { return };
    let files = state.locks.files_of(owner);
    if !files.is_empty() && !lives(state, pid, owner) {
        files.into_iter().for_each(|ino| unlock(state, ino, owner));
    }
}

/// Whether the process `pid` is `owner`, and lives.
pub fn lives(state: &State, pid: u32, owner: LockOwner) -> bool {
    let is = |ticks| LockOwner::process(pid, ticks) == owner;
    state.machine.started_ticks(pid).is_some_and(is)
}
