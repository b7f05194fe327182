//! What happens when the library is loaded, which is nearly nothing.
//!
//! Invariants: without `TERRAL_INSTANCE` this only looks for it; it never connects, since most
//! processes of a job never touch the prefix. Not here: hooks.

use std::ffi::{c_char, c_int};

use terral_client::high;

use crate::{cwd, heap, itself, settings, sharing, state, streams};

// SAFETY: an entry of .init_array, which ld.so calls with main's arguments.
#[used]
#[unsafe(link_section = ".init_array")]
static START: unsafe extern "C" fn(c_int, *mut *mut c_char, *mut *const c_char) = start;

unsafe extern "C" fn start(
    _count: c_int,
    _arguments: *mut *mut c_char,
    environment: *mut *const c_char,
) {
    if environment.is_null() || !settings::read(environment) {
        return;
    }
    high::prepare();
    itself::take_name();
    heap::watch_forks();
    sharing::watch_forks();
    // SAFETY: ld.so passes the process's environment array, whose strings stay.
    unsafe { cwd::inherit(environment) };
    #[cfg(target_arch = "x86_64")]
    crate::caught::start();
    // Standard streams are used without any call that this library sees first.
    if (0..3).any(state::is_ours) {
        streams::ready();
    }
}
