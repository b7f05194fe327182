//! What is looked after now and then: what has run out, what waits to be tried again, what nobody
//! holds any more. Not here: who does so, and how often (`watcher`).

use terral_format::Result;
use terral_format::ids::SessionSlot;

use crate::core::state::State;
use crate::debts::failures::Work;
use crate::debts::owing;
use crate::deferred::applying;
use crate::files::closing;
use crate::requests::{ending, presenting, status};
use crate::sessions::clients::Client;
use crate::storage::closed;

/// Tries again what could not be applied, and ends the sessions that stayed for that.
pub fn try_waiting(state: &mut State) -> Result<()> {
    let due = state.waiting.count() > 0 && state.waiting.is_due(state.world.now());
    if !due && !state.unapplied {
        return Ok(());
    }
    state.unapplied = true;
    applying::apply_deferred(state)?;
    state.unapplied = false;
    let late = |(at, client): &(SessionSlot, &Client)| {
        !state.waiting.has(*at) && !client.process.is_alive()
    };
    let late: Vec<_> = state.sessions.clients().filter(late).map(|(at, _)| at).collect();
    late.into_iter().try_for_each(|session| ending::end_session(state, session))
}

/// Tries again what could not be applied, if something has come about since.
pub fn try_what_was_fetched(state: &mut State) {
    if state.waiting.count() > 0 && state.waiting.is_due(state.world.now()) {
        // What fails is tried again by and by.
        let _ = try_waiting(state);
    }
}

/// Takes back what has run out, and says whether `tend` must be called by and by:
/// whoever is there may open files at any time, without a word.
pub fn must_tend(state: &mut State) -> bool {
    if let Err(error) = presenting::recall_expired(state, state.world.wall_s()) {
        owing::was_looked_after(state, Err(error));
    }
    let somebody = state.sessions.clients().next().is_some() || !state.lingering.is_empty();
    let waits = state.waiting.count() > 0
        || state.unapplied
        || state.debts.failure(Work::Tending).is_some();
    somebody || waits || state.descriptions.count_kernel() > 0
}

/// Tries again what waits, and ends what nobody holds.
pub fn tend(state: &mut State) {
    status::warn_if_cramped(state, false);
    let tried = try_waiting(state);
    let settled = closing::close_unheld(state, None).and_then(|()| closed::settle_lingering(state));
    let tended = settled.and_then(|()| state.commit());
    owing::was_looked_after(state, tried.and(tended));
}
