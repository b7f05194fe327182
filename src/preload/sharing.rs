//! Descriptors that others come to have: another process, or another number of this one.
//!
//! Invariants: a descriptor of ours that somebody else may have, too, is locked, so that the kernel
//! can say who is left (see `terral_transport::descriptor`). One that never left its number needs
//! no lock: its process closes it, or dies.
//! Not here: copies of numbers (`close`), what is sent over sockets (`sockets`), and programs that
//! replace their own process (`exec`).

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::heap::pthread_atfork;
use crate::real::libc_call;
use crate::state;

/// Locks all descriptors of ours that are not locked yet.
pub fn all() {
    for fd in state::managed_between(0, c_uint::MAX) {
        if let Some(held) = state::known(fd) {
            held.share(fd);
        }
    }
}

extern "C" fn before_fork() {
    all();
}

/// Other threads of the parent may have opened and closed some in between: the kernel copies first
/// the descriptors and then the memory, so what a number stands for here may be what it came to
/// stand for there. What is locked here is locked for the parent, too: they share it. One that
/// still says nothing was opened while the fork was under way, and is the parent's alone.
extern "C" fn in_child() {
    for fd in state::managed_between(0, c_uint::MAX) {
        match state::known(fd) {
            Some(held) if held.is_at(fd) && !held.standing.is_new() => held.share(fd),
            _ => drop(state::take(fd)),
        }
    }
}

/// From now on no child is forked with a descriptor that is not locked. To be called after
/// [`crate::heap::watch_forks`]: what was asked for last is done first, and this may use the heap.
pub fn watch_forks() {
    // SAFETY: the function is there as long as the process.
    unsafe { pthread_atfork(Some(before_fork), None, Some(in_child)) };
}

// Children that libc makes without a call that anybody could stand for.

#[unsafe(no_mangle)]
unsafe extern "C" fn _Fork() -> libc::pid_t {
    all();
    let child = libc_call!(c"_Fork" as unsafe extern "C" fn() -> libc::pid_t, -1);
    if child == 0 {
        in_child();
    }
    child
}

type Entry = Option<unsafe extern "C" fn(*mut c_void) -> c_int>;
type Clone = unsafe extern "C" fn(
    Entry,
    *mut c_void,
    c_int,
    *mut c_void,
    *mut c_void,
    *mut c_void,
    *mut c_void,
) -> c_int;

// `clone` is variadic; handing on what nobody passed is harmless.
#[unsafe(no_mangle)]
unsafe extern "C" fn clone(
    entry: Entry,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    parent: *mut c_void,
    tls: *mut c_void,
    child: *mut c_void,
) -> c_int {
    all();
    libc_call!(c"clone" as Clone, -1, entry, stack, flags, argument, parent, tls, child)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn system(command: *const c_char) -> c_int {
    all();
    libc_call!(c"system" as unsafe extern "C" fn(*const c_char) -> c_int, -1, command)
}

type Open = unsafe extern "C" fn(*const c_char, *const c_char) -> *mut libc::FILE;

#[unsafe(no_mangle)]
unsafe extern "C" fn popen(command: *const c_char, mode: *const c_char) -> *mut libc::FILE {
    all();
    libc_call!(c"popen" as Open, std::ptr::null_mut(), command, mode)
}

type Expand = unsafe extern "C" fn(*const c_char, *mut c_void, c_int) -> c_int;
/// What `wordexp` gives when memory is short.
const NO_SPACE: c_int = 1;

#[unsafe(no_mangle)]
unsafe extern "C" fn wordexp(words: *const c_char, into: *mut c_void, flags: c_int) -> c_int {
    all();
    libc_call!(c"wordexp" as Expand, NO_SPACE, words, into, flags)
}
