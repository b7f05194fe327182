//! The naming role: what requests that move names do, and those on symbolic links.

use terral_format::disk::facts::Fact;
use terral_format::ids::Ino;
use terral_format::local::geometry::PATH_MAX;
use terral_format::wire::message::{Kind, RenameHow, Reply};
use terral_format::{Error, ErrorKind, Result};

use crate::authority::caller::Caller;
use crate::authority::quotas::Shift;
use crate::core::paths::shown;
use crate::core::state::State;
use crate::members::moving;
use crate::naming::names::Place;
use crate::naming::permitting;
use crate::naming::placement;
use crate::naming::{charging, counting, doubts, elsewhere, exchanging, homes, letting_go};
use crate::naming::{listing, lookup, making};
use crate::storage::bringing;

/// Whether a path leads through another.
pub(super) fn is_below(path: &[u8], other: &[u8]) -> bool {
    path.strip_prefix(other).is_some_and(|rest| rest.first() == Some(&b'/'))
}

/// Moves a name, or has it moved by the home of what has it. What is wrong with the names
/// themselves comes first, as on Linux.
pub fn rename(
    state: &mut State,
    caller: &Caller,
    from: &[u8],
    to: &[u8],
    how: RenameHow,
) -> Result<()> {
    // Who keeps no files has their directories for no longer than others look at them, or not at
    // all: so they do not go with it.
    let by_home = homes::decide(state) || !placement::stores_here(state);
    match by_home && homes::rename(state, caller, (from, to), how, None)? {
        true => Ok(()),
        false => rename_here(state, caller, from, to, how),
    }
}

/// Moves a name of something whose names this server changes.
///
/// # Errors
/// Those of rename(2).
pub fn rename_here(
    state: &mut State,
    caller: &Caller,
    from: &[u8],
    to: &[u8],
    how: RenameHow,
) -> Result<()> {
    homes::lock_moves(state, true)?;
    let (parent, name) = lookup::resolve_parent(state, caller, from)?;
    let (to_parent, to_name) = lookup::resolve_parent(state, caller, to)?;
    take_for_moving(state, caller, parent, (to_parent, to_name))?;
    let missing = |path| move || Error::new(ErrorKind::NotFound, shown(path));
    let ino = lookup::child(state, caller, parent, name)?.ok_or_else(missing(from))?;
    let there = match how {
        RenameHow::Exchange => lookup::child(state, caller, to_parent, to_name)?,
        RenameHow::Replace | RenameHow::Keep => {
            lookup::child_or_new(state, caller, to_parent, to_name)?
        }
    };
    match (how, there) {
        (RenameHow::Exchange, None) => return Err(missing(to)()),
        (RenameHow::Keep, Some(_)) => return Err(Error::new(ErrorKind::Exists, shown(to))),
        _ => {}
    }
    homes::must_be_ours(state, ino)?;
    let known = |ino| doubts::must_have_its_names(state, ino);
    std::iter::once(ino).chain(there).try_for_each(known)?;
    permit_places(from, to, how)?;
    is_known_whose(state, caller, [(parent, Some(ino)), (to_parent, there)])?;
    let back = there.filter(|_| how == RenameHow::Exchange);
    let moved = [Some(ino), back].map(|it| it.filter(|_| parent != to_parent));
    is_known_who_may(state, caller, moved)?;
    permit_moving(state, caller, ino, parent, to_parent, from)?;
    match there {
        Some(there) if how == RenameHow::Exchange => {
            permit_moving(state, caller, there, to_parent, parent, to)?;
        }
        Some(there) => permitting::permit_removal(state, caller, to_parent, there, to)?,
        None => permitting::permit_change_in(state, caller, to_parent, to)?,
    }
    if there == Some(ino) {
        return Ok(());
    }
    permit_moving_into(state, to_parent, to)?;
    back.map_or(Ok(()), |_| permit_moving_into(state, parent, from))?;
    there.map_or(Ok(()), |there| elsewhere::must_be_here(state, there))?;
    if let (Some(there), RenameHow::Replace) = (there, how) {
        permit_replacing(state, caller, ino, there, to)?;
    }
    let mut shift = Shift::default();
    charging::renames(state, &mut shift, (ino, from), (there, to), back.is_some());
    state.quotas.permit(&shift)?;
    permit_moves(state, caller, (ino, (parent, name)), (back, (to_parent, to_name)))?;
    let back = back.map(|back| (back, (parent, name)));
    if let (Some(there), RenameHow::Replace) = (there, how) {
        letting_go::may_lose(state, caller, there, (to_parent, to_name))?;
        bringing::keep_for_openers(state, there)?;
    }
    come(state, (ino, (to_parent, to_name)), back);
    let (name, to_name, time_ns) = (name.into(), to_name.into(), state.storage.time_ns());
    state.record(match how {
        RenameHow::Exchange => Fact::Exchanged { parent, name, to_parent, to_name, time_ns },
        _ => Fact::Renamed { parent, name, to_parent, to_name, time_ns },
    });
    letting_go::are_gone(state);
    moving::is_sure(state);
    Ok(())
}

/// Nothing comes below itself, nor what is below it in its place.
fn permit_places(from: &[u8], to: &[u8], how: RenameHow) -> Result<()> {
    let kind = match how {
        _ if is_below(to, from) => ErrorKind::Invalid,
        _ if !is_below(from, to) => return Ok(()),
        RenameHow::Exchange => ErrorKind::Invalid,
        RenameHow::Replace | RenameHow::Keep => ErrorKind::NotEmpty,
    };
    Err(Error::new(kind, shown(to)))
}

