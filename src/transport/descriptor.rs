//! Descriptors that the kernel keeps for us: a managed descriptor is a fresh open of one of the
//! instance's empty directories `open/K`, `K = description / 64`. Its kernel file offset carries
//! `nonce << 32 | description`, and once somebody else may have it, it holds an OFD read lock on
//! byte `description % 64`.
//!
//! Invariants: dup, fork, exec and descriptor passing keep offset and lock, so whoever holds the
//! descriptor can tell what it is, and anybody can ask whether one that was shared is left. A
//! missed `read` fails with EISDIR and a missed `write` with EBADF. Raw system calls only, no
//! allocation: these run inside interposed calls. Not here: what a description is, and when it
//! ends.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use terral_format::ids::DescriptionSlot;
use terral_format::local::geometry::DESCRIPTIONS_PER_DIRECTORY;

use crate::system::checked;
use crate::{kept, kernel, lock};

/// Longest path of an `open/K` directory, its terminating zero included: the instance's socket must
/// fit the 108 bytes of unix(7).
pub(crate) const PATH_BYTES: usize = 128;

/// What the kernel says of a descriptor that may be managed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its file offset: `nonce << 32 | description` if it is managed.
    pub position: u64,
    /// Device of the directory.
    pub dev: u64,
    /// Inode of the directory; the caller compares both with the instance's `open/K`.
    pub ino: u64,
}

impl Identity {
    /// The description it would be.
    pub fn description(&self) -> DescriptionSlot {
        DescriptionSlot(self.position as u32)
    }

    /// The nonce it would carry.
    pub fn nonce(&self) -> u32 {
        (self.position >> 32) as u32
    }
}

/// Opens a descriptor of `description` in `instance` and marks it with `nonce` (31 bits, not 0).
/// `flags` are those of `open` that it shall carry besides, in `F_GETFL` or `F_GETFD`.
///
/// # Errors
/// What open or lseek gave: EMFILE, or ENOENT if the server has not made `open/K`.
pub fn hold(
    instance: &Path,
    description: DescriptionSlot,
    nonce: u32,
    flags: i32,
) -> io::Result<RawFd> {
    let mut space = [0u8; PATH_BYTES];
    let path = directory(instance, description.0 / DESCRIPTIONS_PER_DIRECTORY, &mut space)?;
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | flags;
    // SAFETY: `path` is a string with its zero, and openat only reads it.
    let fd = unsafe { kernel::enter()(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0) };
    let fd = checked(fd)? as RawFd;
    let marked = mark(fd, description, nonce);
    if let Err(error) = marked {
        // SAFETY: the descriptor was opened above and nobody else knows it.
        unsafe { kernel::enter()(libc::SYS_close, fd) };
        return Err(error);
    }
    Ok(fd)
}

fn mark(fd: RawFd, description: DescriptionSlot, nonce: u32) -> io::Result<()> {
    let position = (i64::from(nonce) << 32) | i64::from(description.0);
    // SAFETY: lseek touches no memory of ours.
    checked(unsafe { kernel::enter()(libc::SYS_lseek, fd, position, libc::SEEK_SET) }).map(drop)
}

/// Locks a descriptor of `description`, before somebody else can have it.
///
/// # Errors
/// What fcntl gave.
pub fn share(fd: RawFd, description: DescriptionSlot) -> io::Result<()> {
    lock::share(fd, (description.0 % DESCRIPTIONS_PER_DIRECTORY) as u8)
}

/// Whether a descriptor of `description` that was [`share`]d is left anywhere.
///
/// # Errors
/// What open or fcntl gave.
pub fn is_held(instance: &Path, description: DescriptionSlot) -> io::Result<bool> {
    let mut space = [0u8; PATH_BYTES];
    let path = directory(instance, description.0 / DESCRIPTIONS_PER_DIRECTORY, &mut space)?;
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: `path` is a string with its zero, and openat only reads it.
    let fd = unsafe { kernel::enter()(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0) };
    // SAFETY: the descriptor was just opened, and is nobody else's.
    let directory = unsafe { OwnedFd::from_raw_fd(checked(fd)? as RawFd) };
    lock::probe(directory.as_fd(), (description.0 % DESCRIPTIONS_PER_DIRECTORY) as u8)
}

