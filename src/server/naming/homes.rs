//! Where there is a permanent directory, names of files are changed by their homes alone: what the
//! store is owed of a file's name is then owed by who brings its bytes, in one order, and the home
//! always knows where the store has it. Directories, links and FIFOs, which have no home, are
//! brought there by who has the directory that they are in.
//!
//! Invariant: who asks a home for something that may need directories has none of them then. A file
//! that another one is about to replace is let go by its home first: it is not brought any more
//! until it is known that it has kept its name. Not here: what a rename is (`links`).

use terral_format::disk::membership::Membership;
use terral_format::fingerprint::Fingerprint;
use terral_format::ids::{Ino, ROOT, Thing};
use terral_format::local::names::Inode;
use terral_format::wire::message::{Kind, RenameHow};
use terral_format::wire::peers::Work;
use terral_format::wire::things::{By, Change};
use terral_format::{Error, ErrorKind, Result};

use crate::authority::caller::Caller;
use crate::core::paths::{refuse, shown};
use crate::core::state::State;
use crate::far::asking;
use crate::members::moving::{self, Way, Ways};
use crate::members::requiring::{self, Have};
use crate::naming::names::Place;
use crate::naming::{doubts, elsewhere, lookup, making, permitting};
use crate::needs::asking as store;
use crate::storage::bringing;

/// Whether names of files are changed by their homes alone.
pub fn decide(state: &State) -> bool {
    state.members.is_some() && state.backing.is_some()
}

/// What has come of a change that this request has asked a home for, if it has.
///
/// # Errors
/// If it must wait for that; and what the home says.
pub fn asked(state: &mut State) -> Result<Option<()>> {
    let Some((thing, work)) = requiring::change_of(state) else { return Ok(None) };
    match requiring::need(state, thing, &work)? {
        Have::Done(answer) => match elsewhere::outcome(state, answer) {
            Err(error) if error.kind == ErrorKind::BadHandle => Err(requiring::anew(state)),
            outcome => outcome.map(|_| Some(())),
        },
        Have::Here | Have::Shown | Have::Missed => Ok(None),
    }
}

/// Has a change of a file's name made by its home. False: that is here, or it has none.
///
/// # Errors
/// As those of [`asked`].
pub(super) fn at_home(state: &mut State, caller: &Caller, ino: Ino, what: Change) -> Result<bool> {
    let Some(number) = asking::number_of(state, ino) else { return Ok(false) };
    permitting::permit_names_of(state, ino, &state.names.path(ino).unwrap_or_default())?;
    requiring::let_go(state);
    let by = By { person: (*caller.person).clone(), what };
    requiring::need(state, Thing::File(number), &Work::Change(by.body()?))?;
    asked(state).map(|done| done.is_some())
}

/// This is still what the path stands for, if somebody asks who thinks so.
fn check(ino: Ino, is: Option<Ino>, path: &[u8]) -> Result<()> {
    match is.is_none_or(|is| is == ino) {
        true => Ok(()),
        false => Err(refuse(ErrorKind::BadHandle, path)),
    }
}

/// Removes a name that is no directory's, or has it removed.
///
/// # Errors
/// Those of unlink(2).
pub fn remove(state: &mut State, caller: &Caller, path: &[u8]) -> Result<()> {
    match decide(state) {
        true => unlink(state, caller, path, None),
        false => making::unlink(state, caller, path),
    }
}

/// Removes a name that is no directory's; `is`: only if it is this file's.
///
/// # Errors
/// Those of unlink(2).
pub fn unlink(state: &mut State, caller: &Caller, path: &[u8], is: Option<Ino>) -> Result<()> {
    if let Some(done) = asked(state)? {
        return Ok(done);
    }
    let (parent, name) = lookup::resolve_parent(state, caller, path)?;
    let missing = || Error::new(ErrorKind::NotFound, shown(path));
    let ino = lookup::child(state, caller, parent, name)?.ok_or_else(missing)?;
    check(ino, is, path)?;
    if is_directory(state, ino) {
        return Err(refuse(ErrorKind::IsDirectory, path));
    }
    if at_home(state, caller, ino, Change::Unname(path.into()))? {
        return Ok(());
    }
    elsewhere::take_all(state, &[parent])?;
    let ino = lookup::child(state, caller, parent, name)?.ok_or_else(missing)?;
    check(ino, is, path)?;
    must_be_ours(state, ino)?;
    doubts::must_have_its_names(state, ino)?;
    making::unlink_in(state, caller, (parent, name), path)
}

fn is_directory(state: &State, ino: Ino) -> bool {
    state.names.inode(ino).is_some_and(|inode| inode.is_directory())
}

/// Has a rename done by the home of what is moved. False: that is here, or it is no file.
///
/// # Errors
/// As those of [`asked`], and [`ErrorKind::NotFound`].
pub fn rename(
    state: &mut State,
    caller: &Caller,
    (from, to): (&[u8], &[u8]),
    how: RenameHow,
    is: Option<Ino>,
) -> Result<bool> {
    if asked(state)?.is_some() {
        return Ok(true);
    }
    let (parent, name) = lookup::resolve_parent(state, caller, from)?;
    lookup::resolve_parent(state, caller, to)?;
    let missing = || Error::new(ErrorKind::NotFound, shown(from));
    let ino = lookup::child(state, caller, parent, name)?.ok_or_else(missing)?;
    check(ino, is, from)?;
    at_home(state, caller, ino, Change::Move(from.into(), to.into(), how))
}

