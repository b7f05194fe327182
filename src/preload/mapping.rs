//! `mmap` of managed files: a private mapping is a copy in anonymous memory, and so is a shared one
//! that can only be read.
//!
//! Invariants: a shared mapping that could be written is refused with ENODEV, since that would not
//! be seen by others. A copy does not show what others write later, and bytes beyond the end of the
//! file are zero where the kernel would send SIGBUS.
//! Not here: how the client maps the arena.

use std::ffi::{c_int, c_void};

use libc::{off_t, size_t};
use terral_client::access;

use crate::data;
use crate::real::{Served, alias, errno, kernel, set_errno};
use crate::state::{self, Managed};

fn failed(errno: c_int) -> *mut c_void {
    set_errno(errno);
    libc::MAP_FAILED
}

fn fill(managed: &Managed, room: &mut [u8], mut offset: off_t) -> Served<()> {
    let mut filled = 0;
    while filled < room.len() {
        match data::read_at(managed, &mut room[filled..], offset)? {
            0 => break,
            count => {
                filled += count as usize;
                offset += count as off_t;
            }
        }
    }
    Ok(())
}

fn copied(
    managed: &Managed,
    at: *mut c_void,
    length: size_t,
    protection: c_int,
    flags: c_int,
    offset: off_t,
) -> Served<*mut c_void> {
    managed.check_open()?;
    if managed.file.is_directory() {
        return Err(libc::ENODEV);
    }
    let access = managed.file.access();
    if access & access::READ == 0 {
        return Err(libc::EACCES);
    }
    if flags & libc::MAP_TYPE != libc::MAP_PRIVATE {
        if access & access::WRITE != 0 {
            return Err(libc::ENODEV);
        }
        if protection & libc::PROT_WRITE != 0 {
            return Err(libc::EACCES);
        }
    }
    if offset < 0 || offset % 4096 != 0 || length == 0 {
        return Err(libc::EINVAL);
    }
    let writable = libc::PROT_READ | libc::PROT_WRITE;
    let flags = (flags & !libc::MAP_TYPE) | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let mapped: isize = kernel!(SYS_mmap, at, length, writable, flags, -1, 0usize);
    if mapped == -1 {
        return Err(errno());
    }
    let mapped = mapped as *mut c_void;
    // SAFETY: the kernel just gave this memory, readable and writable, to nobody else.
    let room = unsafe { std::slice::from_raw_parts_mut(mapped.cast::<u8>(), length) };
    let mut served = fill(managed, room, offset);
    if served.is_ok() && protection != writable {
        let done: c_int = kernel!(SYS_mprotect, mapped, length, protection);
        served = if done == 0 { Ok(()) } else { Err(errno()) };
    }
    if let Err(errno) = served {
        let _: c_int = kernel!(SYS_munmap, mapped, length);
        return Err(errno);
    }
    Ok(mapped)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mmap(
    at: *mut c_void,
    length: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    let held = if flags & libc::MAP_ANONYMOUS != 0 { None } else { state::managed(fd) };
    match held {
        Some(held) => copied(&held, at, length, protection, flags, offset).unwrap_or_else(failed),
        None => {
            let mapped: isize = kernel!(SYS_mmap, at, length, protection, flags, fd, offset);
            mapped as *mut c_void
        }
    }
}

alias! {
    mmap64 = mmap as (
        at: *mut c_void, length: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off_t
    ) -> *mut c_void;
}
