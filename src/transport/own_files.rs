//! Work that needs a descriptor for a moment, in a process that has none left: another task of the
//! same thread group does it, with a table of descriptors of its own and all memory in common.
//!
//! Invariants: the thread waits meanwhile, with its signals blocked, and the task has its
//! thread-local memory; what the work has opened is closed when it is over, while maps stay. The
//! task has the instance's directory if that is kept open (`kept`). Not here: what is done.

use std::ffi::c_void;

use terral_format::{Error, Result};

use crate::{dispatch, kept, kernel};

/// Does `work`, which keeps no descriptor, again where there are some if it found none left.
pub fn retry<T>(mut work: impl FnMut() -> Result<T>) -> Result<T> {
    match work() {
        Err(error) if is_full(&error) => again(work).unwrap_or(Err(error)),
        done => done,
    }
}

/// Whether there was no descriptor left.
pub fn is_full(error: &Error) -> bool {
    error.errno == libc::EMFILE
}

struct Task<'w, T> {
    work: &'w mut dyn FnMut() -> T,
    done: Option<T>,
}

unsafe extern "C" fn enter<T>(task: *mut c_void) {
    let close = |first: u32, last: u32| {
        let unshare = libc::CLOSE_RANGE_UNSHARE;
        // SAFETY: no memory is passed. From the first on the task has a table of its own.
        unsafe { kernel::enter()(libc::SYS_close_range, first, last, unshare) == 0 }
    };
    let emptied = match kept::kept().map(|fd| fd as u32) {
        None => close(0, u32::MAX),
        Some(kept) => close(kept + 1, u32::MAX) && (kept == 0 || close(0, kept - 1)),
    };
    if emptied {
        // SAFETY: `again` passes it, and waits.
        let task = unsafe { &mut *task.cast::<Task<'_, T>>() };
        task.done = Some((task.work)());
    }
}

/// Does `work` with descriptors of its own; `None` if that cannot be.
#[cold]
pub fn again<T>(mut work: impl FnMut() -> T) -> Option<T> {
    let mut task = Task { work: &mut work, done: None };
    let faults = crate::fault::SIGNALS.iter().chain(&[libc::SIGSYS]);
    let faults = faults.fold(0, |set, signal| set | 1u64 << (signal - 1));
    let (all, mut before) = (!faults, 0u64);
    let mask = |how: i32, new: *const u64, old: *mut u64| {
        // SAFETY: both sets are there or null.
        unsafe { kernel::enter()(libc::SYS_rt_sigprocmask, how, new, old, 8usize) };
    };
    mask(libc::SIG_SETMASK, &raw const all, &raw mut before);
    // The instruction that makes the task is our own.
    dispatch::switch_off();
    // SAFETY: the task is given its work, which it has done when this returns.
    unsafe { task::run(enter::<T>, (&raw mut task).cast()) };
    dispatch::switch_on();
    mask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
    task.done
}

#[cfg(target_arch = "x86_64")]
mod task {
    use std::ffi::c_void;

    use crate::kernel;

    const STACK_BYTES: usize = 512 << 10;

    /// Starts a task with these `flags` that does `call(with)` on `stack`, and ends.
    #[unsafe(naked)]
    unsafe extern "C" fn start(
        flags: u64,
        stack: *mut c_void,
        call: unsafe extern "C" fn(*mut c_void),
        with: *mut c_void,
    ) -> i64 {
        std::arch::naked_asm!(
            "mov r8, rdx",
            "mov r9, rcx",
            "xor edx, edx",
            "xor r10d, r10d",
            "mov eax, 56",
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r9",
            "call r8",
            "xor edi, edi",
            "mov eax, 60",
            "syscall",
            "2:",
            "ret",
        )
    }

    /// Has a task do `call(with)`, and returns when it has ended.
    pub(super) unsafe fn run(call: unsafe extern "C" fn(*mut c_void), with: *mut c_void) {
        let flags = libc::CLONE_VM
            | libc::CLONE_FS
            | libc::CLONE_FILES
            | libc::CLONE_SIGHAND
            | libc::CLONE_THREAD
            | libc::CLONE_SYSVSEM
            | libc::CLONE_VFORK;
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE);
        let kind = kind | libc::MAP_ANONYMOUS | libc::MAP_STACK;
        let none = std::ptr::null_mut::<c_void>();
        // SAFETY: new memory; the task has it for its stack, and has ended when `start` returns.
        unsafe {
            let stack = kernel::enter()(libc::SYS_mmap, none, STACK_BYTES, access, kind, -1, 0);
            if stack != -1 {
                let stack = stack as *mut c_void;
                start(flags as u64, stack.byte_add(STACK_BYTES), call, with);
                kernel::enter()(libc::SYS_munmap, stack, STACK_BYTES);
            }
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod task {
    use std::ffi::c_void;

    pub(super) unsafe fn run(_call: unsafe extern "C" fn(*mut c_void), _with: *mut c_void) {}
}

#[cfg(test)]
mod tests {
    use super::again;
    use std::os::fd::AsRawFd;

    #[test]
    fn what_is_opened_elsewhere_leaves_no_descriptor_and_its_map_stays() {
        let file = tempfile::NamedTempFile::new().expect("file");
        std::fs::write(file.path(), vec![7u8; 8192]).expect("writes");
        let open = || std::fs::read_dir("/proc/thread-self/fd").expect("lists").count();
        let pid = std::process::id();
        let told = again(|| {
            let (opened, inside) = (std::fs::File::open(file.path()).expect("opens"), open());
            let region = crate::region::Region::map(&opened, 8192, false).expect("maps");
            (opened.as_raw_fd(), inside, std::process::id(), region)
        });
        let (number, inside, own, region) = told.expect("there is such a task");
        assert_eq!((number, inside, own), (0, 2, pid));
        let word = region.words(4096, 1)[0].load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(word, u64::from_ne_bytes([7; 8]));
    }
}
