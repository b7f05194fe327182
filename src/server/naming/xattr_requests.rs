//! The naming role: what requests on extended attributes do. Only `user.*` is kept, of files and
//! directories; the backing's are read when they are first asked for.

use terral_format::disk::NameOperation;
use terral_format::disk::facts::Fact;
use terral_format::ids::{Ino, Number};
use terral_format::local::names::{Inode, flag};
use terral_format::wire::message::{Kind, Reply, Target, XATTR_VALUE_MAX, XattrHow};
use terral_format::wire::things::{Look, Outcome};
use terral_format::{Error, ErrorKind, Result};
use terral_store::backing::Xattrs;

use crate::authority::caller::Caller;
use crate::core::paths::shown;
use crate::core::state::State;
use crate::naming::xattrs::Values;
use crate::naming::{doubts, elsewhere, lookup, permitting, xattrs_elsewhere};
use crate::needs::asking;
use crate::needs::need::{Fetched, Need};

/// The one namespace of names that programs may use.
const PREFIX: &[u8] = b"user.";
/// Longest name, its prefix included.
const NAME_MAX: usize = 255;
/// Names and values of one inode, bytes.
const ALL_MAX: usize = 64 << 10;
/// Bytes of names in one reply.
const NAMES_BYTES: usize = 12 << 10;

/// `r` and `w` of permission bits.
const READ: u32 = 4;
const WRITE: u32 = 2;

fn check_name(name: &[u8]) -> Result<()> {
    let refuse = |kind| Err(Error::new(kind, String::from_utf8_lossy(name)));
    match name.strip_prefix(PREFIX) {
        _ if name.is_empty() || name.len() > NAME_MAX => refuse(ErrorKind::OutOfRange),
        None => refuse(ErrorKind::Unsupported),
        Some(rest) if rest.is_empty() || rest.contains(&0) => refuse(ErrorKind::Invalid),
        Some(_) => Ok(()),
    }
}

fn bytes_of(values: &Values) -> usize {
    values.iter().map(|(name, value)| name.len() + value.len()).sum()
}

/// Whether the backing has this very inode, and not one that ours is to replace.
fn is_there(inode: &Inode) -> bool {
    inode.published.is_some() && !inode.is(flag::REWRITTEN)
}

/// Refuses to set one of what has none.
///
/// # Errors
/// `EPERM`.
pub(super) fn must_keep(is: Kind, path: &[u8]) -> Result<()> {
    if matches!(is, Kind::File | Kind::Directory) {
        return Ok(());
    }
    let kind = ErrorKind::Unauthorized;
    Err(Error { kind, errno: kind.to_errno(), context: shown(path) })
}

fn xattr_target(
    state: &mut State,
    caller: &Caller,
    target: &Target<'_>,
    want: u32,
) -> Result<Inode> {
    let ino = lookup::target(state, caller, target)?;
    let path = state.names.path(ino).unwrap_or_default();
    let missing = || Error::new(ErrorKind::NotFound, shown(&path));
    let inode = state.names.inode(ino).ok_or_else(missing)?;
    let kept = matches!(inode.kind, Kind::File | Kind::Directory);
    if want == WRITE {
        must_keep(inode.kind, &path)?;
    }
    if want != 0 {
        elsewhere::attributes(state, caller, ino)?;
        let attributes = state.attributes(ino).ok_or_else(missing)?;
        permitting::permit(caller, &attributes, want, &path)?;
    }
    if kept && xattrs_elsewhere::home_of(state, ino).is_none() {
        doubts::must_be_none(state, ino)?;
        find_xattrs(state, ino)?;
    }
    Ok(inode)
}

/// Has what the backing says of an inode's attributes, if that was not asked before. What ours
/// will replace there takes its attributes along only if this is called before.
pub fn find_xattrs(state: &mut State, ino: Ino) -> Result<()> {
    let inode = state.names.inode(ino).filter(is_there);
    let unknown = state.xattrs.of(ino).is_none();
    let path = inode.and_then(|inode| state.names.path(inode.ino));
    let (Some(path), true, true) = (path, unknown, state.backing.is_some()) else {
        return Ok(());
    };
    let path = state.names.backing_path(&path);
    let found = match asking::fetch(state, Need::Xattrs(path))? {
        Fetched::Xattrs(Err(error)) if error.kind == ErrorKind::Unsupported => return Ok(()),
        Fetched::Xattrs(found) => found?,
        _ => return Ok(()),
    };
    note_xattrs(state, ino, found)
}

