//! Sockets with a name under the prefix, on the way back: where the kernel shows the address of an
//! object, the program is shown what the socket was bound to, as it was given then.
//!
//! Invariants: the address is changed in place, as far as there is room, and its length is told in
//! full; all others stay as the kernel has them. A socket whose last name is gone is shown by its
//! number. Not here: addresses on the way out (`sockets`).

use std::ffi::{c_int, c_uint, c_void};
use std::mem::offset_of;

use libc::{mmsghdr, msghdr, size_t, sockaddr, sockaddr_un, socklen_t, ssize_t, timespec};

use crate::real::{Answer, errno, libc_call, set_errno};
use crate::{connect, memory, settings};

const PATH_AT: usize = offset_of!(sockaddr_un, sun_path);
/// Most messages that one call receives, as in Linux.
const MESSAGES_MAX: usize = 1024;

/// The path that stands for an object's, if it is one.
fn instead_of(path: &[u8]) -> Option<Vec<u8>> {
    let end = path.iter().position(|byte| *byte == 0).unwrap_or(path.len());
    let told = connect::with(|client| {
        let ino = client.whose_object(&path[..end]);
        Ok(ino.map(|ino| (ino, client.address(ino))))
    });
    let (ino, address) = told.ok()??;
    let address = address.filter(|address| !address.is_empty());
    Some(address.unwrap_or_else(|| settings::gone(ino.0)))
}

/// Puts the program's address in place of an object's, in `room` bytes of which the kernel has used
/// `length`. Gives its length, if it did.
fn translate(at: *mut c_void, room: usize, length: socklen_t) -> Option<socklen_t> {
    let length = length as usize;
    if at.is_null() || length <= PATH_AT || length > room {
        return None;
    }
    let family = memory::get(at.cast::<libc::sa_family_t>()).ok()?;
    if c_int::from(family) != libc::AF_UNIX {
        return None;
    }
    let mut bytes = Vec::new();
    memory::append(&mut bytes, at.cast_const().cast::<u8>(), length).ok()?;
    let path = bytes.get(PATH_AT..).filter(|path| path.first() != Some(&0))?;
    let path = [&instead_of(path)?[..], b"\0"].concat();
    let fits = path.len().min(room - PATH_AT);
    // SAFETY: within the room that the caller has given.
    let to = unsafe { at.cast::<u8>().add(PATH_AT) };
    memory::give(&path[..fits], to).ok()?;
    Some((PATH_AT + path.len()) as socklen_t)
}

/// Does a call that says an address at `at`, and its length at `length`.
fn telling<T: Answer>(at: *mut sockaddr, length: *mut socklen_t, call: impl FnOnce() -> T) -> T {
    if at.is_null() || length.is_null() || !settings::active() {
        return call();
    }
    let room = memory::get(length).unwrap_or(0);
    let told = call();
    let before = errno();
    if !told.is_failure()
        && let Ok(used) = memory::get(length)
        && let Some(used) = translate(at.cast(), room as usize, used)
    {
        let _ = memory::put(used, length);
    }
    set_errno(before);
    told
}

type Name = unsafe extern "C" fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int;

#[unsafe(no_mangle)]
unsafe extern "C" fn getsockname(fd: c_int, at: *mut sockaddr, length: *mut socklen_t) -> c_int {
    telling(at, length, || libc_call!(c"getsockname" as Name, -1, fd, at, length))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn getpeername(fd: c_int, at: *mut sockaddr, length: *mut socklen_t) -> c_int {
    telling(at, length, || libc_call!(c"getpeername" as Name, -1, fd, at, length))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn accept(fd: c_int, at: *mut sockaddr, length: *mut socklen_t) -> c_int {
    telling(at, length, || libc_call!(c"accept" as Name, -1, fd, at, length))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn accept4(
    fd: c_int,
    at: *mut sockaddr,
    length: *mut socklen_t,
    flags: c_int,
) -> c_int {
    type Function = unsafe extern "C" fn(c_int, *mut sockaddr, *mut socklen_t, c_int) -> c_int;
    telling(at, length, || libc_call!(c"accept4" as Function, -1, fd, at, length, flags))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn recvfrom(
    fd: c_int,
    buffer: *mut c_void,
    count: size_t,
    flags: c_int,
    at: *mut sockaddr,
    length: *mut socklen_t,
) -> ssize_t {
    type Function = unsafe extern "C" fn(
        c_int,
        *mut c_void,
        size_t,
        c_int,
        *mut sockaddr,
        *mut socklen_t,
    ) -> ssize_t;
    telling(at, length, || {
        libc_call!(c"recvfrom" as Function, -1, fd, buffer, count, flags, at, length)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __recvfrom_chk(
    fd: c_int,
    buffer: *mut c_void,
    count: size_t,
    room: size_t,
    flags: c_int,
    at: *mut sockaddr,
    length: *mut socklen_t,
) -> ssize_t {
    if room < count {
        // SAFETY: abort takes nothing and does not return.
        unsafe { libc::abort() }
    }
    // SAFETY: the same contract.
    unsafe { recvfrom(fd, buffer, count, flags, at, length) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    type Function = unsafe extern "C" fn(c_int, *mut msghdr, c_int) -> ssize_t;
    let Some(asked) = settings::active().then(|| memory::get(message).ok()).flatten() else {
        return libc_call!(c"recvmsg" as Function, -1, fd, message, flags);
    };
    // SAFETY: a field of what was just read.
    let length = unsafe { &raw mut (*message).msg_namelen };
    telling(asked.msg_name.cast(), length, || {
        libc_call!(c"recvmsg" as Function, -1, fd, message, flags)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    type Function =
        unsafe extern "C" fn(c_int, *mut mmsghdr, c_uint, c_int, *mut timespec) -> c_int;
    let mut asked = Vec::new();
    if settings::active() {
        let _ = memory::append(&mut asked, messages, (count as usize).min(MESSAGES_MAX));
    }
    let told = libc_call!(c"recvmmsg" as Function, -1, fd, messages, count, flags, timeout);
    let before = errno();
    for (at, asked) in asked.iter().enumerate().take(usize::try_from(told).unwrap_or(0)) {
        // SAFETY: one of the messages that were read there.
        let length = unsafe { &raw mut (*messages.add(at)).msg_hdr.msg_namelen };
        let room = asked.msg_hdr.msg_namelen as usize;
        if let Ok(used) = memory::get(length)
            && let Some(used) = translate(asked.msg_hdr.msg_name, room, used)
        {
            let _ = memory::put(used, length);
        }
    }
    set_errno(before);
    told
}
