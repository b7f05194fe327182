//! The locking role: what becomes of locks whose holders are no more, and of those who wait. Who
//! holds what is in shared memory, and clients take and give back locks by themselves.

use terral_format::ids::{DescriptionSlot, Ino, SessionSlot};
use terral_format::lock_set;
use terral_format::lock_table::{NoBlocks, Pool};
use terral_format::locks::{Lock, LockOwner, Locker};
use terral_format::message::{LockAsk, Reply};
use terral_format::tables::access;
use terral_format::{Error, ErrorKind, Result};
use terral_transport::futex;

use crate::descriptions::Open;
use crate::state::State;

impl State {
    /// Somebody's lock is in the way of what a session asks for.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] if its holder is still there, [`ErrorKind::Deadlock`] if `waiter`
    /// would wait for ever.
    pub fn lock_blocked(&mut self, session: SessionSlot, ask: &LockAsk, waiter: u32) -> Result<()> {
        let lock = self.asked(session, ask)?;
        self.waits.stop(session, waiter);
        if !self.is_blocked(&lock)? {
            return Ok(());
        }
        let context = || format!("file {}", lock.ino);
        if waiter != 0 {
            let now = self.world.now();
            let memory = self.storage.memory().clone();
            let holders = |lock: &Lock| {
                let (_, locks) = memory.locks().locks(lock.ino);
                lock_set::conflicts(&locks, lock).map(|held| held.owner).collect()
            };
            if self.waits.is_deadlock(&lock, now, holders) {
                return Err(Error::new(ErrorKind::Deadlock, context()));
            }
            self.waits.wait(session, waiter, lock, now);
        }
        Err(Error::new(ErrorKind::WouldBlock, context()))
    }

    /// Blocks for a session's lists of locks.
    ///
    /// # Errors
    /// [`ErrorKind::TooMany`] if all are in use, [`ErrorKind::NoSpace`] if memory is.
    pub fn give_lock_blocks(&mut self, session: SessionSlot) -> Result<Reply> {
        self.take_lock_blocks(Some(session)).map(Reply::LockBlocks)
    }

    fn take_lock_blocks(&mut self, session: Option<SessionSlot>) -> Result<u32> {
        let memory = self.storage.memory();
        let full = || Error { kind: ErrorKind::TooMany, errno: ENOLCK, context: "locks".into() };
        for group in memory.locks().unowned() {
            memory.prepare_lock_blocks(group)?;
            if !memory.locks().has_list(group) {
                memory.locks().give_group(group, session.map(|session| session.0));
                return Ok(group);
            }
        }
        Err(full())
    }

    /// The blocks of sessions that are no more are others'.
    pub(crate) fn reclaim_lock_blocks(&mut self) {
        let lives = |session| self.sessions.known().any(|(at, _)| at.0 == session);
        self.storage.memory().locks().reclaim(false, lives);
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
            let (_, locks) = self.storage.memory().locks().locks(lock.ino);
            let Some(held) = lock_set::conflicts(&locks, lock).next().copied() else {
                return Ok(false);
            };
            if seen.replace(held) == Some(held) || !self.is_gone(held.owner)? {
                return Ok(true);
            }
            self.unlock(held.ino, |lock| lock.owner == held.owner);
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
        if is(self).is_none() {
            // It may be open by a change that was deferred: before the lock, which is there.
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

    /// Takes locks away from a file, and wakes those who wait for them.
    fn unlock(&mut self, ino: Ino, gone: impl Fn(&Lock) -> bool) {
        let memory = self.storage.memory().clone();
        let table = memory.locks();
        if table.is_free(ino) {
            return;
        }
        if self.with_lock_blocks(|pool| table.release(ino, pool, &gone)) == Some(true) {
            futex::wake_low(table.head(ino));
        }
    }

    /// Does something that needs blocks of the server's own.
    fn with_lock_blocks<T>(
        &mut self,
        mut call: impl FnMut(&Pool) -> std::result::Result<T, NoBlocks>,
    ) -> Option<T> {
        if let Ok(done) = call(&self.lock_blocks) {
            return Some(done);
        }
        let group = self.take_lock_blocks(None).ok()?;
        let _ = self.lock_blocks.add(group);
        // What cannot be taken away now is taken when somebody finds it in the way.
        call(&self.lock_blocks).ok()
    }

    /// A description was closed.
    pub(crate) fn unlock_closed(&mut self, at: DescriptionSlot, open: &Open) {
        let its = [LockOwner::Description(at, open.nonce), LockOwner::Flock(at, open.nonce)];
        self.unlock(open.ino, |lock| its.contains(&lock.owner));
    }

    /// A file is no more.
    pub(crate) fn unlock_gone(&mut self, ino: Ino) {
        self.unlock(ino, |lock| lock.ino == ino);
    }

    /// A session ended: its process may have, too, or became another program.
    pub(crate) fn unlock_ended(&mut self, session: SessionSlot, process: Option<LockOwner>) {
        self.waits.ended(session);
        let Some(owner @ LockOwner::Process { pid, .. }) = process else { return };
        let files = self.storage.memory().locks().files_of(owner);
        if !files.is_empty() && !self.lives(pid, owner) {
            files.into_iter().for_each(|ino| self.unlock(ino, |lock| lock.owner == owner));
        }
    }

    /// Whether the process `pid` is `owner`, and lives.
    fn lives(&self, pid: u32, owner: LockOwner) -> bool {
        let is = |ticks| LockOwner::process(pid, ticks) == owner;
        self.machine.started_ticks(pid).is_some_and(is)
    }
}

/// `ENOLCK`.
const ENOLCK: i32 = 37;
