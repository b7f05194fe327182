//! The system calls in which file systems differ, so that tests are on any of them. Not here: what
//! is done where one is refused (`exclusive`).

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, RenameFlags};
use rustix::io::Errno;

/// A name in an open directory.
pub(super) type At<'a> = (&'a OwnedFd, &'a [u8]);

/// What file systems differ in.
#[derive(Clone, Copy)]
pub(super) struct Calls {
    /// renameat2(2).
    pub(super) rename: fn(At<'_>, At<'_>, RenameFlags) -> rustix::io::Result<()>,
    /// linkat(2).
    pub(super) link: fn(At<'_>, At<'_>) -> rustix::io::Result<()>,
    /// unlinkat(2), of no directory.
    pub(super) unlink: fn(At<'_>) -> rustix::io::Result<()>,
}

impl Calls {
    /// The kernel's own.
    pub(super) const KERNEL: Calls = Calls {
        rename: |from, to, how| rustix::fs::renameat_with(from.0, from.1, to.0, to.1, how),
        link: |from, to| rustix::fs::linkat(from.0, from.1, to.0, to.1, AtFlags::empty()),
        unlink: |at| rustix::fs::unlinkat(at.0, at.1, AtFlags::empty()),
    };
}

/// Whether that is said of flags which the file system does not know.
pub(super) fn lacks_flags(error: Errno) -> bool {
    matches!(error, Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP)
}

#[cfg(test)]
pub(super) mod without;