/// Notes what the backing says of an inode's attributes.
///
/// # Errors
/// If the log is full.
pub fn note_xattrs(state: &mut State, ino: Ino, found: Xattrs) -> Result<()> {
    match state.log.reserve() {
        // That there is none is asked again, if it cannot be noted.
        Err(_) if found.is_empty() => return Ok(()),
        reserved => reserved?,
    }
    state.record(Fact::XattrFound { ino, name: Vec::new(), value: Vec::new() });
    let mut bytes = 0;
    for (name, value) in found {
        bytes += name.len() + value.len();
        if check_name(&name).is_ok() && value.len() <= XATTR_VALUE_MAX && bytes <= ALL_MAX {
            state.record(Fact::XattrFound { ino, name, value });
        }
    }
    Ok(())
}

/// The value of one.
pub fn xattr(
    state: &mut State,
    caller: &Caller,
    target: &Target<'_>,
    name: &[u8],
) -> Result<Reply> {
    let inode = xattr_target(state, caller, target, READ)?;
    if matches!(inode.kind, Kind::File | Kind::Directory) {
        check_name(name)?;
        if let Some(home) = xattrs_elsewhere::home_of(state, inode.ino) {
            return xattrs_elsewhere::value(state, caller, home, name).map(Reply::Xattr);
        }
    }
    value_of(state, inode.ino, name).map(Reply::Xattr)
}

/// The same of what is here, as far as it is known.
fn value_of(state: &State, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
    let value = state.xattrs.of(ino).and_then(|values| values.get(name));
    let missing = || Error::new(ErrorKind::NoData, String::from_utf8_lossy(name));
    value.cloned().ok_or_else(missing)
}

/// Names after `after`.
pub fn xattr_names(
    state: &mut State,
    caller: &Caller,
    target: &Target<'_>,
    after: &[u8],
) -> Result<Reply> {
    let inode = xattr_target(state, caller, target, 0)?;
    let kept = matches!(inode.kind, Kind::File | Kind::Directory);
    let (names, last) = match xattrs_elsewhere::home_of(state, inode.ino).filter(|_| kept) {
        Some(home) => xattrs_elsewhere::names(state, caller, home, after)?,
        None => names_of(state, inode.ino, after),
    };
    Ok(Reply::XattrNames { names, last })
}

/// The same of what is here, as far as it is known; and whether they are the last.
fn names_of(state: &State, ino: Ino, after: &[u8]) -> (Vec<Vec<u8>>, bool) {
    let mut bytes = 0;
    let (mut names, mut last) = (Vec::new(), true);
    for name in state.xattrs.of(ino).into_iter().flat_map(Values::keys) {
        if name.as_slice() <= after {
            continue;
        }
        bytes += name.len() + 4;
        if bytes > NAMES_BYTES {
            last = false;
            break;
        }
        names.push(name.clone());
    }
    (names, last)
}

/// Sets or removes one.
pub fn set_xattr(
    state: &mut State,
    caller: &Caller,
    target: &Target<'_>,
    name: &[u8],
    value: Option<&[u8]>,
    how: XattrHow,
) -> Result<()> {
    let ino = xattr_target(state, caller, target, WRITE)?.ino;
    check_name(name)?;
    if let Some(home) = xattrs_elsewhere::home_of(state, ino) {
        return xattrs_elsewhere::set(state, caller, home, (name, value, how));
    }
    // Others are shown when it was changed.
    elsewhere::file_is_here(state, ino, b"")?;
    set_here(state, ino, (name, value, how))
}

/// The same of what is here.
fn set_here(
    state: &mut State,
    ino: Ino,
    (name, value, how): (&[u8], Option<&[u8]>, XattrHow),
) -> Result<()> {
    check(state.xattrs.of(ino), (name, value, how))?;
    let (name, value) = (name.to_vec(), value.map(<[u8]>::to_vec));
    state.record(Fact::Xattr { ino, name, value, time_ns: state.storage.time_ns() });
    Ok(())
}

