//! A directory that becomes a user's where it is made, for file systems that give no name only
//! where nothing has it (`exclusive`). For processes of root's only.
//!
//! It is made as root's with bits that nothing else has, then it is given to him, then it gets his
//! bits; so whoever comes next knows one over which root was killed, and goes on with it. Nobody
//! gives names in the directory it is in but root.
//!
//! Invariant: until it is his it is root's and closed, and no server takes it for something that is
//! there. Not here: those that are made elsewhere and get their name whole (`given`).

use std::fs::File;
use std::os::fd::OwnedFd;

use rustix::fs::{FileType, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;

use super::attributes::by_name;
use super::own_way;

/// May be done by its owner only.
pub(super) const PRIVATE: u32 = 0o700;
/// What a directory is made with. No mask takes it off, and nobody makes one to write in and not
/// to search.
pub(super) const BEGUN: u32 = 0o1200;
/// All that mkdir(2) gives.
const BITS: u32 = 0o1777;
/// To open what is looked at already.
const ANEW: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A user: his number, and his group's.
pub type Owner = (u32, u32);

pub(super) fn is_given(file: &OwnedFd, (user, group): Owner) -> rustix::io::Result<()> {
    rustix::fs::fchown(file, Some(Uid::from_raw(user)), Some(Gid::from_raw(group)))
}

/// Whether something right below the root is a directory that is not its user's yet.
pub(super) fn is_being_given(there: &File) -> rustix::io::Result<bool> {
    let found = rustix::fs::fstat(there)?;
    if found.st_uid != 0 || !is_begun(&found) {
        return Ok(false);
    }
    match is_empty(there) {
        // Who may not look takes it for what it seems; and it may be gone.
        Err(Errno::ACCESS | Errno::PERM | Errno::NOENT) => Ok(true),
        empty => empty,
    }
}

fn is_begun(found: &Stat) -> bool {
    FileType::from_raw_mode(found.st_mode).is_dir() && found.st_mode & BITS == BEGUN
}

fn is_empty(directory: &File) -> rustix::io::Result<bool> {
    let opened = rustix::fs::open(by_name(directory), ANEW, Mode::empty())?;
    for entry in rustix::fs::Dir::new(opened)? {
        if !matches!(entry?.file_name().to_bytes(), b"." | b"..") {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Makes it, unless something has the name ([`Errno::EXIST`]).
pub(super) fn make(
    (directory, name): (&OwnedFd, &[u8]),
    owner: Owner,
    prepare: impl Fn(&OwnedFd) -> rustix::io::Result<()>,
) -> rustix::io::Result<()> {
    rustix::fs::mkdirat(directory, name, Mode::from_raw_mode(BEGUN))?;
    // It may be his already: another process of root's may have gone on with it.
    let there = File::from(own_way::look(directory, name)?);
    let is = rustix::fs::fstat(&there)?.st_uid;
    if is == 0 || is == owner.0 { go_on(&there, owner, prepare) } else { Err(Errno::PERM) }
}

/// Goes on with one that is there, if that is what it is: one that root was killed over, or that
/// another process of root's is making. Whether it was.
pub(super) fn finish(
    (directory, name): (&OwnedFd, &[u8]),
    owner: Owner,
    may_have_some: bool,
    prepare: impl Fn(&OwnedFd) -> rustix::io::Result<()>,
) -> rustix::io::Result<bool> {
    let there = match own_way::look(directory, name) {
        // Nothing, or another file system.
        Err(Errno::NOENT | Errno::PERM) => return Ok(false),
        there => File::from(there?),
    };
    let found = rustix::fs::fstat(&there)?;
    let is_his = found.st_uid == owner.0;
    if !is_begun(&found) || !(is_his || found.st_uid == 0) {
        return Ok(false);
    }
    // What cannot be read may be full, and root's: it is given to nobody.
    if !(is_his || may_have_some || is_empty(&there)?) {
        return Ok(false);
    }
    go_on(&there, owner, prepare)?;
    Ok(true)
}

/// Another one may be doing the same, and he has it as soon as it is his: nothing is done to it
/// that was done.
fn go_on(
    there: &File,
    owner: Owner,
    prepare: impl Fn(&OwnedFd) -> rustix::io::Result<()>,
) -> rustix::io::Result<()> {
    let made = rustix::fs::open(by_name(there), ANEW, Mode::empty())?;
    let begun = rustix::fs::fstat(&made)?.st_mode;
    prepare(&made)?;
    if rustix::fs::fstat(&made)?.st_uid == 0 {
        is_given(&made, owner)?;
    }
    if rustix::fs::fstat(&made)?.st_mode == begun {
        rustix::fs::fchmod(&made, Mode::from_raw_mode(PRIVATE))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
