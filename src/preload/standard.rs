//! Standard streams on managed descriptors. Inside libc their `write` is not ours, so `stdin`,
//! `stdout` and `stderr` are replaced by streams that call back, once their descriptor is managed.
//!
//! Invariants: a replaced stream serves whatever its descriptor is later, so it is never put back;
//! what the old one had not written goes along. Programs and libstdc++ that remembered the old
//! stream reach the new one through the hooks below. Not here: streams in general (`stdio`).

use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use libc::{FILE, size_t};

use crate::cookie;
use crate::real::{kernel, libc_call};

unsafe extern "C" {
    static mut stdin: *mut FILE;
    static mut stdout: *mut FILE;
    static mut stderr: *mut FILE;
    fn __fpending(stream: *mut FILE) -> size_t;
    fn __fpurge(stream: *mut FILE);
    fn __flbf(stream: *mut FILE) -> c_int;
}

static REPLACED: AtomicBool = AtomicBool::new(false);
static OLD: [AtomicPtr<FILE>; 3] = [const { AtomicPtr::new(ptr::null_mut()) }; 3];
static NEW: [AtomicPtr<FILE>; 3] = [const { AtomicPtr::new(ptr::null_mut()) }; 3];

/// Offset of `_IO_write_base` in glibc's FILE, which its ABI fixes.
const WRITE_BASE: usize = 32;

fn variable(fd: usize) -> *mut *mut FILE {
    [&raw mut stdin, &raw mut stdout, &raw mut stderr][fd]
}

/// Call this before `fd` becomes managed: replaces the standard stream on it, if it is one's.
pub fn before(fd: c_int) {
    let Some(index) = usize::try_from(fd).ok().filter(|fd| *fd < 3) else { return };
    if !NEW[index].load(Ordering::Acquire).is_null() {
        return;
    }
    // SAFETY: the variable holds null or an open stream.
    let old = unsafe { *variable(index) };
    if old.is_null() || cookie::descriptor(old) != fd {
        return;
    }
    let Ok(new) = cookie::stream(fd, if index == 0 { c"r" } else { c"w" }) else { return };
    // SAFETY: both streams are open, and the variable is libc's own.
    unsafe {
        set_buffering(index, fd, old, new);
        move_pending(old, new);
        OLD[index].store(old, Ordering::Release);
        NEW[index].store(new, Ordering::Release);
        *variable(index) = new;
    }
    REPLACED.store(true, Ordering::Release);
}

unsafe fn set_buffering(index: usize, fd: c_int, old: *mut FILE, new: *mut FILE) {
    // SAFETY: termios is plain data; all zero is a value of it.
    let mut terminal: libc::termios = unsafe { std::mem::zeroed() };
    let is_terminal: c_int = kernel!(SYS_ioctl, fd, libc::TCGETS, &raw mut terminal);
    // SAFETY: both streams are open, and the new one has not been used.
    unsafe {
        if index == 2 {
            libc::setvbuf(new, ptr::null_mut(), libc::_IONBF, 0);
        } else if __flbf(old) != 0 || is_terminal == 0 {
            libc::setvbuf(new, ptr::null_mut(), libc::_IOLBF, 0);
        }
    }
}

unsafe fn move_pending(old: *mut FILE, new: *mut FILE) {
    // SAFETY: the pending bytes begin at the write base, as glibc's ABI fixes.
    unsafe {
        let pending = __fpending(old);
        if pending != 0 {
            let base = *old.cast::<u8>().add(WRITE_BASE).cast::<*const c_void>();
            libc::fwrite(base, 1, pending, new);
            __fpurge(old);
        }
    }
}

/// The stream to use where the caller may have remembered one that was replaced.
#[inline]
pub fn current(stream: *mut FILE) -> *mut FILE {
    if !REPLACED.load(Ordering::Acquire) {
        return stream;
    }
    for (old, new) in OLD.iter().zip(&NEW) {
        if old.load(Ordering::Acquire) == stream && !stream.is_null() {
            return new.load(Ordering::Acquire);
        }
    }
    stream
}

/// Forgets a replaced stream that is being closed.
pub fn closed(stream: *mut FILE) {
    for (old, new) in OLD.iter().zip(&NEW) {
        if new.load(Ordering::Acquire) == stream {
            old.store(ptr::null_mut(), Ordering::Release);
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fwrite(
    bytes: *const c_void,
    size: size_t,
    count: size_t,
    stream: *mut FILE,
) -> size_t {
    type Function = unsafe extern "C" fn(*const c_void, size_t, size_t, *mut FILE) -> size_t;
    libc_call!(c"fwrite" as Function, 0, bytes, size, count, current(stream))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fread(
    room: *mut c_void,
    size: size_t,
    count: size_t,
    stream: *mut FILE,
) -> size_t {
    type Function = unsafe extern "C" fn(*mut c_void, size_t, size_t, *mut FILE) -> size_t;
    libc_call!(c"fread" as Function, 0, room, size, count, current(stream))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fputs(text: *const c_char, stream: *mut FILE) -> c_int {
    type Function = unsafe extern "C" fn(*const c_char, *mut FILE) -> c_int;
    libc_call!(c"fputs" as Function, -1, text, current(stream))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fflush(stream: *mut FILE) -> c_int {
    type Function = unsafe extern "C" fn(*mut FILE) -> c_int;
    libc_call!(c"fflush" as Function, -1, current(stream))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ungetc(character: c_int, stream: *mut FILE) -> c_int {
    type Function = unsafe extern "C" fn(c_int, *mut FILE) -> c_int;
    libc_call!(c"ungetc" as Function, -1, character, current(stream))
}

macro_rules! of_character {
    ($($name:ident = $libc:literal;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(character: c_int, stream: *mut FILE) -> c_int {
            type Function = unsafe extern "C" fn(c_int, *mut FILE) -> c_int;
            libc_call!($libc as Function, -1, character, current(stream))
        }
    )*};
}

macro_rules! of_stream {
    ($($name:ident = $libc:literal;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(stream: *mut FILE) -> c_int {
            type Function = unsafe extern "C" fn(*mut FILE) -> c_int;
            libc_call!($libc as Function, -1, current(stream))
        }
    )*};
}

of_character! {
    fputc = c"fputc";
    putc = c"putc";
    _IO_putc = c"_IO_putc";
}

of_stream! {
    fgetc = c"fgetc";
    getc = c"getc";
    _IO_getc = c"_IO_getc";
}
