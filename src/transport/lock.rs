//! Locks that the kernel keeps for an open file and lets go with its last descriptor, however its
//! holder ends (OFD locks, fcntl(2)). Asking for one takes nothing, so that nobody who only looks
//! is ever in the way. Raw system calls only, no allocation: these run inside interposed calls.
//! Not here: what a byte stands for.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use crate::kernel;
use crate::system::checked;

/// Takes `byte` of `file` for its open description alone; whether it was free.
///
/// # Errors
/// What fcntl gave. `file` must be open for writing.
pub fn try_exclusive(file: &File, byte: u8) -> io::Result<bool> {
    match set(file.as_raw_fd(), byte, libc::F_WRLCK) {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Takes `byte` of `file` for this process alone, or gives it back, as programs do: by libc's
/// `fcntl`, for which the preload library may stand.
///
/// # Errors
/// What fcntl gave.
pub fn by_fcntl(file: &File, byte: u8, take: bool) -> io::Result<()> {
    let (kind, command) =
        if take { (libc::F_WRLCK, libc::F_SETLKW) } else { (libc::F_UNLCK, libc::F_SETLK) };
    let mut lock = lock_of(byte, kind);
    // SAFETY: the lock is a valid struct flock that outlives the call.
    checked(unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) }.into()).map(drop)
}

/// Takes `byte` of `fd` beside others who share it.
pub(crate) fn share(fd: RawFd, byte: u8) -> io::Result<()> {
    set(fd, byte, libc::F_RDLCK)
}

fn set(fd: RawFd, byte: u8, kind: i32) -> io::Result<()> {
    let mut lock = lock_of(byte, kind);
    // SAFETY: the lock is a valid struct flock that outlives the call.
    checked(unsafe { kernel::enter()(libc::SYS_fcntl, fd, libc::F_OFD_SETLK, &raw mut lock) })?;
    Ok(())
}

/// Whether a lock on `byte` of this file lives anywhere, other than through `file` itself.
///
/// # Errors
/// What fcntl gave.
pub fn probe(file: BorrowedFd<'_>, byte: u8) -> io::Result<bool> {
    let mut lock = lock_of(byte, libc::F_WRLCK);
    let fd = file.as_raw_fd();
    // SAFETY: the lock is a valid struct flock that outlives the call.
    checked(unsafe { kernel::enter()(libc::SYS_fcntl, fd, libc::F_OFD_GETLK, &raw mut lock) })?;
    Ok(i32::from(lock.l_type) != libc::F_UNLCK)
}

fn lock_of(byte: u8, kind: i32) -> libc::flock {
    libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: i64::from(byte),
        l_len: 1,
        l_pid: 0,
    }
}
