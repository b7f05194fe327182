//! The loop of everybody who works in the background: a turn, and sleep until there is more to do.
//! Not here: what a turn is (`draining`, `ready`, `spillers`), nor who fetches what requests wait
//! for (`fetchers`): they look for nothing, but are handed their jobs.

use std::sync::MutexGuard;

use crate::core::state::State;
use crate::core::workers::{Next, Trade};
use crate::shared::Shared;

/// Somebody who works in the background.
pub trait Worker {
    /// At what.
    const TRADE: Trade;

    /// Does what is to be done next, if anything is: the state is given back locked, and need not
    /// be so meanwhile.
    fn turn<'s>(
        &mut self,
        shared: &'s Shared,
        state: MutexGuard<'s, State>,
    ) -> (MutexGuard<'s, State>, Next);

    /// Whether he goes, though the server does not leave yet.
    fn is_through(&self, _state: &State) -> bool {
        false
    }
}

/// Works until he is through, or the server leaves.
pub fn work<W: Worker>(shared: &Shared, worker: &mut W) {
    let mut state = shared.lock();
    while !state.leaving && !worker.is_through(&state) {
        let next;
        (state, next) = worker.turn(shared, state);
        // Not if he is through, or nobody would wake him for that.
        if !state.leaving && !worker.is_through(&state) {
            state = shared.sleep(W::TRADE, state, next);
        }
    }
}

/// The server leaves: nobody sleeps on.
pub fn wake_all(shared: &Shared) {
    Trade::ALL.into_iter().for_each(|trade| shared.rouse(trade));
}