/// What was looked at before its directory was here may have come to be another's file.
///
/// # Errors
/// If so: then all is done anew.
pub fn must_be_ours(state: &mut State, ino: Ino) -> Result<()> {
    match decide(state) && asking::number_of(state, ino).is_some() {
        true => Err(requiring::anew(state)),
        false => Ok(()),
    }
}

/// A file that was born here is about to lose its name to another one: nothing of it is brought any
/// more, and who has it open keeps its bytes. How it looks in the store, if it is there.
///
/// # Errors
/// If that must wait.
pub fn is_let_go(state: &mut State, ino: Ino) -> Result<Option<Fingerprint>> {
    if !state.members.as_ref().is_some_and(|members| members.is_adrift(ino)) {
        state.record(Membership::Adrift { ino, is: true });
    }
    await_drain(state, ino)?;
    let kept = bringing::keep_for_openers(state, ino);
    state.keeping.clear();
    kept?;
    Ok(state.names.inode(ino).and_then(|inode| inode.published))
}

/// Nobody is bringing a file to the permanent store.
///
/// # Errors
/// If somebody is.
pub fn await_drain(state: &mut State, ino: Ino) -> Result<()> {
    let busy = state.debts.get(ino).is_some_and(|debt| debt.is_draining() || debt.is_publishing());
    match busy || state.names.publishing().contains_key(&ino) {
        true => Err(store::wait_until_settled(state)),
        false => Ok(()),
    }
}

/// Whether all that is below a directory is this server's alone, so that nobody else brings
/// anything there.
pub fn is_alone_below(state: &State, directory: Ino) -> bool {
    let Some(members) = state.members.as_ref().filter(|_| decide(state)) else { return true };
    let mut left: Vec<Inode> = state.names.inode(directory).into_iter().collect();
    while let Some(inode) = left.pop() {
        let thing = elsewhere::thing_of(state, inode.ino);
        let here = match thing {
            Some(thing @ Thing::Directory(_)) => members.has(thing, state),
            Some(Thing::File(number)) => inode.kind != Kind::File || members.is_born_here(number),
            _ => true,
        };
        if !here {
            return false;
        }
        if inode.is_directory() {
            left.extend(state.names.children(&inode).map(|(_, child)| child));
        }
    }
    true
}

/// A request that gives a directory another path has the right to that, which it took before it
/// looked at anything: so no two such moves make a circle, and one member at a time does so. With
/// `again`, it has only if it has begun to take it.
///
/// # Errors
/// If it must wait for that, or be carried out anew with it.
pub fn lock_moves(state: &mut State, again: bool) -> Result<()> {
    if moves_by_itself(state) {
        return Ok(());
    }
    match state.members.as_ref().and_then(|members| members.moves()) {
        Some(right) => requiring::hold_first(state, right, again),
        None => Ok(()),
    }
}

/// Whether a user's server moves a directory by itself: it and all below it is its own, and so is
/// where it goes. So this one server decides all that could come to lie in a circle, and nobody
/// else brings anything below.
pub(super) fn moves_by_itself(state: &State) -> bool {
    state.owner().is_some_and(|owner| owner != 0)
}

/// Refuses a move, unless it stays where it is and nobody else has anything of it, to a server
/// whose user has others: two of them could make a circle, and what another one brings would go
/// where it was.
///
/// # Errors
/// [`ErrorKind::CrossDevice`].
pub(super) fn permit_own_move(state: &State, stays: bool) -> Result<()> {
    let has_others = state
        .members
        .as_ref()
        .is_some_and(|members| members.others().into_iter().any(|other| members.is_ours(other)));
    match has_others && !stays {
        true => Err(refuse(ErrorKind::CrossDevice, b"a directory of several servers of a user")),
        false => Ok(()),
    }
}

/// What this server moves for another request is there, and all know.
///
/// # Errors
/// If it must wait for that.
pub fn await_own_move(state: &mut State) -> Result<()> {
    // What homes have delegated comes back by names of directories as they are.
    let returns = state.members.as_ref().is_some_and(|it| it.delegated().next().is_some());
    match returns || moving::is_busy(state) {
        // What is on its way may need what this request has taken.
        true => Err(requiring::released(state)),
        false => Ok(()),
    }
}

/// All others know that a directory is about to move, and rest where they may bring something
/// below it. `back`: what comes in its place, and its name.
///
/// # Errors
/// If it must wait for that.
pub fn have_rest(
    state: &mut State,
    (moved, from): (Ino, Place<'_>),
    to: Place<'_>,
    back: Option<Ino>,
    brings: bool,
) -> Result<()> {
    if state.members.is_none() {
        return Ok(());
    }
    let (to, way) = way_of(state, moved, to)?;
    let (from, back) = match back {
        Some(back) => way_of(state, back, from).map(|(from, way)| (from, Some(way)))?,
        None => (way_of(state, moved, from)?.0, None),
    };
    moving::have_rest(state, Ways { from, to, way, back }, brings)
}

/// The path of a name that something has, or is to have, and what leads there.
fn way_of(state: &State, ino: Ino, (parent, name): Place<'_>) -> Result<(Vec<u8>, Way)> {
    let number = |ino| state.members.as_ref().and_then(|members| members.number(ino));
    let gone = || Error::new(ErrorKind::NotFound, shown(name));
    let above = state.names.path(parent).ok_or_else(gone)?;
    let path = if parent == ROOT { name.to_vec() } else { [&above, &b"/"[..], name].concat() };
    let mut way = elsewhere::way_to(state, parent)?;
    way.push((number(ino).ok_or_else(gone)?, name.to_vec()));
    Ok((path, way))
}
