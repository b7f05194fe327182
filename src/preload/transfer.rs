//! `copy_file_range`, `sendfile` and `splice`, where one side is managed: by reading and writing.
//!
//! Invariants: a source's offset moves by what was written, so that nothing is lost when the target
//! takes less; at most 16 MiB a call, as all three may do less than they are asked for. Not here:
//! copies between descriptors of the kernel's, which stay the kernel's.

use std::ffi::{c_int, c_uint};

use libc::{off_t, size_t, ssize_t};
use terral_client::access;

use crate::real::{Served, alias, answer, errno, kernel};
use crate::state::{self, Held};
use crate::{data, memory};

const CALL_BYTES_MAX: usize = 16 << 20;
const BUFFER_BYTES: usize = 256 << 10;

/// One side of a copy.
struct Side {
    fd: c_int,
    held: Option<Held>,
    /// The caller's offset; none for the descriptor's own.
    at: Option<off_t>,
    /// It should have one, but there is no memory.
    bad: bool,
}

impl Side {
    /// `at` is null or where the caller has an offset; if that is there.
    fn new(fd: c_int, at: *const off_t) -> Side {
        let bad = !at.is_null();
        let at = (!at.is_null()).then(|| memory::get(at).ok()).flatten();
        Side { fd, held: state::managed(fd), bad: bad && at.is_none(), at }
    }

    /// Reads without moving the offset if the side is managed, moving it if it is the kernel's.
    fn read(&self, room: &mut [u8], done: usize) -> Served<usize> {
        let done = done as off_t;
        let count = match (&self.held, self.at) {
            (Some(held), at) => {
                let start = at.unwrap_or_else(|| held.file.offset() as off_t);
                data::read_at(held, room, if at.is_some() { start + done } else { start })?
            }
            (None, Some(at)) => {
                kernel!(SYS_pread64, self.fd, room.as_mut_ptr(), room.len(), at + done)
            }
            (None, None) => kernel!(SYS_read, self.fd, room.as_mut_ptr(), room.len()),
        };
        usize::try_from(count).map_err(|_| errno())
    }

    fn write(&self, bytes: &[u8], done: usize) -> Served<usize> {
        let done = done as off_t;
        let count: isize = match (&self.held, self.at) {
            (Some(held), Some(at)) => data::write_at(held, bytes, at + done)?,
            (Some(held), None) => data::write_here(held, bytes)?,
            (None, Some(at)) => {
                kernel!(SYS_pwrite64, self.fd, bytes.as_ptr(), bytes.len(), at + done)
            }
            (None, None) => kernel!(SYS_write, self.fd, bytes.as_ptr(), bytes.len()),
        };
        usize::try_from(count).map_err(|_| errno())
    }

    /// Moves the offset of a managed side that was read.
    fn advance(&self, count: usize) {
        if let (Some(held), None) = (&self.held, self.at) {
            held.file.set_offset(held.file.offset() + count as u64);
        }
    }

    /// Tells the caller where it ended.
    fn tell(&self, at: *mut off_t, done: usize) -> Served<()> {
        match self.at {
            Some(start) => memory::put(start + done as off_t, at),
            None => Ok(()),
        }
    }
}

/// EFAULT if an offset is to be where no memory is.
fn check_offsets(from: &Side, to: &Side) -> Served<()> {
    if from.bad || to.bad { Err(libc::EFAULT) } else { Ok(()) }
}

fn copy(from: &Side, to: &Side, count: usize, once: bool) -> Served<usize> {
    let count = count.min(CALL_BYTES_MAX);
    let mut buffer = Vec::new();
    buffer.try_reserve_exact(count.min(BUFFER_BYTES)).map_err(|_| libc::ENOMEM)?;
    buffer.resize(count.min(BUFFER_BYTES), 0);
    let mut done = 0;
    while done < count {
        let wanted = buffer.len().min(count - done);
        let step = from.read(&mut buffer[..wanted], done).and_then(|read| {
            let written = if read == 0 { 0 } else { to.write(&buffer[..read], done)? };
            from.advance(written);
            Ok((read, written))
        });
        match step {
            Ok((read, written)) => {
                done += written;
                if written < wanted || read == 0 || once {
                    break;
                }
            }
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        }
    }
    Ok(done)
}

/// EINVAL if a descriptor of the kernel's is no regular file, EBADF if it is none at all.
fn check_regular(fd: c_int) -> Served<()> {
    // SAFETY: stat is plain data; all zero is a value of it.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    let done: c_int = kernel!(SYS_fstat, fd, &raw mut stat);
    match stat.st_mode & libc::S_IFMT {
        _ if done != 0 => Err(libc::EBADF),
        libc::S_IFREG => Ok(()),
        _ => Err(libc::EINVAL),
    }
}

