//! Streams that call back: glibc's own stdio over this library's `read`, `write`, `lseek`, `close`.
//!
//! Invariants: the descriptor's number is the cookie, and stands as `−16 − fd` in the stream's
//! `_fileno`, where glibc keeps −2 for such streams and looks only at its sign. Not here: which
//! streams are made so (`stdio`, `standard`).

use std::ffi::{CStr, c_char, c_int, c_void};

use libc::{FILE, off_t, size_t, ssize_t};

use crate::real::{Served, errno};

#[repr(C)]
struct Functions {
    read: unsafe extern "C" fn(*mut c_void, *mut c_char, size_t) -> ssize_t,
    write: unsafe extern "C" fn(*mut c_void, *const c_char, size_t) -> ssize_t,
    seek: unsafe extern "C" fn(*mut c_void, *mut off_t, c_int) -> c_int,
    close: unsafe extern "C" fn(*mut c_void) -> c_int,
}

unsafe extern "C" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: Functions) -> *mut FILE;
}

/// Offset of `_fileno` in glibc's FILE, which its ABI fixes.
const FILENO: usize = 112;
/// `_fileno` of descriptor 0; glibc's own negative values are above.
const FIRST: c_int = -16;

fn number(cookie: *mut c_void) -> c_int {
    cookie.addr() as c_int
}

unsafe extern "C" fn read(cookie: *mut c_void, room: *mut c_char, count: size_t) -> ssize_t {
    // SAFETY: stdio passes its own buffer; this is the hooked read.
    unsafe { libc::read(number(cookie), room.cast(), count) }
}

unsafe extern "C" fn write(cookie: *mut c_void, bytes: *const c_char, count: size_t) -> ssize_t {
    let mut done = 0;
    while done < count {
        // SAFETY: stdio passes its own buffer; this is the hooked write.
        let part = unsafe { libc::write(number(cookie), bytes.add(done).cast(), count - done) };
        match part {
            1.. => done += part as usize,
            _ if done > 0 => break,
            // glibc takes 0 for the error of a cookie, where write says −1.
            _ => return 0,
        }
    }
    done as ssize_t
}

unsafe extern "C" fn seek(cookie: *mut c_void, offset: *mut off_t, whence: c_int) -> c_int {
    // SAFETY: stdio passes its own offset; this is the hooked lseek.
    unsafe {
        let position = libc::lseek(number(cookie), *offset, whence);
        if position < 0 {
            return -1;
        }
        *offset = position;
    }
    0
}

unsafe extern "C" fn close(cookie: *mut c_void) -> c_int {
    // SAFETY: the stream gives its descriptor up; this is the hooked close.
    unsafe { libc::close(number(cookie)) }
}

/// A stream on `fd`, which it closes when it is closed.
pub fn stream(fd: c_int, mode: &CStr) -> Served<*mut FILE> {
    let functions = Functions { read, write, seek, close };
    let cookie = std::ptr::without_provenance_mut(fd as usize);
    // SAFETY: the functions take the cookie for a number only.
    let stream = unsafe { fopencookie(cookie, mode.as_ptr(), functions) };
    if stream.is_null() {
        return Err(errno());
    }
    // SAFETY: the stream is fresh, and its `_fileno` lies there.
    unsafe { *stream.cast::<u8>().add(FILENO).cast::<c_int>() = FIRST - fd };
    Ok(stream)
}

/// The descriptor of a stream that calls back.
///
/// The stream must be open, as stdio demands everywhere.
pub fn descriptor_of_ours(stream: *mut FILE) -> Option<c_int> {
    // SAFETY: every stream of glibc's has the field.
    let field = unsafe { *stream.cast::<u8>().add(FILENO).cast::<c_int>() };
    (field <= FIRST).then_some(FIRST - field)
}

/// The descriptor of any open stream, −1 if it has none.
pub fn descriptor(stream: *mut FILE) -> c_int {
    // SAFETY: every stream of glibc's has the field.
    let field = unsafe { *stream.cast::<u8>().add(FILENO).cast::<c_int>() };
    if field <= FIRST { FIRST - field } else { field.max(-1) }
}
