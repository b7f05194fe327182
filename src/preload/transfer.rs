//! `copy_file_range`, `sendfile`, `splice` and `tee`, where one side is managed: by reading and
//! writing.
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

    /// Where a managed side begins, or one of the kernel's with an offset of the caller's.
    fn start(&self) -> Option<off_t> {
        let own = |held: &Held| held.file.offset() as off_t;
        self.at.or_else(|| self.held.as_ref().map(own))
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

    /// Tells the caller, who has an offset there or null, where it ended.
    fn tell(&self, at: *mut off_t, done: usize) -> Served<()> {
        match self.at {
            Some(start) if !at.is_null() => memory::put(start + done as off_t, at),
            _ => Ok(()),
        }
    }
}

/// What the caller is told, whose offsets are beside the sides.
fn conclude(copied: Served<usize>, sides: &[(&Side, *mut off_t)]) -> ssize_t {
    answer(copied.and_then(|done| {
        sides.iter().try_for_each(|(side, at)| side.tell(*at, done))?;
        Ok(done as ssize_t)
    }))
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
                // What was read may have been all there was, and be more by now.
                if written < read || read == 0 || once {
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

/// Whether Linux would move `count` bytes from or to there (`rw_verify_area`).
fn verify(at: off_t, count: usize) -> Served<()> {
    let end = off_t::try_from(count).ok().and_then(|count| at.checked_add(count));
    if at < 0 || end.is_none() { Err(libc::EINVAL) } else { Ok(()) }
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
    // Negative ones are far beyond every end here.
    let starts = [from, to].map(|side| side.start().map(|at| at as u64));
    if starts.iter().flatten().any(|start| start.checked_add(count as u64).is_none()) {
        return Err(libc::EOVERFLOW);
    }
    let mut count = count;
    if let (Some(source), Some(start)) = (&from.held, from.start()) {
        let left = (source.file.size() as i128 - i128::from(start)).max(0);
        count = count.min(usize::try_from(left).unwrap_or(usize::MAX));
    }
    if to.held.is_some() && to.start() == Some(off_t::MAX) {
        return Err(libc::EFBIG);
    }
    if let (Some(source), Some(target), [Some(first), Some(second)]) =
        (&from.held, &to.held, starts)
        && source.file.ino() == target.file.ino()
        && second < first.saturating_add(count as u64)
        && first < second.saturating_add(count as u64)
    {
        return Err(libc::EINVAL);
    }
    [from, to].into_iter().filter_map(Side::start).try_for_each(|at| verify(at, count))?;
    Ok(count)
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
    let known = || if flags == 0 { Ok(()) } else { Err(libc::EINVAL) };
    let copied = check_offsets(&from, &to)
        .and_then(|()| known())
        .and_then(|()| may_copy(&from, &to, count))
        .and_then(|count| copy(&from, &to, count, false));
    conclude(copied, &[(&from, from_at), (&to, to_at)])
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
    verify(from.start().unwrap_or(0), count)?;
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
    let (mut source, target) = (Side::new(from, at), Side::new(to, std::ptr::null()));
    if source.held.is_none() && target.held.is_none() {
        return kernel!(SYS_sendfile, to, from, at, count);
    }
    if at.is_null() && shares_offset(&source, &target) {
        // It is moved once, by what is written.
        source.at = source.start();
    }
    let sent = check_offsets(&source, &target)
        .and_then(|()| may_send(&source, &target, count))
        .and_then(|()| copy(&source, &target, count, false));
    conclude(sent, &[(&source, at)])
}

/// Whether two descriptors are of one open file.
fn shares_offset(one: &Side, other: &Side) -> bool {
    let file = |side: &Side| side.held.as_ref().map(|held| held.file.description());
    file(one).is_some() && file(one) == file(other)
}

const F_GETPIPE_SZ: c_int = 1032;

/// How much fits into or lies in a pipe of this size, at least one byte.
fn pipe_room(fd: c_int, size: usize, filling: bool, flags: c_uint) -> Served<usize> {
    let mut unread: c_int = 0;
    let _: c_int = kernel!(SYS_ioctl, fd, libc::FIONREAD, &raw mut unread);
    let unread = unread.max(0) as usize;
    let room = if filling { size.saturating_sub(unread) } else { unread };
    if room == 0 && flags & libc::SPLICE_F_NONBLOCK != 0 {
        return Err(libc::EAGAIN);
    }
    Ok(if room == 0 { libc::PIPE_BUF } else { room })
}

const SPLICE_FLAGS: c_uint =
    libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK | libc::SPLICE_F_MORE | libc::SPLICE_F_GIFT;

/// The pipe's side, what Linux finds wrong with the call, and how many bytes it can move.
fn may_splice(from: &Side, to: &Side, offsets: [bool; 2], flags: c_uint) -> Served<usize> {
    if flags & !SPLICE_FLAGS != 0 {
        return Err(libc::EINVAL);
    }
    for (side, right, wrong) in
        [(from, access::READ, libc::O_WRONLY), (to, access::WRITE, libc::O_RDONLY)]
    {
        match &side.held {
            Some(held) if held.file.access() & right == 0 => return Err(libc::EBADF),
            Some(_) => {}
            None => {
                let its: c_int = kernel!(SYS_fcntl, side.fd, libc::F_GETFL);
                let other = its & (libc::O_ACCMODE | libc::O_PATH);
                if its < 0 || other == wrong || other & libc::O_PATH != 0 {
                    return Err(libc::EBADF);
                }
            }
        }
    }
    let (held, pipe, filling) = match (&from.held, &to.held) {
        (Some(held), None) => (held, to, true),
        (None, Some(held)) => (held, from, false),
        _ => return Err(libc::EINVAL),
    };
    let size: isize = kernel!(SYS_fcntl, pipe.fd, F_GETPIPE_SZ, 0);
    match size {
        _ if size < 0 => return Err(libc::EINVAL),
        _ if offsets[usize::from(filling)] => return Err(libc::ESPIPE),
        _ => {}
    }
    check_offsets(from, to)?;
    let file = if filling { from } else { to };
    let appends = !filling && held.file.access() & access::APPEND != 0;
    if file.start().is_some_and(|at| at < 0) || appends || held.file.is_directory() {
        return Err(libc::EINVAL);
    }
    pipe_room(pipe.fd, size as usize, filling, flags)
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
    if count == 0 || (from.held.is_none() && to.held.is_none()) {
        return kernel!(SYS_splice, from_fd, from_at, to_fd, to_at, count, flags);
    }
    let copied = may_splice(&from, &to, [!from_at.is_null(), !to_at.is_null()], flags)
        .and_then(|room| copy(&from, &to, count.min(room), true));
    conclude(copied, &[(&from, from_at), (&to, to_at)])
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tee(from: c_int, to: c_int, count: size_t, flags: c_uint) -> ssize_t {
    match (state::managed(from), state::managed(to)) {
        (None, None) => kernel!(SYS_tee, from, to, count, flags),
        // Only pipes have what a tee is for.
        (one, other) => {
            let open = [one, other].iter().flatten().try_for_each(|held| held.check_open());
            answer(open.and(Err(libc::EINVAL)))
        }
    }
}

alias! {
    sendfile64 = sendfile as (to: c_int, from: c_int, at: *mut off_t, count: size_t) -> ssize_t;
}
