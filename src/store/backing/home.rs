//! The staging directory: where versions grow that nobody sees yet.
//!
//! It is `.terral` in the root, or `.terral-UID` where that is another user's; where each user has
//! a process of his own, the first for root and the second for another, for whom root has made it.
//! One is accepted only if it is ours and nobody else can write into it: who could would choose
//! what gets a name.
//!
//! Not here: what lies in it (`staged`).

use std::fs::{File, Permissions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use terral_format::{Error, ErrorKind, Result};

use super::STAGING;
use super::beneath::Root;

/// May be done by its owner only.
const PRIVATE: u32 = 0o700;
/// May be done by others: to make names there.
const OTHERS_WRITE: u32 = 0o022;

/// What it may be called, in order of preference.
pub(super) fn staging_names(root: &Root) -> Vec<Vec<u8>> {
    let of = |user: u32| [STAGING, format!("-{user}").as_bytes()].concat();
    match root.owner() {
        Some(0) => vec![STAGING.to_vec()],
        Some(user) => vec![of(user)],
        None => vec![STAGING.to_vec(), of(rustix::process::geteuid().as_raw())],
    }
}

/// Whether a name of the root is that of anybody's staging directory.
pub(super) fn is_staging(name: &[u8]) -> bool {
    let digits = |rest: &[u8]| !rest.is_empty() && rest.iter().all(u8::is_ascii_digit);
    let rest = name.strip_prefix(STAGING);
    rest.is_some_and(|rest| rest.is_empty() || rest.strip_prefix(b"-").is_some_and(digits))
}

/// Opens the staging directory of this name; `None` if there is none or it is not ours alone.
pub(super) fn open_own(root: &Root, name: &[u8]) -> rustix::io::Result<Option<OwnedFd>> {
    let Some(home) = root.directory(name)? else { return Ok(None) };
    Ok(is_own(root, &home)?.then_some(home))
}

/// Whether a directory is ours and nobody else can write into it.
fn is_own(root: &Root, home: &OwnedFd) -> rustix::io::Result<bool> {
    let found = rustix::fs::fstat(home)?;
    let shut = found.st_mode & OTHERS_WRITE == 0;
    let own = || found.st_uid == rustix::process::geteuid().as_raw();
    let taken_for = || root.owner().is_none() && owner_here(home) == Some(found.st_uid);
    Ok(shut && (own() || taken_for()))
}

/// Whom the file system takes us for: a server of files may give what we make to somebody else.
fn owner_here(home: &OwnedFd) -> Option<u32> {
    let name = format!(".owner-{}", std::process::id());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = rustix::fs::openat(home, &*name, flags, Mode::from_raw_mode(0o600)).ok()?;
    let _ = rustix::fs::unlinkat(home, &*name, AtFlags::empty());
    Some(rustix::fs::fstat(&made).ok()?.st_uid)
}

/// Finds the staging directory.
pub(super) fn find_staging(root: &Root) -> rustix::io::Result<Option<OwnedFd>> {
    for name in staging_names(root) {
        if let Some(home) = open_own(root, &name)? {
            return Ok(Some(home));
        }
    }
    Ok(None)
}

/// Finds the staging directory, or makes one.
pub(super) fn make_staging(root: &Root) -> Result<OwnedFd> {
    let fail = |error: Errno| root.failed("stage in", STAGING, error);
    let directory = root.open()?;
    if let Some(home) = find_staging(root).map_err(fail)? {
        return Ok(home);
    }
    for name in staging_names(root) {
        match rustix::fs::mkdirat(&directory, &*name, Mode::from_raw_mode(PRIVATE)) {
            Err(Errno::EXIST) => {
                // Another server of ours may just have made it.
                if let Some(home) = open_own(root, &name).map_err(fail)? {
                    return Ok(home);
                }
            }
            done => {
                done.map_err(fail)?;
                return open_made(root, (&directory, &name)).map_err(fail);
            }
        }
    }
    let own = staging_names(root).pop().unwrap_or_default();
    let what = "is not yours alone; have it removed, or take another directory";
    Err(Error::new(ErrorKind::Denied, format!("{} {what}", root.full(&own))))
}

/// Opens a staging directory that was just made; the umask may have closed it to us.
fn open_made(root: &Root, (at, name): (&OwnedFd, &[u8])) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = rustix::fs::openat(at, name, flags, Mode::empty())?;
    if !is_own(root, &made)? {
        return Err(Errno::PERM);
    }
    let made = File::from(made);
    if made.metadata().is_ok_and(|found| found.mode() & PRIVATE != PRIVATE) {
        let _ = made.set_permissions(Permissions::from_mode(PRIVATE));
    }
    Ok(made.into())
}
