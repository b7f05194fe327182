//! How much room there is, and limits on names: `statfs`, `statvfs`, `pathconf`.
//!
//! Invariants: the file-system type is tmpfs's, which MPI-IO and HDF5 take for a plain local file
//! system; never that of NFS or Lustre. Not here: attributes of files.

use std::ffi::{c_char, c_int, c_long};

use terral_client::{Kind, Space};

use crate::hook::{Last, by_fd, by_path};
use crate::real::{Served, alias, kernel, libc_call};
use crate::{connect, memory, metadata};

const BLOCK_BYTES: u64 = 4096;
const TMPFS_MAGIC: i64 = 0x0102_1994;

fn room() -> Served<Space> {
    connect::with(|client| client.space())
}

fn fill(to: *mut libc::statfs) -> Served<c_int> {
    let room = room()?;
    // SAFETY: statfs is plain data; all zero is a value of it.
    let mut all: libc::statfs = unsafe { std::mem::zeroed() };
    all.f_type = TMPFS_MAGIC as _;
    all.f_bsize = BLOCK_BYTES as _;
    all.f_frsize = BLOCK_BYTES as _;
    all.f_blocks = room.total_bytes / BLOCK_BYTES;
    all.f_bfree = room.free_bytes / BLOCK_BYTES;
    all.f_bavail = room.free_bytes / BLOCK_BYTES;
    all.f_files = room.total_files;
    all.f_ffree = room.free_files;
    all.f_namelen = 255;
    memory::put(all, to).map(|()| 0)
}

unsafe fn fill_vfs(to: *mut libc::statvfs) -> Served<c_int> {
    let room = room()?;
    // SAFETY: statvfs is plain data; all zero is a value of it. The caller promises the struct.
    unsafe {
        let mut all: libc::statvfs = std::mem::zeroed();
        all.f_bsize = BLOCK_BYTES;
        all.f_frsize = BLOCK_BYTES;
        all.f_blocks = room.total_bytes / BLOCK_BYTES;
        all.f_bfree = room.free_bytes / BLOCK_BYTES;
        all.f_bavail = room.free_bytes / BLOCK_BYTES;
        all.f_files = room.total_files;
        all.f_ffree = room.free_files;
        all.f_favail = room.free_files;
        all.f_namemax = 255;
        to.write(all);
    }
    Ok(0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn statfs(path: *const c_char, to: *mut libc::statfs) -> c_int {
    by_path!(
        libc::AT_FDCWD,
        path,
        Last::Followed,
        |_at, path| kernel!(SYS_statfs, path, to),
        |name| metadata::of_name(&name, Last::Followed).and_then(|_| fill(to))
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fstatfs(fd: c_int, to: *mut libc::statfs) -> c_int {
    by_fd!(fd, kernel!(SYS_fstatfs, fd, to), |held| {
        let _ = &held;
        fill(to)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn statvfs(path: *const c_char, to: *mut libc::statvfs) -> c_int {
    type Function = unsafe extern "C" fn(*const c_char, *mut libc::statvfs) -> c_int;
    by_path!(
        libc::AT_FDCWD,
        path,
        Last::Followed,
        |_at, path| libc_call!(c"statvfs" as Function, -1, path, to),
        |name| {
            // SAFETY: the caller promises the struct.
            metadata::of_name(&name, Last::Followed).and_then(|_| unsafe { fill_vfs(to) })
        }
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fstatvfs(fd: c_int, to: *mut libc::statvfs) -> c_int {
    type Function = unsafe extern "C" fn(c_int, *mut libc::statvfs) -> c_int;
    by_fd!(fd, libc_call!(c"fstatvfs" as Function, -1, fd, to), |held| {
        let _ = &held;
        // SAFETY: the caller promises the struct.
        unsafe { fill_vfs(to) }
    })
}

/// Whether the answer depends on the file; the others glibc knows.
fn is_of_the_file(which: c_int) -> bool {
    matches!(
        which,
        libc::_PC_LINK_MAX
            | libc::_PC_NAME_MAX
            | libc::_PC_CHOWN_RESTRICTED
            | libc::_PC_ASYNC_IO
            | libc::_PC_FILESIZEBITS
            | libc::_PC_REC_MIN_XFER_SIZE
            | libc::_PC_REC_XFER_ALIGN
            | libc::_PC_ALLOC_SIZE_MIN
            | libc::_PC_2_SYMLINKS
    )
}

/// As glibc has them of a tmpfs; no limit is −1 with errno left alone.
fn limit(which: c_int, kind: Kind) -> c_long {
    match which {
        libc::_PC_LINK_MAX => 127,
        libc::_PC_NAME_MAX => 255,
        libc::_PC_FILESIZEBITS => 32,
        libc::_PC_ASYNC_IO if kind != Kind::File => -1,
        libc::_PC_CHOWN_RESTRICTED | libc::_PC_ASYNC_IO | libc::_PC_2_SYMLINKS => 1,
        _ => 4096,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pathconf(path: *const c_char, which: c_int) -> c_long {
    type Function = unsafe extern "C" fn(*const c_char, c_int) -> c_long;
    if !is_of_the_file(which) {
        return libc_call!(c"pathconf" as Function, -1, path, which);
    }
    by_path!(
        libc::AT_FDCWD,
        path,
        Last::Followed,
        |_at, path| libc_call!(c"pathconf" as Function, -1, path, which),
        |name| metadata::of_name(&name, Last::Followed).map(|found| limit(which, found.kind))
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fpathconf(fd: c_int, which: c_int) -> c_long {
    type Function = unsafe extern "C" fn(c_int, c_int) -> c_long;
    if !is_of_the_file(which) {
        return libc_call!(c"fpathconf" as Function, -1, fd, which);
    }
    by_fd!(fd, libc_call!(c"fpathconf" as Function, -1, fd, which), |held| {
        metadata::of_file(&held).map(|found| limit(which, found.kind))
    })
}

alias! {
    statfs64 = statfs as (path: *const c_char, to: *mut libc::statfs) -> c_int;
    fstatfs64 = fstatfs as (fd: c_int, to: *mut libc::statfs) -> c_int;
    statvfs64 = statvfs as (path: *const c_char, to: *mut libc::statvfs) -> c_int;
    fstatvfs64 = fstatvfs as (fd: c_int, to: *mut libc::statvfs) -> c_int;
}
