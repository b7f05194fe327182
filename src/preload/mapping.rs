//! `mmap` of managed files: their chunks, shared by all who map them.
//!
//! Invariants: a private mapping that is small or may be executed is one of a copy in memory of its
//! own (`/dev/shm` may be `noexec`, and a mapped chunk costs 2 MiB), which comes back where the
//! program gives changed pages away. So is every private mapping of a file of another machine, and
//! of what another machine has mapped, and every mapping of such a file that is only open for
//! reading: they show the file as it was then. Not here: how chunks are pinned, what becomes of
//! maps later (they are the kernel's), and how the client maps the arena.

use libc::{off_t, size_t};
use std::ffi::{c_int, c_void};
use terral_client::{MapHow, access, limit};

use crate::real::{Served, alias, errno, kernel, set_errno};
use crate::state::{self, Managed};
use crate::{connect, data, remap};

/// Private mappings up to this length are copies.
const COPY_BYTES: size_t = 64 << 10;

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

/// Bytes copied at a time.
const PIECE_BYTES: usize = 256 << 10;

/// Copies what is to be mapped into a memfd.
fn copy(managed: &Managed, memory: c_int, how: &MapHow) -> Served<()> {
    let mut piece = vec![0; how.length.min(PIECE_BYTES)];
    let mut done = 0;
    while done < how.length {
        let count = data::read_at(managed, &mut piece, (how.offset as usize + done) as off_t)?;
        let count = (count as usize).min(how.length - done);
        let written: isize = kernel!(SYS_pwrite64, memory, piece.as_ptr(), count, done);
        match written {
            0 => break,
            1.. => done += written as usize,
            _ => return Err(errno()),
        }
    }
    // Beyond the end of the file are zeros.
    let sized: c_int = match done < how.length {
        true => kernel!(SYS_ftruncate, memory, how.length.next_multiple_of(4096)),
        false => 0,
    };
    if sized == 0 { Ok(()) } else { Err(errno()) }
}

/// Maps a copy that `MADV_DONTNEED` brings back.
fn copied(managed: &Managed, how: &MapHow) -> Served<*mut c_void> {
    let limited = limit::file_bytes() < how.length as u64;
    let memory: c_int = match limited {
        true => -1,
        false => kernel!(SYS_memfd_create, remap::COPY.as_ptr(), libc::MFD_CLOEXEC),
    };
    if memory < 0 {
        return copied_without(managed, how);
    }
    let mapped = copy(managed, memory, how).and_then(|()| {
        let (at, length, protection) = (how.at as *mut c_void, how.length, how.protection);
        let mapped: isize = kernel!(SYS_mmap, at, length, protection, how.flags, memory, 0usize);
        if mapped == -1 { Err(errno()) } else { Ok(mapped as *mut c_void) }
    });
    let _: c_int = kernel!(SYS_close, memory);
    remap::watch();
    mapped
}

/// The same where there is no descriptor left for it, or a limit on its size: zeros come back.
#[cold]
fn copied_without(managed: &Managed, how: &MapHow) -> Served<*mut c_void> {
    let (at, length, protection) = (how.at as *mut c_void, how.length, how.protection);
    let writable = libc::PROT_READ | libc::PROT_WRITE;
    let flags = how.flags | libc::MAP_ANONYMOUS;
    let mapped: isize = kernel!(SYS_mmap, at, length, writable, flags, -1, 0usize);
    if mapped == -1 {
        return Err(errno());
    }
    let mapped = mapped as *mut c_void;
    // SAFETY: the kernel just gave this memory, readable and writable, to nobody else.
    let room = unsafe { std::slice::from_raw_parts_mut(mapped.cast::<u8>(), length) };
    let mut served = fill(managed, room, how.offset as off_t);
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

fn shared(managed: &Managed, how: MapHow) -> Served<*mut c_void> {
    remap::watch();
    match connect::serve(|| managed.file.map(how)) {
        Ok(at) => Ok(at as *mut c_void),
        Err(libc::ENOSPC) => Err(libc::ENOMEM),
        Err(libc::EFBIG) => Err(libc::EOVERFLOW),
        Err(errno) => Err(errno),
    }
}

fn mapped(managed: &Managed, how: MapHow) -> Served<*mut c_void> {
    managed.check_open()?;
    let access = managed.file.access();
    let unwritable = how.stores() && access & access::WRITE == 0;
    if access & access::READ == 0 || unwritable {
        return Err(libc::EACCES);
    }
    if managed.file.is_directory() {
        return Err(libc::ENODEV);
    }
    let private = how.flags & libc::MAP_TYPE == libc::MAP_PRIVATE;
    let is_small = how.length <= COPY_BYTES || how.protection & libc::PROT_EXEC != 0;
    let is_far = managed.file.is_far();
    if (private && (is_far || is_small)) || (is_far && access & access::WRITE == 0) {
        return copied(managed, &how);
    }
    match shared(managed, how) {
        Err(libc::ETXTBSY) if private => copied(managed, &how),
        served => served,
    }
}

/// What `mmap` does, for who may not go through the name: UCX writes over the beginning of whatever
/// function has it, and asks libc's `syscall` for what it used to do.
///
/// # Safety
/// As for mmap(2).
#[inline(never)]
pub unsafe fn map(
    at: *mut c_void,
    length: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    let held = if flags & libc::MAP_ANONYMOUS != 0 { None } else { state::managed(fd) };
    let Some(held) = held else {
        let mapped: isize = kernel!(SYS_mmap, at, length, protection, flags, fd, offset);
        return mapped as *mut c_void;
    };
    let whole = offset >= 0 && offset % 4096 == 0 && length > 0;
    let kind = flags & libc::MAP_TYPE;
    let known = [libc::MAP_PRIVATE, libc::MAP_SHARED, libc::MAP_SHARED_VALIDATE].contains(&kind);
    if !whole || !known || length > isize::MAX as usize {
        return failed(if whole && known { libc::ENOMEM } else { libc::EINVAL });
    }
    let how = MapHow { at: at.addr(), length, protection, flags, offset: offset as u64 };
    mapped(&held, how).unwrap_or_else(failed)
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
    // SAFETY: the caller's promise.
    unsafe { map(at, length, protection, flags, fd, offset) }
}

alias! {
    mmap64 = mmap as (
        at: *mut c_void, length: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off_t
    ) -> *mut c_void;
}
