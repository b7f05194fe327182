//! As all are to end: users' servers that have died, and may owe something, have another one each,
//! which brings it.
//!
//! Invariant: once each, and not for long; what is not brought then stays in memory, and is said.
//! Not here: those that die before (`again`).

use std::time::Instant;

use super::{APART, House, POLL, Seat, lock};

/// So many at a time.
const AT_ONCE: usize = 8;

impl House {
    /// Has them started.
    pub(super) fn begin_the_last(&self) {
        let all: Vec<(u32, Seat)> =
            lock(&self.seats).iter().map(|(user, seat)| (*user, seat.clone())).collect();
        let mut dead = all.into_iter().filter(|(_, seat)| self.has_died(seat)).peekable();
        while dead.peek().is_some() {
            std::thread::scope(|threads| {
                for (owner, seat) in dead.by_ref().take(AT_ONCE) {
                    // What has no thread stays in memory.
                    let begins = move || self.begin_last(owner, &seat);
                    let _ = std::thread::Builder::new().spawn_scoped(threads, begins);
                }
            });
        }
    }

    /// Whether one has died that may owe something. Who was being started is told that all end.
    fn has_died(&self, seat: &Seat) -> bool {
        let mut chair = lock(seat);
        !self.looks_at(&mut chair) && chair.died && chair.owes
    }

    fn begin_last(&self, owner: u32, seat: &Seat) {
        let begin = Instant::now();
        while lock(seat).is_just_started() && begin.elapsed() < APART {
            std::thread::sleep(POLL);
        }
        // Why not is said in the end: it owes.
        let _ = self.run_his(owner);
    }
}
