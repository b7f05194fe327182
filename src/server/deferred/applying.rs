//! Deferred changes, the server's side: files in hand, and what clients did with them. See
//! `terral_format::local::deferred` for the rules.

use std::sync::atomic::Ordering;

use terral_format::disk::facts::Fact;
use terral_format::disk::local::Local;
use terral_format::ids::{DescriptionSlot, Ino, SessionSlot};
use terral_format::local::changes;
use terral_format::local::changes::{Deferred, Made};
use terral_format::local::deferred::{CHANGE_BYTES, Committed};
use terral_format::local::names::{Inode, flag};
use terral_format::local::tables::access;
use terral_format::wire::message::{FileRef, Kind};
use terral_format::{Result, frame};

use crate::authority::caller::Caller;
use crate::core::state::State;
use crate::core::world::Tick;
use crate::debts::owing;
use crate::deferred::lending;
use crate::deferred::waiting::Waiting;
use crate::files::closing;

use crate::naming::making::New;
use crate::naming::{attributes, elsewhere, making, permitting, whole};
use crate::needs::need::Fetched;
use crate::storage::{bringing, granting};

/// Applies what was deferred before now. True: there is more. What cannot be applied now, and
/// what depends on it, is in [`State::waiting`] then.
///
/// # Errors
/// If the log cannot be written; all of it is applied once more then.
pub fn apply_deferred(state: &mut State) -> Result<bool> {
    let limit = state.storage.memory().deferred().next_stamp();
    apply_collected(state, limit, false)
}

/// What `apply_deferred` does, for who was told that there is something. True: there
/// is more. What fails is tried again by and by.
pub fn apply_rung(state: &mut State) -> bool {
    let applied = apply_deferred(state);
    state.unapplied = applied.is_err();
    applied.unwrap_or_default()
}

/// Closes the gate: applies all that was deferred, and nothing is until it is opened.
pub fn close_gate(state: &mut State) -> Result<()> {
    state.storage.memory().gate().store(1, Ordering::SeqCst);
    apply_collected(state, u64::MAX, true).map(drop)
}

/// Opens the gate again, unless there is no memory in hand for what may come.
pub fn open_gate(state: &mut State) {
    let ready = state.log.reserve().is_ok() && state.names.reserve().is_ok();
    if ready && !state.leaving {
        state.storage.memory().gate().store(0, Ordering::SeqCst);
    }
}

/// Does something while nothing is deferred; all that was before is applied then.
///
/// # Errors
/// If that cannot be, or be written down.
pub fn behind_the_gate(state: &mut State, act: impl FnOnce(&mut State)) -> Result<()> {
    let done = close_gate(state).and_then(|()| {
        act(state);
        state.commit()
    });
    open_gate(state);
    done
}

/// What needs something of the permanent store waits until that is fetched, and not whoever has
/// it applied now.
fn apply_collected(state: &mut State, limit: u64, revoke: bool) -> Result<bool> {
    let may = state.fetches.let_wait(true);
    let waits = state.fetches.must_wait();
    let applied = apply_those(state, limit, revoke);
    state.fetches.let_wait(may);
    state.fetches.set_waiting(waits);
    applied
}

/// Something was fetched: what waits for it is tried again.
pub fn was_fetched(state: &mut State, number: u64, fetched: Fetched, times: (Tick, Tick)) {
    let now = state.world.now();
    state.fetches.done(number, fetched, times);
    if state.waiting.count() > 0 {
        state.waiting.hasten(now);
    }
}

fn apply_those(state: &mut State, limit: u64, revoke: bool) -> Result<bool> {
    let memory = state.storage.memory().clone();
    let (committed, more) = memory.deferred().collect(limit, revoke);
    let sessions = committed.iter().map(|change| SessionSlot(change.session));
    lending::fill_hands(state, sessions)?;
    let mut done = Vec::with_capacity(committed.len());
    let before = std::mem::take(&mut state.waiting);
    state.waiting = Waiting::after(&before, state.world.now());
    for change in &committed {
        let mut buffer = [0; CHANGE_BYTES];
        let bytes = memory.deferred().read(change, &mut buffer);
        // What makes no sense, or is not this session's to do, did not happen.
        let Ok(made) = frame::decode::<Made<'_>>(bytes) else {
            done.push((change, None));
            continue;
        };
        let user = SessionSlot(change.session);
        let (late, who) = (state.waiting.precede(&made.change), (user, change.stamp));
        if late || before.keeps(change.stamp, state.world.now()) {
            state.waiting.add(who, &made.change, before.why().filter(|_| !late).cloned());
            continue;
        }
        if let Err(error) = apply_one(state, change, &made) {
            state.waiting.add(who, &made.change, Some(error));
            continue;
        }
        if matches!(made.change, Deferred::Close { .. }) {
            state.waiting.hasten(state.world.now());
        }
        done.push((change, changes::shadow_of(&made.change)));
    }
    if state.waiting.count() == 0 {
        state.waiting = Waiting::default();
    }
    if !done.is_empty() {
        state.debts.names_changed(state.world.now());
        state.commit()?;
        done.into_iter().for_each(|(change, shadow)| memory.deferred().applied(change, shadow));
        if state.log.reserve().is_err() || state.names.reserve().is_err() {
            memory.gate().store(1, Ordering::SeqCst);
        }
    }
    Ok(more)
}

