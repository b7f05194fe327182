//! The limit on the size of files, `RLIMIT_FSIZE`: a program's own is for the files it writes here.
//!
//! Invariants: it is read when it is first needed, and again after this process has set it; what
//! another process sets for this one is not seen. Not here: other limits.

use std::ffi::{c_int, c_uint};

use libc::{pid_t, rlimit};
use terral_client::limit;

use crate::real::{Served, alias, kernel};
use crate::state::Managed;

/// EFBIG, and the signal for it.
#[cold]
fn too_long() -> c_int {
    let (process, me): (c_int, c_int) = (kernel!(SYS_getpid), kernel!(SYS_gettid));
    let _: c_int = kernel!(SYS_tgkill, process, me, libc::SIGXFSZ);
    libc::EFBIG
}

/// How many of `count` bytes may be written at `offset`, or where `at` says.
#[inline]
pub fn allowed(count: usize, at: impl FnOnce() -> u64) -> Served<usize> {
    let most = limit::file_bytes();
    if most == libc::RLIM_INFINITY {
        return Ok(count);
    }
    match most.saturating_sub(at()) {
        0 => Err(too_long()),
        rest => Ok(count.min(usize::try_from(rest).unwrap_or(usize::MAX))),
    }
}

/// Whether a file of `now` bytes may become `size` bytes long.
pub fn check_growth(size: u64, now: impl FnOnce() -> Served<u64>) -> Served<()> {
    if size <= limit::file_bytes() || size <= now()? { Ok(()) } else { Err(too_long()) }
}

/// The same for an open file.
pub fn check_growth_of(managed: &Managed, size: u64) -> Served<()> {
    check_growth(size, || Ok(managed.file.size()))
}

fn limited(process: pid_t, which: c_uint, new: *const rlimit, old: *mut rlimit) -> c_int {
    let done: c_int = kernel!(SYS_prlimit64, process, which, new, old);
    limit::changed();
    done
}

#[unsafe(no_mangle)]
unsafe extern "C" fn setrlimit(which: c_uint, new: *const rlimit) -> c_int {
    limited(0, which, new, std::ptr::null_mut())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn prlimit(
    process: pid_t,
    which: c_uint,
    new: *const rlimit,
    old: *mut rlimit,
) -> c_int {
    limited(process, which, new, old)
}

alias! {
    setrlimit64 = setrlimit as (which: c_uint, new: *const rlimit) -> c_int;
    prlimit64 = prlimit as (process: pid_t, which: c_uint, new: *const rlimit, old: *mut rlimit)
        -> c_int;
}
