//! The end of sessions.

use std::collections::BTreeSet;

use terral_format::Result;
use terral_format::disk::local::Local;
use terral_format::ids::{Ino, SessionSlot};
use terral_format::wire::message::FileRef;

use crate::core::state::State;
use crate::deferred::applying;
use crate::far::asking;
use crate::files::closing;
use crate::locks::releasing;
use crate::members::requiring;
use crate::naming::creating;
use crate::storage::reclaim;

/// A client is dead: gives up what it was doing. It stays while a change that it has deferred
/// cannot be applied, as it has the authority for that. So it does if this fails, as where memory
/// is full, until it is tried again ([`State::unapplied`]).
pub fn end_session(state: &mut State, session: SessionSlot) -> Result<()> {
    let ended = end(state, session);
    state.unapplied |= ended.is_err();
    ended
}

fn end(state: &mut State, session: SessionSlot) -> Result<()> {
    if state.sessions.client(session).is_none() {
        return Ok(());
    }
    applying::apply_deferred(state)?;
    state.storage.memory().deferred().drop_claims(session.0);
    if state.waiting.has(session) {
        // What it has open may be what is waited for.
        closing::close_all_of(state, session)?;
        state.commit()?;
        state.waiting.hasten(state.world.now());
        applying::apply_deferred(state)?;
        if state.waiting.has(session) {
            return Ok(());
        }
    }
    let Some(client) = state.sessions.client(session) else { return Ok(()) };
    let counted = crate::sessions::clients::counted(&client.session.page().counters);
    state.storage.forget_client(session, client);
    let mut open: BTreeSet<Ino> = state.descriptions.iter().map(|(_, open)| open.ino).collect();
    open.extend(state.far.batches.inos());
    for ino in open {
        let slot = state.names.inode(ino).and_then(|inode| inode.slot);
        let holder = slot.and_then(|slot| state.storage.ticket_of(session, slot));
        if let (Some(slot), Some(holder)) = (slot, holder) {
            reclaim::revoke_ticket(state, FileRef { ino, slot }, holder)?;
        }
    }
    state.machine.remove_page(session);
    if counted.is_none() {
        state.say_counts_spoiled();
    }
    requiring::has_ended(state, session);
    creating::has_ended(state, session);
    asking::has_ended(state, session);
    state.authz.hearing.has_ended(session);
    let totals = counted.unwrap_or_default();
    state.record(Local::SessionEnded { session, totals });
    releasing::reclaim_lock_blocks(state);
    closing::close_unheld(state, Some(session))?;
    state.commit()?;
    state.storage.leave_quarantine(&state.sessions);
    Ok(())
}
