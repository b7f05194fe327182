//! Memory made ready before anybody writes: how much, when, and who sees to it.
//!
//! Invariants: what is made ready is free and warm, and is counted by the allocator alone; the work
//! is done by a process that runs only when nobody else wants to (`transport::preparer`), one
//! segment at a time, and this thread sleeps while there is nothing to do.

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use terral_format::local::geometry::{PAGE_BYTES, SEGMENT_BYTES};
use terral_format::{Error, ErrorKind, Result};
use terral_transport::preparer::Preparer;

use crate::core::state::State;
use crate::core::workers::{Next, Trade};
use crate::shared::Shared;
use crate::shell::available::available_bytes;
use crate::shell::options::Options;
use crate::shell::workers::{self, Worker};

/// Kept ahead of writers if nobody says how much: this part of the bound, and at most so much.
const PART: u64 = 8;
const MOST_BYTES: u64 = 2 << 30;
/// Never more than this part of what machine and control groups have left.
const SHARE: u64 = 4;
/// A program that is over so soon gets nothing prepared.
const DELAY: Duration = Duration::from_millis(10);
/// Where memory is short, it is looked at again after so long.
const SHORT: Duration = Duration::from_secs(10);
const SEGMENT: u64 = SEGMENT_BYTES as u64;

/// What is to be ready.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    asked_bytes: Option<u64>,
    /// When the program that this server is for began, if it is for one.
    launched: Option<Instant>,
}

impl Ready {
    /// As asked for.
    pub fn new(options: &Options) -> Self {
        let launched = options.launcher.map(|_| Instant::now());
        Ready { asked_bytes: options.ready_bytes, launched }
    }

    /// The process that does it, if it can be had and something is to be ready. To be called before
    /// the server locks anything.
    pub fn preparer(&self, instance: &Path) -> Option<Preparer> {
        if self.asked_bytes == Some(0) { None } else { Preparer::start(instance).ok() }
    }

    /// Bytes to keep ahead of writers under a bound of the arena.
    fn target_bytes(&self, bound_bytes: u64) -> u64 {
        let usual = (bound_bytes / PART).min(MOST_BYTES);
        self.asked_bytes.unwrap_or(usual).min(bound_bytes)
    }

    /// Whether somebody may write soon: a program is there, or has written before.
    fn is_wanted(&self, state: &State) -> bool {
        let launched = self.launched.is_some_and(|at| at.elapsed() >= DELAY);
        state.wrote || launched || state.sessions.clients().next().is_some()
    }

    /// Whether memory is to be made ready now, or what was written cold is to be made warm for when
    /// it is used again.
    pub fn is_due(&self, state: &State) -> bool {
        let drains = !state.debts.is_empty();
        let again = || state.wrote && !drains && state.storage.first_cold().is_some();
        self.is_wanted(state) && (self.lacks(state) || again())
    }

    fn lacks(&self, state: &State) -> bool {
        let bound = u64::from(state.began.geometry.arena_pages()) * PAGE_BYTES as u64;
        state.storage.warm_bytes() < self.target_bytes(bound)
    }
}

/// Whether machine and control groups have little left beside what is ready.
fn is_short(ready_bytes: u64, available_bytes: u64) -> bool {
    ready_bytes + SEGMENT > (available_bytes + ready_bytes) / SHARE
}

/// Keeps memory ready until the server is over, when `stop` becomes readable.
pub fn keep(shared: &Shared, ready: &Ready, preparer: Option<Preparer>, stop: BorrowedFd<'_>) {
    if let Some(preparer) = preparer {
        let begun = ready.launched.is_none();
        workers::work(shared, &mut Keeper { ready, preparer, stop, begun, failed: false });
    }
}

/// Who sees to it.
struct Keeper<'k> {
    ready: &'k Ready,
    preparer: Preparer,
    stop: BorrowedFd<'k>,
    /// The program has had its moment.
    begun: bool,
    /// Nothing can be prepared any more.
    failed: bool,
}

impl Worker for Keeper<'_> {
    const TRADE: Trade = Trade::Preparing;

    fn turn<'s>(
        &mut self,
        shared: &'s Shared,
        mut state: MutexGuard<'s, State>,
    ) -> (MutexGuard<'s, State>, Next) {
        let now = state.world.now();
        if !std::mem::replace(&mut self.begun, true) {
            return (state, Next::Throttled(now + DELAY));
        }
        if !self.ready.is_due(&state) {
            return (state, Next::Idle(None));
        }
        if is_short(state.storage.warm_bytes(), available_bytes()) {
            return (state, Next::Throttled(now + SHORT));
        }
        let Some(index) = next(&mut state, self.ready) else { return (state, Next::Idle(None)) };
        state.storage.prepares(Some(index));
        drop(state);
        let prepared = prepare(shared, &mut self.preparer, index, self.stop);
        state = shared.lock();
        state.storage.prepares(None);
        let next = self.note(&mut state, index, prepared);
        (state, next)
    }

    fn is_through(&self, _: &State) -> bool {
        self.failed
    }
}

impl Keeper<'_> {
    /// What cannot be prepared is still reachable, through its file.
    fn note(&mut self, state: &mut State, index: u32, prepared: Result<Option<u64>>) -> Next {
        match prepared {
            Ok(Some(is)) => {
                state.storage.prepared(index, is);
                Next::Busy
            }
            Err(error) if error.kind == ErrorKind::NoSpace => {
                state.storage.stop_growing();
                // Nobody who only computes would say that there is some again.
                Next::Throttled(state.world.now() + SHORT)
            }
            Ok(None) | Err(_) => {
                self.failed = true;
                Next::Idle(None)
            }
        }
    }
}

/// One that nobody uses first, if need be a new one: in the others, writers are at work.
fn next(state: &mut State, ready: &Ready) -> Option<u32> {
    if ready.lacks(state) {
        let unused = state.storage.unused_cold();
        if unused.is_some() {
            return unused;
        }
    }
    state.storage.first_cold()
}

fn prepare(
    shared: &Shared,
    preparer: &mut Preparer,
    index: u32,
    stop: BorrowedFd<'_>,
) -> Result<Option<u64>> {
    if shared.memory.arena().room_bytes() <= 2 * SEGMENT {
        return Err(Error::new(ErrorKind::NoSpace, "memory"));
    }
    preparer.prepare(index, stop)
}

#[cfg(test)]
mod tests {
    use super::{MOST_BYTES, Ready, SEGMENT, is_short};

    #[test]
    fn an_eighth_of_the_bound_is_ready_at_most_two_gib_and_what_is_asked_for_instead() {
        let usual = Ready { asked_bytes: None, launched: None };
        assert_eq!(usual.target_bytes(8 << 30), 1 << 30);
        assert_eq!(usual.target_bytes(64 << 30), MOST_BYTES);
        let asked = Ready { asked_bytes: Some(3 << 30), launched: None };
        assert_eq!(asked.target_bytes(64 << 30), 3 << 30);
        assert_eq!(asked.target_bytes(1 << 30), 1 << 30, "never beyond the bound");
        let none = Ready { asked_bytes: Some(0), launched: None };
        assert_eq!(none.target_bytes(64 << 30), 0);
    }

    #[test]
    fn where_memory_is_short_less_is_ready() {
        assert!(!is_short(0, 4 * SEGMENT) && is_short(0, 4 * SEGMENT - 1));
        assert!(!is_short(3 * SEGMENT, 13 * SEGMENT) && is_short(3 * SEGMENT, 12 * SEGMENT));
    }
}
