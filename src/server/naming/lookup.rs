//! From paths to inodes. A name not yet known is looked for in the backing, and adopted.

use terral_format::disk::facts::Fact;
use terral_format::disk::membership::Membership;
use terral_format::ids::{FileSlot, Ino, ROOT};
use terral_format::local::changes::{Deferred, Made, name_of};
use terral_format::local::deferred::{CHANGE_BYTES, Key, Pending};
use terral_format::local::names::{hash, index_of};
use terral_format::wire::attributes::{Attributes, Kind};
use terral_format::wire::message::Target;
use terral_format::{Error, ErrorKind, Result, frame};
use terral_store::backing::Found;

use crate::authority::caller::Caller;
use crate::core::paths::{components, join, refuse};
use crate::core::state::State;
use crate::far::asking;
use crate::members::{moving, requiring};
use crate::naming::adopting::{self, Whose};
use crate::naming::names::{Entry, Place};
use crate::naming::{elsewhere, lost, permitting, whereabouts, whole};
use crate::needs::asking::{fetch, place};
use crate::needs::need::{Fetched, Looked, Need};

/// The inode at `path`.
///
/// # Errors
/// [`ErrorKind::NotFound`], [`ErrorKind::NotDirectory`], and whatever the backing fails with.
pub fn resolve(state: &mut State, caller: &Caller, path: &[u8]) -> Result<Ino> {
    let parts = components(path)?;
    await_moves(state, path)?;
    let Some((name, above)) = parts.split_last() else { return Ok(ROOT) };
    let directory = walk(state, caller, path, above)?;
    child(state, caller, directory, name)?.ok_or_else(|| refuse(ErrorKind::NotFound, path))
}

/// Waits while a directory that is near a path is on its way.
///
/// # Errors
/// If so.
pub(super) fn await_moves(state: &mut State, path: &[u8]) -> Result<()> {
    let stays = moving::await_moves(state, path);
    if stays.is_err() {
        // Who moves it may need what this request has taken.
        requiring::release(state);
    }
    stays
}

/// The directory that these components lead to, which one may search.
fn walk(state: &mut State, caller: &Caller, path: &[u8], parts: &[&[u8]]) -> Result<Ino> {
    let directory = descend(state, caller, path, parts)?;
    permit_search(state, caller, directory, path)?;
    Ok(directory)
}

/// The same, also if one may not.
fn descend(state: &mut State, caller: &Caller, path: &[u8], parts: &[&[u8]]) -> Result<Ino> {
    let mut at = ROOT;
    for part in parts {
        let found = step(state, caller, at, part, path)?;
        at = found.ok_or_else(|| refuse(ErrorKind::NotFound, path))?;
        match state.names.inode(at).map(|inode| inode.kind) {
            Some(Kind::Directory) => {}
            // The client knows it now, and where it leads.
            Some(Kind::Symlink) => return Err(refuse(ErrorKind::Link, path)),
            _ => return Err(refuse(ErrorKind::NotDirectory, path)),
        }
    }
    Ok(at)
}

/// A step of a path: what `name` is in a directory that one may search. Where another member has
/// that, one question tells both.
///
/// # Errors
/// As those of [`resolve`].
pub(super) fn step(
    state: &mut State,
    caller: &Caller,
    directory: Ino,
    name: &[u8],
    path: &[u8],
) -> Result<Option<Ino>> {
    if let Some(found) = elsewhere::step(state, caller, directory, name)? {
        permit_search_in(state, caller, directory, path)?;
        return Ok(found);
    }
    permit_search_in(state, caller, directory, path)?;
    child(state, caller, directory, name)
}

/// Refuses to look for a name in a directory whose bits do not allow it.
fn permit_search(state: &mut State, caller: &Caller, directory: Ino, path: &[u8]) -> Result<()> {
    elsewhere::attributes(state, caller, directory)?;
    permit_search_in(state, caller, directory, path)
}

/// The same, as the tables have it.
pub fn permit_search_in(state: &State, caller: &Caller, directory: Ino, path: &[u8]) -> Result<()> {
    let inode = state.names.inode(directory).ok_or_else(|| refuse(ErrorKind::NotFound, path))?;
    permitting::permit(caller, &inode.attributes(), 1, path)
}

/// The directory that has (or shall have) the last component of `path`, and that component.
pub fn resolve_parent<'p>(
    state: &mut State,
    caller: &Caller,
    path: &'p [u8],
) -> Result<(Ino, &'p [u8])> {
    let place = parent_of(state, caller, path)?;
    permit_search(state, caller, place.0, path)?;
    Ok(place)
}

