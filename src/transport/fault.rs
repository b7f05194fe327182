//! Copies to and from memory that may not be there: a program may pass any address, and `/dev/shm`
//! may have no page left.
//!
//! A thread notes where it goes on if its copy faults; the handler of the signal, which the
//! preload library installs, sends it there. Invariants: what is tried owns nothing and locks
//! nothing, since its frames are left behind. Where no handler is installed (`libterral`, the
//! server), and on processors without the few instructions below, a fault ends the program. Not
//! here: the handler.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU8, Ordering};

use libc::siginfo_t;
use terral_format::local::geometry::PAGE_BYTES;
use terral_format::{Error, ErrorKind, Result};

/// A copy met memory that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where, as far as the processor says; 0 for an address that none has.
    pub address: usize,
}

impl Fault {
    /// As the error of a call.
    pub fn error(self) -> Error {
        Error { kind: ErrorKind::System, errno: libc::EFAULT, context: "bad address".into() }
    }
}

thread_local! {
    // Const and without a destructor: plain words of thread-local memory.
    /// The stack of who tries something, on top of which is where it goes on; 0: nobody does.
    static LANDING: Cell<usize> = const { Cell::new(0) };
    static ADDRESS: Cell<usize> = const { Cell::new(0) };
}

#[cfg(target_arch = "x86_64")]
mod landing {
    use std::ffi::c_void;

    /// Calls `call(with)` and gives 0, or 1 if the handler has sent the thread back meanwhile.
    #[unsafe(naked)]
    pub(super) unsafe extern "C" fn run(
        call: unsafe extern "C" fn(*mut c_void),
        with: *mut c_void,
        landing: *mut usize,
    ) -> usize {
        std::arch::naked_asm!(
            "push rbp",
            "push rbx",
            "push r12",
            "push r13",
            "push r14",
            "push r15",
            "push rdx",
            "push qword ptr [rdx]",
            "lea rax, [rip + 2f]",
            "push rax",
            "mov qword ptr [rdx], rsp",
            "mov rax, rdi",
            "mov rdi, rsi",
            "call rax",
            "xor eax, eax",
            "2:",
            "cld",
            "pop rcx",
            "pop rcx",
            "pop rdx",
            "mov qword ptr [rdx], rcx",
            "pop r15",
            "pop r14",
            "pop r13",
            "pop r12",
            "pop rbx",
            "pop rbp",
            "ret",
        )
    }

