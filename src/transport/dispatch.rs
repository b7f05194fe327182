//! Syscall User Dispatch (Linux 5.11): a thread's system calls become SIGSYS, except those whose
//! instructions lie in one range.
//!
//! Here the range is the C library's code, as that is how this library itself enters the kernel
//! (`kernel`), and how a handler returns. A child and a new program begin without. Invariant: it is
//! switched on only with that range known. Not here: the handler.

use std::ffi::{c_int, c_long, c_void};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::kernel;

const SET: c_int = 59;
const OFF: c_long = 0;
const ON: c_long = 1;

static START: AtomicUsize = AtomicUsize::new(0);
static LENGTH: AtomicUsize = AtomicUsize::new(0);

fn set(mode: c_long, range: &Range<usize>) -> bool {
    let none: *const u8 = std::ptr::null();
    // SAFETY: changes what becomes of this thread's calls, as the callers mean it.
    let done = unsafe {
        kernel::enter()(libc::SYS_prctl, SET, mode, range.start, range.end - range.start, none)
    };
    done == 0
}

/// Whether this kernel has it.
pub fn is_offered() -> bool {
    cfg!(target_arch = "x86_64") && set(OFF, &(0..0))
}

unsafe extern "C" fn holds(
    object: *mut libc::dl_phdr_info,
    _size: usize,
    sought: *mut c_void,
) -> c_int {
    // SAFETY: the linker passes what it knows of an object; `code_of` passes its range.
    let (object, sought) = unsafe { (&*object, &mut *sought.cast::<Range<usize>>()) };
    let headers = (object.dlpi_phdr, usize::from(object.dlpi_phnum));
    // SAFETY: the linker's own table.
    let headers = unsafe { std::slice::from_raw_parts(headers.0, headers.1) };
    for header in headers {
        let start = (object.dlpi_addr as usize).wrapping_add(header.p_vaddr as usize);
        let range = start..start.saturating_add(header.p_memsz as usize);
        let code = header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_X != 0;
        if code && range.contains(&sought.start) {
            *sought = range;
            return 1;
        }
    }
    0
}

/// The code around an address.
fn code_of(address: usize) -> Option<Range<usize>> {
    let mut range = address..address;
    // SAFETY: the callback gets what it expects.
    let found = unsafe { libc::dl_iterate_phdr(Some(holds), (&raw mut range).cast()) };
    (found == 1).then_some(range)
}

/// Looks for the range. False if it is not there, or this kernel cannot.
pub fn prepare() -> bool {
    let Some(range) = code_of(kernel::enter() as usize).filter(|_| is_offered()) else {
        return false;
    };
    START.store(range.start, Ordering::Relaxed);
    LENGTH.store(range.end - range.start, Ordering::Release);
    true
}

/// From now on this thread's calls come as SIGSYS, which must have a handler; after [`prepare`].
pub fn switch_on() {
    let length = LENGTH.load(Ordering::Acquire);
    let start = START.load(Ordering::Relaxed);
    if length != 0 {
        set(ON, &(start..start + length));
    }
}

/// No more, in this thread, if they did.
pub fn switch_off() {
    if LENGTH.load(Ordering::Acquire) != 0 {
        set(OFF, &(0..0));
    }
}