/// The same for who asks another member to do something there if it has the directory: that one
/// says whether he may.
///
/// # Errors
/// As those of [`resolve`].
pub fn parent_of<'p>(
    state: &mut State,
    caller: &Caller,
    path: &'p [u8],
) -> Result<(Ino, &'p [u8])> {
    let parts = components(path)?;
    await_moves(state, path)?;
    let Some((name, above)) = parts.split_last() else {
        return Err(refuse(ErrorKind::Busy, path));
    };
    Ok((descend(state, caller, path, above)?, name))
}

/// What `name` is in `directory`.
pub fn child(
    state: &mut State,
    caller: &Caller,
    directory: Ino,
    name: &[u8],
) -> Result<Option<Ino>> {
    if let Some(found) = elsewhere::name(state, caller, directory, name)? {
        return Ok(found);
    }
    match state.names.entry(directory, name) {
        Some(Entry::Here(_)) if is_taken(state, directory, name) => return Ok(None),
        Some(Entry::Here(ino)) if adopting::is_orphaned(state, ino) => {
            return adopt_anew(state, caller, (directory, name));
        }
        Some(Entry::Here(ino)) if lost::is_lost(state, ino) => {
            return as_seen(state, caller, (directory, name), ino).map(Some);
        }
        Some(Entry::Here(ino)) => return Ok(Some(ino)),
        Some(Entry::Gone(_)) => return Ok(None),
        None => {}
    }
    let inode = state.names.inode(directory);
    let inode = inode.ok_or_else(|| refuse(ErrorKind::NotFound, name))?;
    if !inode.is_directory() {
        return Err(refuse(ErrorKind::NotDirectory, name));
    }
    match whole::may_have_more(state, &inode) {
        true => adopt(state, caller, (directory, name)),
        false => Ok(None),
    }
}

/// Whether a name was taken away by a change that was committed and cannot be applied just now: who
/// did it, and who looks by himself, sees it no more.
pub(crate) fn is_taken(state: &State, directory: Ino, name: &[u8]) -> bool {
    if state.waiting.count() == 0 {
        return false;
    }
    let deferred = state.storage.memory().deferred();
    let key = Key::name(hash(index_of(directory), name));
    if !deferred.is_pending(key) {
        return false;
    }
    let mut buffer = [0; CHANGE_BYTES];
    let master = |bytes: &[u8]| name_of(&frame::decode::<Made<'_>>(bytes).ok()?.change);
    let Pending::Change(bytes) = deferred.latest(key, master, &mut buffer) else { return false };
    let taken = match frame::decode::<Made<'_>>(bytes).map(|made| made.change) {
        Ok(Deferred::Unlink { parent, name, .. })
        | Ok(Deferred::RemoveDirectory { parent, name, .. })
        | Ok(Deferred::Rename { parent, name, .. }) => (parent, name),
        _ => return false,
    };
    taken == (directory, name)
}

/// As `child`, for a name about to be made. While the backing is away, a name we do
/// not know counts as new: work goes on, and if it turns out to exist both versions are kept.
pub fn child_or_new(
    state: &mut State,
    caller: &Caller,
    directory: Ino,
    name: &[u8],
) -> Result<Option<Ino>> {
    or_new(child(state, caller, directory, name))
}

/// The same, once that was looked for.
pub fn or_new(found: Result<Option<Ino>>) -> Result<Option<Ino>> {
    match found {
        Err(error) if error.kind == ErrorKind::Backing => Ok(None),
        found => found,
    }
}

/// What a name stands for whose file only a dead member had: that of the permanent store, if it
/// looks as it was last seen by anybody, who is asked; else it stays what it was, and is an error.
fn as_seen(
    state: &mut State,
    caller: &Caller,
    (directory, name): Place<'_>,
    ino: Ino,
) -> Result<Ino> {
    let thing = elsewhere::thing_of(state, directory);
    if let Some((members, thing)) = state.members.as_mut().zip(thing)
        && !members.has_heard_all(thing)
    {
        if members.take_silent_on(thing) {
            return Ok(ino);
        }
        members.wants_memory(thing);
        return Err(state.fetches.wait());
    }
    match look_there(state, directory, name) {
        Ok(Some((found, target))) if lost::is_as_seen(state, ino, &found, &target) => {
            elsewhere::is_shown_no_more(state, directory)?;
            let whose = adopting::whose(state, caller, (directory, name), &found)?;
            state.names.reserve()?;
            state.record(Membership::Unnamed { parent: directory, name: name.into() });
            adopt_found(state, (directory, name), (found, target), whose)
        }
        Err(error) if state.fetches.is_waiting() => Err(error),
        // It is an error that says whose it was.
        _ => Ok(ino),
    }
}

