//! `fopen` and its family: libc's own streams, put on managed descriptors.
//!
//! Invariants: a stream keeps its address and its descriptor's number, also over `freopen`. Not
//! here: reading, writing and formatting, which are glibc's, and its way back here (`streams`).

use std::ffi::{CStr, c_char, c_int};
use std::ptr;

use libc::FILE;
use terral_client::access;

use crate::entrance::is_ours;
use crate::hook::{Last, by_path};
use crate::path::{link_of, standing_for};
use crate::real::{Served, alias, answer, errno, libc_call, set_errno};
use crate::{close, locks, open, state, streams};

/// What a mode string asks of `open`.
fn flags(mode: &CStr) -> Served<c_int> {
    let mode = mode.to_bytes();
    let rest = mode.get(1..).unwrap_or(&[]);
    let rest = rest.split(|byte| *byte == b',').next().unwrap_or(&[]);
    let both = rest.contains(&b'+');
    let flags = match (mode.first(), both) {
        (Some(b'r'), false) => libc::O_RDONLY,
        (Some(b'r'), true) => libc::O_RDWR,
        (Some(b'w'), false) => libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC,
        (Some(b'w'), true) => libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC,
        (Some(b'a'), false) => libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND,
        (Some(b'a'), true) => libc::O_RDWR | libc::O_CREAT | libc::O_APPEND,
        _ => return Err(libc::EINVAL),
    };
    let exclusive = if rest.contains(&b'x') { libc::O_EXCL } else { 0 };
    let cloexec = if rest.contains(&b'e') { libc::O_CLOEXEC } else { 0 };
    Ok(flags | exclusive | cloexec)
}

fn checked(stream: *mut FILE) -> Served<*mut FILE> {
    if stream.is_null() { Err(errno()) } else { Ok(stream) }
}

/// libc's own stream on `fd`. The kernel thinks it is for reading only, so libc does as well.
fn attach(fd: c_int, flags: c_int) -> Served<*mut FILE> {
    type Function = unsafe extern "C" fn(c_int, *const c_char) -> *mut FILE;
    if !streams::ready() {
        return Err(libc::EOPNOTSUPP);
    }
    let null = ptr::null_mut();
    let stream = checked(libc_call!(c"fdopen" as Function, null, fd, c"r".as_ptr()))?;
    streams::set_rights(stream, flags);
    Ok(stream)
}

/// Puts `fresh` behind the stream's number, which stands for something of the kernel's, and goes
/// to the end if the stream only appends.
fn settle(fresh: c_int, stream: *mut FILE, flags: c_int) -> Served<*mut FILE> {
    let number = streams::number(stream);
    // SAFETY: dup3 and lseek take any numbers.
    let copied = unsafe { libc::dup3(fresh, number, flags & libc::O_CLOEXEC) };
    let failure = errno();
    close::close_fd(fresh);
    if copied < 0 {
        return Err(failure);
    }
    to_end(number, flags);
    Ok(stream)
}

fn to_end(fd: c_int, flags: c_int) {
    if flags & libc::O_APPEND != 0 && flags & libc::O_ACCMODE == libc::O_WRONLY {
        // SAFETY: lseek takes any numbers.
        let _ = unsafe { libc::lseek(fd, 0, libc::SEEK_END) };
    }
}

/// A stream that converts characters: libc reads `,ccs=` only when it opens something itself.
fn converting(fd: c_int, flags: c_int, mode: &CStr) -> Served<*mut FILE> {
    type Function = unsafe extern "C" fn(*const c_char, *const c_char) -> *mut FILE;
    let null = c"/dev/null".as_ptr();
    let stream = checked(libc_call!(c"fopen" as Function, ptr::null_mut(), null, mode.as_ptr()))?;
    settle(fd, stream, flags)
}

