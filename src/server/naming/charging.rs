//! Which files quotas count, and in which container: those that were made here, or opened for
//! writing, in the one that is innermost at one of their names. What has no name any more is
//! counted where it was, until it is no more.
//!
//! Invariant: it follows from the records, so that a replay comes to the same, and is asked before
//! anything is recorded whether it fits. Not here: with how much a file is counted
//! (`storage/charging`), and what fits (`authority/quotas`).

use terral_format::Result;
use terral_format::disk::Record;
use terral_format::disk::facts::Fact;
use terral_format::disk::local::Local;
use terral_format::disk::membership::Membership;
use terral_format::disk::partition::Standing;
use terral_format::ids::Ino;
use terral_format::local::names::{Inode, flag};
use terral_format::local::tables::access;
use terral_format::wire::containers::Used;
use terral_format::wire::message::Kind;

use crate::authority::quotas::{At, Charge, Quotas, Shift};
use crate::core::paths::join;
use crate::core::state::State;
use crate::naming::names::{Names, Place};
use crate::storage::charging::{measured, settle};

/// Files of one record of a snapshot.
const SAID: usize = 4096;

/// What is affected by a record, as it was before.
#[derive(Default)]
pub struct Before {
    /// What loses a name, or is closed.
    inos: Vec<Ino>,
    /// What gets other names, with its path.
    moved: Vec<(Ino, Vec<u8>)>,
}

fn is_counted(inode: &Inode) -> bool {
    let not = [flag::FAR, flag::PREALLOCATED, flag::ALIAS];
    inode.kind == Kind::File && inode.is(flag::COUNTED) && !not.into_iter().any(|no| inode.is(no))
}

/// The path of a name.
fn path_of(state: &State, (parent, name): Place<'_>) -> Option<Vec<u8>> {
    state.names.path(parent).map(|above| join(&above, name))
}

/// Where a file is counted by its names, but for one; `None`: it has none that is known here.
fn home_of(state: &State, ino: Ino, but: Option<&[u8]>) -> Option<Option<At>> {
    let names = state.names.names_of(ino).into_iter();
    let paths = names.filter_map(|(parent, name)| path_of(state, (parent, &name)));
    let paths = paths.filter(|path| Some(path.as_slice()) != but);
    paths.map(|path| state.quotas.home(&path)).max()
}

/// A file is counted by what it is called now.
fn place(state: &mut State, ino: Ino) {
    let Some(inode) = state.names.inode(ino).filter(is_counted) else { return };
    let charge = state.quotas.charge(ino);
    let at = home_of(state, ino, None).unwrap_or(charge.map(|charge| charge.at));
    let bytes = charge.map_or_else(|| measured(state, &inode), |charge| charge.bytes);
    state.quotas.put(ino, at, bytes);
}

/// All are looked at once: quotas have changed, or a server begins.
pub fn recount(state: &mut State) {
    if !state.quotas.are_on() {
        return;
    }
    // In a replay, what was removed is gone without a record.
    let is_gone = |ino: &Ino| !state.names.inode(*ino).as_ref().is_some_and(is_counted);
    let all = state.quotas.all().map(|(ino, _)| ino);
    let gone: Vec<Ino> = all.filter(is_gone).collect();
    gone.into_iter().for_each(|ino| state.quotas.forget(ino));
    let counted: Vec<Inode> = state.names.inodes().filter(is_counted).collect();
    for inode in counted {
        let charge = state.quotas.charge(inode.ino);
        let at = home_of(state, inode.ino, None).unwrap_or(charge.map(|charge| charge.at));
        let bytes = measured(state, &inode);
        state.quotas.put(inode.ino, at, bytes);
    }
}

/// Containers have changed.
fn begin(state: &mut State) {
    let all = state.authz.containers.with_quotas();
    if all.is_empty() && !state.quotas.are_on() {
        return;
    }
    state.sessions.ask_for_names(!all.is_empty());
    state.quotas.begin(all);
    divide(state);
    recount(state);
}

