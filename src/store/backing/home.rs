//! The staging directory: where versions grow that nobody sees yet.
//!
//! It is `.terral` in the root, or `.terral-UID` where that is another user's. One is accepted only
//! if it is ours and nobody else can write into it: who could would choose what gets a name.
//!
//! Not here: what lies in it (`staged`).

use std::fs::{File, Permissions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use rustix::fs::{AtFlags, Gid, Mode, OFlags, RenameFlags, Uid};
use rustix::io::Errno;
use terral_format::{Error, ErrorKind, Result};

use super::STAGING;
use super::beneath::Root;

/// May be done by its owner only.
const PRIVATE: u32 = 0o700;
/// May be done by others: to make names there.
const OTHERS_WRITE: u32 = 0o022;

/// What it may be called, in order of preference.
pub(super) fn staging_names() -> [Vec<u8>; 2] {
    let own = format!("-{}", rustix::process::geteuid().as_raw());
    [STAGING.to_vec(), [STAGING, own.as_bytes()].concat()]
}

/// Whether a name of the root is that of anybody's staging directory.
pub(super) fn is_staging(name: &[u8]) -> bool {
    let digits = |rest: &[u8]| !rest.is_empty() && rest.iter().all(u8::is_ascii_digit);
    let rest = name.strip_prefix(STAGING);
    rest.is_some_and(|rest| rest.is_empty() || rest.strip_prefix(b"-").is_some_and(digits))
}

/// Opens the staging directory of this name; `None` if there is none or it is not ours alone.
pub(super) fn open_own(root: &OwnedFd, name: &[u8]) -> rustix::io::Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(root, name, flags, Mode::empty()) {
        Ok(home) => Ok(is_own(&home)?.then_some(home)),
        // Missing, a link or a file, or closed to us.
        Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR | Errno::ACCESS) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a directory is ours and nobody else can write into it.
fn is_own(home: &OwnedFd) -> rustix::io::Result<bool> {
    let found = rustix::fs::fstat(home)?;
    let shut = found.st_mode & OTHERS_WRITE == 0;
    let own = || found.st_uid == rustix::process::geteuid().as_raw();
    Ok(shut && (own() || owner_here(home) == Some(found.st_uid)))
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
pub(super) fn find_staging(root: &OwnedFd) -> rustix::io::Result<Option<OwnedFd>> {
    for name in staging_names() {
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
    if let Some(home) = find_staging(&directory).map_err(fail)? {
        return Ok(home);
    }
    for name in staging_names() {
        match rustix::fs::mkdirat(&directory, &*name, Mode::from_raw_mode(PRIVATE)) {
            Err(Errno::EXIST) => {
                // Another server of ours may just have made it.
                if let Some(home) = open_own(&directory, &name).map_err(fail)? {
                    return Ok(home);
                }
            }
            done => {
                done.map_err(fail)?;
                return open_made(&directory, &name).map_err(fail);
            }
        }
    }
    let [_, own] = staging_names();
    let what = "is not yours alone; have it removed, or take another directory";
    Err(Error::new(ErrorKind::Denied, format!("{} {what}", root.full(&own))))
}

/// Makes the staging directory of another user, with a sign in it: one who may not make names in
/// the root himself. For root only. `fresh`: random bits.
///
/// What becomes his was made by this call, in root's own staging directory, where nobody else can
/// put anything in its place: he may be one who may move directories of others to where his is
/// looked for.
///
/// # Errors
/// [`ErrorKind::Denied`] if somebody else has put something there.
pub(super) fn make_for(
    root: &Root,
    (user, group): (u32, u32),
    sign: &str,
    fresh: u64,
) -> Result<()> {
    let fail = |error: Errno| root.failed("stage in", STAGING, error);
    let directory = root.open()?;
    let name = [STAGING, format!("-{user}").as_bytes()].concat();
    let owner = (Some(Uid::from_raw(user)), Some(Gid::from_raw(group)));
    let signed = |home: &OwnedFd| -> rustix::io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // What is there already may be anything that he has put there: it stays as it is.
        let flags = flags.union(OFlags::EXCL);
        match rustix::fs::openat(home, sign, flags, Mode::from_raw_mode(0o600)) {
            Ok(made) => rustix::fs::fchown(&made, owner.0, owner.1),
            Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(error),
        }
    };
    match open_of(&directory, &name, user) {
        Ok(Some(home)) => return signed(&home).map_err(fail),
        Ok(None) => {}
        Err(()) => {
            let what = "is somebody else's; remove it";
            return Err(Error::new(ErrorKind::Denied, format!("{} {what}", root.full(&name))));
        }
    }
    let own = make_staging(root)?;
    let made = format!("for-{user}.{fresh:016x}").into_bytes();
    let begun = (|| {
        rustix::fs::mkdirat(&own, &*made, Mode::from_raw_mode(PRIVATE))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let home = rustix::fs::openat(&own, &*made, flags, Mode::empty())?;
        signed(&home)?;
        rustix::fs::fchown(&home, owner.0, owner.1)?;
        let flags = RenameFlags::NOREPLACE;
        rustix::fs::renameat_with(&own, &*made, &directory, &*name, flags)
    })();
    begun.map_err(|error| {
        // As it was; it is empty but for the sign.
        let _ = rustix::fs::unlinkat(
            &own,
            [&made, b"/".as_slice(), sign.as_bytes()].concat(),
            AtFlags::empty(),
        );
        let _ = rustix::fs::unlinkat(&own, &*made, AtFlags::REMOVEDIR);
        fail(error)
    })
}

/// The staging directory of a user, if it is there; nothing if there is none. The error: it is
/// something else, or another one's.
fn open_of(
    directory: &OwnedFd,
    name: &[u8],
    user: u32,
) -> std::result::Result<Option<OwnedFd>, ()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(directory, name, flags, Mode::empty()) {
        Ok(home) => {
            let found = rustix::fs::fstat(&home).map_err(drop)?;
            let is_his = found.st_uid == user && found.st_mode & OTHERS_WRITE == 0;
            if is_his { Ok(Some(home)) } else { Err(()) }
        }
        Err(Errno::NOENT) => Ok(None),
        Err(_) => Err(()),
    }
}

/// Removes it again with its sign, if nothing else is in it.
pub(super) fn remove_of(root: &Root, user: u32, sign: &str) -> Result<()> {
    let directory = root.open()?;
    let name = [STAGING, format!("-{user}").as_bytes()].concat();
    match remove_at(&directory, &name, user, sign) {
        Ok(()) | Err(Errno::NOTEMPTY | Errno::NOENT) => Ok(()),
        Err(error) => Err(root.failed("stage in", STAGING, error)),
    }
}

fn remove_at(directory: &OwnedFd, name: &[u8], user: u32, sign: &str) -> rustix::io::Result<()> {
    let Ok(Some(home)) = open_of(directory, name, user) else { return Ok(()) };
    let _ = rustix::fs::unlinkat(&home, sign, AtFlags::empty());
    rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR)
}

/// Opens a staging directory that was just made; the umask may have closed it to us.
fn open_made(root: &OwnedFd, name: &[u8]) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = rustix::fs::openat(root, name, flags, Mode::empty())?;
    if !is_own(&made)? {
        return Err(Errno::PERM);
    }
    let made = File::from(made);
    if made.metadata().is_ok_and(|found| found.mode() & PRIVATE != PRIVATE) {
        let _ = made.set_permissions(Permissions::from_mode(PRIVATE));
    }
    Ok(made.into())
}