/// Both are known whose they are, where that counts.
fn is_known_whose(state: &mut State, caller: &Caller, both: [(Ino, Option<Ino>); 2]) -> Result<()> {
    let known = both.into_iter().filter_map(|(parent, ino)| Some((parent, ino?)));
    known
        .into_iter()
        .try_for_each(|(parent, ino)| elsewhere::is_known_whose(state, caller, parent, ino))
}

/// Directories that get another parent, and are changed by that, are known who may do so.
fn is_known_who_may(state: &mut State, caller: &Caller, both: [Option<Ino>; 2]) -> Result<()> {
    let moved = both.into_iter().flatten().filter(|_| !caller.person.is_root());
    for ino in moved {
        if is_directory(state, ino) {
            elsewhere::attributes(state, caller, ino)?;
        }
    }
    Ok(())
}

/// Something is about to get a name by being moved, and what was there may get its own.
fn come(state: &mut State, moved: (Ino, Place<'_>), back: Option<(Ino, Place<'_>)>) {
    for (ino, place) in std::iter::once(moved).chain(back) {
        counting::comes(state, ino, place);
        elsewhere::has_come(state, (ino, place.0));
    }
}

/// A directory gets another path, or what others may have something of changes places: where there
/// are several machines, one such move at a time.
///
/// # Errors
/// If it must wait for that.
pub(super) fn permit_moves(
    state: &mut State,
    caller: &Caller,
    (ino, from): (Ino, Place<'_>),
    (back, to): (Option<Ino>, Place<'_>),
) -> Result<()> {
    let mut moved = [Some(ino), back].into_iter().flatten();
    let alone = moved.clone().all(|ino| homes::is_alone_below(state, ino));
    let directory = moved.any(|ino| is_directory(state, ino));
    if alone && !directory {
        return Ok(());
    }
    if homes::moves_by_itself(state) {
        let stays = alone && (!directory || from.0 == to.0);
        return homes::permit_own_move(state, stays);
    }
    if !alone || from.0 != to.0 {
        homes::lock_moves(state, false)?;
    }
    homes::await_own_move(state)?;
    if let Some(back) = back {
        exchanging::may_swap(state, caller, back, to)?;
    }
    homes::have_rest(state, (ino, from), to, back, !alone)
}

/// Has both directories here, and one that may be replaced.
fn take_for_moving(
    state: &mut State,
    caller: &Caller,
    parent: Ino,
    (to_parent, to_name): (Ino, &[u8]),
) -> Result<()> {
    let mut taken = vec![parent, to_parent];
    if state.members.is_some() {
        taken.extend(lookup::child(state, caller, to_parent, to_name)?);
    }
    elsewhere::take_all(state, &taken)
}

fn is_directory(state: &State, ino: Ino) -> bool {
    state.names.inode(ino).is_some_and(|inode| inode.is_directory())
}

/// Refuses to take a name elsewhere; a directory that gets another parent is itself changed.
fn permit_moving(
    state: &State,
    caller: &Caller,
    ino: Ino,
    parent: Ino,
    to_parent: Ino,
    path: &[u8],
) -> Result<()> {
    permitting::permit_removal(state, caller, parent, ino, path)?;
    match state.names.inode(ino) {
        Some(inode) if inode.is_directory() && parent != to_parent => {
            permitting::permit(caller, &inode.attributes(), 2, path)
        }
        _ => Ok(()),
    }
}

fn permit_moving_into(state: &State, directory: Ino, path: &[u8]) -> Result<()> {
    let inode = state.names.inode(directory);
    inode.map_or(Ok(()), |is| permitting::permit_moving_into(state, &is.attributes(), path))
}

/// What rename(2) lets one thing take the place of.
fn permit_replacing(
    state: &mut State,
    caller: &Caller,
    moved: Ino,
    there: Ino,
    to: &[u8],
) -> Result<()> {
    let refuse = |kind| Err(Error::new(kind, shown(to)));
    match (is_directory(state, moved), is_directory(state, there)) {
        (true, false) => refuse(ErrorKind::NotDirectory),
        (false, true) => refuse(ErrorKind::IsDirectory),
        (true, true) if !listing::names_of(state, caller, there)?.is_empty() => {
            refuse(ErrorKind::NotEmpty)
        }
        _ => Ok(()),
    }
}

/// Makes a symbolic link.
pub fn make_link(state: &mut State, caller: &Caller, path: &[u8], target: &[u8]) -> Result<()> {
    if target.is_empty() || target.len() >= PATH_MAX {
        let kind = if target.is_empty() { ErrorKind::NotFound } else { ErrorKind::NameTooLong };
        return Err(Error::new(kind, shown(target)));
    }
    making::make_at(state, caller, path, (Kind::Symlink, 0o777, target)).map(drop)
}

/// What a symbolic link says.
pub fn read_link(state: &mut State, caller: &Caller, path: &[u8]) -> Result<Reply> {
    let ino = lookup::resolve(state, caller, path)?;
    let link = state.names.inode(ino).is_some_and(|inode| inode.kind == Kind::Symlink);
    let refused = || Error::new(ErrorKind::Invalid, shown(path));
    let target = link.then(|| state.names.target(ino)).flatten();
    target.map(Reply::LinkTarget).ok_or_else(refused)
}
