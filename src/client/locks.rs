//! Locks, client's side: asking and waiting.
//!
//! A waiting thread sleeps on a word of shared memory and holds no request slot meanwhile, so that
//! any number of them leave room for the request that gives the lock back. A lock is only ever
//! taken as the answer to a request: one that is not waited for any more cannot be granted.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use terral_format::locks::{HeldLock, LockKind, Locker};
use terral_format::message::{LockAsk, Reply, Request, WAIT_REFRESH_MS};
use terral_format::{ErrorKind, Result};
use terral_transport::{futex, process, requests};

use crate::session::{Connection, unexpected};

/// Longest sleep before asking again.
const REFRESH: Duration = Duration::from_millis(WAIT_REFRESH_MS);

/// A place among those who wait for a lock, to be asked for again after [`LockTurn::wait`].
pub struct LockTurn<'c> {
    word: &'c AtomicU32,
    seen: u32,
}

impl LockTurn<'_> {
    /// Sleeps until something was released, or for a moment. Uses nothing of the client, so that a
    /// signal handler may. False: one ran that does not have calls restarted (`SA_RESTART`).
    #[must_use]
    pub fn wait(self) -> bool {
        futex::wait(self.word, self.seen, Some(REFRESH)) || !futex::handlers_interrupt()
    }
}

impl Connection {
    /// Takes a lock, or gives the turn to wait for if the caller `waits`.
    pub(crate) fn lock(&self, ask: LockAsk, waits: bool) -> Result<Option<LockTurn<'_>>> {
        let own = ask.locker == Locker::Process && ask.kind != LockKind::Unlock;
        let note = || {
            if own {
                self.locks.may_hold(Some(ask.ino));
            }
        };
        note();
        let locked =
            if waits { self.lock_or_wait(ask) } else { self.ask_lock(ask, 0).map(|()| None) };
        // Once more: another thread may have closed the file, and told so, in between.
        note();
        locked
    }

    fn ask_lock(&self, ask: LockAsk, waiter: u32) -> Result<()> {
        match self.call(Request::Lock { ask, waiter })? {
            Reply::Done => Ok(()),
            _ => Err(unexpected()),
        }
    }

    fn lock_or_wait(&self, ask: LockAsk) -> Result<Option<LockTurn<'_>>> {
        let word = requests::unlocked(self.memory.bell(), ask.ino.0);
        // Before asking: what is released from then on changes it.
        let seen = word.load(Ordering::SeqCst);
        match self.ask_lock(ask, process::thread()) {
            Err(error) if error.kind == ErrorKind::WouldBlock => Ok(Some(LockTurn { word, seen })),
            done => done.map(|()| None),
        }
    }

    /// The thread does not wait any more. Unheard, it is forgotten soon.
    pub(crate) fn stop_waiting(&self) {
        let _ = self.tell(Request::StopWaiting(process::thread()));
    }

    pub(crate) fn lock_test(&self, ask: LockAsk) -> Result<Option<HeldLock>> {
        match self.call(Request::LockTest(ask))? {
            Reply::Lock(held) => Ok(held),
            _ => Err(unexpected()),
        }
    }

    /// Gives back all that this process holds of a file, if it may hold something.
    pub(crate) fn unlock_own(&self, ask: LockAsk) -> Result<()> {
        if !self.had_session() {
            // What was locked before an exec, only the server knows.
            self.own()?;
        }
        if self.locks.is_used() && self.locks.forget(ask.ino) {
            self.ask_lock(ask, 0)?;
        }
        Ok(())
    }
}
