//! `mknod` and `mkfifo`: a regular file is made, as tar does before it sets attributes.
//!
//! Invariants: a device or a pipe under the prefix is refused with EPERM. Not here: `open`.

use std::ffi::{c_char, c_int};

use libc::{dev_t, mode_t};

use crate::hook::{Last, by_path};
use crate::links::check_new;
use crate::metadata::of_name;
use crate::path::Name;
use crate::real::{Served, kernel};
use crate::{close, open};

fn make(name: &Name<'_>, mode: mode_t) -> Served<c_int> {
    check_new(name)?;
    match mode & libc::S_IFMT {
        0 | libc::S_IFREG => {
            let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
            open::open_name(name, flags, mode & !libc::S_IFMT).map(|fd| {
                close::close_fd(fd);
                0
            })
        }
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
    unsafe { mknodat(dirfd, path, mode | libc::S_IFIFO, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mkfifo(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the same contract.
    unsafe { mkfifoat(libc::AT_FDCWD, path, mode) }
}
