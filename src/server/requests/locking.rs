//! Requests about locks whose holders may be no more: whether they are, descriptions and sessions
//! say. Not here: the locks themselves (`locks`).

use terral_format::ids::SessionSlot;
use terral_format::local::tables::access;
use terral_format::wire::locks::{Lock, LockAsk, LockOwner, Locker};
use terral_format::{Error, ErrorKind, Result};

use crate::core::state::State;
use crate::deferred::applying;
use crate::files::closing;
use crate::locks::{Waiter, releasing};
use crate::requests::ending;

/// Somebody's lock is in the way of what a session asks for.
///
/// # Errors
/// [`ErrorKind::WouldBlock`] if its holder is still there, [`ErrorKind::Deadlock`] if `waiter`
/// would wait for ever.
pub fn lock_blocked(
    state: &mut State,
    session: SessionSlot,
    ask: &LockAsk,
    waiter: u32,
) -> Result<()> {
    let lock = asked(state, session, ask)?;
    let waits = Waiter::Thread(session, waiter);
    if !is_blocked(state, &lock)? {
        state.locks.stop_waiting(waits);
        return Ok(());
    }
    if waiter != 0 {
        state.locks.wait(waits, lock, state.world.now())?;
    }
    Err(Error::new(ErrorKind::WouldBlock, format!("file {}", lock.ino)))
}

/// The lock that a session asks for, through a description that is open.
pub fn asked(state: &mut State, session: SessionSlot, ask: &LockAsk) -> Result<Lock> {
    if !ask.range.is_sane() {
        return Err(Error::new(ErrorKind::Invalid, "range of a lock"));
    }
    let stale = || Error::new(ErrorKind::BadHandle, format!("file {}", ask.ino));
    let open = state.descriptions.get(ask.description);
    if open.is_none_or(|open| (open.nonce, open.ino) != (ask.nonce, ask.ino)) {
        return Err(stale());
    }
    let owner = match ask.locker {
        Locker::Process => state.sessions.process(session).ok_or_else(stale)?,
        Locker::Description => LockOwner::Description(ask.description, ask.nonce),
        Locker::Flock => LockOwner::Flock(ask.description, ask.nonce),
    };
    Ok(Lock { ino: ask.ino, owner, range: ask.range, kind: ask.kind })
}

/// Whether something is in the way of `lock` whose holder is still there.
pub fn is_blocked(state: &mut State, lock: &Lock) -> Result<bool> {
    let mut seen = None;
    loop {
        let Some(held) = state.locks.in_the_way(lock) else { return Ok(false) };
        if state.fences.is_overdue(held.ino, held.owner, state.world.now()) {
            let its = |lock: &Lock| (lock.ino, lock.owner) == (held.ino, held.owner);
            state.locks.release(held.ino, its);
            state.fences.keep(held.ino, |owner| owner != held.owner);
            continue;
        }
        if seen.replace(held) == Some(held) || !is_gone(state, held.owner)? {
            return Ok(true);
        }
        state.locks.release(held.ino, |lock| lock.owner == held.owner);
    }
}

/// Whether a process is dead, or a description held by nobody; it is ended then.
pub fn is_gone(state: &mut State, owner: LockOwner) -> Result<bool> {
    let (at, nonce) = match owner {
        LockOwner::Process { pid, .. } => {
            let lives = releasing::lives(state, pid, owner);
            if !lives {
                end_sessions(state, |state, at| state.sessions.process(at) == Some(owner))?;
            }
            return Ok(!lives);
        }
        // Its machine says when.
        LockOwner::Far(far) => return Ok(state.far.is_removed(far.by)),
        LockOwner::Description(at, nonce) | LockOwner::Flock(at, nonce) => (at, nonce),
    };
    let is = |state: &State| {
        let open = state.descriptions.get(at).filter(|open| open.nonce == nonce);
        open.copied()
    };
    if is(state).is_none() || state.storage.memory().deferred().is_any_committed() {
        // It may be open, or closed, by a change that was deferred.
        applying::apply_deferred(state)?;
    }
    let Some(open) = is(state) else { return Ok(true) };
    if u64::from(open.access) & access::KERNEL != 0 {
        closing::close_if_unheld(state, at, false)?;
    } else {
        end_sessions(state, |_, session| session == open.session)?;
    }
    Ok(is(state).is_none())
}

/// Ends those sessions of dead processes.
pub fn end_sessions(state: &mut State, which: impl Fn(&State, SessionSlot) -> bool) -> Result<()> {
    let clients = state.sessions.clients();
    let dead: Vec<SessionSlot> = clients
        .filter(|(at, client)| which(state, *at) && !client.process.is_alive())
        .map(|(at, _)| at)
        .collect();
    dead.into_iter().try_for_each(|session| ending::end_session(state, session))
}
