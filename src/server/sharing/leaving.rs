//! How clients leave a thing that is to be given to another member.

use terral_format::disk::membership::Membership;
use terral_format::ids::{Ino, Thing};
use terral_format::local::names::flag;
use terral_format::wire::body::Body;
use terral_format::{Error, ErrorKind, Result};
use terral_partition::effect::{Effect, Input};

use crate::core::state::State;
use crate::deferred::applying;
use crate::members::role::Until;
use crate::members::stepping::tell;
use crate::naming::homes;
use crate::sharing::{bodies, large};

/// Clients are to leave these: those that none uses any more are given back.
pub fn leave(state: &mut State, things: Vec<Thing>) -> Result<()> {
    for thing in things {
        if bodies::drop_copy(state, thing) {
            tell(state, Input::Recalled { thing, body: Body::default() });
        } else {
            leave_one(state, thing)?;
        }
    }
    Ok(())
}

fn leave_one(state: &mut State, thing: Thing) -> Result<()> {
    if let Ok(inode) = bodies::inode_of(state, thing) {
        state.record(Membership::Elsewhere { ino: inode.ino, is: true });
        // What was deferred in it before that is applied, be it that it goes; what is after asks.
        applying::close_gate(state)?;
    }
    if state.waiting.count() > 0 {
        return Err(Error::new(ErrorKind::Busy, "what was deferred is not applied yet"));
    }
    // Who decides it himself has it in his tables.
    let decides = state.members.as_ref().is_some_and(|members| members.decides(thing));
    let body = if decides { Body::default() } else { told(state, thing)? };
    tell(state, Input::Recalled { thing, body });
    Ok(())
}

/// What goes to who decides it. More than one message holds stays here until names were taken away.
fn told(state: &mut State, thing: Thing) -> Result<Body> {
    bodies::body_if_any(state, thing).map_err(|error| {
        if error.kind != ErrorKind::NameTooLong {
            return error;
        }
        let ino = bodies::inode_of(state, thing).map(|inode| inode.ino);
        let path = ino.ok().and_then(|ino| state.names.path(ino)).unwrap_or_default();
        let path = String::from_utf8_lossy(&path).into_owned();
        state.warn(format!("/{path}: too many names for another machine: remove some of them"));
        Error::new(ErrorKind::Busy, "it is too large")
    })
}

/// That nobody can change a file that was born here without asking this server, so that those to
/// whom it is shown hear of it first.
///
/// # Errors
/// [`ErrorKind::Busy`] if somebody can: it is not shown, or was opened for writing just before.
pub fn rests(state: &mut State, ino: Ino) -> Result<()> {
    if !state.names.is_elsewhere(ino) {
        return Err(Error::new(ErrorKind::Busy, "it is not shown"));
    }
    // Who opens it from now on sees that it is; who has before, and has not said so, is heard.
    let heard = applying::close_gate(state);
    applying::open_gate(state);
    heard?;
    let slot = state.names.inode(ino).and_then(|inode| inode.slot);
    slot.into_iter().for_each(|slot| state.storage.settle_stores(slot));
    // Who is at a write goes on with it if another thread closes the file.
    let is_entered = slot.is_some_and(|slot| state.storage.is_entered(&state.sessions, slot));
    match state.waiting.count() > 0 || state.is_written(ino) || is_entered {
        true => Err(Error::new(ErrorKind::Busy, "it is open for writing")),
        false => Ok(()),
    }
}

/// Whether a directory is about to go to another member, and the permanent store does not have all
/// that it is owed of names yet: who has it next looks there. Then it goes later, and nobody here
/// changes it meanwhile.
pub fn must_wait(state: &mut State, effect: &Effect) -> bool {
    let things = match effect {
        Effect::Recall(things) => &things[..],
        Effect::Fetch { thing, takes } if large::may_be_given(state, *thing, *takes) => {
            std::slice::from_ref(thing)
        }
        _ => return false,
    };
    if !homes::decide(state) {
        return false;
    }
    for thing in things.iter().filter(|thing| matches!(thing, Thing::Directory(_))) {
        let Ok(inode) = bodies::inode_of(state, *thing) else { continue };
        overlay(state, inode.ino);
        if !state.names.is_elsewhere(inode.ino) {
            state.record(Membership::Elsewhere { ino: inode.ino, is: true });
        }
    }
    // What was deferred before that is applied, and owed.
    let _ = applying::close_gate(state);
    let files = state.names.publishing().keys().chain(state.debts.publishing());
    let until = Until { names: state.names.ordinal(), files: files.copied().collect() };
    let waits = !has(state, &until);
    if let Some(members) = state.members.as_mut().filter(|_| waits) {
        members.postpones(effect.clone(), until);
        state.debts.hasten_names();
    }
    waits
}

/// Whether the permanent store has that.
fn has(state: &State, until: &Until) -> bool {
    let names = state.names.owed().front().is_none_or(|(lsn, _)| *lsn > until.names);
    let becomes =
        |ino| state.names.publishing().contains_key(ino) || state.debts.publishing().contains(ino);
    names && !until.files.iter().any(becomes)
}

/// What waited for the permanent store is done as far as that has it.
pub fn go_on(state: &mut State) {
    let Some(mut members) = state.members.take() else { return };
    members.take_postponed(|until| has(state, until));
    state.members = Some(members);
}

/// A directory that was elsewhere, and all above it: programs ask before they change its names.
pub(super) fn overlay(state: &mut State, directory: Ino) {
    let mut at = Some(directory);
    while let Some(ino) = at {
        if state.names.inode(ino).is_some_and(|inode| !inode.is(flag::OVERLAY)) {
            state.record(Membership::Overlaid { ino });
        }
        at = state.names.above(ino).filter(|above| *above != ino);
    }
}
