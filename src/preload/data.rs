//! `read`, `write` and their positioned and checked variants, `lseek`, sizes and safety.
//!
//! Invariants: at most 2 GiB − 4 KiB a call, as Linux; access rights are checked here, so that
//! the client sees only calls that may be; nothing read or written changes nothing. Not here:
//! vectors, and room made in advance (`allocate`).

use std::ffi::{c_char, c_int, c_void};

use libc::{off_t, size_t, ssize_t};
use terral_client::{Extent, access};

use crate::hook::{Last, by_fd, by_open_fd, by_path, known};
use crate::path::Name;
use crate::real::{Served, alias, kernel, set_errno};
use crate::state::Managed;
use crate::{connect, limits, memory, metadata, state};

/// The most Linux moves in one call.
const CALL_BYTES_MAX: usize = 0x7fff_f000;

/// Fails with EBADF unless the file is open for `right`; with EISDIR for reading a directory.
pub fn allow(managed: &Managed, right: u64) -> Served<()> {
    if managed.file.access() & right == 0 {
        return Err(libc::EBADF);
    }
    if managed.file.is_directory() { Err(libc::EISDIR) } else { Ok(()) }
}

/// The caller's buffer for bytes to be read.
///
/// # Safety
/// `buffer` must have `count` writable bytes that nobody else has a reference to. Where memory is
/// not there, only [`read_here`] and [`read_at`] may be given it.
pub unsafe fn room<'a>(buffer: *mut c_void, count: usize) -> &'a mut [u8] {
    let buffer = memory::or_nowhere(buffer, count).cast_mut();
    // SAFETY: the caller's promise; the bytes are only written, so what they hold does not matter.
    unsafe { std::slice::from_raw_parts_mut(buffer.cast(), count.min(CALL_BYTES_MAX)) }
}

/// The caller's bytes to be written.
///
/// # Safety
/// `buffer` must have `count` readable bytes. Where memory is not there, only [`write_here`] and
/// [`write_at`] may be given it.
pub unsafe fn bytes<'a>(buffer: *const c_void, count: usize) -> &'a [u8] {
    let buffer = memory::or_nowhere(buffer, count);
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(buffer.cast(), count.min(CALL_BYTES_MAX)) }
}

/// Reads at the shared offset.
#[inline]
pub fn read_here(managed: &Managed, buffer: &mut [u8]) -> Served<isize> {
    allow(managed, access::READ)?;
    memory::check_range(buffer)?;
    if buffer.is_empty() {
        return Ok(0);
    }
    let read = memory::as_far_into(buffer, |room| connect::serve(|| managed.file.read(room)))?;
    if read == 0 {
        check_here(managed, buffer.len())?;
    }
    Ok(read as isize)
}

/// EINVAL where `count` bytes from the shared offset on would lie beyond what an offset can say.
/// Nothing is there, so who has read something need not ask.
#[cold]
pub fn check_here(managed: &Managed, count: usize) -> Served<()> {
    start(managed.file.offset() as off_t, count).map(drop)
}

/// Writes at the shared offset, or appends.
#[inline]
pub fn write_here(managed: &Managed, bytes: &[u8]) -> Served<isize> {
    allow(managed, access::WRITE)?;
    memory::check_range(bytes)?;
    if bytes.is_empty() {
        return Ok(0);
    }
    let appends = managed.file.access() & access::APPEND != 0;
    let at = || if appends { managed.file.size() } else { managed.file.offset() };
    let bytes = &bytes[..limits::allowed(bytes.len(), at)?];
    let written = memory::as_far(bytes, |bytes| connect::serve(|| managed.file.write(bytes)));
    if written == Err(libc::EFBIG) {
        check_here(managed, bytes.len())?;
    }
    written.map(|count| count as isize)
}

/// Where `count` bytes begin; EINVAL where there cannot be so many.
pub fn start(offset: off_t, count: usize) -> Served<u64> {
    let end = off_t::try_from(count).ok().and_then(|count| offset.checked_add(count));
    end.and_then(|_| u64::try_from(offset).ok()).ok_or(libc::EINVAL)
}

/// Reads at `offset`.
pub fn read_at(managed: &Managed, buffer: &mut [u8], offset: off_t) -> Served<isize> {
    let offset = start(offset, buffer.len())?;
    allow(managed, access::READ)?;
    memory::check_range(buffer)?;
    if buffer.is_empty() {
        return Ok(0);
    }
    memory::as_far_into(buffer, |room| connect::serve(|| managed.file.read_at(room, offset)))
        .map(|count| count as isize)
}

