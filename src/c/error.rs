//! How failures reach C: `errno`, and a message per thread.
//!
//! Invariant: a message stays where it is until the next failure in the same thread.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::ptr;

use libc::ssize_t;
use terral_client::{Error, ErrorKind, Result};

thread_local! {
    static LAST: RefCell<CString> = RefCell::new(CString::default());
}

/// An argument that makes no sense.
pub fn invalid(what: &str) -> Error {
    Error::new(ErrorKind::Invalid, what)
}

fn note(error: &Error) {
    let mut text = error.to_string().into_bytes();
    text.retain(|byte| *byte != 0);
    let text = CString::new(text).unwrap_or_default();
    // A thread that is ending has no message any more; errno still says what happened.
    let _ = LAST.try_with(|last| last.replace(text));
    // SAFETY: errno's place is the thread's own.
    unsafe { *libc::__errno_location() = error.to_errno() };
}

/// The value, or what C gets for a failure.
fn answer<T>(result: Result<T>, failed: T) -> T {
    result.unwrap_or_else(|error| {
        note(&error);
        failed
    })
}

/// 0, or -1.
pub fn done(result: Result<()>) -> c_int {
    answer(result.map(|()| 0), -1)
}

/// A small number, or -1.
pub fn number(result: Result<c_int>) -> c_int {
    answer(result, -1)
}

/// A position, or -1.
pub fn position(result: Result<i64>) -> i64 {
    answer(result, -1)
}

/// How many bytes, or -1.
pub fn count(result: Result<usize>) -> ssize_t {
    answer(result.map(|count| count as ssize_t), -1)
}

/// Something new that C owns, or null.
pub fn owned<T>(result: Result<T>) -> *mut T {
    answer(result.map(|value| Box::into_raw(Box::new(value))), ptr::null_mut())
}

#[unsafe(no_mangle)]
extern "C" fn terral_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}