/// Each machine has a part of all quotas.
fn divide(state: &mut State) {
    let is_in = |standing: &Standing| matches!(standing, Standing::In(_));
    let seats = state.members.as_ref().map(|members| &members.roster().seats);
    let count = seats.map_or(1, |seats| seats.iter().filter(|it| is_in(&it.standing)).count());
    state.quotas.divide(count.max(1) as u64);
}

/// What is affected by a record that is about to be applied.
pub fn before(state: &State, record: &Record) -> Before {
    let mut before = Before::default();
    if !state.quotas.are_on() {
        return before;
    }
    let at = |parent: Ino, name: &[u8]| state.names.child_here(parent, name);
    let moves = |parent: Ino, name: &[u8]| {
        let path = path_of(state, (parent, name));
        at(parent, name).zip(path)
    };
    match record {
        Record::Fact(Fact::Removed { parent, name, .. }) => before.inos.extend(at(*parent, name)),
        Record::Fact(Fact::Renamed { parent, name, to_parent, to_name, .. }) => {
            before.moved.extend(moves(*parent, name));
            before.inos.extend(at(*to_parent, to_name));
        }
        Record::Fact(Fact::Exchanged { parent, name, to_parent, to_name, .. }) => {
            before.moved.extend(moves(*parent, name));
            before.moved.extend(moves(*to_parent, to_name));
        }
        Record::Local(Local::Closed { description }) => {
            before.inos.extend(state.descriptions.get(*description).map(|open| open.ino));
        }
        _ => {}
    }
    before
}

/// It has been applied.
pub fn after(state: &mut State, record: &Record, before: Before) {
    if matches!(record, Record::Local(Local::Container(_) | Local::Quota(..))) {
        return begin(state);
    }
    if let Record::Local(Local::Counted { at, inos }) = record {
        return are_counted(state, at.as_ref().and_then(|name| state.quotas.named(name)), inos);
    }
    if !state.quotas.are_on() {
        return;
    }
    match record {
        Record::Fact(Fact::Made { parent, name, ino, kind: Kind::File, .. }) => {
            match state.names.path(*parent).filter(|_| name.is_empty()) {
                Some(above) => state.quotas.put(*ino, state.quotas.home(&above), 0),
                None => place(state, *ino),
            }
        }
        Record::Fact(Fact::Linked { ino, .. } | Fact::Alias { ino, .. })
        | Record::Member(Membership::Named { ino, .. }) => place(state, *ino),
        Record::Member(Membership::Roster(_)) => divide(state),
        Record::Local(Local::Opened { ino, access, .. })
            if u64::from(*access) & access::WRITE != 0 =>
        {
            match state.quotas.charge(*ino) {
                Some(_) => settle(state, *ino),
                None => place(state, *ino),
            }
        }
        Record::Local(Local::Closed { .. }) => {
            before.inos.into_iter().for_each(|ino| settle(state, ino));
        }
        _ => {
            before.inos.into_iter().for_each(|ino| place(state, ino));
            before.moved.into_iter().for_each(|(ino, old)| have_moved(state, ino, &old));
        }
    }
}

/// Something, and what is below it, has another path.
fn have_moved(state: &mut State, ino: Ino, old: &[u8]) {
    let Some(new) = state.names.path(ino) else { return };
    for (ino, ..) in files_below(state, ino, (old, &new)) {
        place(state, ino);
    }
}

/// Files at and below what changes its path, and how it is called then, if they are counted
/// elsewhere by that.
fn files_below(state: &State, ino: Ino, (old, new): (&[u8], &[u8])) -> Vec<(Ino, Vec<u8>)> {
    let mut files = Vec::new();
    let mut left: Vec<(Inode, Vec<u8>)> = Vec::new();
    match state.names.inode(ino) {
        Some(inode) if !inode.is_directory() => files.push((ino, new.to_vec())),
        Some(inode) if !state.quotas.are_alike(old, new) => left.push((inode, new.to_vec())),
        _ => {}
    }
    while let Some((directory, path)) = left.pop() {
        for (name, child) in state.names.children(&directory) {
            let path = join(&path, &name);
            match child.is_directory() {
                true => left.push((child, path)),
                false => files.push((child.ino, path)),
            }
        }
    }
    files
}