/// What the permanent store has there.
///
/// # Errors
/// If that must wait, and what the store says.
pub fn look_there(state: &mut State, directory: Ino, name: &[u8]) -> Result<Looked> {
    let path = join(&whereabouts::of(state, directory)?, name);
    let Some(path) = place(state, &path)? else { return Ok(None) };
    match fetch(state, Need::Look(path))? {
        Fetched::Look(looked) => looked,
        _ => Err(refuse(ErrorKind::Invalid, name)),
    }
}

/// What the permanent store says that a directory looks like; nothing if it is not there, or it is
/// not known here where.
///
/// # Errors
/// If that must wait, and what the store says.
pub fn looks_there(state: &mut State, directory: Ino) -> Result<Option<Attributes>> {
    let Some(path) = state.names.path(directory) else { return Ok(None) };
    let Some(path) = place(state, &path)? else { return Ok(None) };
    let looks = |(found, _): (Found, Vec<u8>)| found.attributes;
    match fetch(state, Need::Look(path))? {
        Fetched::Look(looked) => Ok(looked?.map(looks).filter(|is| is.kind == Kind::Directory)),
        _ => Err(refuse(ErrorKind::Invalid, b"directory")),
    }
}

fn adopt(state: &mut State, caller: &Caller, (directory, name): Place<'_>) -> Result<Option<Ino>> {
    let Some(seen) = look_there(state, directory, name)? else { return Ok(None) };
    let whose = adopting::whose(state, caller, (directory, name), &seen.0)?;
    state.names.reserve()?;
    adopt_found(state, (directory, name), seen, whose).map(Some)
}

/// A user's server that has it no more is followed by another one, which knows nothing of it.
fn adopt_anew(
    state: &mut State,
    caller: &Caller,
    (parent, name): Place<'_>,
) -> Result<Option<Ino>> {
    let seen = look_there(state, parent, name)?;
    elsewhere::is_shown_no_more(state, parent)?;
    let whose = match &seen {
        Some((found, _)) => Some(adopting::whose(state, caller, (parent, name), found)?),
        None => None,
    };
    state.names.reserve()?;
    state.record(Membership::Unnamed { parent, name: name.into() });
    let adopted = seen.zip(whose);
    adopted.map(|(seen, whose)| adopt_found(state, (parent, name), seen, whose)).transpose()
}

fn adopt_found(
    state: &mut State,
    place: Place<'_>,
    found: (Found, Vec<u8>),
    whose: Whose,
) -> Result<Ino> {
    match whose {
        Whose::Ours => Ok(adopt_as(state, place, found)),
        Whose::Theirs(looks, child) => adopting::is_theirs(state, place.0, (looks, &child)),
    }
}

/// What was found is this server's from now on, under this name. There is room for it.
pub fn adopt_as(
    state: &mut State,
    (directory, name): Place<'_>,
    (found, target): (Found, Vec<u8>),
) -> Ino {
    let mut attributes = found.attributes;
    attributes.ino = state.names.next_ino();
    // Some file systems count none; what has none is gone.
    attributes.links = attributes.links.max(1);
    state.record(Fact::Adopted {
        parent: directory,
        name: name.into(),
        attributes,
        fingerprint: found.fingerprint,
        target,
    });
    attributes.ino
}

/// The inode a request is about.
pub fn target(state: &mut State, caller: &Caller, target: &Target<'_>) -> Result<Ino> {
    match target {
        Target::Path(path) => resolve(state, caller, path),
        Target::File(file) if file.slot == FileSlot::NONE => {
            let inode = state.names.inode(file.ino).filter(|inode| inode.kind != Kind::File);
            let stale = || Error::new(ErrorKind::BadHandle, format!("inode {}", file.ino));
            inode.map(|_| file.ino).ok_or_else(stale)
        }
        Target::File(file) if file.slot == FileSlot::FAR => asking::open_there(state, file.ino),
        Target::File(file) => state.open_file(*file).map(|inode| inode.ino),
    }
}