    /// Has the thread go on where `landing` says, with the answer 1.
    pub(super) unsafe fn go(context: *mut c_void, landing: usize) {
        // SAFETY: the kernel's context of a handler; the landing is that of a `run` further up.
        unsafe {
            let registers = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
            registers[libc::REG_RSP as usize] = landing as i64;
            registers[libc::REG_RIP as usize] = *(landing as *const i64);
            registers[libc::REG_RAX as usize] = 1;
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod landing {
    use std::ffi::c_void;

    pub(super) unsafe fn run(
        call: unsafe extern "C" fn(*mut c_void),
        with: *mut c_void,
        _landing: *mut usize,
    ) -> usize {
        // SAFETY: the caller's promise.
        unsafe { call(with) };
        0
    }

    pub(super) unsafe fn go(_context: *mut c_void, _landing: usize) {}
}

unsafe extern "C" fn enter<F: FnMut()>(copy: *mut c_void) {
    // SAFETY: `attempt` passes its closure.
    unsafe { (*copy.cast::<F>())() }
}

/// Does `copy`, as far as the memory it touches is there.
///
/// # Safety
/// `copy` may be left in the middle: it must own nothing, lock nothing and not panic.
#[inline]
pub unsafe fn attempt<F: FnMut()>(mut copy: F) -> std::result::Result<(), Fault> {
    let landing = LANDING.with(Cell::as_ptr);
    // SAFETY: `enter` gets the closure it is made for; the landing is this thread's own.
    let faulted = unsafe { landing::run(enter::<F>, (&raw mut copy).cast(), landing) };
    if faulted == 0 { Ok(()) } else { Err(Fault { address: ADDRESS.with(Cell::get) }) }
}

/// For a handler of SIGSEGV and SIGBUS: whether the fault was one of [`attempt`], which then is
/// over when the handler returns.
///
/// # Safety
/// Both are what the kernel has passed to the handler.
pub unsafe fn recover(info: *const siginfo_t, context: *mut c_void) -> bool {
    let landing = LANDING.with(Cell::get);
    // SAFETY: the kernel's own structure.
    let is_fault = unsafe { (*info).si_code } > 0;
    if landing == 0 || !is_fault || cfg!(not(target_arch = "x86_64")) {
        return false;
    }
    // SAFETY: a fault has an address; the landing was just found.
    unsafe {
        ADDRESS.with(|address| address.set((*info).si_addr().addr()));
        landing::go(context, landing);
    }
    true
}

/// Bytes from the start of `bytes` up to the first page of them that cannot be read.
pub fn readable(bytes: &[u8]) -> usize {
    // SAFETY: a byte of the slice, or a fault.
    reach(bytes.as_ptr().addr(), bytes.len(), |at| unsafe {
        (at as *const u8).read_volatile();
    })
}

/// Bytes from the start of `room` up to the first page of them that cannot be written.
pub fn writable(room: &mut [u8]) -> usize {
    reach(room.as_mut_ptr().addr(), room.len(), |at| {
        // SAFETY: a byte of the slice, or a fault; it stays as it is, whoever else changes it.
        let byte = unsafe { &*(at as *const AtomicU8) };
        // Not `fetch_or(0)`, which compilers leave out.
        let _ = byte.compare_exchange(0, 0, Ordering::Relaxed, Ordering::Relaxed);
    })
}

fn reach(start: usize, length: usize, touch: impl Fn(usize)) -> usize {
    let mut reached = 0;
    while reached < length {
        let at = start.wrapping_add(reached);
        // SAFETY: touching one byte owns nothing.
        if unsafe { attempt(|| touch(at)) }.is_err() {
            return reached;
        }
        reached += PAGE_BYTES - at % PAGE_BYTES;
    }
    length
}

/// Fills `room`, which may be anywhere, with as many bytes.
pub fn copy(room: &mut [u8], bytes: &[u8]) -> Result<()> {
    // SAFETY: copying owns nothing.
    unsafe { attempt(|| room.copy_from_slice(bytes)) }.map_err(Fault::error)
}

/// Fills `room`, which may be anywhere, with zeros.
pub fn clear(room: &mut [u8]) -> Result<()> {
    // SAFETY: filling owns nothing.
    unsafe { attempt(|| room.fill(0)) }.map_err(Fault::error)
}

/// Signals that [`recover`] is for.
pub const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

#[cfg(test)]
mod tests {
    use super::{SIGNALS, attempt, clear, readable, recover, writable};
    use std::ffi::{c_int, c_void};

    unsafe extern "C" fn handler(_: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
        // SAFETY: passed on.
        if !unsafe { recover(info, context) } {
            // SAFETY: ends the test.
            unsafe { libc::abort() };
        }
    }

    fn install() {
        for signal in SIGNALS {
            // SAFETY: a handler that does as it should.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = handler as *const () as usize;
                action.sa_flags = libc::SA_SIGINFO;
                assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
            }
        }
    }

    #[test]
    fn a_fault_ends_the_copy_and_nothing_else() {
        install();
        let size = 3 * 4096;
        // SAFETY: a mapping of our own, whose last page is taken away.
        let memory = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let start = libc::mmap(std::ptr::null_mut(), size, access, flags, -1, 0);
            assert_eq!(libc::munmap(start.byte_add(2 * 4096), 4096), 0);
            std::slice::from_raw_parts_mut(start.cast::<u8>(), size)
        };
        let mut room = [7u8; 3 * 4096];
        for _ in 0..3 {
            // SAFETY: copying owns nothing.
            let told = unsafe { attempt(|| room.copy_from_slice(memory)) };
            let address = told.expect_err("the last page is not there").address;
            assert!(memory.as_ptr_range().contains(&(address as *const u8)));
            assert_eq!(readable(memory), 2 * 4096);
            assert_eq!(writable(&mut memory[100..]), 2 * 4096 - 100);
            assert_eq!(clear(memory).expect_err("as above").to_errno(), libc::EFAULT);
            assert!(clear(&mut memory[..2 * 4096]).is_ok());
        }
        let mut sum = 0;
        // SAFETY: adding owns nothing.
        let nested = unsafe { attempt(|| sum = 1 + usize::from(attempt(|| ()).is_ok())) };
        assert_eq!((nested, sum), (Ok(()), 2));
    }
}
