//! An owner's own way: what a process of one of several users touches, root or another. From the
//! root on each directory is opened in the one before it, and is looked at while it is open: first
//! it is root's, and nobody else gives or takes the names of what is root's in it; then, for
//! another user than root, his own, and nothing but his. So a path means what it meant when it was
//! heard of, as far as root and he do not change that. Another file system, which a user may have
//! mounted over what is his and which says what he likes, or nothing, is not entered, nor asked
//! whose it is.
//!
//! Invariant: no descriptor comes out of here but of what is the owner's, of root's directories
//! that lead there, and of what is another's only to look whose it is ([`look`]). Not here: what is
//! done with them, and processes of who is alone.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::attributes::by_name;

/// May be done by others: to give and take names there.
const OTHERS_WRITE: u32 = 0o022;
/// But not those of what is somebody else's.
const STICKY: u32 = 0o1000;
const LOOK: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Opens a name of an open directory, on the same file system. It takes Linux 5.6.
fn open_in(directory: &OwnedFd, name: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let stays = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
    let name = if name.is_empty() { b"." } else { name };
    match rustix::fs::openat2(directory, name, flags, Mode::empty(), stays) {
        Err(Errno::XDEV) => Err(Errno::PERM),
        // Of a directory that was asked for: a link is there.
        Err(Errno::LOOP) if flags.contains(OFlags::DIRECTORY) => Err(Errno::NOTDIR),
        opened => opened,
    }
}

/// Refuses what is not this owner's.
pub(super) fn must_be_his(there: impl AsFd, owner: u32) -> rustix::io::Result<()> {
    match rustix::fs::fstat(there)?.st_uid {
        is if is == owner => Ok(()),
        _ => Err(Errno::PERM),
    }
}

/// Refuses a directory that is neither root's, where others may not rename what is root's, nor,
/// from `below_his` own on at the latest, the owner's. Whether it is his.
fn passes(directory: &OwnedFd, owner: u32, below_his: bool) -> rustix::io::Result<bool> {
    let found = rustix::fs::fstat(directory)?;
    let shut = found.st_mode & OTHERS_WRITE == 0 || found.st_mode & STICKY != 0;
    match found.st_uid {
        0 if shut && (owner == 0 || !below_his) => Ok(owner == 0),
        is if is == owner && owner != 0 => Ok(true),
        _ => Err(Errno::PERM),
    }
}

/// Opens the directory of this path below `root`, to look for names in it.
///
/// # Errors
/// [`Errno::PERM`] if that is not on the owner's own way; [`Errno::NOTDIR`] for a link.
pub(super) fn way(root: &OwnedFd, path: &[u8], owner: u32) -> rustix::io::Result<OwnedFd> {
    let flags = LOOK.union(OFlags::DIRECTORY);
    let mut at = open_in(root, b".", flags)?;
    let mut below_his = passes(&at, owner, false)?;
    for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
        if name == b".." {
            return Err(Errno::XDEV);
        }
        at = open_in(&at, name, flags)?;
        below_his = passes(&at, owner, below_his)?;
    }
    Ok(at)
}

/// What has this name in a directory of [`way`], whosever it is: only to look at that.
pub(super) fn look(directory: &OwnedFd, name: &[u8]) -> rustix::io::Result<OwnedFd> {
    open_in(directory, name, LOOK)
}

/// Opens what has this name there, if it is the owner's.
///
/// # Errors
/// [`Errno::PERM`] if it is not.
pub(super) fn open(
    directory: &OwnedFd,
    name: &[u8],
    flags: OFlags,
    owner: u32,
) -> rustix::io::Result<OwnedFd> {
    let there = look(directory, name)?;
    must_be_his(&there, owner)?;
    if flags.contains(OFlags::PATH) && !flags.contains(OFlags::DIRECTORY) {
        return Ok(there);
    }
    if rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&there)?.st_mode).is_symlink() {
        let wants_directory = flags.contains(OFlags::DIRECTORY);
        return Err(if wants_directory { Errno::NOTDIR } else { Errno::LOOP });
    }
    // What was looked at, and not what has the name by now.
    let flags = flags.difference(OFlags::NOFOLLOW) | OFlags::CLOEXEC | OFlags::NONBLOCK;
    rustix::fs::open(by_name(&there.into()), flags, Mode::empty())
}

/// Refuses a root that is not root's, or in which others may make names: they could take those that
/// are made there.
pub(super) fn must_be_shut(root: &OwnedFd) -> rustix::io::Result<()> {
    let found = rustix::fs::fstat(root)?;
    // So that it is known here whether the kernel can do what `way` takes.
    way(root, b"", 0)?;
    match found.st_mode & OTHERS_WRITE {
        0 => Ok(()),
        _ => Err(Errno::PERM),
    }
}

/// Refuses a name that somebody else's has.
///
/// # Errors
/// [`Errno::PERM`].
pub(super) fn must_be_free(directory: &OwnedFd, name: &[u8], owner: u32) -> rustix::io::Result<()> {
    match look(directory, name) {
        Ok(there) => must_be_his(&there, owner),
        Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
