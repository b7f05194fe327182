//! What permission bits and owners allow. Nothing here changes anything.

use terral_format::ids::{Ino, Number, ROOT};
use terral_format::local::names::Inode;
use terral_format::local::tables::access;
use terral_format::wire::message::{Attributes, Change, Kind, OpenHow};
use terral_format::wire::person::Person;
use terral_format::{Error, ErrorKind, Result};

use crate::authority::caller::Caller;
use crate::core::paths::shown;
use crate::core::state::State;
use crate::naming::names::Names;

/// Write permission of others.
const OTHERS_WRITE: u32 = 0o022;
/// More names lead nowhere.
const PATH_MAX: usize = 4096;
/// What is in a directory with this bit is removed by its owner or the directory's only.
pub(super) const STICKY: u32 = 0o1000;
/// `w` of permission bits.
const WRITE: u32 = 2;

/// `w` and `x` of a directory's: its names may be changed.
const CHANGE: u32 = 3;
/// `x` of a directory's permission bits.
const SEARCH: u32 = 1;

/// Whether nobody else renames what is root's in a directory of his with these bits.
pub(super) fn is_roots_way(mode: u32) -> bool {
    mode & OTHERS_WRITE == 0 || mode & STICKY != 0
}

/// The bits of a directory that is made by root's server where there are users, as by a umask.
pub(super) fn roots_bits(state: &State, mode: u32) -> u32 {
    let is_for_users = state.backing.as_ref().is_some_and(|store| store.is_of_roots());
    if is_for_users && !is_roots_way(mode) { mode & !OTHERS_WRITE } else { mode }
}

impl Names {
    /// Whether a person may search all that leads to something, by one of its names at least, as
    /// far as the tables know its names.
    pub fn may_reach(&self, person: &Person, ino: Ino) -> bool {
        let above = |at: &Ino| self.name_of(*at).filter(|_| *at != ROOT).map(|name| name.0);
        let searches =
            |at: Ino| self.inode(at).is_some_and(|is| person.may(&is.attributes(), SEARCH));
        let leads = |(parent, _): (Ino, Vec<u8>)| {
            std::iter::successors(Some(parent), above).take(PATH_MAX).all(searches)
        };
        let names = self.names_of(ino);
        names.is_empty() || names.into_iter().any(leads)
    }
}

/// The error for what only its owner may do, or root.
pub fn not_permitted(path: &[u8]) -> Error {
    let kind = ErrorKind::Unauthorized;
    Error { kind, errno: kind.to_errno(), context: format!("{}: not yours", shown(path)) }
}

/// Refuses a user whom the permission bits do not let in (`want`: r 4, w 2, x 1).
pub fn permit(caller: &Caller, attributes: &Attributes, want: u32, path: &[u8]) -> Result<()> {
    if caller.person.may(attributes, want) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Denied, shown(path)))
}

pub fn permit_opening(
    caller: &Caller,
    attributes: &Attributes,
    how: OpenHow,
    path: &[u8],
) -> Result<()> {
    let read = u64::from(how.access) & access::READ != 0;
    let write = u64::from(how.access) & access::WRITE != 0 || how.truncate;
    let want = if read { 4 } else { 0 } | if write { 2 } else { 0 };
    permit(caller, attributes, want, path)
}

/// Refuses who may not change the names of a directory, and all where it was removed since it was
/// looked up.
pub fn permit_change_in(state: &State, caller: &Caller, directory: Ino, path: &[u8]) -> Result<()> {
    match state.names.inode(directory).filter(|inode| inode.links > 0) {
        Some(inode) => {
            permit(caller, &inode.attributes(), CHANGE, path)?;
            permit_server(state, &inode, path)
        }
        None => Err(Error::new(ErrorKind::NotFound, shown(path))),
    }
}

