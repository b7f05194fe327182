//! Names that are made and removed.

use terral_format::disk::facts::Fact;
use terral_format::ids::{Ino, Number};
use terral_format::wire::message::{Attributes, Kind};
use terral_format::wire::things::{Change, Child, Made};
use terral_format::{Error, ErrorKind, Result};

use crate::authority::caller::Caller;
use crate::core::paths::shown;
use crate::core::state::State;
use crate::naming::{elsewhere, letting_go, listing, lookup, permitting, whole};
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
    let above = state.names.inode(new.place.0).map(|above| above.attributes());
    let mode = match new.kind {
        Kind::Directory => permitting::roots_bits(state, new.mode),
        _ => new.mode,
    };
    let fact = fact_of(caller, ino, &New { mode, ..*new }, above.as_ref(), time_ns);
    state.record(fact);
}

/// What is to be recorded of that, in a directory that is `above`.
pub(super) fn fact_of(
    caller: &Caller,
    ino: Ino,
    new: &New<'_>,
    above: Option<&Attributes>,
    time_ns: u64,
) -> Fact {
    let &New { place: (parent, name), kind, mode, target } = new;
    let above = above.filter(|above| above.mode & u32::from(SET_GROUP) != 0);
    let directory = kind == Kind::Directory && above.is_some();
    let mode = if directory { mode | u32::from(SET_GROUP) } else { mode };
    Fact::Made {
        parent,
        name: name.into(),
        ino,
        kind,
        mode: mode & 0o7777,
        uid: caller.person.user,
        gid: above.map_or(caller.person.group, |above| above.gid),
        time_ns,
        target: target.into(),
    }
}

/// Makes something under a path, here or where another member has the directory. What was made;
/// `None` if that is elsewhere.
///
/// # Errors
/// [`ErrorKind::Exists`] and others of mkdir(2).
pub fn make_at(
    state: &mut State,
    caller: &Caller,
    path: &[u8],
    (kind, mode, target): (Kind, u32, &[u8]),
) -> Result<Ino> {
    let (parent, name) = lookup::resolve_parent(state, caller, path)?;
    if state.is_among_users() {
        let there = lookup::child(state, caller, parent, name);
        if lookup::or_new(there)?.is_some() {
            return Err(Error::new(ErrorKind::Exists, shown(path)));
        }
        permitting::permit_names_in(state, parent, path)?;
    }
    let made = Made { kind, mode, text: target.into() };
    match elsewhere::change(state, caller, parent, Change::Make(name.into(), made))? {
        Some(number) => {
            let ino = made_elsewhere(state, (name, kind, target), number)?;
            elsewhere::is_called(state, (parent, name), Some(ino));
            Ok(ino)
        }
        None => make_in(state, caller, &New { place: (parent, name), kind, mode, target }, path),
    }
}

/// The place of what another member says it has made.
fn made_elsewhere(
    state: &mut State,
    (name, kind, target): (&[u8], Kind, &[u8]),
    number: Option<Number>,
) -> Result<Ino> {
    let unsaid = || Error::new(ErrorKind::Malformed, "another member does not say what it made");
    let (name, number, text) = (name.into(), number.ok_or_else(unsaid)?, target.into());
    elsewhere::place(state, &Child { name, number, kind, text })
}

/// Makes something in a directory that is here.
///
/// # Errors
/// As those of [`make_at`].
pub fn make_in(state: &mut State, caller: &Caller, new: &New<'_>, path: &[u8]) -> Result<Ino> {
    let (parent, name) = new.place;
    let there = lookup::child(state, caller, parent, name);
    let is_sure = there.is_ok();
    if lookup::or_new(there)?.is_some() {
        return Err(Error::new(ErrorKind::Exists, shown(path)));
    }
    permitting::permit_change_in(state, caller, parent, path)?;
    let ino = make(state, caller, new);
    if is_sure && new.kind == Kind::Directory {
        whole::is_made(state, ino);
    }
    Ok(ino)
}

/// Makes a directory.
pub fn make_directory(state: &mut State, caller: &Caller, path: &[u8], mode: u32) -> Result<()> {
    if path.is_empty() {
        return Err(Error::new(ErrorKind::Exists, "/"));
    }
    make_at(state, caller, path, (Kind::Directory, mode, b"")).map(drop)
}

/// Removes an empty directory. Its names and those it is among are held meanwhile.
pub fn remove_directory(state: &mut State, caller: &Caller, path: &[u8]) -> Result<()> {
    let (parent, name) = lookup::resolve_parent(state, caller, path)?;
    let missing = || Error::new(ErrorKind::NotFound, shown(path));
    let ino = lookup::child(state, caller, parent, name)?.ok_or_else(missing)?;
    elsewhere::take_all(state, &[parent, ino])?;
    let ino = lookup::child(state, caller, parent, name)?.ok_or_else(missing)?;
    permitting::permit_removal(state, caller, parent, ino, path)?;
    elsewhere::must_be_here(state, ino)?;
    if !listing::names_of(state, caller, ino)?.is_empty() {
        return Err(Error::new(ErrorKind::NotEmpty, shown(path)));
    }
    state.record(Fact::Removed { parent, name: name.into(), time_ns: state.storage.time_ns() });
    Ok(())
}

/// Removes a file's name, here or where another member has the directory.
pub fn unlink(state: &mut State, caller: &Caller, path: &[u8]) -> Result<()> {
    let (parent, name) = lookup::resolve_parent(state, caller, path)?;
    match elsewhere::change(state, caller, parent, Change::Remove(name.into()))? {
        Some(_) => {
            elsewhere::is_called(state, (parent, name), None);
            Ok(())
        }
        None => unlink_in(state, caller, (parent, name), path),
    }
}

/// Removes a file's name from a directory that is here.
///
/// # Errors
/// Those of unlink(2).
pub fn unlink_in(
    state: &mut State,
    caller: &Caller,
    (parent, name): (Ino, &[u8]),
    path: &[u8],
) -> Result<()> {
    let missing = || Error::new(ErrorKind::NotFound, shown(path));
    let ino = lookup::child(state, caller, parent, name)?.ok_or_else(missing)?;
    elsewhere::is_known_whose(state, caller, parent, ino)?;
    permitting::permit_removal(state, caller, parent, ino, path)?;
    if state.names.inode(ino).is_some_and(|inode| inode.is_directory()) {
        return Err(Error::new(ErrorKind::IsDirectory, shown(path)));
    }
    letting_go::may_lose(state, caller, ino, (parent, name))?;
    bringing::keep_for_openers(state, ino)?;
    state.record(Fact::Removed { parent, name: name.into(), time_ns: state.storage.time_ns() });
    letting_go::are_gone(state);
    Ok(())
}
