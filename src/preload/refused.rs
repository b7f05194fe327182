//! Calls that are not offered on managed files, each with the errno that makes callers do it the
//! plain way or tell their user: copies inside the kernel, links, extended attributes, watches.
//!
//! Invariants: nothing here ever succeeds on a managed name or descriptor. Not here: anything that
//! is served.

use std::ffi::{c_char, c_int, c_uint, c_void};

use libc::{dev_t, mode_t, off_t, size_t, ssize_t};

use crate::path::{by_fd, by_path};
use crate::real::{Served, alias, kernel, set_errno};
use crate::{connect, state};

/// Whether either descriptor is managed.
fn either(one: c_int, other: c_int) -> bool {
    state::managed(one).is_some() || state::managed(other).is_some()
}

fn refuse<T: From<i8>>(errno: c_int) -> T {
    set_errno(errno);
    T::from(-1)
}

// cp and cat fall back to read and write upon EXDEV.
#[unsafe(no_mangle)]
unsafe extern "C" fn copy_file_range(
    from: c_int,
    from_at: *mut off_t,
    to: c_int,
    to_at: *mut off_t,
    count: size_t,
    flags: c_uint,
) -> ssize_t {
    if either(from, to) {
        return refuse(libc::EXDEV);
    }
    kernel!(SYS_copy_file_range, from, from_at, to, to_at, count, flags)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendfile(to: c_int, from: c_int, at: *mut off_t, count: size_t) -> ssize_t {
    if either(from, to) {
        return refuse(libc::EINVAL);
    }
    kernel!(SYS_sendfile, to, from, at, count)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn splice(
    from: c_int,
    from_at: *mut off_t,
    to: c_int,
    to_at: *mut off_t,
    count: size_t,
    flags: c_uint,
) -> ssize_t {
    if either(from, to) {
        return refuse(libc::EINVAL);
    }
    kernel!(SYS_splice, from, from_at, to, to_at, count, flags)
}

// In the kernel it would move the very offset that says what the descriptor is.
#[unsafe(no_mangle)]
unsafe extern "C" fn getdents64(fd: c_int, buffer: *mut c_void, count: size_t) -> ssize_t {
    by_fd!(fd, kernel!(SYS_getdents64, fd, buffer, count), |held| {
        let _ = &held;
        Err(libc::EOPNOTSUPP)
    })
}

/// EINVAL for a name that exists, as none is a symbolic link.
fn not_a_link(path: &[u8]) -> Served<ssize_t> {
    connect::with(|client| client.stat(path)).and(Err(libc::EINVAL))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn readlink(path: *const c_char, buffer: *mut c_char, room: size_t) -> ssize_t {
    by_path!(
        libc::AT_FDCWD,
        path,
        |at, path| kernel!(SYS_readlinkat, at, path, buffer, room),
        |name| not_a_link(name.path)
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn readlinkat(
    dirfd: c_int,
    path: *const c_char,
    buffer: *mut c_char,
    room: size_t,
) -> ssize_t {
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
unsafe extern "C" fn mknodat(
    dirfd: c_int,
    path: *const c_char,
    mode: mode_t,
    device: dev_t,
) -> c_int {
    by_path!(dirfd, path, |at, path| kernel!(SYS_mknodat, at, path, mode, device), |_name| {
        Err(libc::EPERM)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mknod(path: *const c_char, mode: mode_t, device: dev_t) -> c_int {
    // SAFETY: the same contract.
    unsafe { mknodat(libc::AT_FDCWD, path, mode, device) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mkfifoat(dirfd: c_int, path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the same contract.
    unsafe { mknodat(dirfd, path, mode | libc::S_IFIFO, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mkfifo(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the same contract.
    unsafe { mkfifoat(libc::AT_FDCWD, path, mode) }
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

/// Extended attributes, by path and by descriptor: `name(first; rest) = SYS_call`.
macro_rules! no_attributes {
    ($($name:ident = $call:ident ($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(path: *const c_char, $($argument: $type),*) -> $answer {
            by_path!(
                libc::AT_FDCWD,
                path,
                |_at, path| kernel!($call, path, $($argument),*),
                |_name| Err(libc::EOPNOTSUPP)
            )
        }
    )*};
    (by descriptor $($name:ident = $call:ident ($($argument:ident: $type:ty),*)
        -> $answer:ty;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(fd: c_int, $($argument: $type),*) -> $answer {
            by_fd!(fd, kernel!($call, fd, $($argument),*), |held| {
                let _ = &held;
                Err(libc::EOPNOTSUPP)
            })
        }
    )*};
}

no_attributes! {
    getxattr = SYS_getxattr (name: *const c_char, value: *mut c_void, room: size_t) -> ssize_t;
    lgetxattr = SYS_lgetxattr (name: *const c_char, value: *mut c_void, room: size_t) -> ssize_t;
    listxattr = SYS_listxattr (list: *mut c_char, room: size_t) -> ssize_t;
    llistxattr = SYS_llistxattr (list: *mut c_char, room: size_t) -> ssize_t;
    setxattr = SYS_setxattr (
        name: *const c_char, value: *const c_void, length: size_t, flags: c_int
    ) -> c_int;
    lsetxattr = SYS_lsetxattr (
        name: *const c_char, value: *const c_void, length: size_t, flags: c_int
    ) -> c_int;
    removexattr = SYS_removexattr (name: *const c_char) -> c_int;
    lremovexattr = SYS_lremovexattr (name: *const c_char) -> c_int;
}

no_attributes! {
    by descriptor
    fgetxattr = SYS_fgetxattr (name: *const c_char, value: *mut c_void, room: size_t) -> ssize_t;
    flistxattr = SYS_flistxattr (list: *mut c_char, room: size_t) -> ssize_t;
    fsetxattr = SYS_fsetxattr (
        name: *const c_char, value: *const c_void, length: size_t, flags: c_int
    ) -> c_int;
    fremovexattr = SYS_fremovexattr (name: *const c_char) -> c_int;
}

alias! {
    sendfile64 = sendfile as (to: c_int, from: c_int, at: *mut off_t, count: size_t) -> ssize_t;
}
