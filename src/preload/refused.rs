//! Calls that are not offered on managed files, each with the errno that makes callers do it the
//! plain way or tell their user: links, watches.
//!
//! Invariants: nothing here ever succeeds on a managed name or descriptor. Not here: anything that
//! is served.

use std::ffi::{CStr, c_char, c_int};

use libc::{size_t, ssize_t};

use crate::path::{by_path, known_name, standing_for};
use crate::real::{Served, kernel};
use crate::{connect, settings, state};

/// EINVAL for a name that exists, as none is a symbolic link.
fn not_a_link(path: &[u8]) -> Served<ssize_t> {
    connect::with(|client| client.stat(path)).and(Err(libc::EINVAL))
}

/// What the kernel's own link of a managed descriptor should say.
unsafe fn told_of(path: *const c_char, buffer: *mut c_char, room: usize) -> Option<ssize_t> {
    if path.is_null() || !settings::active() {
        return None;
    }
    // SAFETY: the callers promise a string.
    let held = standing_for(unsafe { CStr::from_ptr(path) }.to_bytes()).and_then(state::managed)?;
    let known = known_name(&held)?;
    let slash: &[u8] = if known.is_empty() { b"" } else { b"/" };
    let mut end = 0;
    for byte in [settings::prefix(), slash, known].into_iter().flatten().take(room) {
        // SAFETY: the callers promise `room` bytes.
        unsafe { *buffer.add(end) = *byte as c_char };
        end += 1;
    }
    Some(end as ssize_t)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn readlink(path: *const c_char, buffer: *mut c_char, room: size_t) -> ssize_t {
    // SAFETY: the same contract.
    unsafe { readlinkat(libc::AT_FDCWD, path, buffer, room) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn readlinkat(
    dirfd: c_int,
    path: *const c_char,
    buffer: *mut c_char,
    room: size_t,
) -> ssize_t {
    // SAFETY: the same contract.
    if let Some(length) = unsafe { told_of(path, buffer, room) } {
        return length;
    }
    by_path!(dirfd, path, |at, path| kernel!(SYS_readlinkat, at, path, buffer, room), |name| {
        not_a_link(name.path)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __readlink_chk(
    path: *const c_char,
    buffer: *mut c_char,
    count: size_t,
    _room: size_t,
) -> ssize_t {
    // SAFETY: the same contract as readlink.
    unsafe { readlink(path, buffer, count) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __readlinkat_chk(
    dirfd: c_int,
    path: *const c_char,
    buffer: *mut c_char,
    count: size_t,
    _room: size_t,
) -> ssize_t {
    // SAFETY: the same contract as readlinkat.
    unsafe { readlinkat(dirfd, path, buffer, count) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn symlinkat(to: *const c_char, dirfd: c_int, path: *const c_char) -> c_int {
    by_path!(dirfd, path, |at, path| kernel!(SYS_symlinkat, to, at, path), |_name| Err(libc::EPERM))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn symlink(to: *const c_char, path: *const c_char) -> c_int {
    // SAFETY: the same contract.
    unsafe { symlinkat(to, libc::AT_FDCWD, path) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn linkat(
    from_dirfd: c_int,
    from: *const c_char,
    to_dirfd: c_int,
    to: *const c_char,
    flags: c_int,
) -> c_int {
    by_path!(
        from_dirfd,
        from,
        |from_at, from| by_path!(
            to_dirfd,
            to,
            |to_at, to| kernel!(SYS_linkat, from_at, from, to_at, to, flags),
            |_name| Err(libc::EXDEV)
        ),
        |_name| Err(libc::EPERM)
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn link(from: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: the same contract.
    unsafe { linkat(libc::AT_FDCWD, from, libc::AT_FDCWD, to, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn inotify_add_watch(fd: c_int, path: *const c_char, mask: u32) -> c_int {
    by_path!(
        libc::AT_FDCWD,
        path,
        |_at, path| kernel!(SYS_inotify_add_watch, fd, path, mask),
        |_name| Err(libc::EOPNOTSUPP)
    )
}
