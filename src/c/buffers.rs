//! What C passes by pointer, as slices and references.
//!
//! Invariants: null is refused unless nothing is to be found there, and so is a length that does
//! not fit in any address space. That a buffer is as long as it is said to be is the caller's
//! promise.

use std::ffi::{CStr, c_char, c_int, c_void};

use libc::iovec;
use terral_client::Result;

use crate::error::invalid;

/// More than any program has: lengths above it are negative numbers in disguise.
const LENGTH_MAX: usize = 1 << 46;
/// Entries of a vector, as Linux has it.
const VECTOR_MAX: c_int = 1024;

fn check(start: usize, length: usize) -> Result<()> {
    if length > LENGTH_MAX || start.checked_add(length).is_none() {
        return Err(invalid("length"));
    }
    if start == 0 && length > 0 { Err(invalid("buffer is NULL")) } else { Ok(()) }
}

/// The caller's buffer to read into.
///
/// # Safety
/// `buffer` must have `length` writable bytes, if it is not null.
pub unsafe fn room<'a>(buffer: *mut c_void, length: usize) -> Result<&'a mut [u8]> {
    check(buffer as usize, length)?;
    if length == 0 {
        return Ok(&mut []);
    }
    // SAFETY: the caller's promise; the bytes are only written, so what they hold does not matter.
    Ok(unsafe { std::slice::from_raw_parts_mut(buffer.cast(), length) })
}

/// The caller's bytes to be written.
///
/// # Safety
/// `buffer` must have `length` readable bytes, if it is not null.
pub unsafe fn bytes<'a>(buffer: *const c_void, length: usize) -> Result<&'a [u8]> {
    check(buffer as usize, length)?;
    if length == 0 {
        return Ok(&[]);
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(buffer.cast(), length) })
}

/// The caller's vector; all its buffers are checked, and so is their sum, which comes with it.
///
/// # Safety
/// `vector` must have `count` entries, if it is not null.
pub unsafe fn entries<'a>(vector: *const iovec, count: c_int) -> Result<(&'a [iovec], usize)> {
    if count == 0 {
        return Ok((&[], 0));
    }
    if vector.is_null() || !(0..=VECTOR_MAX).contains(&count) {
        return Err(invalid("vector"));
    }
    // SAFETY: the caller's promise.
    let entries = unsafe { std::slice::from_raw_parts(vector, count as usize) };
    let mut whole = 0;
    for entry in entries {
        check(entry.iov_base as usize, entry.iov_len)?;
        whole += entry.iov_len;
    }
    check(1, whole)?;
    Ok((entries, whole))
}

/// What a handle points to.
///
/// # Safety
/// `handle` must be null or one of ours that has not been given back.
pub unsafe fn handle<'a, T>(handle: *const T) -> Result<&'a T> {
    // SAFETY: the caller's promise.
    unsafe { handle.as_ref() }.ok_or_else(|| invalid("handle is NULL"))
}

/// A C string.
///
/// # Safety
/// `text` must be null or a string.
pub unsafe fn text<'a>(text: *const c_char) -> Result<&'a [u8]> {
    if text.is_null() {
        return Err(invalid("path is NULL"));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// A path as the client wants it: relative to the root, without empty and `.` components.
///
/// # Safety
/// `path` must be null or a string.
pub unsafe fn path(path: *const c_char) -> Result<Vec<u8>> {
    // SAFETY: the caller's promise.
    let given = unsafe { text(path) }?;
    let mut normal = Vec::with_capacity(given.len());
    for part in given.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => continue,
            b".." => return Err(invalid("`..` in a path")),
            _ => {}
        }
        if !normal.is_empty() {
            normal.push(b'/');
        }
        normal.extend_from_slice(part);
    }
    Ok(normal)
}

/// An offset or a size.
pub fn unsigned(value: i64) -> Result<u64> {
    u64::try_from(value).map_err(|_| invalid("negative offset or size"))
}
