//! What a transaction needs where there are several machines: all directories that its names are
//! in, or looked for in, and those that it takes away, are here until it has run. They are had as
//! `rename` has two, in the order of things: so of two that want the same, one waits for the other,
//! and never each for the other. What homes count is let go by them before anything is recorded.
//!
//! Not here: what it comes to (`planning`), and what it may do (`transactions`).

use std::collections::{BTreeMap, BTreeSet};

use terral_format::ids::{Ino, ROOT};
use terral_format::wire::message::{Kind, RenameHow};
use terral_format::wire::transactions::Operation;
use terral_format::{Error, ErrorKind, Result};

use crate::authority::caller::Caller;
use crate::core::paths::{components, shown};
use crate::core::state::State;
use crate::far::asking;
use crate::members::requiring;
use crate::naming::changed::Moved;
use crate::naming::planning::{Change, Plan};
use crate::naming::{
    counting, doubts, elsewhere, homes, letting_go, links, lookup, xattrs_elsewhere,
};

/// How far the way to a name leads, by the components above it.
type Ways<'p> = BTreeMap<&'p [u8], Way>;

#[derive(Clone, Copy)]
struct Way {
    /// The last directory of it.
    last: Ino,
    /// Whether that is the one that the name is in.
    whole: bool,
}

/// The directories that these operations need, which are here now; `None`: all are.
///
/// # Errors
/// If it must wait for one; and what who decides one says.
pub(super) fn directories(
    state: &mut State,
    caller: &Caller,
    operations: &[Operation<&[u8]>],
) -> Result<Option<BTreeSet<Ino>>> {
    if state.members.is_none() {
        return Ok(None);
    }
    homes::lock_moves(state, true)?;
    let mut here = requiring::further(state);
    let mut ways = Ways::new();
    for mut operation in operations.iter().copied() {
        for path in operation.paths_mut().into_iter().flatten() {
            here.insert(way_to(state, caller, path, &mut ways)?.last);
        }
    }
    have(state, &here)?;
    let taken = taken_away(state, caller, operations, &ways)?;
    if !taken.is_subset(&here) {
        requiring::needs_all(state, &taken);
        here.extend(taken);
        have(state, &here)?;
    }
    Ok(Some(here))
}

fn have(state: &mut State, directories: &BTreeSet<Ino>) -> Result<()> {
    let directories: Vec<Ino> = directories.iter().copied().collect();
    elsewhere::take_all(state, &directories)
}

/// Where the way to a path leads, as far as there is one.
fn way_to<'p>(
    state: &mut State,
    caller: &Caller,
    path: &'p [u8],
    ways: &mut Ways<'p>,
) -> Result<Way> {
    lookup::await_moves(state, path)?;
    let above = above(path);
    if let Some(way) = ways.get(above) {
        return Ok(*way);
    }
    let parts = components(above);
    let mut way = Way { last: ROOT, whole: parts.is_ok() };
    for part in parts.unwrap_or_default() {
        match lookup::step(state, caller, way.last, part, path) {
            Err(error) if state.fetches.is_waiting() => return Err(error),
            Ok(Some(ino)) if is_directory(state, ino) => way.last = ino,
            // What is wrong with it is said by who looks at the operation.
            _ => {
                way.whole = false;
                break;
            }
        }
    }
    ways.insert(above, way);
    Ok(way)
}

fn above(path: &[u8]) -> &[u8] {
    path.iter().rposition(|byte| *byte == b'/').map_or(b"", |end| &path[..end])
}

fn is_directory(state: &State, ino: Ino) -> bool {
    state.names.inode(ino).is_some_and(|inode| inode.is_directory())
}

/// Directories that are removed, or replaced, in those that are here.
fn taken_away(
    state: &mut State,
    caller: &Caller,
    operations: &[Operation<&[u8]>],
    ways: &Ways<'_>,
) -> Result<BTreeSet<Ino>> {
    let mut taken = BTreeSet::new();
    for operation in operations {
        let (Operation::RemoveDirectory(path)
        | Operation::Rename { to: path, how: RenameHow::Replace, .. }) = *operation
        else {
            continue;
        };
        let way = ways.get(above(path)).filter(|way| way.whole);
        let parts = components(path).unwrap_or_default();
        let Some((way, name)) = way.zip(parts.last().copied()) else { continue };
        match lookup::child(state, caller, way.last, name) {
            Err(error) if state.fetches.is_waiting() => return Err(error),
            Ok(Some(ino)) if is_directory(state, ino) => drop(taken.insert(ino)),
            _ => {}
        }
    }
    Ok(taken)
}

/// Why those are not changed together.
const MOVED_TOO: &str =
    "attributes, or further names, of another machine's file, and a directory that moves";

/// Why its home does not keep a file that loses one of several names until that is decided.
const SEVERAL: &str = "a name of another machine's file that has others, where a directory moves, \
                       or by a user's server";

fn refused(path: &[u8], what: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("{}: {what}", shown(path)))
}

