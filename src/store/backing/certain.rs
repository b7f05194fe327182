//! What root changes, and where others may rename. A path says where something was when somebody
//! saw it: who may write to a directory on the way can have put something else there since, which
//! root would give away, or make everybody's.
//!
//! Invariant: where others may rename, a process of root's changes owner, permission bits and
//! attributes, and moves, nothing that is another object than the one that is known. What it does
//! for a user it does as him (`whom`), and needs none of this. Not here: that of many things
//! nothing is known, and that a number may come again (decision `users`).

use std::fs::{File, Metadata, Permissions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use terral_format::fingerprint::{Fingerprint, Object};

use super::attributes::{by_name, fingerprint};
use super::beneath::{Place, Root, look, split};
use super::whom;

/// May be done by others: to give and take names there.
const OTHERS_WRITE: u32 = 0o022;
const DIRECTORY: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

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

/// Whether what was found is another object than the one that is known, and that matters.
fn is_another(found: &Metadata, known: Option<Object>) -> bool {
    let other = known.is_some_and(|known| fingerprint(found).object() != known);
    whom::acts_as_root() && other
}

/// What root may change of what was found at a path: it, if it is not another object than the one
/// that is known, or what is there if nobody else can have put it there. Else nothing.
pub(super) fn certain(
    root: &Root,
    path: &[u8],
    found: File,
    known: Option<Object>,
) -> std::io::Result<Option<File>> {
    match path.is_empty() || !is_another(&found.metadata()?, known) {
        true => Ok(Some(found)),
        false => only_roots(root, path),
    }
}

/// The same of what is to be moved, as it is found there: whether it may be that.
pub(super) fn may_be(
    root: &Root,
    path: &[u8],
    found: &Metadata,
    known: Option<Object>,
) -> std::io::Result<bool> {
    Ok(!is_another(found, known) || only_roots(root, path)?.is_some())
}

/// Makes something with exactly these permission bits, if it has any. How it looks, if this process
/// is root's, and that is what was made: where others may rename it may be another one by now.
pub(super) fn make(
    place: &Place,
    mode: Option<u32>,
    make: impl FnOnce(&OwnedFd, &[u8]) -> rustix::io::Result<()>,
) -> std::io::Result<Option<Fingerprint>> {
    make(&place.directory, &place.name)?;
    if mode.is_none() && !whom::is_roots() {
        return Ok(None);
    }
    let made = finished(&place.directory, &place.name, mode)?;
    let is_own = made.uid() == rustix::process::geteuid().as_raw();
    let is_certain = whom::is_roots() && is_own && is_roots_alone(&place.directory)?;
    Ok(is_certain.then(|| fingerprint(&made)))
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

#[cfg(test)]
mod tests;
