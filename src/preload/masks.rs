//! What a thread has blocked, as it sees it: faults stay unblocked in the kernel, so that one of a
//! bad address that a call was given comes to `signals`.
//!
//! Invariants: a thread is told what it has asked for; a fault of its own, while blocked, ends the
//! process as ever, and one that was sent waits. Not here: masks for the time of one wait
//! (`sigsuspend`, `ppoll`), and what a new thread inherits, which sees faults as not blocked.

use std::ffi::c_int;
use std::ptr;

use libc::sigset_t;

use crate::real::{alias, answer, errno, kernel};
use crate::{memory, settings, signals};

/// The set that a change asks for, without what the kernel does not get; `None`: no such change.
fn change(how: c_int, wanted: u64) -> Option<u64> {
    let (blocked, of_ours) = (signals::kept_blocked(), wanted & signals::kept());
    match how {
        libc::SIG_BLOCK => signals::keep_blocked(blocked | of_ours),
        libc::SIG_UNBLOCK => signals::keep_blocked(blocked & !of_ours),
        libc::SIG_SETMASK => signals::keep_blocked(of_ours),
        _ => {}
    }
    match how {
        libc::SIG_BLOCK | libc::SIG_SETMASK => Some(wanted & signals::blockable()),
        libc::SIG_UNBLOCK => Some(wanted),
        _ => None,
    }
}

/// Changes what is blocked; of both sets 64 bits are looked at. Gives an errno, or 0.
pub fn set(how: c_int, new: *const sigset_t, old: *mut sigset_t) -> c_int {
    let blocked = signals::kept_blocked();
    let mut asked = None;
    if !new.is_null() {
        match memory::get(new.cast::<u64>()).map(|wanted| change(how, wanted)) {
            Err(errno) => return errno,
            Ok(None) => return libc::EINVAL,
            Ok(changed) => asked = changed,
        }
    }
    let (ours, mut was) = (asked.as_ref().map_or(ptr::null(), ptr::from_ref), 0u64);
    let saved = errno();
    let done: c_int = kernel!(SYS_rt_sigprocmask, how, ours, &raw mut was, size_of::<u64>());
    if done != 0 {
        let failed = errno();
        crate::real::set_errno(saved);
        return failed;
    }
    if old.is_null() {
        return 0;
    }
    memory::put(was | blocked, old.cast::<u64>()).err().unwrap_or(0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_sigmask(
    how: c_int,
    new: *const sigset_t,
    old: *mut sigset_t,
) -> c_int {
    if settings::active() {
        return set(how, new, old);
    }
    type Function = unsafe extern "C" fn(c_int, *const sigset_t, *mut sigset_t) -> c_int;
    crate::real::libc_call!(c"pthread_sigmask" as Function, libc::ENOSYS, how, new, old)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sigprocmask(how: c_int, new: *const sigset_t, old: *mut sigset_t) -> c_int {
    // SAFETY: the same contract.
    match unsafe { pthread_sigmask(how, new, old) } {
        0 => 0,
        errno => answer(Err(errno)),
    }
}

/// The older variants, which know 32 signals.
fn set_low(how: c_int, mask: c_int) -> c_int {
    let (new, mut old) = (u64::from(mask as u32), 0u64);
    // SAFETY: sets begin with the 64 bits that the kernel knows, and nothing more is looked at.
    unsafe { pthread_sigmask(how, (&raw const new).cast(), (&raw mut old).cast()) };
    old as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sigblock(mask: c_int) -> c_int {
    set_low(libc::SIG_BLOCK, mask)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sigsetmask(mask: c_int) -> c_int {
    set_low(libc::SIG_SETMASK, mask)
}

fn set_one(how: c_int, signal: c_int) -> c_int {
    if !(1..=64).contains(&signal) {
        return answer(Err(libc::EINVAL));
    }
    let new = 1u64 << (signal - 1);
    // SAFETY: as above.
    unsafe { sigprocmask(how, (&raw const new).cast(), ptr::null_mut()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sighold(signal: c_int) -> c_int {
    set_one(libc::SIG_BLOCK, signal)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sigrelse(signal: c_int) -> c_int {
    set_one(libc::SIG_UNBLOCK, signal)
}

alias! {
    __sigprocmask = sigprocmask as (how: c_int, new: *const sigset_t, old: *mut sigset_t) -> c_int;
}
