//! `poll` and `epoll_ctl` of `O_PATH` descriptors, which are not open for that.
//!
//! Invariants: all other descriptors are libc's business, files as well: what the kernel has behind
//! them, a directory, is as ready as a file is. A process without an `O_PATH` descriptor of ours
//! pays for one look at a word a descriptor. Not here: anything that waits, and `select`, which
//! takes an `O_PATH` descriptor for a ready one.

use std::ffi::{c_int, c_void};

use libc::{epoll_event, nfds_t, pollfd, sigset_t, size_t, timespec};

use crate::real::{answer, libc_call};
use crate::state::is_path;

/// The caller's descriptors.
///
/// # Safety
/// `list` must have `count` entries.
unsafe fn entries<'a>(list: *mut pollfd, count: nfds_t) -> &'a mut [pollfd] {
    if list.is_null() {
        return &mut [];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts_mut(list, count as usize) }
}

/// What `poll` answers once the paths among the descriptors are told to be none.
fn told(list: &mut [pollfd], ready: c_int) -> c_int {
    if ready < 0 {
        return ready;
    }
    for entry in list.iter_mut().filter(|entry| is_path(entry.fd)) {
        entry.revents = libc::POLLNVAL;
    }
    list.iter().filter(|entry| entry.revents != 0).count() as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn poll(list: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    type Function = unsafe extern "C" fn(*mut pollfd, nfds_t, c_int) -> c_int;
    // SAFETY: the caller promises the list.
    let entries = unsafe { entries(list, count) };
    if !entries.iter().any(|entry| is_path(entry.fd)) {
        return libc_call!(c"poll" as Function, -1, list, count, timeout);
    }
    told(entries, libc_call!(c"poll" as Function, -1, list, count, 0))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ppoll(
    list: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    type Function =
        unsafe extern "C" fn(*mut pollfd, nfds_t, *const timespec, *const sigset_t) -> c_int;
    // SAFETY: the caller promises the list.
    let entries = unsafe { entries(list, count) };
    if !entries.iter().any(|entry| is_path(entry.fd)) {
        return libc_call!(c"ppoll" as Function, -1, list, count, timeout, mask);
    }
    let now = timespec { tv_sec: 0, tv_nsec: 0 };
    told(entries, libc_call!(c"ppoll" as Function, -1, list, count, &raw const now, mask))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __poll_chk(
    list: *mut pollfd,
    count: nfds_t,
    timeout: c_int,
    room: size_t,
) -> c_int {
    if room / size_of::<pollfd>() < count as usize {
        // SAFETY: abort takes nothing and does not return.
        unsafe { libc::abort() }
    }
    // SAFETY: the same contract.
    unsafe { poll(list, count, timeout) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __ppoll_chk(
    list: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    room: size_t,
) -> c_int {
    if room / size_of::<pollfd>() < count as usize {
        // SAFETY: abort takes nothing and does not return.
        unsafe { libc::abort() }
    }
    // SAFETY: the same contract.
    unsafe { ppoll(list, count, timeout, mask) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_ctl(
    set: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    type Function = unsafe extern "C" fn(c_int, c_int, c_int, *mut c_void) -> c_int;
    if is_path(fd) {
        return answer(Err(libc::EBADF));
    }
    libc_call!(c"epoll_ctl" as Function, -1, set, operation, fd, event.cast())
}
