//! How clients leave a thing that is to be given to another member.

use std::collections::BTreeSet;

use terral_format::disk::membership::Membership;
use terral_format::ids::{Ino, Number, Thing};
use terral_format::wire::body::Body;
use terral_format::wire::peers::Work;
use terral_format::wire::transactions::TransactionId;
use terral_format::{Error, ErrorKind, Result};
use terral_partition::effect::{Access, Effect, Giving, Input};

use crate::core::left_out::{Step, does};
use crate::core::state::State;
use crate::deferred::applying;
use crate::members::role::Until;
use crate::members::stepping::tell;
use crate::naming::{elsewhere, homes, whole};
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
    if !decides {
        has_left(state, thing);
    }
    tell(state, Input::Recalled { thing, body });
    Ok(())
}

/// A directory goes to another member, which was told what it is: from now on the permanent store
/// may have more of it than the tables.
pub fn has_left(state: &mut State, thing: Thing) {
    whole::has_left(state, thing);
    let inode = bodies::inode_of(state, thing).ok().filter(|inode| inode.is_directory());
    if let Some(inode) = inode.filter(|_| homes::decide(state)) {
        elsewhere::overlay(state, inode.ino);
    }
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

/// Whether a directory is about to go to another member, or to be changed for one, and the
/// permanent store does not have all that it is owed of names yet: who has it next looks there, and
/// names there what he brings. Then that is later, and nobody here changes it meanwhile. Who only
/// looks at it does not wait for the store.
pub fn must_wait(state: &mut State, effect: &Effect) -> bool {
    let members = state.members.as_mut().filter(|_| state.backing.is_some());
    if members.is_none_or(|members| members.has_waited(effect)) {
        return false;
    }
    let things = go(state, effect);
    if things.is_empty() {
        return false;
    }
    for thing in &things {
        let Ok(inode) = bodies::inode_of(state, *thing) else { continue };
        // One that goes says first whether all its names are known.
        let goes = !matches!(effect, Effect::Serve { .. });
        let from = if goes { state.names.above(inode.ino) } else { Some(inode.ino) };
        from.into_iter().for_each(|from| elsewhere::overlay(state, from));
        if !state.names.is_elsewhere(inode.ino) {
            state.record(Membership::Elsewhere { ino: inode.ino, is: true });
        }
    }
    // What was deferred before that is applied, and owed.
    let _ = applying::close_gate(state);
    let files = state.names.publishing().keys().chain(state.debts.publishing());
    let directories = things.iter().map(|thing| thing.number()).collect();
    let members = state.members.as_ref();
    let out: BTreeSet<_> = members.into_iter().flat_map(|members| members.delegated()).collect();
    let until = Until {
        names: state.names.ordinal(),
        files: files.copied().collect(),
        delegated: members.map_or_else(Vec::new, |members| members.delegated_in(&directories)),
    };
    let waits = !has(state, &out, &until);
    if let Some(members) = &mut state.members {
        if waits {
            members.postpones(effect.clone(), until);
        } else {
            members.settles(effect);
        }
    }
    if waits {
        state.debts.hasten_names();
    }
    waits
}

/// The directories that others have, or change, with this: those that go from here to who decides
/// them, or from who decides them to another member, and one that is changed here for others as the
/// first thing since programs here could change it by themselves.
fn go(state: &State, effect: &Effect) -> Vec<Thing> {
    let Some(members) = &state.members else { return Vec::new() };
    let is_whole = |thing: Thing| members.access(thing, state) == Access::Change;
    let goes = |thing: &Thing| is_whole(*thing) && !members.decides(*thing);
    let mut things = match effect {
        Effect::Recall(things) => things.iter().copied().filter(goes).collect(),
        Effect::Fetch { thing, to } if *to != Giving::Show => {
            if large::may_be_given(state, *thing, *to) { vec![*thing] } else { Vec::new() }
        }
        Effect::Serve { thing, work: Work::Change(_), .. } => {
            let settled = members.is_settled(*thing) || !does(Step::Settle);
            if settled { Vec::new() } else { vec![*thing] }
        }
        _ => Vec::new(),
    };
    things.retain(|thing| matches!(thing, Thing::Directory(_)));
    things
}

/// Whether the permanent store has that, and homes know what has become of what they delegated but
/// for these.
fn has(state: &State, out: &BTreeSet<(TransactionId, Number)>, until: &Until) -> bool {
    let names = state.names.owed().front().is_none_or(|(lsn, _)| *lsn > until.names);
    let becomes =
        |ino| state.names.publishing().contains_key(ino) || state.debts.publishing().contains(ino);
    let returned = !until.delegated.iter().any(|part| out.contains(part));
    names && returned && !until.files.iter().any(becomes)
}

/// What waited for the permanent store is done as far as that has it.
pub fn go_on(state: &mut State) {
    let Some(mut members) = state.members.take() else { return };
    let out = members.delegated().collect();
    members.take_postponed(|until| has(state, &out, until));
    state.members = Some(members);
}
