//! What the permanent store is owed, as the namespace and memory say; and when the drain must look.

use terral_format::ids::Ino;
use terral_format::local::names::{Inode, flag};
use terral_format::wire::message::{Drain, Kind};
use terral_format::{ErrorKind, Result};

use crate::core::state::State;
use crate::core::workers::Trade;
use crate::core::world::Tick;
use crate::debts::failures::Work;

/// Whether the backing is owed anything: a file, a name, or that what became of a version is found
/// out, which may have got its name there for a file that is gone here, or whether a file has one.
pub fn owes(state: &State) -> bool {
    let paid = state.debts.is_empty() && state.names.owed().is_empty();
    let unnamed = || state.members.as_ref().is_some_and(|members| members.has_created());
    let of_others = || !state.far.loans.is_empty() || !state.far.batches.is_empty();
    let late = || unnamed() || of_others();
    !paid || !state.names.publishing().is_empty() || state.backing.is_some() && late()
}

/// The backing is owed something of this file from now on, if it is to get it.
pub fn owe(state: &mut State, ino: Ino) {
    // Whose bytes are on another machine is brought from there.
    let ours = |inode: &Inode| !inode.is(flag::FAR) && state.debts.takes(inode);
    let takes = || state.names.inode(ino).as_ref().is_some_and(ours);
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
    let now = state.world.now();
    let at = |work: Work| state.debts.paused(work, now).unwrap_or(now);
    let names = !state.names.owed().is_empty();
    let names = names.then(|| state.debts.names_due(now).max(at(Work::Names)));
    let sync = is_sync_due(state).then(|| at(Work::Sync));
    let discards = state.debts.has_unneeded().then(|| at(Work::Discards));
    let rests = state.members.as_ref().filter(|members| members.is_to_rest(state.names.resting()));
    let rests = rests.map(|_| now);
    let due = [names, sync, discards, rests, settles_at(state, now), state.debts.first_due()];
    let due = due.into_iter().flatten().min();
    // The log comes first.
    let due = if state.is_logged() { due } else { Some(due.unwrap_or(now).max(at(Work::Log))) };
    state.sleepers.oversleeps(Trade::Draining, due)
}

/// Whether the backing is to be asked to keep what it has: nothing else is owed, and somebody waits
/// until all is safe.
pub fn is_sync_due(state: &State) -> bool {
    let asked = state.finishing || state.debts.is_sync_wanted();
    asked && !owes(state) && !state.debts.is_settled()
}

/// Something was looked after beside the drain, or all. What fails is shown until all was.
pub fn was_looked_after(state: &mut State, done: Result<()>) {
    match done {
        Ok(()) => state.debts.work_went_well(Work::Tending),
        Err(error) => {
            state.debts.work_failed(Work::Tending, error.to_string(), state.world.now());
        }
    }
}

/// Everything written so far shall go, also of files that stay open.
pub fn hurry(state: &mut State) {
    state.debts.want_sync();
    state.debts.ask_for_all(state.world.now());
}

/// After a restart: the server before may have staged versions of what is not whole there.
pub fn find_staged(state: &mut State) {
    let whole = |inode: &Inode| {
        let replaced = inode.is(flag::REWRITTEN) || inode.is(flag::CONTESTED);
        inode.kind != Kind::File || (inode.published.is_some() && !replaced)
    };
    let files = state.names.inodes().filter(|inode| !inode.is(flag::PREALLOCATED) && !whole(inode));
    let files: Vec<Ino> = files.map(|inode| inode.ino).collect();
    files.into_iter().for_each(|ino| state.debts.leaves_staged(ino));
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
    // What was written here to files of other members, and they do not have yet.
    for ino in state.far.batches.inos() {
        if let Some(slot) = state.names.inode(ino).and_then(|inode| inode.slot) {
            drain.owed_bytes += state.storage.size(slot);
        }
    }
    drain.peak_bytes = state.debts.progress().owes(drain.owed_bytes);
    drain
}

/// When it is found out what the backing has, if that is not known: at once, but for a pause after
/// a failure.
pub fn settles_at(state: &State, now: Tick) -> Option<Tick> {
    let at = |work: Work| state.debts.paused(work, now).unwrap_or(now);
    let names = state.names.is_next_unsure().then(|| at(Work::Names));
    let versions = (!state.names.publishing().is_empty()).then(|| at(Work::Versions));
    names.into_iter().chain(versions).min()
}