/// A stream on a fresh descriptor.
fn stream_on(fd: c_int, flags: c_int, mode: &CStr) -> Served<*mut FILE> {
    let stream = if mode.to_bytes().contains(&b',') {
        converting(fd, flags, mode)
    } else {
        attach(fd, flags).inspect(|_| to_end(fd, flags))
    };
    stream.inspect_err(|_| {
        close::close_fd(fd);
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE {
    type Function = unsafe extern "C" fn(*const c_char, *const c_char) -> *mut FILE;
    // SAFETY: the caller promises the string.
    let text = unsafe { CStr::from_ptr(mode) };
    let wanted = flags(text);
    // SAFETY: the caller promises the string.
    if let Some((_, held)) = unsafe { standing_for(path) } {
        return answer(wanted.and_then(|flags| {
            let fd = open::open_again(&held, flags)?;
            stream_on(fd, flags, text)
        }));
    }
    let mut fifo = false;
    let stream = by_path!(
        libc::AT_FDCWD,
        path,
        wanted.map_or(Last::Followed, open::last),
        |_at, path| libc_call!(c"fopen" as Function, ptr::null_mut(), path, mode),
        |name| {
            let flags = wanted?;
            match open::open_any(&name, flags, 0o666)? {
                open::Open::Descriptor(fd) => stream_on(fd, flags, text),
                open::Open::Fifo(_) => {
                    fifo = true;
                    Err(libc::ENXIO)
                }
            }
        }
    );
    if fifo { answer(wanted.and_then(|flags| on_fifo(path, flags, mode))) } else { stream }
}

/// A stream on a FIFO, which is opened where that may take long.
fn on_fifo(path: *const c_char, flags: c_int, mode: *const c_char) -> Served<*mut FILE> {
    let fd = open::open_at(libc::AT_FDCWD, path, flags, 0o666);
    if fd < 0 {
        return Err(errno());
    }
    // It may be a file by now.
    // SAFETY: the caller's string.
    checked(unsafe { fdopen(fd, mode) }).inspect_err(|_| {
        close::close_fd(fd);
    })
}

/// Whether a descriptor open for `access` will do for a stream with these flags.
fn suits(held: &state::Managed, flags: c_int) -> bool {
    let (reads, writes) = match flags & libc::O_ACCMODE {
        libc::O_RDONLY => (true, false),
        libc::O_WRONLY => (false, true),
        _ => (true, true),
    };
    let can = |right: u64| held.file.access() & right != 0;
    (!reads || can(access::READ)) && (!writes || can(access::WRITE))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    type Function = unsafe extern "C" fn(c_int, *const c_char) -> *mut FILE;
    let Some(held) = state::managed(fd) else {
        return libc_call!(c"fdopen" as Function, ptr::null_mut(), fd, mode);
    };
    // SAFETY: the caller promises the string.
    let served = flags(unsafe { CStr::from_ptr(mode) }).and_then(|flags| {
        if !suits(&held, flags) {
            return Err(libc::EINVAL);
        }
        let appended = held.file.access() & access::APPEND != 0;
        if flags & libc::O_APPEND != 0 {
            held.file.set_flag(access::APPEND, true);
        }
        // As libc does it: to the end only if it is new that writes go there.
        attach(fd, flags).inspect(|_| {
            if !appended {
                to_end(fd, flags)
            }
        })
    });
    answer(served)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fclose(stream: *mut FILE) -> c_int {
    type Function = unsafe extern "C" fn(*mut FILE) -> c_int;
    let fd = streams::number(stream);
    if state::managed(fd).is_none() {
        drop(state::take(fd));
    }
    libc_call!(c"fclose" as Function, -1, stream)
}

/// The mode without its `x`: `/dev/null` exists.
fn without_exclusive(mode: &CStr, room: &mut [u8; 32]) -> *const c_char {
    let kept = mode.to_bytes().iter().filter(|byte| **byte != b'x');
    for (to, from) in room[..31].iter_mut().zip(kept) {
        *to = *from;
    }
    room.as_ptr().cast()
}

/// libc's own `freopen`, which closes and copies numbers unseen.
unsafe fn reopen(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE {
    type Function = unsafe extern "C" fn(*const c_char, *const c_char, *mut FILE) -> *mut FILE;
    let fd = streams::number(stream);
    let held = state::managed(fd);
    // SAFETY: the stream is open.
    unsafe { libc::fflush(stream) };
    if let Some(held) = &held {
        locks::release(&held.file);
    }
    let again = libc_call!(c"freopen" as Function, ptr::null_mut(), path, mode, stream);
    let failure = errno();
    drop(state::take(fd));
    if let Some(held) = held {
        close::tell(&held.file);
    }
    set_errno(failure);
    again
}

#[unsafe(no_mangle)]
unsafe extern "C" fn freopen(
    path: *const c_char,
    mode: *const c_char,
    stream: *mut FILE,
) -> *mut FILE {
    // SAFETY: the caller promises the string.
    let text = unsafe { CStr::from_ptr(mode) };
    let Ok(flags) = flags(text) else {
        // SAFETY: the same contract.
        return unsafe { reopen(path, mode, stream) };
    };
    let number = streams::number(stream);
    let itself = path.is_null() && state::managed(number).is_some();
    let mut link = [0u8; 32];
    // As libc does it: by the kernel's own name of the descriptor.
    let path = if itself { link_of(number, &mut link).unwrap_or(path) } else { path };
    // SAFETY: the caller promises the path.
    if !unsafe { is_ours(path) } {
        // SAFETY: the stream is open; the same contract.
        return unsafe { reopen(path, mode, stream) };
    }
    // What is still buffered goes where it was meant to, before the same file may be emptied.
    // SAFETY: the stream is open.
    unsafe { libc::fflush(stream) };
    let fresh = open::open_at(libc::AT_FDCWD, path, flags, 0o666);
    let opened = if fresh < 0 { Err(errno()) } else { Ok(fresh) };
    let settled = opened.and_then(|fresh| {
        let mut harmless = [0; 32];
        let mode = without_exclusive(text, &mut harmless);
        // SAFETY: the stream is open, and stays so on something harmless.
        let again = unsafe { reopen(c"/dev/null".as_ptr(), mode, stream) };
        checked(again).and_then(|stream| settle(fresh, stream, flags))
    });
    if settled.is_err() {
        // SAFETY: freopen closes the stream when it fails.
        unsafe { fclose(stream) };
    }
    answer(settled)
}

alias! {
    fopen64 = fopen as (path: *const c_char, mode: *const c_char) -> *mut FILE;
    _IO_fopen = fopen as (path: *const c_char, mode: *const c_char) -> *mut FILE;
    _IO_fdopen = fdopen as (fd: c_int, mode: *const c_char) -> *mut FILE;
    _IO_fclose = fclose as (stream: *mut FILE) -> c_int;
    freopen64 = freopen as (path: *const c_char, mode: *const c_char, stream: *mut FILE)
        -> *mut FILE;
}
