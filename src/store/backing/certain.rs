//! What root changes, and where others may rename. A path says where something was when somebody
//! saw it: who may write to a directory on the way can have put something else there since, which
//! root would give away, or make everybody's.
//!
//! Invariant: a process of root's changes owner, permission bits and attributes only of an object
//! that it knows, that it has just made where nobody else could reach it, or to which only root
//! could give its path. What it does for a user it does as him (`whom`), and needs none of this.

use std::fs::{File, Metadata, Permissions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use terral_format::fingerprint::{Fingerprint, Object};
use terral_format::frame::checksum;

use super::attributes::{by_name, fingerprint};
use super::beneath::{Place, Root, look, rename_new, split};
use super::home::make_staging;
use super::whom;

/// May be done by others: to give and take names there.
const OTHERS_WRITE: u32 = 0o022;
const DIRECTORY: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// What makes a name in a directory.
pub(super) type Make<'a> = &'a dyn Fn(&OwnedFd, &[u8]) -> rustix::io::Result<()>;

/// Whether only root gives names in this directory. The sticky bit is not enough: who has a name
/// there may give it to another thing.
fn is_roots_alone(directory: &OwnedFd) -> rustix::io::Result<bool> {
    let found = rustix::fs::fstat(directory)?;
    Ok(found.st_uid == 0 && found.st_mode & OTHERS_WRITE == 0)
}

/// What is at a path, if only root can have put it there, whatever happens meanwhile: each
/// directory is opened in the one before it.
fn only_roots(root: &Root, path: &[u8]) -> std::io::Result<Option<File>> {
    let missing = || std::io::Error::from(Errno::NOENT);
    let mut at = root.open().map_err(|_| missing())?;
    let (within, name) = split(path);
    for next in within.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
        if !is_roots_alone(&at)? {
            return Ok(None);
        }
        at = rustix::fs::openat(&at, next, DIRECTORY, Mode::empty())?;
    }
    match is_roots_alone(&at)? {
        true => look(&at, name)?.ok_or_else(missing).map(Some),
        false => Ok(None),
    }
}

/// What root may change of what was found at a path: it, if it is the object that is known to be
/// there, or if nobody else can have put it there. Nothing if it may be another one.
pub(super) fn certain(
    root: &Root,
    path: &[u8],
    found: File,
    known: Option<Object>,
) -> std::io::Result<Option<File>> {
    if !whom::acts_as_root() || path.is_empty() || is(&found, known)? {
        return Ok(Some(found));
    }
    only_roots(root, path)
}

/// The same of what is to be moved, as it is found there: whether it may be that.
pub(super) fn may_be(
    root: &Root,
    path: &[u8],
    found: &Metadata,
    known: Option<Object>,
) -> std::io::Result<bool> {
    let other = known.is_some_and(|known| fingerprint(found).object() != known);
    Ok(!whom::acts_as_root() || !other || only_roots(root, path)?.is_some())
}

/// Whether an open file is the object that is known.
fn is(file: &File, known: Option<Object>) -> std::io::Result<bool> {
    let Some(known) = known else { return Ok(false) };
    Ok(fingerprint(&file.metadata()?).object() == known)
}

/// Makes something with exactly these permission bits, if it has any. How it looks, if this process
/// is root's, and that is what was made: where others may rename it is made in the staging
/// directory first, and may lack bits where that is on another file system.
pub(super) fn make(
    root: &Root,
    place: &Place,
    mode: Option<u32>,
    make: Make<'_>,
) -> std::io::Result<Option<Fingerprint>> {
    if whom::acts_as_root() && !is_roots_alone(&place.directory)? {
        return make_apart(root, place, mode, make);
    }
    make(&place.directory, &place.name)?;
    if mode.is_none() && !whom::is_roots() {
        return Ok(None);
    }
    let made = finished(&place.directory, &place.name, mode)?;
    // Of a user's it may be another one of his by now.
    let is_own = made.uid() == rustix::process::geteuid().as_raw();
    Ok((whom::is_roots() && is_own).then(|| fingerprint(&made)))
}

/// What was just made has all of its permission bits. How it looks.
fn finished(directory: &OwnedFd, name: &[u8], mode: Option<u32>) -> std::io::Result<Metadata> {
    let made = look(directory, name)?.ok_or(Errno::NOENT)?;
    let is = made.metadata()?;
    if let Some(mode) = mode.filter(|mode| is.mode() & 0o7777 != mode & 0o7777) {
        std::fs::set_permissions(by_name(&made), Permissions::from_mode(mode & 0o7777))?;
    }
    made.metadata()
}

/// [`make`] in the staging directory, which nobody else can reach. What an attempt that was cut
/// short has left there goes first.
fn make_apart(
    root: &Root,
    place: &Place,
    mode: Option<u32>,
    make: Make<'_>,
) -> std::io::Result<Option<Fingerprint>> {
    if place.look()?.is_some() {
        return Err(Errno::EXIST.into());
    }
    let home = make_staging(root).map_err(|_| Errno::NOENT)?;
    let name = format!("made-{:032x}", checksum(&place.beside(&place.name))).into_bytes();
    remove(&home, &name)?;
    make(&home, &name)?;
    let made = finished(&home, &name, mode)?;
    match rename_new((&home, &name), (&place.directory, &place.name)) {
        Ok(()) => return Ok(Some(fingerprint(&made))),
        Err(Errno::XDEV) => remove(&home, &name)?,
        Err(error) => {
            remove(&home, &name)?;
            return Err(error.into());
        }
    }
    make(&place.directory, &place.name)?;
    Ok(None)
}

/// Removes what has just been made, if it is there.
fn remove(home: &OwnedFd, name: &[u8]) -> rustix::io::Result<()> {
    match rustix::fs::unlinkat(home, name, AtFlags::empty()) {
        Err(Errno::ISDIR | Errno::PERM) => rustix::fs::unlinkat(home, name, AtFlags::REMOVEDIR),
        Err(Errno::NOENT) => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests;