/// Refuses to change the count, or attributes, of what its home alone changes.
///
/// # Errors
/// [`ErrorKind::Unsupported`].
pub(super) fn must_be_own(state: &State, ino: Ino, path: &[u8]) -> Result<()> {
    let other = xattrs_elsewhere::home_of(state, ino).is_some();
    let what = "of another machine, which a transaction does not change yet";
    if other { Err(refused(path, what)) } else { Ok(()) }
}

/// Refuses a further name of what has no home that would count it. Whether it is another machine's.
///
/// # Errors
/// As [`must_be_own`]'s.
pub(super) fn may_be_linked(
    state: &mut State,
    plan: &Plan<'_>,
    ino: Ino,
    path: &[u8],
) -> Result<bool> {
    match state.names.inode(ino) {
        Some(inode) if inode.kind != Kind::File => elsewhere::only_alone(state, path)?,
        _ if state.is_among_users() => must_be_own(state, ino, path)?,
        _ => {}
    }
    letting_go::must_be_returned(state, ino)?;
    let other = xattrs_elsewhere::home_of(state, ino).is_some();
    if other { may_be_prepared(plan, path).map(|()| true) } else { Ok(false) }
}

/// Whether something that gets another name is a file whose home must delegate that: where there
/// is a permanent store it is to be known there, too.
///
/// # Errors
/// As [`must_be_own`]'s; if who decides another transaction has it.
pub(super) fn may_be_renamed(
    state: &mut State,
    plan: &Plan<'_>,
    ino: Ino,
    path: &[u8],
) -> Result<bool> {
    doubts::must_have_its_names(state, ino)?;
    letting_go::must_be_returned(state, ino)?;
    let other = homes::decide(state) && asking::number_of(state, ino).is_some();
    if other { may_be_prepared(plan, path).map(|()| true) } else { Ok(false) }
}

/// Refuses all but one move of a directory that others may know, from and to where others may know
/// the directories.
///
/// # Errors
/// As [`must_be_own`]'s.
pub(super) fn may_move(plan: &Plan<'_>, moved: &Moved, path: &[u8]) -> Result<()> {
    let what = "directories that a transaction moves: one, and into no new one";
    match plan.moves_plainly(moved) {
        true if plan.is_done_elsewhere() => Err(refused(path, MOVED_TOO)),
        true => Ok(()),
        false => Err(refused(path, what)),
    }
}

/// Refuses to have homes prepare something where others have to rest for what is moved.
///
/// # Errors
/// As [`must_be_own`]'s.
pub(super) fn may_be_prepared(plan: &Plan<'_>, path: &[u8]) -> Result<()> {
    if plan.moved().is_none() { Ok(()) } else { Err(refused(path, MOVED_TOO)) }
}

/// Where homes delegate no names that are only taken, though there is a permanent store, what
/// another machine's file loses is all that it has: it is gone there before it is decided.
///
/// # Errors
/// As [`must_be_own`]'s; if it must wait until it is known how many it has.
fn may_be_lost(state: &mut State, plan: &Plan<'_>, changes: &BTreeMap<Ino, Change>) -> Result<()> {
    if !homes::decide(state) || plan.delegates(state) {
        return Ok(());
    }
    let loses = |change: &Change| !change.loses.is_empty() && change.gets.is_empty();
    for (ino, change) in changes.iter().filter(|(_, change)| loses(change)) {
        if asking::number_of(state, *ino).is_none() {
            continue;
        }
        elsewhere::attributes(state, plan.caller, *ino)?;
        let is_several = state.attributes(*ino).is_some_and(|is| is.links > 1);
        if is_several || change.loses.len() > 1 {
            let path = plan.taken_by(*ino).map_or(&b""[..], |(_, path)| path);
            return Err(refused(path, SEVERAL));
        }
    }
    Ok(())
}

/// All that others must know, or let go, before a transaction comes to be, they do.
///
/// # Errors
/// If it must wait for that; and what they say.
pub(super) fn await_others(state: &mut State, plan: &Plan<'_>) -> Result<()> {
    if state.members.is_none() {
        return Ok(());
    }
    for ino in plan.linked().filter(|ino| !plan.gives(*ino)) {
        counting::may_count(state, ino)?;
    }
    for ino in plan.valued().filter(|ino| !plan.makes(*ino)) {
        elsewhere::file_is_here(state, ino, b"")?;
    }
    // Before they rest: a home may have to bring something until it can let go.
    let changes = plan.changes(state);
    may_be_lost(state, plan, &changes)?;
    let mut changed = changes.keys();
    if plan.delegates(state) && changed.any(|ino| asking::number_of(state, *ino).is_some()) {
        // No directory above what homes delegate moves, until they have.
        homes::lock_moves(state, false)?;
        let own = plan.losses().keys().filter(|ino| asking::number_of(state, **ino).is_none());
        let own: Vec<Ino> = own.copied().collect();
        own.into_iter().try_for_each(|ino| homes::await_drain(state, ino))?;
    }
    letting_go::may_lose_all(state, plan.caller, &plan.let_go(state, &changes))?;
    let Some(Moved { ino, from, to, back }) = plan.moved() else { return Ok(()) };
    let (from, to) = ((from.0, &from.1[..]), (to.0, &to.1[..]));
    links::permit_moves(state, plan.caller, (*ino, from), (*back, to))
}
