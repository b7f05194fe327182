//! Names that are made and removed.

use terral_format::disk::facts::Fact;
use terral_format::ids::Ino;
use terral_format::wire::message::Kind;
use terral_format::{Error, ErrorKind, Result};

use crate::authority::caller::Caller;
use crate::core::paths::shown;
use crate::core::state::State;
use crate::naming::{listing, lookup, permitting};
use crate::storage::bringing;

/// What is made in a directory with this bit gets its group, and a directory the bit (mkdir(2)).
pub const SET_GROUP: u16 = 0o2000;

/// Something that is made.
pub struct New<'n> {
    /// In which directory, and as what; nothing for a file that has no name yet.
    pub place: (Ino, &'n [u8]),
    /// What.
    pub kind: Kind,
    /// Its permission bits.
    pub mode: u32,
    /// What a link says, or where a node's object is.
    pub target: &'n [u8],
}

/// Makes something, now.
pub fn make(state: &mut State, caller: &Caller, new: &New<'_>) -> Ino {
    let ino = state.names.next_ino();
    make_as(state, caller, ino, new, state.storage.time_ns());
    ino
}

/// Makes something that has its number, as of `time_ns`.
pub fn make_as(state: &mut State, caller: &Caller, ino: Ino, new: &New<'_>, time_ns: u64) {
    let &New { place: (parent, name), kind, mode, target } = new;
    let above = state.names.inode(parent).filter(|above| above.mode & SET_GROUP != 0);
    let directory = kind == Kind::Directory && above.is_some();
    let mode = if directory { mode | u32::from(SET_GROUP) } else { mode };
    state.record(Fact::Made {
        parent,
        name: name.into(),
        ino,
        kind,
        mode: mode & 0o7777,
        uid: caller.person.user,
        gid: above.map_or(caller.person.group, |above| above.gid),
        time_ns,
        target: target.into(),
    });
}

/// Makes a directory.
pub fn make_directory(state: &mut State, caller: &Caller, path: &[u8], mode: u32) -> Result<()> {
    if path.is_empty() {
        return Err(Error::new(ErrorKind::Exists, "/"));
    }
    let (parent, name) = lookup::resolve_parent(state, caller, path)?;
    if lookup::child_or_new(state, parent, name)?.is_some() {
        return Err(Error::new(ErrorKind::Exists, shown(path)));
    }
    permitting::permit_change_in(state, caller, parent, path)?;
    make(state, caller, &New { place: (parent, name), kind: Kind::Directory, mode, target: b"" });
    Ok(())
}

/// Removes an empty directory.
pub fn remove_directory(state: &mut State, caller: &Caller, path: &[u8]) -> Result<()> {
    let (parent, name) = lookup::resolve_parent(state, caller, path)?;
    let missing = || Error::new(ErrorKind::NotFound, shown(path));
    let ino = lookup::child(state, parent, name)?.ok_or_else(missing)?;
    permitting::permit_removal(state, caller, parent, ino, path)?;
    if !listing::names_of(state, ino)?.is_empty() {
        return Err(Error::new(ErrorKind::NotEmpty, shown(path)));
    }
    state.record(Fact::Removed { parent, name: name.into(), time_ns: state.storage.time_ns() });
    Ok(())
}

/// Removes a file's name.
pub fn unlink(state: &mut State, caller: &Caller, path: &[u8]) -> Result<()> {
    let (parent, name) = lookup::resolve_parent(state, caller, path)?;
    let missing = || Error::new(ErrorKind::NotFound, shown(path));
    let ino = lookup::child(state, parent, name)?.ok_or_else(missing)?;
    permitting::permit_removal(state, caller, parent, ino, path)?;
    if state.names.inode(ino).is_some_and(|inode| inode.is_directory()) {
        return Err(Error::new(ErrorKind::IsDirectory, shown(path)));
    }
    bringing::keep_for_openers(state, ino)?;
    state.record(Fact::Removed { parent, name: name.into(), time_ns: state.storage.time_ns() });
    Ok(())
}
