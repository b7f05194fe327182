//! Locks of an open file, in the terms of fcntl(2) and flock(2). Not here: how they are taken
//! (`locks`).

use std::sync::atomic::Ordering;

use terral_format::local::tables::access;
use terral_format::wire::locks::{HeldLock, LockAsk, LockKind, LockRange, Locker};
use terral_format::{Error, ErrorKind, Result};

use super::File;
use crate::locks::{LockTurn, LockWait};

impl File {
    /// Takes a lock, changes one that is held there, or gives it back. Waits, if asked to, while
    /// another's is in the way. [`Locker::Flock`] goes with [`LockRange::ALL`].
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] if it would have to wait, [`ErrorKind::Deadlock`] if that would
    /// never end, [`ErrorKind::Interrupted`] if a signal handler ran that does not have calls
    /// restarted (`SA_RESTART`), [`ErrorKind::BadHandle`] if the description is not open for what a
    /// lock of bytes is to protect. No lock is
    /// held then that was not held before, except that a `flock(2)` lock that could not be
    /// converted is given up.
    pub fn lock(&self, by: Locker, range: LockRange, kind: LockKind, wait: bool) -> Result<()> {
        let mut waits = LockWait::default();
        loop {
            let wait = wait.then_some(&mut waits);
            let Some(turn) = self.lock_or_queue(by, range, kind, wait)? else { return Ok(()) };
            if !turn.wait(|| false) {
                self.stop_waiting();
                return Err(Error::new(ErrorKind::Interrupted, "waiting for a lock"));
            }
        }
    }

    /// [`File::lock`] for those who wait outside the client: gives the turn to wait for, if there
    /// is one. Ask again after it with the same `wait`, or [`File::stop_waiting`].
    pub fn lock_or_queue(
        &self,
        by: Locker,
        range: LockRange,
        kind: LockKind,
        wait: Option<&mut LockWait>,
    ) -> Result<Option<LockTurn<'_>>> {
        let access = self.words()?.access.load(Ordering::Relaxed);
        let needs = match (by, kind) {
            (Locker::Flock, _) | (_, LockKind::Unlock) => access,
            (_, LockKind::Shared) => access::READ,
            (_, LockKind::Exclusive) => access::WRITE,
        };
        if access & needs != needs {
            return Err(Error::new(ErrorKind::BadHandle, "descriptor not open for this"));
        }
        let ask = self.lock_ask(by, range, kind);
        match self.is_far() {
            true => self.connection.lock_far(ask, wait),
            false => self.connection.lock(ask, wait),
        }
    }

    /// Takes a lock of the whole for this process, if nobody has one in its way; also that of one
    /// that has it no more, whom only the server knows.
    pub(crate) fn lock_if_free(&self, kind: LockKind) -> Result<bool> {
        for asked in [false, true] {
            match self.lock_or_queue(Locker::Process, LockRange::ALL, kind, None) {
                Ok(_) => return Ok(true),
                Err(error) if error.kind != ErrorKind::WouldBlock => return Err(error),
                // Its home has looked.
                Err(_) if asked || self.is_far() => return Ok(false),
                Err(_) => {}
            }
            let ask = self.lock_ask(Locker::Process, LockRange::ALL, kind);
            match self.connection.ask_blocked(ask, 0) {
                Err(error) if error.kind == ErrorKind::WouldBlock => return Ok(false),
                asked => asked?,
            }
        }
        Ok(false)
    }

    /// This thread does not wait for a lock any more.
    pub fn stop_waiting(&self) {
        self.connection.stop_waiting();
    }

    /// A lock that would be in the way of this one.
    pub fn lock_test(
        &self,
        by: Locker,
        range: LockRange,
        kind: LockKind,
    ) -> Result<Option<HeldLock>> {
        self.words()?;
        let ask = self.lock_ask(by, range, kind);
        match self.is_far() {
            true => self.connection.test_lock_far(ask),
            false => self.connection.lock_test(ask),
        }
    }

    /// Gives back all [`Locker::Process`] locks that this process holds on the file: to be called
    /// before any descriptor of it is closed (fcntl(2)). Costs nothing if nobody holds any.
    pub fn release_locks(&self) -> Result<()> {
        if !self.is_far() {
            return self.connection.unlock_own(self.ino());
        }
        if self.connection.may_lock(self.ino()) {
            let ask = self.lock_ask(Locker::Process, LockRange::ALL, LockKind::Unlock);
            self.connection.lock_far(ask, None)?;
        }
        Ok(())
    }

    fn lock_ask(&self, locker: Locker, range: LockRange, kind: LockKind) -> LockAsk {
        let (description, nonce) = (self.description, self.nonce);
        LockAsk { ino: self.ino(), description, nonce, locker, range, kind }
    }
}
