//! Requests about locks, and what becomes of those whose holders are no more: whether they are,
//! descriptions and sessions say. Not here: the locks themselves (`locks`).

use terral_format::ids::{DescriptionSlot, Ino, SessionSlot};
use terral_format::local::tables::access;
use terral_format::wire::locks::{Lock, LockOwner, Locker};
use terral_format::wire::message::LockAsk;
use terral_format::{Error, ErrorKind, Result};

use crate::core::state::State;
use crate::sessions::descriptions::Open;

impl State {
    /// Somebody's lock is in the way of what a session asks for.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] if its holder is still there, [`ErrorKind::Deadlock`] if `waiter`
    /// would wait for ever.
    pub fn lock_blocked(&mut self, session: SessionSlot, ask: &LockAsk, waiter: u32) -> Result<()> {
        let lock = self.asked(session, ask)?;
        self.locks.stop_waiting(session, waiter);
        if !self.is_blocked(&lock)? {
            return Ok(());
        }
        if waiter != 0 {
            self.locks.wait(session, waiter, lock, self.world.now())?;
        }
        Err(Error::new(ErrorKind::WouldBlock, format!("file {}", lock.ino)))
    }

    /// The blocks of sessions that are no more are others'.
    pub(crate) fn reclaim_lock_blocks(&mut self) {
        let lives = |session| self.sessions.known().any(|(at, _)| at.0 == session);
        self.locks.reclaim_blocks(lives);
    }

    /// The lock that a session asks for, through a description that is open.
    fn asked(&mut self, session: SessionSlot, ask: &LockAsk) -> Result<Lock> {
        if !ask.range.is_sane() {
            return Err(Error::new(ErrorKind::Invalid, "range of a lock"));
        }
        let stale = || Error::new(ErrorKind::BadHandle, format!("file {}", ask.ino));
        let open = self.descriptions.get(ask.description);
        if open.is_none_or(|open| (open.nonce, open.ino) != (ask.nonce, ask.ino)) {
            return Err(stale());
        }
        let owner = match ask.locker {
            Locker::Process => self.sessions.process(session).ok_or_else(stale)?,
            Locker::Description => LockOwner::Description(ask.description, ask.nonce),
            Locker::Flock => LockOwner::Flock(ask.description, ask.nonce),
        };
        Ok(Lock { ino: ask.ino, owner, range: ask.range, kind: ask.kind })
    }

    /// Whether something is in the way of `lock` whose holder is still there.
    fn is_blocked(&mut self, lock: &Lock) -> Result<bool> {
        let mut seen = None;
        loop {
            let Some(held) = self.locks.in_the_way(lock) else { return Ok(false) };
            if seen.replace(held) == Some(held) || !self.is_gone(held.owner)? {
                return Ok(true);
            }
            self.locks.release(held.ino, |lock| lock.owner == held.owner);
        }
    }

    /// Whether a process is dead, or a description held by nobody; it is ended then.
    fn is_gone(&mut self, owner: LockOwner) -> Result<bool> {
        let (at, nonce) = match owner {
            LockOwner::Process { pid, .. } => {
                let lives = self.lives(pid, owner);
                if !lives {
                    self.end_sessions(|state, at| state.sessions.process(at) == Some(owner))?;
                }
                return Ok(!lives);
            }
            LockOwner::Description(at, nonce) | LockOwner::Flock(at, nonce) => (at, nonce),
        };
        let is = |state: &State| {
            let open = state.descriptions.get(at).filter(|open| open.nonce == nonce);
            open.copied()
        };
        if is(self).is_none() || self.storage.memory().deferred().is_any_committed() {
            // It may be open, or closed, by a change that was deferred.
            self.apply_deferred()?;
        }
        let Some(open) = is(self) else { return Ok(true) };
        if u64::from(open.access) & access::KERNEL != 0 {
            self.close_if_unheld(at, false)?;
        } else {
            self.end_sessions(|_, session| session == open.session)?;
        }
        Ok(is(self).is_none())
    }

    /// Ends those sessions of dead processes.
    fn end_sessions(&mut self, which: impl Fn(&State, SessionSlot) -> bool) -> Result<()> {
        let clients = self.sessions.clients();
        let dead: Vec<SessionSlot> = clients
            .filter(|(at, client)| which(self, *at) && !client.process.is_alive())
            .map(|(at, _)| at)
            .collect();
        dead.into_iter().try_for_each(|session| self.end_session(session))
    }

    // What ends takes its locks along.

    /// A description was closed.
    pub(crate) fn unlock_closed(&mut self, at: DescriptionSlot, open: &Open) {
        let its = [LockOwner::Description(at, open.nonce), LockOwner::Flock(at, open.nonce)];
        self.locks.release(open.ino, |lock| its.contains(&lock.owner));
    }

    /// A file is no more.
    pub(crate) fn unlock_gone(&mut self, ino: Ino) {
        self.locks.release(ino, |lock| lock.ino == ino);
    }

    /// A session ended: its process may have, too, or became another program.
    pub(crate) fn unlock_ended(&mut self, session: SessionSlot, process: Option<LockOwner>) {
        self.locks.ended(session);
        let Some(owner @ LockOwner::Process { pid, .. }) = process else { return };
        let files = self.locks.files_of(owner);
        if !files.is_empty() && !self.lives(pid, owner) {
            files.into_iter().for_each(|ino| self.locks.release(ino, |lock| lock.owner == owner));
        }
    }

    /// Whether the process `pid` is `owner`, and lives.
    fn lives(&self, pid: u32, owner: LockOwner) -> bool {
        let is = |ticks| LockOwner::process(pid, ticks) == owner;
        self.machine.started_ticks(pid).is_some_and(is)
    }
}
