//! Calls on objects that are done meanwhile.
//!
//! Invariant: from the call that submits to the wait that gives the result the buffer is the
//! library's; the extents are copied. Not here: who does it (the client).

use std::ffi::{c_int, c_void};
use std::time::Duration;

use libc::{size_t, ssize_t};
use terral_client::objects::{Extent, Object};
use terral_client::{Error, ErrorKind, Result, Submitted};

use crate::buffers::{bytes, handle, room};
use crate::error::{count, number, owned};
use crate::objects::{Open, extents};

/// What `terral_request_t` points to.
pub struct Request(Submitted<usize>);

/// The caller's buffer.
struct Buffer {
    begin: *mut c_void,
    length: usize,
}

// SAFETY: whoever submits leaves the buffer to the thread that does it, until it was waited for.
unsafe impl Send for Buffer {}

impl Buffer {
    fn room(&mut self) -> Result<&mut [u8]> {
        // SAFETY: the caller's promise; nobody else uses it meanwhile.
        unsafe { room(self.begin, self.length) }
    }

    fn bytes(&self) -> Result<&[u8]> {
        // SAFETY: the caller's promise.
        unsafe { bytes(self.begin, self.length) }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_object_submit_read(
    open: *const Open,
    list: *const Extent,
    extent_count: size_t,
    packed: *mut c_void,
    length: size_t,
) -> *mut Request {
    let submit = || {
        // SAFETY: the caller passes an object, and so many extents.
        let (open, list) = unsafe { (handle(open)?, extents(list, extent_count)?) };
        let mut buffer = Buffer { begin: packed, length };
        Object::fits(list, buffer.room()?.len())?;
        if let Some(count) = open.object.read_at_once(list, buffer.room()?) {
            return Ok(Request(Submitted::done(Ok(count))));
        }
        let list = list.to_vec();
        let read = move |object: &Object| {
            let mut buffer = buffer;
            object.read_vector(&list, buffer.room()?)
        };
        open.object.submit(read).map(Request)
    };
    owned(submit())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_object_submit_write(
    open: *const Open,
    list: *const Extent,
    extent_count: size_t,
    packed: *const c_void,
    length: size_t,
) -> *mut Request {
    let submit = || {
        // SAFETY: the caller passes an object, and so many extents.
        let (open, list) = unsafe { (handle(open)?, extents(list, extent_count)?) };
        let buffer = Buffer { begin: packed.cast_mut(), length };
        Object::fits(list, buffer.bytes()?.len())?;
        if open.object.write_at_once(list, buffer.bytes()?) {
            return Ok(Request(Submitted::done(Ok(length))));
        }
        let list = list.to_vec();
        let write = move |object: &Object| {
            let buffer = buffer;
            object.write_vector(&list, buffer.bytes()?).map(|()| buffer.length)
        };
        open.object.submit(write).map(Request)
    };
    owned(submit())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_object_test(request: *const Request) -> c_int {
    // SAFETY: the caller passes a request.
    number(unsafe { handle(request) }.map(|request| c_int::from(request.0.is_done())))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_object_wait(request: *mut Request, timeout_ms: i64) -> ssize_t {
    let wait = || {
        // SAFETY: the caller passes a request.
        let waits = unsafe { handle(request)? };
        let time = u64::try_from(timeout_ms).map(Duration::from_millis);
        if time.is_ok_and(|time| !waits.0.wait_for(time)) {
            return Err(Error::new(ErrorKind::Unanswered, "what was submitted"));
        }
        // SAFETY: one of ours, which the caller gives back with this call.
        unsafe { Box::from_raw(request) }.0.wait()
    };
    count(wait())
}
