//! Calls that are not offered on managed files, each with the errno that makes callers do it the
//! plain way or tell their user: watches and handles.
//!
//! Invariants: nothing here ever succeeds on a managed name or descriptor. Not here: anything that
//! is served.

use std::ffi::{c_char, c_int, c_void};

use crate::hook::{Last, by_path};
use crate::metadata::{of_name, without_name};
use crate::real::{answer, kernel};

#[unsafe(no_mangle)]
unsafe extern "C" fn inotify_add_watch(fd: c_int, path: *const c_char, mask: u32) -> c_int {
    by_path!(
        libc::AT_FDCWD,
        path,
        Last::Followed,
        |_at, path| kernel!(SYS_inotify_add_watch, fd, path, mask),
        |name| of_name(&name, Last::Followed).and(Err(libc::EOPNOTSUPP))
    )
}

/// The bits that Linux knows, among them those of `AT_HANDLE_…`.
const HANDLE: c_int = libc::AT_SYMLINK_FOLLOW | libc::AT_EMPTY_PATH | 0x203;

#[unsafe(no_mangle)]
unsafe extern "C" fn name_to_handle_at(
    dirfd: c_int,
    path: *const c_char,
    handle: *mut c_void,
    mount: *mut c_int,
    flags: c_int,
) -> c_int {
    let last = if flags & libc::AT_SYMLINK_FOLLOW != 0 { Last::Followed } else { Last::Itself };
    let refused = if flags & !HANDLE != 0 { libc::EINVAL } else { libc::EOPNOTSUPP };
    // SAFETY: the caller passes a string or null, as the function it means to call demands.
    if unsafe { without_name(dirfd, path, flags) }.is_some() {
        return answer(Err(refused));
    }
    by_path!(
        dirfd,
        path,
        last,
        |at, path| kernel!(SYS_name_to_handle_at, at, path, handle, mount, flags),
        |name| of_name(&name, last).and(Err(refused))
    )
}