fn apply_one(state: &mut State, change: &Committed, made: &Made<'_>) -> Result<()> {
    let session = SessionSlot(change.session);
    if let Deferred::Close { description, nonce } = made.change {
        return closing::close(state, description, nonce);
    }
    let presented = state.sessions.presented_by(session);
    let by = (made.authority, change.stamp);
    let who =
        presented.and_then(|presented| state.authz.covers(presented, by, made.change.needs()));
    let Some(person) = who.filter(|_| state.sessions.may_defer(session)) else {
        return Ok(());
    };
    for directory in changes::directories_of(&made.change).into_iter().flatten() {
        elsewhere::was_changed(state, directory);
    }
    apply_as(state, &Caller { session, person }, made.change)
}

fn apply_as(state: &mut State, caller: &Caller, change: Deferred<'_>) -> Result<()> {
    match change {
        Deferred::Create { ino, parent, name, mode, time_ns, .. } => {
            let (place, kind) = ((parent, name), Kind::File);
            create_deferred(state, caller, ino, &New { place, kind, mode, target: b"" }, time_ns);
        }
        Deferred::Unlink { parent, name, ino, time_ns } => {
            if state.names.child_here(parent, name) == Some(ino) {
                let kept = bringing::keep_for_openers(state, ino);
                state.keeping.clear();
                kept?;
                state.record(Fact::Removed { parent, name: name.into(), time_ns });
            }
        }
        Deferred::Change { ino, change, time_ns } => {
            if state.names.inode(ino).is_some()
                && permitting::permit_attributes(state, caller, ino, &change).is_ok()
            {
                let change = attributes::without_set_id(state, ino, change);
                state.record(Fact::Changed { ino, change, time_ns });
            }
        }
        Deferred::Open { ino, description, nonce, access } => {
            open_deferred(state, caller.session, ino, (description, nonce), access);
        }
        Deferred::MakeDirectory { ino, parent, name, mode, time_ns, .. } => {
            let (place, kind) = ((parent, name), Kind::Directory);
            let new = New { place, kind, mode, target: b"" };
            make_directory_deferred(state, caller, ino, &new, time_ns);
        }
        Deferred::RemoveDirectory { parent, name, ino, time_ns } => {
            if state.names.child_here(parent, name) == Some(ino) && is_empty_here(state, ino) {
                state.record(Fact::Removed { parent, name: name.into(), time_ns });
            }
        }
        Deferred::Rename { parent, name, to_parent, to_name, ino, over, time_ns } => {
            let there = state.names.child_here(to_parent, to_name).unwrap_or(Ino(0));
            if state.names.child_here(parent, name) == Some(ino) && there == over && ino != over {
                let kept = bringing::keep_for_openers(state, over);
                state.keeping.clear();
                kept?;
                let (name, to_name) = (name.into(), to_name.into());
                state.record(Fact::Renamed { parent, name, to_parent, to_name, time_ns });
            }
        }
        Deferred::Close { .. } => {}
    }
    Ok(())
}

fn is_empty_here(state: &State, directory: Ino) -> bool {
    let inode = state.names.inode(directory).filter(Inode::is_directory);
    inode.is_some_and(|inode| state.names.children(&inode).next().is_none())
}

fn open_deferred(
    state: &mut State,
    session: SessionSlot,
    ino: Ino,
    (description, nonce): (DescriptionSlot, u32),
    how: u8,
) {
    // One that was opened already is applied once more after a server died.
    let ours = state.hands.has(session, description, nonce);
    let Some(inode) = state.names.inode(ino).filter(|_| ours) else { return };
    let (file, writes) = (inode.kind == Kind::File, u64::from(how) & access::WRITE != 0);
    // One at rest may only be read; it gets its record when that is needed.
    let fits = if file { inode.slot.is_some() || !writes } else { inode.is_directory() };
    if !fits {
        return;
    }
    state.record(Local::Opened { description, nonce, ino, access: how, session });
    if let (Some(slot), true) = (inode.slot, file && writes) {
        owing::owe(state, ino);
        granting::install_first(state, session, FileRef { ino, slot });
    }
}

fn make_directory_deferred(
    state: &mut State,
    caller: &Caller,
    ino: Ino,
    new: &New<'_>,
    time_ns: u64,
) {
    if is_missing(state, new.place) && state.hands.has_ino(caller.session, ino) {
        making::make_as(state, caller, ino, new, time_ns);
        whole::is_made(state, ino);
    }
}

fn create_deferred(state: &mut State, caller: &Caller, ino: Ino, new: &New<'_>, time_ns: u64) {
    // One that was created already is applied once more after a server died.
    let preallocated = state.names.inode(ino).is_some_and(|inode| inode.is(flag::PREALLOCATED));
    if preallocated && is_missing(state, new.place) {
        making::make_as(state, caller, ino, new, time_ns);
        owing::owe(state, ino);
    }
}

/// Whether there is a directory for a name, and not yet the name in it.
fn is_missing(state: &State, (parent, name): (Ino, &[u8])) -> bool {
    let above = state.names.inode(parent).filter(Inode::is_directory);
    above.is_some() && state.names.child_here(parent, name).is_none()
}
