//! File systems that lack something, for tests: what the kernel looks at before it asks one stays.

use rustix::fs::{Access, AtFlags, RenameFlags};
use rustix::io::Errno;

use super::{At, Calls};

/// NFS, CephFS, bindfs.
pub(in super::super) const FLAGS: Calls = Calls { rename: without_flags, ..Calls::KERNEL };
/// One that only lets names change places.
pub(in super::super) const NOREPLACE: Calls = Calls { rename: without_noreplace, ..Calls::KERNEL };
/// One that only keeps what is there.
pub(in super::super) const EXCHANGE: Calls = Calls { rename: without_exchange, ..Calls::KERNEL };
/// BeeGFS: no file has names in two directories.
pub(in super::super) const LINKS: Calls =
    Calls { rename: without_flags, link: across, ..Calls::KERNEL };

fn refuse(
    from: At<'_>,
    to: At<'_>,
    how: RenameFlags,
    refused: RenameFlags,
) -> rustix::io::Result<()> {
    let there =
        |at: At<'_>| rustix::fs::accessat(at.0, at.1, Access::EXISTS, AtFlags::SYMLINK_NOFOLLOW);
    there(from)?;
    match how {
        RenameFlags::NOREPLACE if there(to).is_ok() => return Err(Errno::EXIST),
        RenameFlags::EXCHANGE => there(to)?,
        _ => {}
    }
    if refused.contains(how) { Err(Errno::INVAL) } else { (Calls::KERNEL.rename)(from, to, how) }
}

fn without_flags(from: At<'_>, to: At<'_>, how: RenameFlags) -> rustix::io::Result<()> {
    refuse(from, to, how, RenameFlags::NOREPLACE | RenameFlags::EXCHANGE)
}

fn without_noreplace(from: At<'_>, to: At<'_>, how: RenameFlags) -> rustix::io::Result<()> {
    refuse(from, to, how, RenameFlags::NOREPLACE)
}

fn without_exchange(from: At<'_>, to: At<'_>, how: RenameFlags) -> rustix::io::Result<()> {
    refuse(from, to, how, RenameFlags::EXCHANGE)
}

fn across(_: At<'_>, _: At<'_>) -> rustix::io::Result<()> {
    Err(Errno::XDEV)
}
