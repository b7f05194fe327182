//! Numbers of our descriptors: out of the way of programs that count on low ones.
//!
//! The first descriptor up there makes the kernel enlarge the process's table. While threads share
//! that table it waits for all processors to have passed through the scheduler
//! (`expand_fdtable` calls `synchronize_rcu`): 6 to 30 ms where ranks of MPI wait without sleeping.
//! So the table is made large enough while the process has one thread.

use std::ffi::c_int;
use std::os::fd::RawFd;

use crate::kernel;

/// The lowest number.
const HIGH: c_int = 512;

/// `fd` a second time, at a high number and closed by an exec; `None` where the limit of open files
/// leaves none.
#[must_use]
pub fn again(fd: RawFd) -> Option<RawFd> {
    // SAFETY: no memory is passed.
    let high = unsafe { kernel::enter()(libc::SYS_fcntl, fd, libc::F_DUPFD_CLOEXEC, HIGH) };
    (high >= 0).then_some(high as RawFd)
}

/// Has the table enlarged; to be called before there are threads. Does nothing where no standard
/// stream is open.
pub fn prepare() {
    if let Some(fd) = (0..3).find_map(again) {
        // SAFETY: just made here, and nobody else knows it.
        unsafe { kernel::enter()(libc::SYS_close, fd) };
    }
}
