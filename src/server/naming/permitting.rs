//! What permission bits and owners allow. Nothing here changes anything.

use terral_format::ids::{Ino, ROOT};
use terral_format::local::tables::access;
use terral_format::wire::message::{Attributes, Change, Kind, OpenHow};
use terral_format::wire::person::Person;
use terral_format::{Error, ErrorKind, Result};
use terral_store::backing::BesideOthers;

use crate::authority::caller::Caller;
use crate::core::paths::shown;
use crate::core::state::State;
use crate::members::at_home;
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
    let is_roots = state.owner() == Some(0);
    if is_roots && !is_roots_way(mode) { mode & !OTHERS_WRITE } else { mode }
}

impl Names {
    /// Whether a person may search all that leads to something, by one of its names at least, as
    /// far as the tables know its names.
    pub fn may_reach(&self, person: &Person, ino: Ino) -> bool {
        let names = self.names_of(ino);
        names.is_empty() || names.into_iter().any(|(parent, _)| self.may_search(person, parent))
    }

    /// Whether a person may search a directory, and all that leads to it.
    pub fn may_search(&self, person: &Person, directory: Ino) -> bool {
        let above = |at: &Ino| self.name_of(*at).filter(|_| *at != ROOT).map(|name| name.0);
        let searches =
            |at: Ino| self.inode(at).is_some_and(|is| person.may(&is.attributes(), SEARCH));
        std::iter::successors(Some(directory), above).take(PATH_MAX).all(searches)
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

/// Refuses to open for writing what a user has in a directory of root's, where each user has a
/// server: no new version of it could get its name there.
pub fn permit_writing(state: &State, ino: Ino, how: OpenHow, path: &[u8]) -> Result<()> {
    let writes = u64::from(how.access) & access::WRITE != 0 || how.truncate;
    match writes && !at_home::is_at_home(state, ino) {
        true => Err(Error::new(ErrorKind::Denied, shown(path))),
        false => Ok(()),
    }
}

/// Refuses who may not change the names of a directory, and all where it was removed since it was
/// looked up.
pub fn permit_change_in(state: &State, caller: &Caller, directory: Ino, path: &[u8]) -> Result<()> {
    match state.names.inode(directory).filter(|inode| inode.links > 0) {
        Some(inode) => {
            permit(caller, &inode.attributes(), CHANGE, path)?;
            permit_names_in(state, directory, path)
        }
        None => Err(Error::new(ErrorKind::NotFound, shown(path))),
    }
}

/// Refuses to change names, where each user has servers, but those of a directory that was born
/// among his own: its owner's servers alone change them, whatever the bits say.
///
/// # Errors
/// [`ErrorKind::Denied`].
pub fn permit_names_in(state: &State, directory: Ino, path: &[u8]) -> Result<()> {
    match is_own(state, directory) {
        true => Ok(()),
        false => Err(Error::new(ErrorKind::Denied, shown(path))),
    }
}

/// The same of names of something: none is changed of what was born at another user's server.
///
/// # Errors
/// As [`not_permitted`]'s.
pub fn permit_names_of(state: &State, ino: Ino, path: &[u8]) -> Result<()> {
    if is_own(state, ino) { Ok(()) } else { Err(not_permitted(path)) }
}

/// Refuses to give a name by moving what has it, in a directory of root's in which others make
/// names, too, where the store cannot do that so that theirs stay: said as it is asked, as it
/// would be owed for ever. `mv` copies.
///
/// # Errors
/// [`ErrorKind::CrossDevice`].
pub fn permit_moving_into(state: &State, directory: &Attributes, path: &[u8]) -> Result<()> {
    match beside_others(state, directory) {
        BesideOthers::All => Ok(()),
        BesideOthers::Made | BesideOthers::NoFiles => {
            Err(Error::new(ErrorKind::CrossDevice, shown(path)))
        }
    }
}

/// Refuses to give a file a name there, if the store cannot do that either.
///
/// # Errors
/// [`ErrorKind::Denied`].
pub fn permit_file_in(state: &State, directory: Ino, path: &[u8]) -> Result<()> {
    let Some(inode) = state.names.inode(directory) else { return Ok(()) };
    match beside_others(state, &inode.attributes()) {
        BesideOthers::NoFiles => Err(Error::new(ErrorKind::Denied, shown(path))),
        BesideOthers::All | BesideOthers::Made => Ok(()),
    }
}

fn beside_others(state: &State, directory: &Attributes) -> BesideOthers {
    let is_roots = state.owner() == Some(0) && state.is_among_users();
    match state.backing.as_ref().filter(|_| is_roots && directory.mode & OTHERS_WRITE != 0) {
        Some(store) => store.beside_others(),
        None => BesideOthers::All,
    }
}

/// Whether something was born at one of this server's user's, where each user has servers.
fn is_own(state: &State, ino: Ino) -> bool {
    let Some(members) = state.members.as_ref().filter(|_| state.is_among_users()) else {
        return true;
    };
    members.number(ino).is_some_and(|number| members.is_ours(number.born()))
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
    permit_names_of(state, ino, path)?;
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
