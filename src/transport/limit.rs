//! The limit on the size of files (`RLIMIT_FSIZE`), read once: a process's own is for the files it
//! means, and not for the segments that hold them.

use std::sync::atomic::{AtomicU64, Ordering};

use terral_format::{Error, Result};

use crate::kernel;
use crate::system::check;

/// No limit is read yet.
const UNREAD: u64 = u64::MAX - 1;

static BYTES: AtomicU64 = AtomicU64::new(UNREAD);

/// Longest file that this process may make, bytes; [`u64::MAX`] for any.
#[inline]
pub fn file_bytes() -> u64 {
    match BYTES.load(Ordering::Relaxed) {
        UNREAD => read(),
        bytes => bytes,
    }
}

#[cold]
fn read() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: 0 };
    let none = std::ptr::null::<libc::rlimit>();
    // SAFETY: the kernel fills the struct, or leaves it.
    unsafe {
        kernel::enter()(libc::SYS_prlimit64, 0, libc::RLIMIT_FSIZE, none, &raw mut limit);
    }
    BYTES.store(limit.rlim_cur, Ordering::Relaxed);
    limit.rlim_cur
}

/// The limit may be another one by now.
pub fn changed() {
    BYTES.store(UNREAD, Ordering::Relaxed);
}

/// For a server: as long as may be, and what is longer is an error and no signal.
///
/// # Errors
/// If a file may not have `needed` bytes.
pub fn raise(needed: u64) -> Result<()> {
    let set = |most: u64| {
        let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
        // SAFETY: the struct outlives the call.
        unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) == 0 }
    };
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel fills the struct; ignoring a signal touches no memory.
    let told = unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit)
    };
    check(told.into(), || "RLIMIT_FSIZE".into())?;
    if set(libc::RLIM_INFINITY) || limit.rlim_max >= needed && set(limit.rlim_max) {
        changed();
        return Ok(());
    }
    let context = format!(
        "files may have {} bytes at most (ulimit -f), {needed} are needed: raise the hard limit",
        limit.rlim_max
    );
    Err(Error { kind: terral_format::ErrorKind::TooLarge, errno: libc::EFBIG, context })
}
