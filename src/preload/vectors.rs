//! `readv`, `writev` and their positioned variants.
//!
//! Invariants: a vector of at most 64 KiB, or any that appends, is written by one call of the
//! client, so that it lands in one piece. Not here: single buffers (`data`), flags (`flagged`).

use std::ffi::c_int;

use libc::{iovec, off_t, ssize_t};
use terral_client::{access, fault};

use crate::hook::by_fd;
use crate::real::{Served, alias, kernel};
use crate::state::Managed;
use crate::{data, memory};

const GATHER_BYTES: usize = 64 << 10;

/// Most buffers of a vector.
const BUFFERS_MAX: usize = 1024;

/// A copy of the caller's vector; EINVAL for one that is longer than any, or of more bytes.
pub fn entries(vector: *const iovec, count: c_int) -> Served<Vec<iovec>> {
    let count = usize::try_from(count).ok().filter(|count| *count <= BUFFERS_MAX);
    let mut entries = Vec::new();
    memory::append(&mut entries, vector, count.ok_or(libc::EINVAL)?)?;
    let lengths = entries.iter().map(|entry| entry.iov_len);
    let whole = lengths.clone().try_fold(0usize, usize::checked_add);
    let most = isize::MAX as usize;
    // Linux cuts a sum that is too long, but not a length.
    if lengths.clone().any(|length| length > most) || whole.is_none() {
        return Err(libc::EINVAL);
    }
    for entry in &entries {
        memory::check_place(entry.iov_base.addr(), entry.iov_len)?;
    }
    Ok(entries)
}

/// Whether the file is open for this; a vector of nothing is let through also for a directory.
pub fn allow(managed: &Managed, right: u64, count: c_int) -> Served<()> {
    match data::allow(managed, right) {
        Err(libc::EISDIR) if count == 0 => Ok(()),
        allowed => allowed,
    }
}

/// Where a vector goes: at the shared offset, or at this one.
fn next(at: Option<off_t>, moved: isize) -> Option<off_t> {
    at.map(|at| at + moved as off_t)
}

/// Reads into a vector, at the shared offset or at this one.
///
/// # Safety
/// `vector` must have `count` entries, each with its buffer.
pub unsafe fn read_all(
    managed: &Managed,
    vector: *const iovec,
    count: c_int,
    at: Option<off_t>,
) -> Served<isize> {
    allow(managed, access::READ, count)?;
    let entries = entries(vector, count)?;
    let whole = entries.iter().map(|entry| entry.iov_len).sum();
    if let Some(at) = at {
        data::start(at, whole)?;
    }
    let mut total = 0;
    for entry in entries {
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
    if total == 0 && at.is_none() && whole > 0 {
        data::check_here(managed, whole)?;
    }
    Ok(total)
}

/// All buffers in one, up to the first byte that is not there.
pub fn gather<'a>(pieces: impl Iterator<Item = &'a [u8]>, whole: usize) -> Served<Vec<u8>> {
    let mut gathered = Vec::new();
    gathered.try_reserve_exact(whole).map_err(|_| libc::ENOMEM)?;
    for piece in pieces {
        if let Err(errno) = memory::append(&mut gathered, piece.as_ptr(), piece.len()) {
            let there = fault::readable(piece);
            memory::append(&mut gathered, piece.as_ptr(), there)?;
            if gathered.is_empty() {
                return Err(errno);
            }
            break;
        }
    }
    Ok(gathered)
}

fn write_piece(managed: &Managed, bytes: &[u8], at: Option<off_t>) -> Served<isize> {
    match at {
        Some(at) => data::write_at(managed, bytes, at),
        None => data::write_here(managed, bytes),
    }
}

/// Writes from a vector, at the shared offset or at this one.
///
/// # Safety
/// `vector` must have `count` entries, each with its buffer.
pub unsafe fn write_all(
    managed: &Managed,
    vector: *const iovec,
    count: c_int,
    at: Option<off_t>,
) -> Served<isize> {
    allow(managed, access::WRITE, count)?;
    let entries = entries(vector, count)?;
    // SAFETY: the caller of writev promises each buffer.
    let pieces = entries.iter().map(|entry| unsafe { data::bytes(entry.iov_base, entry.iov_len) });
    let whole: usize = pieces.clone().map(<[u8]>::len).sum();
    if entries.len() > 1 && (whole <= GATHER_BYTES || managed.file.access() & access::APPEND != 0) {
        return write_piece(managed, &gather(pieces, whole)?, at);
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

alias! {
    preadv64 = preadv as (fd: c_int, vector: *const iovec, count: c_int, at: off_t) -> ssize_t;
    pwritev64 = pwritev as (fd: c_int, vector: *const iovec, count: c_int, at: off_t) -> ssize_t;
}
