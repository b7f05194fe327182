//! The one place that turns a system call's −1 into an error.

use std::io;

use terral_format::Error;

/// `value`, or the error `errno` names if it is −1.
pub(crate) fn check(value: i64, doing: impl FnOnce() -> String) -> Result<i64, Error> {
    if value == -1 { Err(Error::system(&io::Error::last_os_error(), doing())) } else { Ok(value) }
}

/// `value` of a call that another signal may interrupt: repeats it until it was not.
pub(crate) fn retry(mut call: impl FnMut() -> i64) -> i64 {
    loop {
        let value = call();
        if value != -1 || io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return value;
        }
    }
}

/// `value`, or what errno says if it is −1: for interposed calls, which allocate nothing.
pub(crate) fn checked(value: libc::c_long) -> io::Result<libc::c_long> {
    if value == -1 { Err(io::Error::last_os_error()) } else { Ok(value) }
}
