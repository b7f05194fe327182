//! Descriptions that end: when nobody holds them any more.

use std::sync::atomic::Ordering;

use terral_format::Result;
use terral_format::disk::local::Local;
use terral_format::ids::{DescriptionSlot, SessionSlot};
use terral_format::local::names::flag;
use terral_format::local::tables::{SHARED, access};

use crate::core::state::State;
use crate::debts::owing;
use crate::debts::policy::Event;
use crate::far::asking;
use crate::storage::closed;

/// A descriptor of this description was closed: it ends if that was the last.
pub fn close(state: &mut State, description: DescriptionSlot, nonce: u32) -> Result<()> {
    match state.descriptions.get(description) {
        Some(open) if open.nonce == nonce => {}
        _ => return Ok(()),
    }
    close_if_unheld(state, description, true)
}

pub fn close_if_unheld(state: &mut State, description: DescriptionSlot, asked: bool) -> Result<()> {
    let Some(open) = state.descriptions.get(description).copied() else { return Ok(()) };
    let kernel = u64::from(open.access) & access::KERNEL != 0;
    let words = state.storage.memory().description(description);
    let word = words[0].load(Ordering::SeqCst);
    // Nothing is left in it of one that was closed, and could not end then.
    let (shared, is_closed) = (word & SHARED != 0, word == 0);
    // Whoever has it in hand may have created, shared and closed it already, and not be heard.
    let in_hand = state.names.inode(open.ino).is_some_and(|inode| inode.is(flag::PREALLOCATED));
    let held = if kernel && shared && !in_hand {
        state.machine.is_held(description)?
    } else {
        // Nobody but its opener can have it.
        !asked && !is_closed && state.sessions.client(open.session).is_some()
    };
    if held {
        return Ok(());
    }
    // What was created with it waits for a change before that, and is nothing without it: it ends
    // once that is there.
    if in_hand && state.waiting.is_about(open.ino) {
        if asked {
            words[0].store(0, Ordering::SeqCst);
        }
        return Ok(());
    }
    state.storage.memory().description(description)[0].store(0, Ordering::SeqCst);
    state.record(Local::Closed { description });
    if let Some(file) = asking::number_of(state, open.ino) {
        return asking::closed(state, file);
    }
    let wrote = u64::from(open.access) & access::WRITE != 0;
    let new = state.names.inode(open.ino).is_some_and(|inode| inode.published.is_none());
    if (wrote || new) && state.differs(open.ino) {
        owing::owe(state, open.ino);
        if state.backing.is_some() && !state.names.is_written(open.ino) {
            let size = state.attributes(open.ino).map_or(0, |attributes| attributes.size);
            state.debts.happened(open.ino, Event::Closed(size), state.world.now());
        }
    }
    closed::settle_closed(state, open.ino)
}

/// Ends the descriptions nobody holds any more: all that may be, or those that `gone` may have
/// held.
pub fn close_unheld(state: &mut State, gone: Option<SessionSlot>) -> Result<()> {
    let kernel = |access: u8| u64::from(access) & access::KERNEL != 0;
    let suspects: Vec<DescriptionSlot> = state
        .descriptions
        .iter()
        .filter(|(_, open)| gone.is_none_or(|s| kernel(open.access) || open.session == s))
        .map(|(slot, _)| slot)
        .collect();
    suspects.into_iter().try_for_each(|slot| close_if_unheld(state, slot, false))
}

/// Ends the descriptions that only a dead session can have, and those that nobody holds.
pub fn close_all_of(state: &mut State, session: SessionSlot) -> Result<()> {
    let own = state.descriptions.iter().filter(|(_, open)| open.session == session);
    let own: Vec<DescriptionSlot> = own.map(|(slot, _)| slot).collect();
    own.into_iter().try_for_each(|slot| close_if_unheld(state, slot, true))
}