/// These are counted, there if they have no name.
fn are_counted(state: &mut State, at: Option<At>, inos: &[Ino]) {
    for ino in inos {
        state.names.is_counted(*ino);
        match at {
            Some(at) => state.quotas.put(*ino, Some(at), 0),
            None if state.quotas.are_on() => place(state, *ino),
            None => {}
        }
    }
}

/// What a snapshot of names does not say.
pub fn snapshot(names: &Names, quotas: &Quotas) -> Vec<Local> {
    let known = |inode: &Inode| is_counted(inode) && inode.published.is_some();
    let known: Vec<Ino> = names.inodes().filter(known).map(|inode| inode.ino).collect();
    let said = |at: Option<&At>, inos: &[Ino]| Local::Counted {
        at: at.map(|at| quotas.name_of(*at).clone()),
        inos: inos.to_vec(),
    };
    let mut all: Vec<Local> = known.chunks(SAID).map(|inos| said(None, inos)).collect();
    let nameless = quotas.all().filter(|(ino, _)| names.names_of(*ino).is_empty());
    all.extend(nameless.map(|(ino, Charge { at, .. })| said(Some(&at), &[ino])));
    all
}

/// A file is changed without being opened: quotas count it from now on.
pub fn is_changed(state: &mut State, ino: Ino) {
    let counted = state.names.inode(ino).is_none_or(|inode| inode.is(flag::COUNTED));
    if state.quotas.are_on() && !counted {
        state.record(Local::Counted { at: None, inos: vec![ino] });
    }
}

// What may be done.

/// A file may be made there.
///
/// # Errors
/// [`terral_format::ErrorKind::Quota`].
pub fn may_make(state: &State, (parent, name): Place<'_>) -> Result<()> {
    if !state.quotas.are_on() {
        return Ok(());
    }
    let at = path_of(state, (parent, name)).and_then(|path| state.quotas.home(&path));
    state.quotas.permit_more(at, Used { bytes: 0, files: 1 })
}

/// What a rename takes along: what is there goes the other way, or is replaced.
pub fn renames(
    state: &State,
    shift: &mut Shift,
    (ino, from): (Ino, &[u8]),
    (there, to): (Option<Ino>, &[u8]),
    exchanges: bool,
) {
    moves(state, shift, ino, (Some(from), to));
    match there {
        Some(there) if exchanges => moves(state, shift, there, (Some(to), from)),
        Some(there) => loses(state, shift, there),
        None => {}
    }
}

/// What a file, or all below a directory, takes along when it gets this name in place of another,
/// or beside those that it has.
pub fn moves(state: &State, shift: &mut Shift, ino: Ino, (old, new): (Option<&[u8]>, &[u8])) {
    if !state.quotas.are_on() {
        return;
    }
    for (ino, path) in files_below(state, ino, (old.unwrap_or_default(), new)) {
        let Some(inode) = state.names.inode(ino).filter(is_counted) else { continue };
        let charge = state.quotas.charge(ino);
        let several = old.is_none() || inode.links > 1;
        let others = if several { home_of(state, ino, old).flatten() } else { None };
        let to = state.quotas.home(&path).max(others);
        let bytes = charge.map_or_else(|| measured(state, &inode), |charge| charge.bytes);
        let from = charge.map(|charge| charge.at);
        state.quotas.shift(shift, (from, to), Used { bytes, files: 1 });
    }
}

/// What goes with a name that is taken over, if that is its file's last and nobody has it open.
pub fn loses(state: &State, shift: &mut Shift, ino: Ino) {
    let last = state.names.inode(ino).is_some_and(|inode| inode.links < 2);
    if let Some(charge) = state.quotas.charge(ino).filter(|_| last)
        && state.names.openers(ino).all == 0
    {
        state.quotas.shift(shift, (Some(charge.at), None), Used { bytes: charge.bytes, files: 1 });
    }
}
