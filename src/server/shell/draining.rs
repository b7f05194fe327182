//! Who drains: at first behind all programs, and once only the rest is to be brought, as somebody
//! waits for that, like any other. Not here: what is brought, and in which order (`drain`).

use std::sync::MutexGuard;

use terral_store::backing::Backing;
use terral_transport::process;

use crate::core::state::State;
use crate::core::workers::{Next, Trade};
use crate::debts::owing;
use crate::drain::turns;
use crate::shared::Shared;
use crate::shell::workers::{Worker, work};
use crate::storage::spill::jobs;

/// Who does it.
pub(crate) struct Drainer<'b> {
    pub(crate) backing: &'b dyn Backing,
    /// Programs go first.
    pub(crate) nice: bool,
}

impl Worker for Drainer<'_> {
    const TRADE: Trade = Trade::Draining;

    fn turn<'s>(
        &mut self,
        shared: &'s Shared,
        state: MutexGuard<'s, State>,
    ) -> (MutexGuard<'s, State>, Next) {
        let settled = state.debts.is_settled();
        let (state, next) = turns::turn(shared, self.backing, state);
        let news = next == Next::Busy || (state.debts.is_settled() && !settled);
        if news && owing::is_awaited(&state) {
            shared.nudge();
        }
        let speaks = state.members.as_ref().is_some_and(|members| members.has_frames());
        if speaks || news && state.waits_between() {
            shared.wake_links();
        }
        if next != Next::Busy {
            rouse_others(shared, &state);
        }
        (state, next)
    }

    fn is_through(&self, state: &State) -> bool {
        self.nice && state.finishing
    }
}

/// The drain rests: memory that was written cold is made warm then, and what has arrived needs no
/// room in the spill any more.
fn rouse_others(shared: &Shared, state: &State) {
    if state.debts.is_empty() && state.sleepers.sleeps(Trade::Preparing) {
        shared.rouse(Trade::Preparing);
    }
    if jobs::must_wake_spillers(state) {
        shared.rouse(Trade::Spilling);
    }
}

/// Drains until the server leaves.
pub fn drain(shared: &Shared, backing: &dyn Backing) {
    // A thread of its own, as only root could take that back.
    std::thread::scope(|threads| {
        threads.spawn(|| {
            process::be_nice(5);
            work(shared, &mut Drainer { backing, nice: true });
        });
    });
    work(shared, &mut Drainer { backing, nice: false });
}