/// Writes at `offset`; appends instead if the file is open for that, as Linux does.
pub fn write_at(managed: &Managed, bytes: &[u8], offset: off_t) -> Served<isize> {
    let offset = start(offset, bytes.len())?;
    allow(managed, access::WRITE)?;
    memory::check_range(bytes)?;
    if bytes.is_empty() {
        return Ok(0);
    }
    let appends = managed.file.access() & access::APPEND != 0;
    let at = || if appends { managed.file.size() } else { offset };
    let bytes = &bytes[..limits::allowed(bytes.len(), at)?];
    let written = memory::as_far(bytes, |bytes| {
        connect::serve(|| match appends {
            true => managed.file.append(bytes).map(|_| bytes.len()),
            false => managed.file.write_at(bytes, offset),
        })
    });
    written.map(|count| count as isize)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn read(fd: c_int, buffer: *mut c_void, count: size_t) -> ssize_t {
    by_fd!(fd, kernel!(SYS_read, fd, buffer, count), |held| {
        // SAFETY: the caller of read promises the buffer.
        read_here(&held, unsafe { room(buffer, count) })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn write(fd: c_int, buffer: *const c_void, count: size_t) -> ssize_t {
    by_fd!(fd, kernel!(SYS_write, fd, buffer, count), |held| {
        // SAFETY: the caller of write promises the buffer.
        write_here(&held, unsafe { bytes(buffer, count) })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pread(fd: c_int, buffer: *mut c_void, count: size_t, at: off_t) -> ssize_t {
    by_fd!(fd, kernel!(SYS_pread64, fd, buffer, count, at), |held| {
        // SAFETY: the caller of pread promises the buffer.
        read_at(&held, unsafe { room(buffer, count) }, at)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pwrite(fd: c_int, buffer: *const c_void, count: size_t, at: off_t) -> ssize_t {
    by_fd!(fd, kernel!(SYS_pwrite64, fd, buffer, count, at), |held| {
        // SAFETY: the caller of pwrite promises the buffer.
        write_at(&held, unsafe { bytes(buffer, count) }, at)
    })
}

/// What the `_chk` family does when the buffer is too small: it ends the program.
fn check_room(count: size_t, room: size_t) {
    if count > room {
        // SAFETY: abort takes nothing and does not return.
        unsafe { libc::abort() }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __read_chk(
    fd: c_int,
    buffer: *mut c_void,
    count: size_t,
    room: size_t,
) -> ssize_t {
    check_room(count, room);
    // SAFETY: the same contract as read.
    unsafe { read(fd, buffer, count) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __pread_chk(
    fd: c_int,
    buffer: *mut c_void,
    count: size_t,
    at: off_t,
    room: size_t,
) -> ssize_t {
    check_room(count, room);
    // SAFETY: the same contract as pread.
    unsafe { pread(fd, buffer, count, at) }
}

/// Where data or a hole begins, from `offset` on; ENXIO if nowhere.
pub fn extent(managed: &Managed, offset: off_t, want: Extent) -> Served<off_t> {
    if managed.file.is_directory() {
        return Err(libc::EINVAL);
    }
    let offset = u64::try_from(offset).map_err(|_| libc::ENXIO)?;
    let found = connect::serve(|| managed.file.seek(offset, want))?;
    found.map(|at| at as off_t).ok_or(libc::ENXIO)
}

fn sought(managed: &Managed, offset: off_t, whence: c_int) -> Served<off_t> {
    let file = &managed.file;
    let base = match whence {
        libc::SEEK_SET => 0,
        libc::SEEK_CUR => file.offset() as off_t,
        libc::SEEK_END => file.size() as off_t,
        libc::SEEK_DATA => extent(managed, offset, Extent::Data)? - offset,
        libc::SEEK_HOLE => extent(managed, offset, Extent::Hole)? - offset,
        _ => return Err(libc::EINVAL),
    };
    let target = base.checked_add(offset).ok_or(libc::EINVAL)?;
    let position = u64::try_from(target).map_err(|_| libc::EINVAL)?;
    file.set_offset(position);
    Ok(target)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lseek(fd: c_int, offset: off_t, whence: c_int) -> off_t {
    by_open_fd!(fd, kernel!(SYS_lseek, fd, offset, whence), |held| sought(&held, offset, whence))
}

fn cut(managed: &Managed, size: off_t) -> Served<()> {
    let size = u64::try_from(size).map_err(|_| libc::EINVAL)?;
    managed.check_open()?;
    if managed.file.access() & access::WRITE == 0 || managed.file.is_directory() {
        return Err(libc::EINVAL);
    }
    limits::check_growth_of(managed, size)?;
    connect::serve(|| managed.file.truncate(size))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ftruncate(fd: c_int, size: off_t) -> c_int {
    by_fd!(fd, kernel!(SYS_ftruncate, fd, size), |held| cut(&held, size).map(|()| 0))
}

fn cut_name(name: &Name<'_>, size: off_t) -> Served<()> {
    let size = u64::try_from(size).map_err(|_| libc::EINVAL)?;
    if name.directory {
        metadata::of_name(name, Last::Followed)?;
    }
    let now = || connect::with(|client| client.stat(name.path)).map(|found| found.size);
    limits::check_growth(size, now)?;
    connect::with(|client| client.truncate(name.path, size))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn truncate(path: *const c_char, size: off_t) -> c_int {
    if size < 0 {
        // Linux looks at it before it looks at the path.
        set_errno(libc::EINVAL);
        return -1;
    }
    by_path!(
        libc::AT_FDCWD,
        path,
        Last::Followed,
        |_at, path| kernel!(SYS_truncate, path, size),
        |name| cut_name(&name, size).map(|()| 0)
    )
}

/// Makes what was written safe.
pub fn safe(managed: &Managed) -> Served<()> {
    if managed.file.is_directory() {
        return Ok(());
    }
    connect::serve(|| managed.file.sync())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fsync(fd: c_int) -> c_int {
    by_open_fd!(fd, kernel!(SYS_fsync, fd), |held| safe(&held).map(|()| 0))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdatasync(fd: c_int) -> c_int {
    by_open_fd!(fd, kernel!(SYS_fdatasync, fd), |held| safe(&held).map(|()| 0))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn syncfs(fd: c_int) -> c_int {
    by_open_fd!(fd, kernel!(SYS_syncfs, fd), |held| safe(&held).map(|()| 0))
}

/// All flags of `sync_file_range`.
const SYNC_RANGE: c_int = 7;

#[unsafe(no_mangle)]
unsafe extern "C" fn sync_file_range(fd: c_int, at: off_t, count: off_t, flags: u32) -> c_int {
    by_open_fd!(fd, kernel!(SYS_sync_file_range, fd, at, count, flags), |held| {
        let there = at >= 0 && count >= 0 && at.checked_add(count).is_some();
        let range = if there { Ok(()) } else { Err(libc::EINVAL) };
        let asked = known(flags as c_int, SYNC_RANGE).and(range);
        asked.and_then(|()| safe(&held)).map(|()| 0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_fadvise(fd: c_int, at: off_t, count: off_t, advice: c_int) -> c_int {
    if let Some(held) = state::managed(fd) {
        let known = (libc::POSIX_FADV_NORMAL..=libc::POSIX_FADV_NOREUSE).contains(&advice);
        let wrong = if count < 0 || !known { libc::EINVAL } else { 0 };
        return held.check_open().err().unwrap_or(wrong);
    }
    let saved = crate::real::errno();
    let answer: c_int = kernel!(SYS_fadvise64, fd, at, count, advice);
    if answer == 0 {
        return 0;
    }
    let errno = crate::real::errno();
    set_errno(saved);
    errno
}

#[unsafe(no_mangle)]
unsafe extern "C" fn readahead(fd: c_int, at: off_t, count: size_t) -> ssize_t {
    by_open_fd!(fd, kernel!(SYS_readahead, fd, at, count), |held| {
        match allow(&held, access::READ) {
            Err(libc::EISDIR) => Err(libc::EINVAL),
            allowed => allowed.map(|()| 0),
        }
    })
}

alias! {
    __read = read as (fd: c_int, buffer: *mut c_void, count: size_t) -> ssize_t;
    __write = write as (fd: c_int, buffer: *const c_void, count: size_t) -> ssize_t;
    pread64 = pread as (fd: c_int, buffer: *mut c_void, count: size_t, at: off_t) -> ssize_t;
    __pread64 = pread as (fd: c_int, buffer: *mut c_void, count: size_t, at: off_t) -> ssize_t;
    pwrite64 = pwrite as (fd: c_int, buffer: *const c_void, count: size_t, at: off_t) -> ssize_t;
    __pwrite64 = pwrite as (fd: c_int, buffer: *const c_void, count: size_t, at: off_t) -> ssize_t;
    __pread64_chk = __pread_chk as (
        fd: c_int, buffer: *mut c_void, count: size_t, at: off_t, room: size_t
    ) -> ssize_t;
    lseek64 = lseek as (fd: c_int, offset: off_t, whence: c_int) -> off_t;
    __lseek = lseek as (fd: c_int, offset: off_t, whence: c_int) -> off_t;
    ftruncate64 = ftruncate as (fd: c_int, size: off_t) -> c_int;
    truncate64 = truncate as (path: *const c_char, size: off_t) -> c_int;
    posix_fadvise64 = posix_fadvise as (fd: c_int, at: off_t, count: off_t, advice: c_int) -> c_int;
}
