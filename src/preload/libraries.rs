//! `dlopen` of a library under the prefix: a copy of it in memory is loaded. `dlsym`: what was
//! loaded since is looked at before it is used (`caught`).
//!
//! Invariants: libc's own functions are jumped to, not called, since they look at who calls them.
//! The same file, unchanged, is copied once, so that it is also loaded once. Not here: what such
//! a library itself needs, which the loader looks for by itself, and programs' own.

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, Ordering};

#[cfg(target_arch = "x86_64")]
use crate::caught;
use crate::exec::copy_into_memory;
use crate::hook::{Found, Last, find};
use crate::path::{Space, link_of};
use crate::real::{next, set_errno};
use crate::{close, metadata, open};

/// Libraries that are remembered; more are loaded, but may be loaded twice.
const COPIES: usize = 256;

/// A copy, and whose.
struct Copy {
    ino: AtomicU64,
    changed_ns: AtomicU64,
    memory: AtomicI32,
}

static KNOWN: [Copy; COPIES] = [const {
    Copy { ino: AtomicU64::new(0), changed_ns: AtomicU64::new(0), memory: AtomicI32::new(-1) }
}; COPIES];

static REAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// `/proc/thread-self/fd/N` of the copy, in turn, as the loader reads it after we are gone.
struct Link(std::cell::UnsafeCell<[u8; 32]>);

thread_local! {
    // Const and without a destructor: plain thread-local memory.
    static LINK: Link = const { Link(std::cell::UnsafeCell::new([0; 32])) };
}

/// The descriptor of a copy of the file; −1 if there is none to be had.
fn copy_of(name: &crate::path::Name<'_>) -> Result<c_int, c_int> {
    let found = metadata::of_name(name, Last::Followed)?;
    let same = |copy: &&Copy| {
        copy.ino.load(Ordering::Acquire) == found.ino.0
            && copy.changed_ns.load(Ordering::Acquire) == found.changed_ns
            && copy.memory.load(Ordering::Acquire) >= 0
    };
    if let Some(copy) = KNOWN.iter().find(same) {
        return Ok(copy.memory.load(Ordering::Acquire));
    }
    let fd = open::open_name(name, libc::O_RDONLY | libc::O_CLOEXEC, 0)?;
    let memory = copy_into_memory(fd);
    close::close_fd(fd);
    let memory = memory?;
    for copy in &KNOWN {
        let free = copy.ino.compare_exchange(0, found.ino.0, Ordering::AcqRel, Ordering::Acquire);
        if free.is_ok() {
            copy.changed_ns.store(found.changed_ns, Ordering::Release);
            copy.memory.store(memory, Ordering::Release);
            break;
        }
    }
    Ok(memory)
}

/// The path that libc's own `dlopen` gets.
extern "C" fn path_for_libc(path: *const c_char) -> *const c_char {
    // SAFETY: the caller of dlopen passes a string or null.
    if path.is_null() || unsafe { libc::strchr(path, c_int::from(b'/')) }.is_null() {
        return path;
    }
    let mut space = Space::new();
    // SAFETY: as above.
    let found =
        unsafe { find(libc::AT_FDCWD, path, Last::Followed, &mut space, |name| copy_of(&name)) };
    match found {
        // A link that leads out.
        Found::Kernel(_, other) if other == path => path,
        Found::Kernel(_, other) => keep(other).unwrap_or(path),
        Found::Served(Ok(memory)) => LINK.with(|link| {
            // SAFETY: this thread alone uses its link, and is done with it before the next.
            let link = unsafe { &mut *link.0.get() };
            link_of(memory, link).unwrap_or(path)
        }),
        Found::Served(Err(errno)) => {
            set_errno(errno);
            path
        }
    }
}

/// A copy that stays, since the loader reads it after we are gone; such a link is loaded rarely.
fn keep(path: *const c_char) -> Option<*const c_char> {
    // SAFETY: the path has its zero; what strdup gives is never freed.
    let copy = unsafe { libc::strdup(path) };
    (!copy.is_null()).then_some(copy.cast_const())
}

/// libc's own `dlopen`.
extern "C" fn real_dlopen() -> *mut c_void {
    let real = next(&REAL, c"dlopen");
    // Last, as asking for it may be the first question for a name.
    #[cfg(target_arch = "x86_64")]
    caught::will_load();
    real
}

#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void {
    std::arch::naked_asm!(
        "push rsi",
        "call {path}",
        "push rax",
        "sub rsp, 8",
        "call {real}",
        "add rsp, 8",
        "pop rdi",
        "pop rsi",
        "jmp rax",
        path = sym path_for_libc,
        real = sym real_dlopen,
    )
}

#[cfg(target_arch = "x86_64")]
static REAL_DLSYM: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

#[cfg(target_arch = "x86_64")]
/// libc's own `dlsym`, which cannot be asked for itself.
extern "C" fn real_dlsym() -> *mut c_void {
    caught::was_loaded();
    let known = REAL_DLSYM.load(Ordering::Acquire);
    if !known.is_null() {
        return known;
    }
    // SAFETY: the names have their zero, and the handle is valid.
    let found =
        unsafe { libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), c"GLIBC_2.2.5".as_ptr()) };
    if found.is_null() {
        // SAFETY: takes nothing. No libc of this processor is without.
        unsafe { libc::abort() };
    }
    REAL_DLSYM.store(found, Ordering::Release);
    found
}

#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    std::arch::naked_asm!(
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {real}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        real = sym real_dlsym,
    )
}
