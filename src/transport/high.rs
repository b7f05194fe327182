//! Numbers of our descriptors: out of the way of programs that count on low ones.
//!
//! The first descriptor up there makes the kernel enlarge the process's table. While threads share
//! that table it waits for all processors to have passed through the scheduler
//! (`expand_fdtable` calls `synchronize_rcu`): 6 to 30 ms where ranks of MPI wait without sleeping.
//! So the table is made large enough while the process has one thread; where libraries have started
//! some as they were loaded, as late as it is needed.

use std::ffi::{CStr, c_int};
use std::os::fd::RawFd;

use crate::kernel;

/// The lowest number.
const HIGH: c_int = 512;
/// Has a directory for each thread (proc(5)).
const THREADS: &CStr = c"/proc/self/task";
/// Links of one that has one directory in it.
const ONE: libc::nlink_t = 3;

/// `fd` a second time, at a high number and closed by an exec; `None` where the limit of open files
/// leaves none.
#[must_use]
pub fn again(fd: RawFd) -> Option<RawFd> {
    // SAFETY: no memory is passed.
    let high = unsafe { kernel::enter()(libc::SYS_fcntl, fd, libc::F_DUPFD_CLOEXEC, HIGH) };
    (high >= 0).then_some(high as RawFd)
}

fn has_one_thread() -> bool {
    // SAFETY: stat is plain data; all zero is a value of it.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    let flags = 0;
    // SAFETY: a path with its zero, and a struct of our own that the call fills.
    let done = unsafe {
        let into = &raw mut found;
        kernel::enter()(libc::SYS_newfstatat, libc::AT_FDCWD, THREADS.as_ptr(), into, flags)
    };
    done == 0 && found.st_nlink == ONE
}

/// Has the table enlarged, if the process has one thread. Does nothing where no standard stream is
/// open.
pub fn prepare() {
    if !has_one_thread() {
        return;
    }
    if let Some(fd) = (0..3).find_map(again) {
        // SAFETY: just made here, and nobody else knows it.
        unsafe { kernel::enter()(libc::SYS_close, fd) };
    }
}

#[cfg(test)]
mod tests {
    use super::has_one_thread;

    #[test]
    fn threads_are_seen() {
        // The harness has one beside this.
        assert!(!has_one_thread());
    }
}