/// Refuses to change names, whoever asks for it, where this server could not bring that to the
/// permanent store: a user's has his rights there, and root's touches no directory of a user's.
fn permit_server(state: &State, directory: &Inode, path: &[u8]) -> Result<()> {
    let Some((members, store)) = state.members.as_ref().zip(state.backing.as_ref()) else {
        return Ok(());
    };
    let is_users = || members.number(directory.ino).is_some_and(|of| members.is_users(of));
    let may = match members.speaks_for() {
        Some(user) => user.may(&directory.attributes(), CHANGE),
        None => !(store.is_of_roots() && is_users()),
    };
    if may { Ok(()) } else { Err(Error::new(ErrorKind::Denied, shown(path))) }
}

/// Whether a directory of this server's, if it is a user's, may be in this one: in his own, or in
/// one of root's. That it is in another user's only that one's server could say, and others do not
/// believe that of it, so that none is in two places.
pub(super) fn may_have_directory(state: &State, directory: Ino) -> bool {
    let Some(members) = state.members.as_ref() else { return true };
    let born = members.number(directory).map(Number::born);
    let his = [Some(members.me()), Some(members.control())].contains(&born);
    members.speaks_for().is_none() || his
}

/// Refuses one where it may not be.
pub(super) fn permit_directory_in(state: &State, directory: Ino, path: &[u8]) -> Result<()> {
    match may_have_directory(state, directory) {
        true => Ok(()),
        false => Err(Error::new(ErrorKind::Denied, shown(path))),
    }
}

/// Refuses root's server a file in a user's directory, which it could not bring there.
pub(super) fn permit_making_elsewhere(state: &State, directory: Ino, path: &[u8]) -> Result<()> {
    let members = state.members.as_ref().filter(|members| members.speaks_for().is_none());
    let inode = members.and_then(|_| state.names.inode(directory));
    inode.map_or(Ok(()), |inode| permit_server(state, &inode, path))
}

/// Refuses to take `name`, which is `ino`, from a directory where that may not be (unlink(2)).
pub fn permit_removal(
    state: &State,
    caller: &Caller,
    directory: Ino,
    ino: Ino,
    path: &[u8],
) -> Result<()> {
    permit_change_in(state, caller, directory, path)?;
    let found = [directory, ino].map(|ino| state.names.inode(ino).map(|inode| inode.attributes()));
    let [Some(directory), Some(removed)] = found else { return Ok(()) };
    permit_taking(caller, &directory, &removed, path)
}

/// Refuses to take what is somebody else's from a directory with the sticky bit.
pub fn permit_taking(
    caller: &Caller,
    directory: &Attributes,
    taken: &Attributes,
    path: &[u8],
) -> Result<()> {
    let own = [directory, taken].iter().any(|is| caller.person.owns(is));
    if directory.mode & STICKY == 0 || own { Ok(()) } else { Err(not_permitted(path)) }
}

/// Only a file has bytes to cut.
pub fn permit_truncate(state: &State, ino: Ino) -> Result<()> {
    let kind = match state.names.inode(ino).map(|inode| inode.kind) {
        Some(Kind::Directory) => ErrorKind::IsDirectory,
        Some(Kind::Symlink) => ErrorKind::Link,
        Some(Kind::Fifo | Kind::Socket) => ErrorKind::Invalid,
        Some(Kind::File) | None => return Ok(()),
    };
    Err(Error::new(kind, shown(&state.names.path(ino).unwrap_or_default())))
}

/// Only the owner changes attributes, and only root gives a file away (chown(2)).
pub fn permit_attributes(state: &State, caller: &Caller, ino: Ino, change: &Change) -> Result<()> {
    let Some(inode) = state.names.inode(ino) else { return Ok(()) };
    let is = inode.attributes();
    let gives_away = change.uid.is_some_and(|uid| uid != is.uid)
        || change.gid.is_some_and(|gid| gid != is.gid && !caller.person.is_in(gid));
    if caller.person.is_root() || (caller.person.owns(&is) && !gives_away) {
        return Ok(());
    }
    // Who may write to it may say that it is used now (utimensat(2)). Files are opened.
    if is.kind.is_node() && change.is_now(state.storage.time_ns()) && caller.person.may(&is, WRITE)
    {
        return Ok(());
    }
    Err(not_permitted(&state.names.path(ino).unwrap_or_default()))
}
