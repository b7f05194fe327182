//! `mknod` and `mkfifo`: a regular file is made, as tar does before it sets attributes, a FIFO, or
//! a socket that nobody is bound to.
//!
//! Invariants: a device under the prefix is refused with EPERM. Not here: `open`.

use std::ffi::{c_char, c_int};

use libc::{dev_t, mode_t};
use terral_client::Kind;

use crate::hook::{Last, by_path};
use crate::links::check_new;
use crate::metadata::of_name;
use crate::path::Name;
use crate::real::{Served, kernel};
use crate::{close, connect, open};

fn make_file(name: &Name<'_>, mode: mode_t) -> Served<c_int> {
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
    open::open_name(name, flags, mode & !libc::S_IFMT).map(|fd| {
        close::close_fd(fd);
        0
    })
}

fn make_node(name: &Name<'_>, kind: Kind, mode: mode_t) -> Served<c_int> {
    let mode = open::masked(mode);
    connect::with(|client| client.make_node(name.path, kind, mode, b"")).map(|_| 0)
}

fn make(name: &Name<'_>, mode: mode_t) -> Served<c_int> {
    check_new(name)?;
    match mode & libc::S_IFMT {
        0 | libc::S_IFREG => make_file(name, mode),
        libc::S_IFIFO => make_node(name, Kind::Fifo, mode),
        libc::S_IFSOCK => make_node(name, Kind::Socket, mode),
        _ => match of_name(name, Last::Name) {
            Ok(_) => Err(libc::EEXIST),
            Err(libc::ENOENT) => Err(libc::EPERM),
            Err(errno) => Err(errno),
        },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mknodat(
    dirfd: c_int,
    path: *const c_char,
    mode: mode_t,
    device: dev_t,
) -> c_int {
    by_path!(
        dirfd,
        path,
        Last::Name,
        |at, path| kernel!(SYS_mknodat, at, path, mode, device),
        |name| make(&name, mode)
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mknod(path: *const c_char, mode: mode_t, device: dev_t) -> c_int {
    // SAFETY: the same contract.
    unsafe { mknodat(libc::AT_FDCWD, path, mode, device) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mkfifoat(dirfd: c_int, path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the same contract.
    unsafe { mknodat(dirfd, path, (mode & !libc::S_IFMT) | libc::S_IFIFO, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mkfifo(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the same contract.
    unsafe { mkfifoat(libc::AT_FDCWD, path, mode) }
}

/// What programs call that were built before glibc 2.33; the version says nothing on 64 bits.
#[unsafe(no_mangle)]
unsafe extern "C" fn __xmknod(
    _version: c_int,
    path: *const c_char,
    mode: mode_t,
    device: *const dev_t,
) -> c_int {
    // SAFETY: the same contract.
    unsafe { mknod(path, mode, *device) }
}

/// As [`__xmknod`].
#[unsafe(no_mangle)]
unsafe extern "C" fn __xmknodat(
    _version: c_int,
    dirfd: c_int,
    path: *const c_char,
    mode: mode_t,
    device: *const dev_t,
) -> c_int {
    // SAFETY: the same contract.
    unsafe { mknodat(dirfd, path, mode, *device) }
}
