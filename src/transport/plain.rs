//! Descriptors that do not say yet what they stand for: copies of one that a process keeps open, of
//! a directory of the instance. They cost a third of one that does ([`crate::descriptor`]), and are
//! made into such a one before anybody else can have them.
//!
//! An application may close the original and get its number for a file of its own, so all of them
//! stand at an offset that nothing else does: asking for it is the cheapest way to know one again.
//! No locks, no allocation: these run inside interposed calls. Not here: which file of a process a
//! number stands for, and threads that close it meanwhile.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use terral_format::ids::DescriptionSlot;

use crate::descriptor::{self, PATH_BYTES};
use crate::system::checked;
use crate::{high, kernel};

/// A process that opens no more files than this does without.
const FEW: u32 = 4;

const NONE: RawFd = -1;
/// It cannot be opened here: by another user, say.
const NEVER: RawFd = -2;

static ORIGINAL: AtomicI32 = AtomicI32::new(NONE);
static ASKED: AtomicU32 = AtomicU32::new(0);
/// The offset; 0 until there is one.
static MARK: AtomicU64 = AtomicU64::new(0);

/// Whether `fd` is one of them.
pub fn is_plain(fd: RawFd) -> bool {
    let mark = MARK.load(Ordering::Acquire);
    // SAFETY: no memory is passed.
    let seek = || unsafe { kernel::enter()(libc::SYS_lseek, fd, 0i64, libc::SEEK_CUR) };
    mark != 0 && fd >= 0 && seek() as u64 == mark
}

/// A new one; `None`: take one that says what it is.
pub fn copy(instance: &Path, close_on_exec: bool) -> Option<RawFd> {
    let known = ORIGINAL.load(Ordering::Acquire);
    let original = if is_plain(known) { known } else { begin(instance, known)? };
    let command = if close_on_exec { libc::F_DUPFD_CLOEXEC } else { libc::F_DUPFD };
    // SAFETY: no memory is passed.
    let fd = unsafe { kernel::enter()(libc::SYS_fcntl, original, command, 0) };
    checked(fd).ok().map(|fd| fd as RawFd)
}

#[cold]
fn begin(instance: &Path, known: RawFd) -> Option<RawFd> {
    if known == NEVER || ASKED.fetch_add(1, Ordering::Relaxed) < FEW {
        return None;
    }
    let opened = open(instance).unwrap_or(NEVER);
    let order = (Ordering::AcqRel, Ordering::Relaxed);
    if ORIGINAL.compare_exchange(known, opened, order.0, order.1).is_err() {
        close(opened);
        return None;
    }
    Some(opened).filter(|fd| *fd != NEVER)
}

fn open(instance: &Path) -> io::Result<RawFd> {
    let mut space = [0u8; PATH_BYTES];
    let path = descriptor::path(instance, &[b"/open\0"], &mut space)?;
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: `path` is a string with its zero, and openat only reads it.
    let low = unsafe { kernel::enter()(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0) };
    let low = checked(low)? as RawFd;
    let high = high::again(low).ok_or_else(io::Error::last_os_error);
    close(low);
    let high = high?;
    let new = (RandomState::new().hash_one(high) >> 2) | 1;
    let order = (Ordering::AcqRel, Ordering::Acquire);
    let mark = MARK.compare_exchange(0, new, order.0, order.1).map_or_else(|is| is, |_| new);
    // SAFETY: no memory is passed.
    let marked = unsafe { kernel::enter()(libc::SYS_lseek, high, mark as i64, libc::SEEK_SET) };
    checked(marked).inspect_err(|_| close(high))?;
    Ok(high)
}

fn close(fd: RawFd) {
    if fd >= 0 {
        // SAFETY: the callers opened it, and nobody else knows it.
        unsafe { kernel::enter()(libc::SYS_close, fd) };
    }
}

/// Makes `fd`, one of them, a descriptor of `description` as [`descriptor::hold`] gives it. No
/// other thread may close the number meanwhile.
///
/// # Errors
/// As of [`descriptor::hold`].
pub fn name(
    fd: RawFd,
    instance: &Path,
    description: DescriptionSlot,
    nonce: u32,
) -> io::Result<()> {
    let hold = || descriptor::hold(instance, description, nonce, libc::O_CLOEXEC);
    let held = hold().or_else(|error| {
        // One that was kept for this: who has no number left for a file has it as a reserve.
        let original = ORIGINAL.swap(NONE, Ordering::AcqRel);
        if error.raw_os_error() != Some(libc::EMFILE) || !is_plain(original) {
            return Err(error);
        }
        close(original);
        hold()
    })?;
    // SAFETY: no memory is passed; both numbers are of descriptors of ours.
    let done = unsafe {
        let flags = kernel::enter()(libc::SYS_fcntl, fd, libc::F_GETFD);
        let closes = flags >= 0 && flags & i64::from(libc::FD_CLOEXEC) != 0;
        let flags = if closes { libc::O_CLOEXEC } else { 0 };
        kernel::enter()(libc::SYS_dup3, held, fd, flags)
    };
    let done = checked(done).map(drop);
    close(held);
    done
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

    use super::{DescriptionSlot, copy, is_plain, name};
    use crate::descriptor::identify;

    #[test]
    fn a_plain_one_is_known_and_becomes_one_that_says_what_it_is() {
        let room = tempfile::tempdir_in("/dev/shm").expect("a directory");
        std::fs::create_dir_all(room.path().join("open/0")).expect("open/0");
        let fd = (0..9).find_map(|_| copy(room.path(), true)).expect("one");
        // SAFETY: `copy` just made it for us.
        let held = unsafe { OwnedFd::from_raw_fd(fd) };
        let other = File::open(room.path()).expect("a directory");
        assert!(is_plain(fd) && !is_plain(other.as_raw_fd()) && !is_plain(-1));
        name(fd, room.path(), DescriptionSlot(5), 77).expect("named");
        assert!(!is_plain(fd));
        let found = identify(fd).expect("open").expect("a directory");
        assert_eq!((found.description(), found.nonce()), (DescriptionSlot(5), 77));
        // SAFETY: fcntl(2) with a number of ours.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
        assert_eq!(flags, libc::FD_CLOEXEC, "as it was");
        drop(held);
    }
}
