//! This library's own memory. Not libc's: a signal handler may use files while its thread is in the
//! middle of libc's allocator, and calls that allocate nothing elsewhere must not meet that.
//!
//! Invariants: whoever holds the lock has all signals of its thread wait, and no fork happens
//! meanwhile. What programs free themselves is made with libc's `malloc` where it is made.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, Ordering};

use dlmalloc::Dlmalloc;

use crate::signals::{self, Quiet};

/// Looks at the lock before the core is offered to whoever has it, who needs some nanoseconds.
const SPINS: u32 = 200;

struct Heap {
    locked: AtomicBool,
    memory: UnsafeCell<Dlmalloc>,
}

// SAFETY: the memory is reached with the lock held only.
unsafe impl Sync for Heap {}

#[global_allocator]
static HEAP: Heap =
    Heap { locked: AtomicBool::new(false), memory: UnsafeCell::new(Dlmalloc::new()) };

/// The lock, held; handlers come after it is given back.
struct Held(Quiet);

impl Drop for Held {
    fn drop(&mut self) {
        HEAP.locked.store(false, Ordering::Release);
    }
}

impl Heap {
    fn lock(&self) -> Held {
        let quiet = signals::quiet();
        let order = (Ordering::Acquire, Ordering::Relaxed);
        let mut tries = 0u32;
        while self.locked.compare_exchange_weak(false, true, order.0, order.1).is_err() {
            tries += 1;
            match tries < SPINS {
                true => std::hint::spin_loop(),
                false => std::thread::yield_now(),
            }
        }
        Held(quiet)
    }
}

// SAFETY: dlmalloc's contract is that of `GlobalAlloc`, for one at a time.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _held = self.lock();
        // SAFETY: the lock is held; the caller's promise.
        unsafe { (*self.memory.get()).malloc(layout.size(), layout.align()) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        let _held = self.lock();
        // SAFETY: as above.
        unsafe { (*self.memory.get()).free(at, layout.size(), layout.align()) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let _held = self.lock();
        // SAFETY: as above.
        unsafe { (*self.memory.get()).calloc(layout.size(), layout.align()) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        let _held = self.lock();
        // SAFETY: as above.
        unsafe { (*self.memory.get()).realloc(at, layout.size(), layout.align(), bytes) }
    }
}

unsafe extern "C" {
    pub fn pthread_atfork(
        before: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> c_int;
}

extern "C" fn before_fork() {
    // Given back by `after_fork`, in both processes.
    let _held = ManuallyDrop::new(HEAP.lock());
}

extern "C" fn after_fork() {
    HEAP.locked.store(false, Ordering::Release);
    signals::end_quiet();
}

/// From now on no fork finds the heap half changed by another thread.
pub fn watch_forks() {
    // SAFETY: the functions are there as long as the process.
    unsafe { pthread_atfork(Some(before_fork), Some(after_fork), Some(after_fork)) };
}
