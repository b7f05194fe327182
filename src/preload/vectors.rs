//! `readv`, `writev` and their positioned kin.
//!
//! Invariants: a vector of at most 64 KiB, or any that appends, is written by one call of the
//! client, so that it lands in one piece. Not here: single buffers (`data`).

use std::ffi::c_int;

use libc::{iovec, off_t, ssize_t};
use terral_client::access;

use crate::data;
use crate::hook::by_fd;
use crate::real::{Served, alias, kernel};
use crate::state::Managed;

const GATHER_BYTES: usize = 64 << 10;

/// The caller's vector.
///
/// # Safety
/// `vector` must have `count` entries.
unsafe fn entries<'a>(vector: *const iovec, count: c_int) -> Served<&'a [iovec]> {
    match count {
        0 => Ok(&[]),
        // SAFETY: the caller's promise.
        1..=1024 => Ok(unsafe { std::slice::from_raw_parts(vector, count as usize) }),
        _ => Err(libc::EINVAL),
    }
}

/// Whether the file is open for this; a vector of nothing is let through also for a directory.
fn allow(managed: &Managed, right: u64, count: c_int) -> Served<()> {
    match data::allow(managed, right) {
        Err(libc::EISDIR) if count == 0 => Ok(()),
        allowed => allowed,
    }
}

/// Where a vector goes: at the shared offset, or at this one.
fn next(at: Option<off_t>, moved: isize) -> Option<off_t> {
    at.map(|at| at + moved as off_t)
}

unsafe fn read_all(
    managed: &Managed,
    vector: *const iovec,
    count: c_int,
    at: Option<off_t>,
) -> Served<isize> {
    allow(managed, access::READ, count)?;
    let mut total = 0;
    // SAFETY: the caller of readv promises the vector.
    for entry in unsafe { entries(vector, count) }? {
        // SAFETY: the caller of readv promises each buffer.
        let room = unsafe { data::room(entry.iov_base, entry.iov_len) };
        let wanted = room.len() as isize;
        let moved = match next(at, total) {
            Some(at) => data::read_at(managed, room, at),
            None => data::read_here(managed, room),
        };
        match moved {
            Ok(moved) => total += moved,
            Err(errno) if total == 0 => return Err(errno),
            Err(_) => break,
        }
        if moved != Ok(wanted) {
            break;
        }
    }
    Ok(total)
}

fn write_piece(managed: &Managed, bytes: &[u8], at: Option<off_t>) -> Served<isize> {
    match at {
        Some(at) => data::write_at(managed, bytes, at),
        None => data::write_here(managed, bytes),
    }
}

unsafe fn write_all(
    managed: &Managed,
    vector: *const iovec,
    count: c_int,
    at: Option<off_t>,
) -> Served<isize> {
    allow(managed, access::WRITE, count)?;
    // SAFETY: the caller of writev promises the vector.
    let entries = unsafe { entries(vector, count) }?;
    // SAFETY: the caller of writev promises each buffer.
    let pieces = entries.iter().map(|entry| unsafe { data::bytes(entry.iov_base, entry.iov_len) });
    let whole: usize = pieces.clone().map(<[u8]>::len).sum();
    if entries.len() > 1 && (whole <= GATHER_BYTES || managed.file.access() & access::APPEND != 0) {
        let mut gathered = Vec::new();
        gathered.try_reserve_exact(whole).map_err(|_| libc::ENOMEM)?;
        pieces.for_each(|piece| gathered.extend_from_slice(piece));
        return write_piece(managed, &gathered, at);
    }
    let mut total = 0;
    for piece in pieces {
        match write_piece(managed, piece, next(at, total)) {
            Ok(moved) => {
                total += moved;
                if moved != piece.len() as isize {
                    break;
                }
            }
            Err(errno) if total == 0 => return Err(errno),
            Err(_) => break,
        }
    }
    Ok(total)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn readv(fd: c_int, vector: *const iovec, count: c_int) -> ssize_t {
    by_fd!(fd, kernel!(SYS_readv, fd, vector, count), |held| {
        // SAFETY: the caller promises the vector.
        unsafe { read_all(&held, vector, count, None) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn writev(fd: c_int, vector: *const iovec, count: c_int) -> ssize_t {
    by_fd!(fd, kernel!(SYS_writev, fd, vector, count), |held| {
        // SAFETY: the caller promises the vector.
        unsafe { write_all(&held, vector, count, None) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn preadv(fd: c_int, vector: *const iovec, count: c_int, at: off_t) -> ssize_t {
    // The kernel takes the offset in two halves; on 64-bit machines the first holds all of it.
    by_fd!(fd, kernel!(SYS_preadv, fd, vector, count, at, 0usize), |held| {
        // SAFETY: the caller promises the vector.
        unsafe { read_all(&held, vector, count, Some(at)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pwritev(fd: c_int, vector: *const iovec, count: c_int, at: off_t) -> ssize_t {
    by_fd!(fd, kernel!(SYS_pwritev, fd, vector, count, at, 0usize), |held| {
        // SAFETY: the caller promises the vector.
        unsafe { write_all(&held, vector, count, Some(at)) }
    })
}

const PLAIN: c_int = libc::RWF_HIPRI | libc::RWF_DSYNC | libc::RWF_SYNC;

#[unsafe(no_mangle)]
unsafe extern "C" fn preadv2(
    fd: c_int,
    vector: *const iovec,
    count: c_int,
    at: off_t,
    flags: c_int,
) -> ssize_t {
    by_fd!(fd, kernel!(SYS_preadv2, fd, vector, count, at, 0usize, flags), |held| {
        if flags & !PLAIN != 0 {
            Err(libc::EOPNOTSUPP)
        } else {
            // SAFETY: the caller promises the vector.
            unsafe { read_all(&held, vector, count, (at != -1).then_some(at)) }
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pwritev2(
    fd: c_int,
    vector: *const iovec,
    count: c_int,
    at: off_t,
    flags: c_int,
) -> ssize_t {
    by_fd!(fd, kernel!(SYS_pwritev2, fd, vector, count, at, 0usize, flags), |held| {
        if flags & !PLAIN != 0 {
            Err(libc::EOPNOTSUPP)
        } else {
            // SAFETY: the caller promises the vector.
            unsafe { write_all(&held, vector, count, (at != -1).then_some(at)) }
        }
    })
}

alias! {
    preadv64 = preadv as (fd: c_int, vector: *const iovec, count: c_int, at: off_t) -> ssize_t;
    pwritev64 = pwritev as (fd: c_int, vector: *const iovec, count: c_int, at: off_t) -> ssize_t;
    preadv64v2 = preadv2 as (fd: c_int, vector: *const iovec, count: c_int, at: off_t, flags: c_int)
        -> ssize_t;
    pwritev64v2 = pwritev2 as (
        fd: c_int, vector: *const iovec, count: c_int, at: off_t, flags: c_int
    ) -> ssize_t;
}