/// What Linux looks at, in its order; gives how much there is to copy.
fn may_copy(from: &Side, to: &Side, count: usize) -> Served<usize> {
    for side in [from, to] {
        match &side.held {
            Some(held) => held.check_open()?,
            None if check_regular(side.fd) == Err(libc::EBADF) => return Err(libc::EBADF),
            None => {}
        }
    }
    for side in [from, to] {
        match &side.held {
            Some(held) if held.file.is_directory() => return Err(libc::EISDIR),
            Some(_) => {}
            None => check_regular(side.fd)?,
        }
    }
    if let Some(held) = &from.held {
        data::allow(held, access::READ)?;
    }
    if let Some(held) = &to.held {
        data::allow(held, access::WRITE)?;
        if held.file.access() & access::APPEND != 0 {
            return Err(libc::EBADF);
        }
    }
    let (Some(source), Some(target)) = (&from.held, &to.held) else { return Ok(count) };
    let start = |side: &Side, held: &Held| side.at.unwrap_or_else(|| held.file.offset() as off_t);
    let (first, second) = (start(from, source), start(to, target));
    if first < 0 || second < 0 {
        return Err(libc::EINVAL);
    }
    let (first, second) = (first as u64, second as u64);
    let count = (count as u64).min(source.file.size().saturating_sub(first));
    let meet = second < first + count && first < second + count;
    let same = source.file.ino() == target.file.ino();
    if same && meet { Err(libc::EINVAL) } else { Ok(count as usize) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn copy_file_range(
    from_fd: c_int,
    from_at: *mut off_t,
    to_fd: c_int,
    to_at: *mut off_t,
    count: size_t,
    flags: c_uint,
) -> ssize_t {
    let (from, to) = (Side::new(from_fd, from_at), Side::new(to_fd, to_at));
    if from.held.is_none() && to.held.is_none() {
        return kernel!(SYS_copy_file_range, from_fd, from_at, to_fd, to_at, count, flags);
    }
    if let Err(errno) = check_offsets(&from, &to) {
        return answer(Err(errno));
    }
    if flags != 0 {
        return answer(Err(libc::EINVAL));
    }
    let copied = may_copy(&from, &to, count).and_then(|count| copy(&from, &to, count, false));
    answer(copied.and_then(|done| {
        from.tell(from_at, done)?;
        to.tell(to_at, done)?;
        Ok(done as ssize_t)
    }))
}

/// As [`may_copy`]: `sendfile` has errors of its own. A directory is one only where it is read.
fn may_send(from: &Side, to: &Side, count: usize) -> Served<()> {
    let allow = |held: &Held, right: u64| match data::allow(held, right) {
        Err(libc::EISDIR) => Err(libc::EINVAL),
        allowed => allowed,
    };
    match (&from.held, &to.held) {
        (Some(held), _) if held.file.access() & access::READ == 0 => return Err(libc::EBADF),
        (None, _) => check_regular(from.fd)?,
        _ => {}
    }
    let appends = match &to.held {
        Some(held) => {
            allow(held, access::WRITE)?;
            held.file.access() & access::APPEND != 0
        }
        None => {
            let flags: c_int = kernel!(SYS_fcntl, to.fd, libc::F_GETFL);
            if flags < 0 || flags & libc::O_ACCMODE == libc::O_RDONLY {
                return Err(libc::EBADF);
            }
            flags & libc::O_APPEND != 0
        }
    };
    if appends {
        return Err(libc::EINVAL);
    }
    let read = from.held.as_ref().filter(|_| count > 0);
    read.map_or(Ok(()), |held| allow(held, access::READ))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendfile(to: c_int, from: c_int, at: *mut off_t, count: size_t) -> ssize_t {
    let (source, target) = (Side::new(from, at), Side::new(to, std::ptr::null()));
    if source.held.is_none() && target.held.is_none() {
        return kernel!(SYS_sendfile, to, from, at, count);
    }
    let sent = check_offsets(&source, &target)
        .and_then(|()| may_send(&source, &target, count))
        .and_then(|()| copy(&source, &target, count, false));
    answer(sent.and_then(|done| {
        source.tell(at, done)?;
        Ok(done as ssize_t)
    }))
}

const F_GETPIPE_SZ: c_int = 1032;

/// How much fits into or lies in a pipe, at least one byte; EINVAL for anything else.
fn pipe_room(fd: c_int, filling: bool, flags: c_uint) -> Served<usize> {
    let size: isize = kernel!(SYS_fcntl, fd, F_GETPIPE_SZ, 0);
    if size < 0 {
        return Err(libc::EINVAL);
    }
    let mut unread: c_int = 0;
    let _: c_int = kernel!(SYS_ioctl, fd, libc::FIONREAD, &raw mut unread);
    let unread = unread.max(0) as usize;
    let room = if filling { (size as usize).saturating_sub(unread) } else { unread };
    if room == 0 && flags & libc::SPLICE_F_NONBLOCK != 0 {
        return Err(libc::EAGAIN);
    }
    Ok(if room == 0 { libc::PIPE_BUF } else { room })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn splice(
    from_fd: c_int,
    from_at: *mut off_t,
    to_fd: c_int,
    to_at: *mut off_t,
    count: size_t,
    flags: c_uint,
) -> ssize_t {
    let (from, to) = (Side::new(from_fd, from_at), Side::new(to_fd, to_at));
    let (pipe, filling) = match (&from.held, &to.held) {
        (None, None) => {
            return kernel!(SYS_splice, from_fd, from_at, to_fd, to_at, count, flags);
        }
        (Some(_), Some(_)) => return answer(Err(libc::EINVAL)),
        (Some(_), None) => (to_fd, true),
        (None, Some(_)) => (from_fd, false),
    };
    let copied = check_offsets(&from, &to)
        .and_then(|()| pipe_room(pipe, filling, flags))
        .and_then(|room| copy(&from, &to, count.min(room), true));
    answer(copied.and_then(|done| {
        from.tell(from_at, done)?;
        to.tell(to_at, done)?;
        Ok(done as ssize_t)
    }))
}

alias! {
    sendfile64 = sendfile as (to: c_int, from: c_int, at: *mut off_t, count: size_t) -> ssize_t;
}
