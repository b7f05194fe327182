//! The locking role: what requests about locks do. A lock is in the way only as long as its holder
//! is seen to live: processes and descriptors end without telling us.

use std::time::Instant;

use terral_format::ids::SessionSlot;
use terral_format::locks::{HeldLock, LockKind, LockOwner, Locker};
use terral_format::message::{LockAsk, Reply};
use terral_format::record::Record;
use terral_format::tables::{Doorbell, UNLOCKED, access};
use terral_format::{Error, ErrorKind, Result};
use terral_transport::requests;

use crate::locks::Lock;
use crate::state::State;

impl State {
    /// Takes, changes or gives back a lock.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] if another is in the way, [`ErrorKind::Deadlock`] if `waiter`
    /// would wait for ever.
    pub fn lock(&mut self, session: SessionSlot, ask: &LockAsk, waiter: u32) -> Result<()> {
        let lock = self.asked(session, ask)?;
        self.locks.stop_waiting(session, waiter);
        if lock.kind != LockKind::Unlock && self.is_blocked(&lock)?.is_some() {
            return self.wait_for(session, &lock, waiter);
        }
        self.set_lock(&lock)
    }

    fn set_lock(&mut self, lock: &Lock) -> Result<()> {
        if !self.locks.is_so(lock) {
            // To give one back must not fail; the log has memory in hand.
            if lock.kind != LockKind::Unlock {
                self.log.reserve()?;
            }
            let Lock { ino, owner, range, kind } = *lock;
            self.record(Record::Locked { ino, owner, range, kind });
        }
        Ok(())
    }

    /// What would be in the way of a lock.
    pub fn lock_test(&mut self, session: SessionSlot, ask: &LockAsk) -> Result<Reply> {
        let lock = self.asked(session, ask)?;
        if lock.kind == LockKind::Unlock {
            return Ok(Reply::Lock(None));
        }
        let held = self.is_blocked(&lock)?.map(|held| HeldLock {
            pid: match held.owner {
                LockOwner::Process { pid, .. } => pid,
                LockOwner::Description(_) | LockOwner::Flock(_) => 0,
            },
            range: held.range,
            kind: held.kind,
        });
        Ok(Reply::Lock(held))
    }

    /// The lock that a session asks for, through a description that is open.
    fn asked(&mut self, session: SessionSlot, ask: &LockAsk) -> Result<Lock> {
        if !ask.range.is_sane() {
            return Err(Error::new(ErrorKind::Invalid, "range of a lock"));
        }
        let stale = || Error::new(ErrorKind::BadHandle, format!("file {}", ask.ino));
        let open = self.descriptions.get(ask.description);
        let open = open.filter(|open| (open.nonce, open.ino) == (ask.nonce, ask.ino));
        // A process gives its locks back when it closes, which may be the description's end.
        let closes = ask.kind == LockKind::Unlock && ask.locker == Locker::Process;
        if open.is_none() && !closes {
            return Err(stale());
        }
        let owner = match ask.locker {
            Locker::Process => self.sessions.process(session).ok_or_else(stale)?,
            Locker::Description => LockOwner::Description(ask.description),
            Locker::Flock => LockOwner::Flock(ask.description),
        };
        Ok(Lock { ino: ask.ino, owner, range: ask.range, kind: ask.kind })
    }

    /// What is in the way of `lock` and whose holder is still there.
    fn is_blocked(&mut self, lock: &Lock) -> Result<Option<Lock>> {
        while let Some(held) = self.locks.conflict(lock) {
            self.end_if_gone(held.owner)?;
            if self.locks.conflict(lock) == Some(held) {
                return Ok(Some(held));
            }
        }
        Ok(None)
    }

    /// Ends the sessions of a process that is dead, or a description that nobody holds.
    fn end_if_gone(&mut self, owner: LockOwner) -> Result<()> {
        let of_process = |state: &State, session| state.sessions.process(session) == Some(owner);
        let opener = match owner {
            LockOwner::Process { .. } => None,
            LockOwner::Description(at) | LockOwner::Flock(at) => {
                let Some(open) = self.descriptions.get(at).copied() else {
                    self.locks.release(owner);
                    return Ok(());
                };
                if u64::from(open.access) & access::KERNEL != 0 {
                    return self.close_if_unheld(at, false);
                }
                Some(open.session)
            }
        };
        let clients = self.sessions.clients();
        let dead: Vec<SessionSlot> = clients
            .filter(|(at, _)| opener.map_or_else(|| of_process(self, *at), |of| of == *at))
            .filter(|(_, client)| !client.process.is_alive())
            .map(|(at, _)| at)
            .collect();
        dead.into_iter().try_for_each(|session| self.end_session(session))
    }

    /// Somebody's lock is in the way: refuses, and remembers who will wait.
    fn wait_for(&mut self, session: SessionSlot, lock: &Lock, waiter: u32) -> Result<()> {
        if let LockOwner::Flock(_) = lock.owner
            && self.locks.held(lock.ino, lock.owner).is_some_and(|held| held != lock.kind)
        {
            // flock(2): who converts a lock gives the old one up first.
            self.set_lock(&Lock { kind: LockKind::Unlock, ..*lock })?;
        }
        let now = Instant::now();
        let context = || format!("file {}", lock.ino);
        if waiter != 0 {
            if self.locks.is_deadlock(lock, now) {
                return Err(Error::new(ErrorKind::Deadlock, context()));
            }
            self.locks.wait(session, waiter, *lock, now);
        }
        Err(Error::new(ErrorKind::WouldBlock, context()))
    }

    /// Has those ask again who wait for something that was released.
    pub fn wake_lockers(&mut self, bell: &Doorbell) {
        for ino in self.locks.take_released() {
            requests::wake_lockers(bell, ino.0);
        }
    }
}

/// Has everybody ask again who waits for a lock: a new server does not know them.
pub fn wake_all_lockers(bell: &Doorbell) {
    (0..UNLOCKED as u64).for_each(|word| requests::wake_lockers(bell, word));
}
