//! `fallocate` and `posix_fallocate`.
//!
//! Invariants: a file grows as it is asked to, but memory is taken only when it is written; a hole
//! that is punched reads as zeros, and stays in memory. Not here: where holes are (`data`).

use std::ffi::c_int;

use libc::off_t;
use terral_client::{Extent, access};

use crate::data::{allow, extent};
use crate::hook::by_fd;
use crate::real::{Served, alias, done, kernel, set_errno};
use crate::state::{self, Managed};
use crate::{connect, limits};

static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// The end of a range; EINVAL if it is none.
fn end_of(at: off_t, count: off_t) -> Served<off_t> {
    if at < 0 || count <= 0 {
        return Err(libc::EINVAL);
    }
    at.checked_add(count).ok_or(libc::EFBIG)
}

/// Grows the file to `end` after looking whether there is room.
fn grow(managed: &Managed, end: off_t) -> Served<()> {
    let (end, size) = (end as u64, managed.file.size());
    if end <= size {
        return Ok(());
    }
    limits::check_growth_of(managed, end)?;
    if end - size > connect::with(|client| client.space())?.free_bytes {
        return Err(libc::ENOSPC);
    }
    connect::serve(|| managed.file.grow(end))
}

/// Writes zeros over what is data between `at` and `end`.
fn clear(managed: &Managed, mut at: off_t, end: off_t) -> Served<()> {
    let end = end.min(managed.file.size() as off_t);
    while at < end {
        at = match extent(managed, at, Extent::Data) {
            Err(libc::ENXIO) => return Ok(()),
            found => found?,
        };
        let stop = if at < end { extent(managed, at, Extent::Hole)?.min(end) } else { at };
        while at < stop {
            let count = ZEROS.len().min((stop - at) as usize);
            // Not this library's own `write_at`, which appends where the file is open for that.
            let zeros = &ZEROS[..count];
            connect::serve(|| managed.file.write_at(zeros, at as u64))?;
            at += count as off_t;
        }
    }
    Ok(())
}

fn allocate(managed: &Managed, mode: c_int, at: off_t, count: off_t) -> Served<()> {
    managed.check_open()?;
    let end = match end_of(at, count) {
        Err(libc::EINVAL) => return Err(libc::EINVAL),
        end => end,
    };
    let keep = libc::FALLOC_FL_KEEP_SIZE;
    let (punch, zero) = (libc::FALLOC_FL_PUNCH_HOLE | keep, libc::FALLOC_FL_ZERO_RANGE);
    if mode != 0 && mode != punch && mode & !keep != zero {
        return Err(libc::EOPNOTSUPP);
    }
    allow(managed, access::WRITE)?;
    let end = end?;
    if mode != 0 {
        clear(managed, at, end)?;
    }
    if mode & keep == 0 {
        grow(managed, end)?;
    }
    // As Linux: the file counts as written in any case.
    connect::serve(|| managed.file.touch())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fallocate(fd: c_int, mode: c_int, at: off_t, count: off_t) -> c_int {
    by_fd!(fd, kernel!(SYS_fallocate, fd, mode, at, count), |held| {
        allocate(&held, mode, at, count).map(|()| 0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_fallocate(fd: c_int, at: off_t, count: off_t) -> c_int {
    let saved = crate::real::errno();
    let answer = match state::managed(fd) {
        Some(held) => done(allocate(&held, 0, at, count)),
        None => kernel!(SYS_fallocate, fd, 0, at, count),
    };
    if answer == 0 {
        return 0;
    }
    let errno = crate::real::errno();
    set_errno(saved);
    errno
}

alias! {
    fallocate64 = fallocate as (fd: c_int, mode: c_int, at: off_t, count: off_t) -> c_int;
    posix_fallocate64 = posix_fallocate as (fd: c_int, at: off_t, count: off_t) -> c_int;
}
