//! Names that are given only where nothing has them, and names that change places: in one step
//! where the file system takes the flags of renameat2(2), which NFS, CephFS and most of FUSE do
//! not.
//!
//! Invariant: without the flags root's server replaces nothing of another user's that comes between
//! a look and a rename: where others make names, what is no directory gets its name by link(2), and
//! what cannot is refused. Two that it does not hold for: a user's own directory in which others
//! may write, where it is by look and rename, and root itself beside Terral. Not here: which names.

use std::fs::File;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::calls::{At, Calls, lacks_flags};
use super::own_way;

/// May be done by others: to make names there.
const OTHERS_WRITE: u32 = 0o022;

/// Who gives names, and how that can be done.
#[derive(Clone, Copy)]
pub(super) struct Naming {
    /// Whose alone is touched.
    pub(super) owner: Option<u32>,
    pub(super) calls: Calls,
}

/// Whether that is said where a name is given by another one, of what can have but one there: a
/// directory, or anything.
pub(super) fn lacks_links(error: Errno) -> bool {
    let of_links = matches!(error, Errno::PERM | Errno::ACCESS | Errno::MLINK | Errno::XDEV);
    of_links || lacks_flags(error)
}

impl Naming {
    /// Opens what is there only to look at it, links not followed; `None` if nothing is.
    ///
    /// # Errors
    /// [`Errno::PERM`] if it is not the owner's.
    pub(super) fn look(self, at: At<'_>) -> rustix::io::Result<Option<File>> {
        let Some(owner) = self.owner else { return look(at.0, at.1) };
        match own_way::open(at.0, at.1, OFlags::PATH, owner) {
            Ok(file) => Ok(Some(file.into())),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Renames unless `to` exists ([`Errno::EXIST`]).
    ///
    /// # Errors
    /// [`Errno::ACCESS`] where that cannot be done and nothing of another's be replaced.
    pub(super) fn rename_new(self, from: At<'_>, to: At<'_>) -> rustix::io::Result<()> {
        match (self.calls.rename)(from, to, RenameFlags::NOREPLACE) {
            Err(error) if lacks_flags(error) => {
                self.must_be_for_one(to.0)?;
                look_and_rename(from, to)
            }
            done => done,
        }
    }

    /// The same of something that may have both names for a moment, and keeps both if this is cut
    /// short: whoever does it again must know it by the first.
    pub(super) fn move_new(self, from: At<'_>, to: At<'_>) -> rustix::io::Result<()> {
        if self.name_new(from, to)? { (self.calls.unlink)(from) } else { Ok(()) }
    }

    /// The first half of that. Whether it has both names now, and is to be taken from the first.
    pub(super) fn name_new(self, from: At<'_>, to: At<'_>) -> rustix::io::Result<bool> {
        match (self.calls.rename)(from, to, RenameFlags::NOREPLACE) {
            Err(error) if lacks_flags(error) => {}
            done => return done.map(|()| false),
        }
        if self.must_be_for_one(to.0).is_ok() {
            return look_and_rename(from, to).map(|()| false);
        }
        match (self.calls.link)(from, to) {
            Ok(()) => Ok(true),
            Err(error) if lacks_links(error) => self.rename_new(from, to).map(|()| false),
            Err(error) => Err(error),
        }
    }

    /// Lets two names change places, if the file system can.
    ///
    /// # Errors
    /// As [`lacks_flags`] says, if it cannot.
    pub(super) fn exchange(self, one: At<'_>, other: At<'_>) -> rustix::io::Result<()> {
        (self.calls.rename)(one, other, RenameFlags::EXCHANGE)
    }

    /// Refuses a directory in which others make names, but for a user's own: in that one he may
    /// take away what they make.
    ///
    /// In all others only servers of one user give names, each directory's from one of them at a
    /// time: what is not there at a look is not there at the rename.
    pub(super) fn must_be_for_one(self, directory: &OwnedFd) -> rustix::io::Result<()> {
        let is_users_own = |owner: u32| {
            Ok::<_, Errno>(owner != 0 && rustix::fs::fstat(directory)?.st_uid == owner)
        };
        match self.owner {
            Some(owner) if self.is_shared(directory)? && !is_users_own(owner)? => {
                Err(Errno::ACCESS)
            }
            _ => Ok(()),
        }
    }

    /// Whether others than the users of this server make names there, and are to find them again.
    fn is_shared(self, directory: &OwnedFd) -> rustix::io::Result<bool> {
        Ok(self.owner.is_some() && rustix::fs::fstat(directory)?.st_mode & OTHERS_WRITE != 0)
    }
}

/// Not in one step.
fn look_and_rename(from: At<'_>, to: At<'_>) -> rustix::io::Result<()> {
    match rustix::fs::statat(to.0, to.1, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => Err(Errno::EXIST),
        Err(Errno::NOENT) => rustix::fs::renameat(from.0, from.1, to.0, to.1),
        Err(error) => Err(error),
    }
}

/// Opens `name` only to look at it, links not followed.
pub(super) fn look(directory: &OwnedFd, name: &[u8]) -> rustix::io::Result<Option<File>> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(directory, name, flags, Mode::empty()) {
        Ok(file) => Ok(Some(file.into())),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
