//! Sockets of the file system: there are none under the prefix, and none is made in the kernel's
//! directory that stands for the working directory there.
//!
//! Invariants: an address elsewhere goes to the kernel as it came. Not here: anything else about
//! sockets; descriptors that are passed over them are the kernel's.

use std::ffi::{c_char, c_int};

use libc::{sockaddr, sockaddr_un, socklen_t};

use crate::hook::Last;
use crate::metadata::of_name;
use crate::path::{Space, Where, resolve};
use crate::real::{Served, answer, kernel};
use crate::settings;

const PATH_AT: usize = std::mem::offset_of!(sockaddr_un, sun_path);
/// A path in an address may do without its zero.
const PATH_BYTES: usize = size_of::<sockaddr_un>() - PATH_AT + 1;

/// The path of an address, with its zero, unless it is of another kind.
unsafe fn path_of(address: *const sockaddr, length: socklen_t) -> Option<[c_char; PATH_BYTES]> {
    let length = length as usize;
    if !settings::active() || address.is_null() || length <= PATH_AT {
        return None;
    }
    let mut path = [0; PATH_BYTES];
    // SAFETY: the callers promise `length` bytes.
    unsafe {
        if c_int::from((*address).sa_family) != libc::AF_UNIX {
            return None;
        }
        let count = (length - PATH_AT).min(PATH_BYTES - 1);
        let from = address.byte_add(PATH_AT).cast::<c_char>();
        std::ptr::copy_nonoverlapping(from, path.as_mut_ptr(), count);
    }
    (path[0] != 0).then_some(path)
}

/// What a call on an address under the prefix fails with; none if it is the kernel's.
unsafe fn refused(
    address: *const sockaddr,
    length: socklen_t,
    errno: fn(bool) -> c_int,
) -> Option<Served<c_int>> {
    // SAFETY: the callers promise the address.
    let path = unsafe { path_of(address, length) }?;
    let mut space = Space::new();
    // SAFETY: the path has its zero.
    match unsafe { resolve(libc::AT_FDCWD, path.as_ptr(), &mut space) } {
        Where::Kernel(..) => None,
        Where::Failed(errno) => Some(Err(errno)),
        Where::Managed(name) => Some(match of_name(&name, Last::Itself) {
            Ok(_) => Err(errno(true)),
            Err(libc::ENOENT) => Err(errno(false)),
            Err(other) => Err(other),
        }),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn bind(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    let errno = |exists: bool| if exists { libc::EADDRINUSE } else { libc::EPERM };
    // SAFETY: the caller promises the address.
    match unsafe { refused(address, length, errno) } {
        Some(served) => answer(served),
        None => kernel!(SYS_bind, fd, address, length),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    let errno = |exists: bool| if exists { libc::ECONNREFUSED } else { libc::ENOENT };
    // SAFETY: the caller promises the address.
    match unsafe { refused(address, length, errno) } {
        Some(served) => answer(served),
        None => kernel!(SYS_connect, fd, address, length),
    }
}
