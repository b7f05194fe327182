//! The way to the kernel past functions of libc that somebody may stand for: the preload library
//! does, `syscall` among them, and this room must not come back to it.
//!
//! Invariants: the instructions that enter the kernel are libc's own, in whose text such calls are
//! never caught. Not here: what is called.

use std::ffi::{c_long, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// libc's `syscall`.
pub type Enter = unsafe extern "C" fn(c_long, ...) -> c_long;

static ENTER: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// libc's own `syscall`.
#[inline]
pub fn enter() -> Enter {
    let known = ENTER.load(Ordering::Relaxed);
    let found = if known.is_null() { find() } else { known };
    // SAFETY: the address is that of the function with this signature.
    unsafe { std::mem::transmute::<*mut c_void, Enter>(found) }
}

#[cold]
fn find() -> *mut c_void {
    // SAFETY: the name has its zero, the handle is valid, and abort takes nothing.
    unsafe {
        let found = libc::dlsym(libc::RTLD_NEXT, c"syscall".as_ptr());
        if found.is_null() {
            libc::abort();
        }
        ENTER.store(found, Ordering::Relaxed);
        found
    }
}