/// Whether one can be set, or removed, in something that has these.
///
/// # Errors
/// Those of setxattr(2).
pub(super) fn check(
    values: Option<&Values>,
    (name, value, how): (&[u8], Option<&[u8]>, XattrHow),
) -> Result<()> {
    check_name(name)?;
    let refuse = |kind| Err(Error::new(kind, String::from_utf8_lossy(name)));
    if value.is_some_and(|value| value.len() > XATTR_VALUE_MAX) {
        return refuse(ErrorKind::TooBig);
    }
    let before = values.and_then(|values| values.get(name));
    let there = before.is_some();
    match (how, value, there) {
        (XattrHow::Create, Some(_), true) => return refuse(ErrorKind::Exists),
        (XattrHow::Replace, Some(_), false) | (_, None, false) => {
            return refuse(ErrorKind::NoData);
        }
        _ => {}
    }
    let long = |value: &[u8]| name.len() + value.len();
    let others = values.map_or(0, bytes_of) - before.map_or(0, |value| long(value));
    if others + value.map_or(0, long) > ALL_MAX {
        return refuse(ErrorKind::NoSpace);
    }
    Ok(())
}

/// The place of something that was born here, of which another member asks, who may.
///
/// # Errors
/// If it must wait; [`ErrorKind::NotFound`].
pub(super) fn asked_for(state: &mut State, of: Number) -> Result<Ino> {
    let missing = || Error::new(ErrorKind::NotFound, format!("{of:?}"));
    let place = state.members.as_ref().and_then(|members| members.place(of));
    let ino = place.filter(|ino| state.names.inode(*ino).is_some()).ok_or_else(missing)?;
    doubts::must_be_none(state, ino)?;
    find_xattrs(state, ino)?;
    Ok(ino)
}

/// What another member is told that looks at one, or for their names.
///
/// # Errors
/// If it must wait for the permanent store; [`ErrorKind::NoData`] if there is none.
pub fn told(state: &mut State, of: Number, look: &Look) -> Result<Outcome> {
    let ino = asked_for(state, of)?;
    match look {
        Look::Xattr(name) => value_of(state, ino, name).map(Outcome::Xattr),
        Look::XattrNames(after) => {
            let (names, last) = names_of(state, ino, after);
            Ok(Outcome::XattrNames(names, last))
        }
        _ => Err(Error::new(ErrorKind::Malformed, "no look at extended attributes")),
    }
}

/// Another member has one set.
///
/// # Errors
/// Those of setxattr(2).
pub fn is_set(state: &mut State, of: Number, set: (&[u8], Option<&[u8]>, XattrHow)) -> Result<()> {
    let ino = asked_for(state, of)?;
    set_here(state, ino, set)
}

pub fn apply_xattr(state: &mut State, fact: &Fact) {
    match fact {
        Fact::Xattr { ino, name, value, time_ns } => {
            state.xattrs.set(*ino, name, value.as_deref());
            state.names.update(*ino, |inode| inode.changed_ns = *time_ns);
            let known = |inode: &Inode| inode.is_directory() || is_there(inode);
            if state.names.inode(*ino).is_some_and(|inode| known(&inode)) {
                owe_xattr(state, *ino, name.clone(), value.clone());
            }
        }
        Fact::XattrFound { ino, name, value } => state.xattrs.found(*ino, name, value),
        _ => {}
    }
}

fn owe_xattr(state: &mut State, ino: Ino, name: Vec<u8>, value: Option<Vec<u8>>) {
    let path = state.names.path(ino);
    if let Some(path) = path.or_else(|| state.names.is_delegated(ino).then(Vec::new)) {
        state.names.owe(NameOperation::SetXattr { path, ino, name, value });
    }
}

/// The backing has another inode under the file's name than before: it has none of its
/// attributes yet.
pub fn owe_xattrs(state: &mut State, ino: Ino) {
    for (name, value) in state.xattrs.of(ino).cloned().unwrap_or_default() {
        owe_xattr(state, ino, name, Some(value));
    }
}
