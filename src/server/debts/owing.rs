//! What the permanent store is owed, as the namespace and memory say; and when the drain must look.

use terral_format::ErrorKind;
use terral_format::ids::Ino;
use terral_format::wire::message::{Drain, Kind};

use crate::core::state::State;
use crate::core::workers::Trade;
use crate::core::world::Tick;

/// Whether the backing is owed anything: a file, a name, or that what became of a version is found
/// out, which may have got its name there for a file that is gone here.
pub fn owes(state: &State) -> bool {
    let paid = state.debts.is_empty() && state.names.owed().is_empty();
    !paid || !state.names.publishing().is_empty()
}

/// The backing is owed something of this file from now on, if it is to get it.
pub fn owe(state: &mut State, ino: Ino) {
    let takes = || state.names.inode(ino).is_some_and(|inode| state.debts.takes(&inode));
    if state.backing.is_some() && takes() {
        state.debts.owe(ino, state.world.now());
    }
}

/// Whether somebody waits for what the drain has done just now: requests, or the end.
pub fn is_awaited(state: &State) -> bool {
    state.debts.is_pressed() || state.fetches.is_awaited() || state.finishing || state.leaving
}

/// Whether the drain must be woken: it would look again too late.
pub fn must_wake_drain(state: &State) -> bool {
    let asked = state.finishing || state.debts.is_sync_wanted();
    let now = state.world.now();
    let names = (!state.names.owed().is_empty()).then(|| state.debts.names_due(now));
    let sync = (asked && !state.debts.is_settled()).then_some(now);
    let discards = state.debts.has_discarded().then_some(now);
    let settles = settles_at(state, now).into_iter().chain(discards).min();
    let due = [names, sync, settles, state.debts.first_due()].into_iter().flatten().min();
    state.sleepers.oversleeps(Trade::Draining, due)
}

/// Everything written so far shall go, also of files that stay open.
pub fn hurry(state: &mut State) {
    state.debts.want_sync();
    state.debts.hasten(state.world.now());
}

/// After a restart: what is owed follows from inodes, headers and page states.
pub fn find_debts(state: &mut State) {
    owe_those(state, |state, ino| state.names.is_written(ino) || state.differs(ino));
}

/// Before the end: what clients that are still there have written without asking.
pub fn find_changes(state: &mut State) {
    if state.sessions.clients().next().is_some() {
        owe_those(state, State::differs);
    }
}

pub fn owe_those(state: &mut State, owed: impl Fn(&State, Ino) -> bool) {
    let files = state.names.inodes().filter(|inode| inode.kind == Kind::File);
    let files: Vec<Ino> = files.map(|inode| inode.ino).filter(|ino| owed(state, *ino)).collect();
    files.into_iter().for_each(|ino| owe(state, ino));
}

/// What the backing is owed, and what it got.
pub fn drain_status(state: &mut State) -> Drain {
    let mut drain = state.debts.status(state.world.now());
    // A version whose file is gone may have a name there that must be taken back.
    let versions = state.names.publishing().keys();
    let versions = versions.filter(|ino| state.debts.get(**ino).is_none()).count();
    drain.owed_names = (state.names.owed().len() + state.waiting.count() + versions) as u64;
    // What is just being fetched has not failed.
    let failed = state.waiting.why().filter(|why| why.kind != ErrorKind::Busy);
    drain.failures.extend(failed.map(|why| why.to_string()));
    // A name that came since the last look is not settled.
    drain.settled &= drain.owed_names == 0 && !owes(state);
    if state.backing.is_none() {
        return drain;
    }
    for (ino, _) in state.debts.iter() {
        if let Some(slot) = state.names.inode(ino).and_then(|inode| inode.slot) {
            drain.owed_bytes += state.storage.owed_bytes(slot);
        }
    }
    drain.peak_bytes = state.debts.progress().owes(drain.owed_bytes);
    drain
}

/// When it is found out what the backing has, if that is not known: at once, but for a pause after
/// a failure.
pub fn settles_at(state: &State, now: Tick) -> Option<Tick> {
    let paused = state.debts.names().paused_until().unwrap_or(now);
    let names = state.names.is_next_unsure().then_some(paused);
    let versions = !state.names.publishing().is_empty();
    let versions = versions.then(|| state.debts.unsure_until().unwrap_or(now));
    names.into_iter().chain(versions).min()
}
