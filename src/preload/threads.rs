//! Threads, each of which switches on for itself that its system calls are caught, before its
//! function is called, and before a signal handler of the program's.
//!
//! Invariant: that function is jumped to, so that a thread that is cancelled or ends itself unwinds
//! through nothing of ours. Not here: what is caught (`caught`).

use std::ffi::{c_int, c_void};

use crate::real::libc_call;
use crate::{caught, settings, signals};

type Function = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
type Create =
    unsafe extern "C" fn(*mut libc::pthread_t, *const c_void, Function, *mut c_void) -> c_int;
type CreateC11 = unsafe extern "C" fn(*mut libc::pthread_t, Function, *mut c_void) -> c_int;
type Mask = unsafe extern "C" fn(*const c_void, *mut libc::sigset_t) -> c_int;

/// `thrd_error` of threads.h.
const THRD_ERROR: c_int = 2;

/// What a thread is to do.
#[repr(C)]
struct Start {
    argument: *mut c_void,
    function: Function,
    /// What it has blocked then, if more is blocked until then.
    blocked: Option<u64>,
}

/// What the jump needs of it.
#[repr(C)]
struct Jump {
    argument: *mut c_void,
    function: Function,
}

/// Prepares a thread, and says what it is to do.
unsafe extern "C" fn prepare(start: *mut Start, jump: *mut Jump) {
    // SAFETY: `start` has made it for this thread.
    let start = unsafe { *Box::from_raw(start) };
    caught::in_this_thread();
    if let Some(blocked) = start.blocked {
        signals::unblock(blocked);
    }
    // SAFETY: it is on this thread's stack.
    unsafe { jump.write(Jump { argument: start.argument, function: start.function }) };
}

#[unsafe(naked)]
unsafe extern "C" fn begin(start: *mut c_void) -> *mut c_void {
    std::arch::naked_asm!(
        "sub rsp, 24",
        "mov rsi, rsp",
        "call {prepare}",
        "mov rdi, [rsp]",
        "mov rax, [rsp + 8]",
        "add rsp, 24",
        "jmp rax",
        prepare = sym prepare,
    )
}

/// Whether the attributes of a thread say what it has blocked.
fn says_mask(attributes: *const c_void) -> bool {
    if attributes.is_null() {
        return false;
    }
    // SAFETY: all zero is an empty set.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    libc_call!(c"pthread_attr_getsigmask_np" as Mask, -1, attributes, &raw mut set) == 0
}

/// Has `create` make a thread that jumps to `function`, with what it needs done before. Zero is
/// success, of all who make threads.
fn start(
    function: Function,
    argument: *mut c_void,
    says_mask: impl FnOnce() -> bool,
    create: impl Fn(Function, *mut c_void) -> c_int,
) -> c_int {
    if !settings::active() {
        return create(function, argument);
    }
    let blocked = (caught::is_on() && !says_mask()).then(signals::block);
    let start = Box::into_raw(Box::new(Start { argument, function, blocked }));
    let made = create(begin, start.cast());
    if let Some(blocked) = blocked {
        signals::unblock(blocked);
    }
    if made != 0 {
        // SAFETY: nobody has got it.
        drop(unsafe { Box::from_raw(start) });
    }
    made
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_create(
    thread: *mut libc::pthread_t,
    attributes: *const c_void,
    function: Function,
    argument: *mut c_void,
) -> c_int {
    let create = |function: Function, argument: *mut c_void| {
        let missing = libc::EAGAIN;
        libc_call!(c"pthread_create" as Create, missing, thread, attributes, function, argument)
    };
    start(function, argument, || says_mask(attributes), create)
}

/// C11's. Its function gives an `int`; as it is jumped to, that is between it and libc.
#[unsafe(no_mangle)]
unsafe extern "C" fn thrd_create(
    thread: *mut libc::pthread_t,
    function: Function,
    argument: *mut c_void,
) -> c_int {
    let create = |function: Function, argument: *mut c_void| {
        libc_call!(c"thrd_create" as CreateC11, THRD_ERROR, thread, function, argument)
    };
    start(function, argument, || false, create)
}
