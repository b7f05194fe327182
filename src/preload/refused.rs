//! Calls that are not offered on managed files, each with the errno that makes callers do it the
//! plain way or tell their user: watches.
//!
//! Invariants: nothing here ever succeeds on a managed name or descriptor. Not here: anything that
//! is served.

use std::ffi::{c_char, c_int};

use crate::hook::{Last, by_path};
use crate::metadata::of_name;
use crate::real::kernel;

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
