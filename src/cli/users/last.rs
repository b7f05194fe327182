//! As all are to end: users' servers that have died, and may owe something, have another one each,
//! which brings it.
//!
//! Invariant: once each, and not for long; what is not brought then stays in memory, and is said.
//! Two signals more end each wait. Not here: those that die before (`again`).

use std::sync::{Arc, MutexGuard, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::{APART, Chair, House, POLL, Seat, lock};
use crate::progress::{Patience, Progress};
use crate::signals::Signals;

/// So many at a time.
const AT_ONCE: usize = 8;

/// The end: what it waits for, and how far that is.
pub(super) struct Last<'s> {
    patience: Patience<'s>,
    pub progress: Progress,
    over: bool,
}

impl<'s> Last<'s> {
    /// It begins.
    pub fn new(signals: &'s Signals, limit: Option<Duration>) -> Self {
        let patience = Patience::new(signals, limit);
        Last { patience, progress: Progress::new(), over: false }
    }

    /// Whether nothing more is waited for. Says why, once.
    pub fn is_over(&mut self) -> bool {
        self.over = self.over || self.patience.is_over(&mut self.progress);
        self.over
    }

    /// Waits until these have ended, or nothing more is waited for.
    pub fn outwait(&mut self, threads: Vec<JoinHandle<()>>) {
        while !self.is_over() && threads.iter().any(|thread| !thread.is_finished()) {
            std::thread::sleep(POLL);
        }
    }

    /// What there is of a user's, once nobody starts one; nothing if that lasts too long.
    pub fn sits<'c>(&mut self, seat: &'c Seat) -> Option<MutexGuard<'c, Chair>> {
        loop {
            match seat.try_lock() {
                Ok(chair) => return Some(chair),
                Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) if self.is_over() => return None,
                Err(TryLockError::WouldBlock) => std::thread::sleep(POLL),
            }
        }
    }
}

impl House {
    /// Has them started.
    pub(super) fn begin_the_last(self: &Arc<Self>, last: &mut Last<'_>) {
        let all: Vec<(u32, Seat)> =
            lock(&self.seats).iter().map(|(user, seat)| (*user, seat.clone())).collect();
        let mut dead =
            all.into_iter().filter(|(_, seat)| self.has_died(seat, last)).collect::<Vec<_>>();
        while !dead.is_empty() && !last.is_over() {
            let some = dead.drain(..dead.len().min(AT_ONCE));
            let begins = some.filter_map(|(owner, seat)| {
                let house = self.clone();
                // What has no thread stays in memory.
                std::thread::Builder::new().spawn(move || house.begin_last(owner, &seat)).ok()
            });
            last.outwait(begins.collect());
        }
    }

    /// Whether one has died that may owe something. Who was being started is told that all end.
    fn has_died(&self, seat: &Seat, last: &mut Last<'_>) -> bool {
        let Some(mut chair) = last.sits(seat).filter(|_| !last.is_over()) else { return false };
        !self.looks_at(&mut chair) && chair.died && chair.owes
    }

    fn begin_last(&self, owner: u32, seat: &Seat) {
        let begin = Instant::now();
        while lock(seat).is_just_started() && begin.elapsed() < APART {
            std::thread::sleep(POLL);
        }
        // Why not is said in the end: it owes.
        let _ = self.run_his(owner, true);
    }
}
