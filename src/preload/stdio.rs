//! `fopen` and its kin: libc's own streams, put on managed descriptors.
//!
//! Invariants: a stream keeps its address and its descriptor's number, also over `freopen`. Not
//! here: reading, writing and formatting, which are glibc's, and its way back here (`streams`).

use std::ffi::{CStr, c_char, c_int};
use std::ptr;

use libc::FILE;
use terral_client::access;

use crate::path::{Space, Where, link_of, resolve};
use crate::real::{Served, alias, errno, libc_call, set_errno};
use crate::{close, locks, open, settings, state, streams};

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

fn pointer(served: Served<*mut FILE>) -> *mut FILE {
    served.unwrap_or_else(|errno| {
        set_errno(errno);
        ptr::null_mut()
    })
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
    let mut space = Space::new();
    // SAFETY: the caller promises both strings.
    let (found, text) =
        unsafe { (resolve(libc::AT_FDCWD, path, &mut space), CStr::from_ptr(mode)) };
    match found {
        Where::Kernel(_, path) => {
            if let Some(stream) = open_standing(path, text) {
                return stream;
            }
            libc_call!(c"fopen" as Function, ptr::null_mut(), path, mode)
        }
        Where::Managed(name) => pointer(flags(text).and_then(|flags| {
            let fd = open::open_name(&name, flags, 0o666)?;
            stream_on(fd, flags, text)
        })),
        Where::Failed(errno) => pointer(Err(errno)),
    }
}

/// A stream on `/dev/stdout` and the like, where that is a managed descriptor.
fn open_standing(path: *const c_char, mode: &CStr) -> Option<*mut FILE> {
    if !settings::active() {
        return None;
    }
    let flags = flags(mode).ok()?;
    let opened = open::open_again(path, flags)?;
    Some(pointer(opened.and_then(|fd| stream_on(fd, flags, mode))))
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
        if flags & libc::O_APPEND != 0 {
            held.file.set_append(true);
        }
        attach(fd, flags)
    });
    pointer(served)
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

unsafe extern "C" {
    fn __fpurge(stream: *mut FILE);
}

/// Another mode for the file a stream has.
unsafe fn change_mode(held: &state::Held, stream: *mut FILE, flags: c_int) -> Served<*mut FILE> {
    if !suits(held, flags) {
        return Err(libc::EBADF);
    }
    // SAFETY: the stream is open.
    unsafe {
        libc::fflush(stream);
        __fpurge(stream);
        libc::clearerr(stream);
    }
    if flags & libc::O_TRUNC != 0 {
        crate::connect::serve(|| held.file.truncate(0))?;
    }
    held.file.set_append(flags & libc::O_APPEND != 0);
    held.file.set_offset(0);
    streams::set_rights(stream, flags);
    to_end(streams::number(stream), flags);
    Ok(stream)
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
    let itself = path.is_null().then(|| state::managed(streams::number(stream))).flatten();
    let mut link = [0u8; 32];
    let path = match &itself {
        // As libc does it: the kernel's own name of the descriptor, if that leads anywhere.
        Some(_) => link_of(streams::number(stream), &mut link).unwrap_or(path),
        None => path,
    };
    let mut space = Space::new();
    // SAFETY: the caller promises the path.
    let opened = match unsafe { resolve(libc::AT_FDCWD, path, &mut space) } {
        Where::Managed(name) => open::open_name(&name, flags, 0o666),
        Where::Failed(errno) => Err(errno),
        // SAFETY: the stream is open; the same contract.
        Where::Kernel(_, path) => unsafe {
            return match itself {
                Some(held) => pointer(change_mode(&held, stream, flags)),
                None => reopen(path, mode, stream),
            };
        },
    };
    let settled = opened.and_then(|fresh| {
        // SAFETY: the stream is open, and stays so on something harmless.
        let again = unsafe { reopen(c"/dev/null".as_ptr(), mode, stream) };
        checked(again).and_then(|stream| settle(fresh, stream, flags))
    });
    if settled.is_err() {
        // SAFETY: freopen closes the stream when it fails.
        unsafe { fclose(stream) };
    }
    pointer(settled)
}

alias! {
    fopen64 = fopen as (path: *const c_char, mode: *const c_char) -> *mut FILE;
    _IO_fopen = fopen as (path: *const c_char, mode: *const c_char) -> *mut FILE;
    _IO_fdopen = fdopen as (fd: c_int, mode: *const c_char) -> *mut FILE;
    _IO_fclose = fclose as (stream: *mut FILE) -> c_int;
    freopen64 = freopen as (path: *const c_char, mode: *const c_char, stream: *mut FILE)
        -> *mut FILE;
}