/// What `fd` is, if it is a directory; `None` for every other file.
///
/// # Errors
/// EBADF if it is not open.
pub fn identify(fd: RawFd) -> io::Result<Option<Identity>> {
    // SAFETY: stat is plain data; all zero is a value of it.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: fstat fills the struct it is given, which is ours.
    checked(unsafe { kernel::enter()(libc::SYS_fstat, fd, &raw mut stat) })?;
    if stat.st_mode & libc::S_IFMT != libc::S_IFDIR {
        return Ok(None);
    }
    // SAFETY: lseek touches no memory of ours.
    let position = unsafe { kernel::enter()(libc::SYS_lseek, fd, 0i64, libc::SEEK_CUR) };
    if position < 0 {
        return Ok(None);
    }
    Ok(Some(Identity { position: position as u64, dev: stat.st_dev, ino: stat.st_ino }))
}

/// Whether `found` is the directory that its position says, in `instance`.
pub fn belongs(instance: &Path, found: &Identity) -> bool {
    if found.nonce() == 0 {
        return false;
    }
    let mut space = [0u8; PATH_BYTES];
    let number = found.description().0 / DESCRIPTIONS_PER_DIRECTORY;
    let Ok(path) = directory(instance, number, &mut space) else { return false };
    // SAFETY: stat is plain data; all zero is a value of it.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the path has its zero and the struct is ours to be filled.
    let done = unsafe {
        kernel::enter()(libc::SYS_newfstatat, libc::AT_FDCWD, path.as_ptr(), &raw mut stat, 0)
    };
    done == 0 && stat.st_dev == found.dev && stat.st_ino == found.ino
}

/// `instance/open/number` in `space`, with its zero.
fn directory<'a>(
    instance: &Path,
    number: u32,
    space: &'a mut [u8; PATH_BYTES],
) -> io::Result<&'a CStr> {
    let mut digits = [0u8; 10];
    let mut first = digits.len();
    let mut rest = number;
    loop {
        first -= 1;
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    path(instance, &[b"/open/", &digits[first..], b"\0"], space)
}

/// `instance` and what comes after it, its zero included, in `space`.
pub(crate) fn path<'a>(
    instance: &Path,
    rest: &[&[u8]],
    space: &'a mut [u8; PATH_BYTES],
) -> io::Result<&'a CStr> {
    let mut end = 0;
    kept::reach(instance, |instance| {
        for part in [instance.as_os_str().as_bytes()].iter().chain(rest) {
            let room = space.get_mut(end..end + part.len());
            let too_long = || io::Error::from_raw_os_error(libc::ENAMETOOLONG);
            room.ok_or_else(too_long)?.copy_from_slice(part);
            end += part.len();
        }
        io::Result::Ok(())
    })?;
    CStr::from_bytes_with_nul(&space[..end]).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::{AsFd, FromRawFd, OwnedFd};

    use super::{DescriptionSlot, belongs, hold, identify, share};
    use crate::lock::probe;

    #[test]
    fn a_descriptor_says_what_it_is_and_its_lock_lives_as_long() {
        let room = tempfile::tempdir_in("/dev/shm").expect("a directory");
        std::fs::create_dir_all(room.path().join("open/2")).expect("open/2");
        let slot = DescriptionSlot(2 * 64 + 5);
        let fd = hold(room.path(), slot, 0x7fff_fff1, libc::O_CLOEXEC).expect("a descriptor");
        // SAFETY: `hold` just opened it for us.
        let held = unsafe { OwnedFd::from_raw_fd(fd) };
        share(fd, slot).expect("a lock");

        let found = identify(fd).expect("open").expect("a directory");
        assert_eq!((found.description(), found.nonce()), (slot, 0x7fff_fff1));
        assert!(belongs(room.path(), &found));

        let outside = File::open(room.path().join("open/2")).expect("open/2");
        assert!(probe(outside.as_fd(), 5).expect("a probe"));
        assert!(!probe(outside.as_fd(), 6).expect("a probe"));
        let copy = held.try_clone().expect("a copy");
        drop(held);
        assert!(probe(outside.as_fd(), 5).expect("a probe"));
        drop(copy);
        assert!(!probe(outside.as_fd(), 5).expect("a probe"));
    }

    #[test]
    fn other_files_are_not_taken_for_ours() {
        let room = tempfile::tempdir_in("/dev/shm").expect("a directory");
        std::fs::create_dir_all(room.path().join("open/0")).expect("open/0");
        let plain = tempfile::tempfile().expect("a file");
        assert_eq!(identify(std::os::fd::AsRawFd::as_raw_fd(&plain)).expect("open"), None);
        let directory = File::open(room.path()).expect("a directory");
        let found = identify(std::os::fd::AsRawFd::as_raw_fd(&directory)).expect("open");
        assert!(!belongs(room.path(), &found.expect("a directory")));
    }
}
