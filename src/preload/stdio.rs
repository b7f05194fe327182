//! `fopen` and its kin: streams on managed files call back, all others are libc's.
//!
//! Invariants: a stream keeps its descriptor's number for life, also over `freopen`. Not here:
//! reading, writing and formatting, which are glibc's.

use std::ffi::{CStr, c_char, c_int};
use std::ptr;

use libc::FILE;

use crate::path::{Name, Space, Where, resolve};
use crate::real::{Served, alias, answer, libc_call, set_errno};
use crate::{close, cookie, open, standard, state};

/// glibc's flags of a stream that may not be read, may not be written, or appends.
const NO_READS: c_int = 4;
const NO_WRITES: c_int = 8;
const APPENDING: c_int = 0x1000;

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

/// The mode as `fopencookie` takes it: without the letters that are for `open`.
fn plain_mode(mode: &CStr) -> &'static CStr {
    let bytes = mode.to_bytes();
    match (bytes.first(), bytes.contains(&b'+')) {
        (Some(b'w'), false) => c"w",
        (Some(b'w'), true) => c"w+",
        (Some(b'a'), false) => c"a",
        (Some(b'a'), true) => c"a+",
        (_, true) => c"r+",
        _ => c"r",
    }
}

fn pointer(served: Served<*mut FILE>) -> *mut FILE {
    served.unwrap_or_else(|errno| {
        set_errno(errno);
        ptr::null_mut()
    })
}

fn open_stream(name: &Name<'_>, mode: &CStr) -> Served<*mut FILE> {
    let fd = open::open_name(name, flags(mode)?, 0o666)?;
    cookie::stream(fd, plain_mode(mode)).inspect_err(|_| {
        close::close_fd(fd);
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE {
    type Function = unsafe extern "C" fn(*const c_char, *const c_char) -> *mut FILE;
    let mut space = Space::new();
    // SAFETY: the caller promises both strings.
    match unsafe { resolve(libc::AT_FDCWD, path, &mut space) } {
        Where::Kernel(_, path) => {
            // SAFETY: as above.
            if let Some(stream) = unsafe { open_standing(path, mode) } {
                return stream;
            }
            libc_call!(c"fopen" as Function, ptr::null_mut(), path, mode)
        }
        // SAFETY: as above.
        Where::Managed(name) => pointer(open_stream(&name, unsafe { CStr::from_ptr(mode) })),
        Where::Failed(errno) => pointer(Err(errno)),
    }
}

/// A stream on `/dev/stdout` and the like, where that is a managed descriptor.
unsafe fn open_standing(path: *const c_char, mode: *const c_char) -> Option<*mut FILE> {
    // SAFETY: the caller promises both strings.
    let mode = unsafe { CStr::from_ptr(mode) };
    let flags = flags(mode).ok()?;
    let fd = match open::open_again(path, flags)? {
        Ok(fd) => fd,
        Err(errno) => return Some(pointer(Err(errno))),
    };
    Some(pointer(cookie::stream(fd, plain_mode(mode))))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    type Function = unsafe extern "C" fn(c_int, *const c_char) -> *mut FILE;
    let Some(held) = state::managed(fd) else {
        return libc_call!(c"fdopen" as Function, ptr::null_mut(), fd, mode);
    };
    // SAFETY: the caller promises the string.
    let mode = unsafe { CStr::from_ptr(mode) };
    let served = flags(mode).and_then(|flags| {
        let access = held.file.access();
        let (reads, writes) = match flags & libc::O_ACCMODE {
            libc::O_RDONLY => (true, false),
            libc::O_WRONLY => (false, true),
            _ => (true, true),
        };
        let can = |right: u64| access & right != 0;
        if (reads && !can(terral_client::access::READ))
            || (writes && !can(terral_client::access::WRITE))
        {
            return Err(libc::EINVAL);
        }
        if flags & libc::O_APPEND != 0 {
            held.file.set_append(true);
        }
        cookie::stream(fd, plain_mode(mode))
    });
    pointer(served)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fileno(stream: *mut FILE) -> c_int {
    match cookie::descriptor(stream) {
        -1 => answer(Err(libc::EBADF)),
        fd => fd,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fclose(stream: *mut FILE) -> c_int {
    type Function = unsafe extern "C" fn(*mut FILE) -> c_int;
    let stream = standard::current(stream);
    standard::closed(stream);
    if cookie::descriptor_of_ours(stream).is_none() {
        drop(state::take(cookie::descriptor(stream)));
    }
    libc_call!(c"fclose" as Function, -1, stream)
}

/// Opens `path` anew on the number of a stream that calls back.
unsafe fn reopen_ours(
    stream: *mut FILE,
    fd: c_int,
    path: *const c_char,
    mode: &CStr,
) -> Served<*mut FILE> {
    let flags = flags(mode)?;
    // SAFETY: the stream is open; its flags are its first word, as glibc's ABI fixes.
    unsafe {
        libc::fflush(stream);
        if !path.is_null() {
            let fresh = open::open_at(libc::AT_FDCWD, path, flags, 0o666);
            if fresh < 0 {
                let errno = crate::real::errno();
                fclose(stream);
                return Err(errno);
            }
            let copied = libc::dup3(fresh, fd, flags & libc::O_CLOEXEC);
            let errno = crate::real::errno();
            close::close_fd(fresh);
            if copied < 0 {
                return Err(errno);
            }
        }
        __fpurge(stream);
        libc::clearerr(stream);
        let word = stream.cast::<c_int>();
        let rights = match flags & libc::O_ACCMODE {
            libc::O_RDONLY => NO_WRITES,
            libc::O_WRONLY => NO_READS,
            _ => 0,
        };
        let append = if flags & libc::O_APPEND != 0 { APPENDING } else { 0 };
        *word = (*word & !(NO_READS | NO_WRITES | APPENDING)) | rights | append;
    }
    Ok(stream)
}

unsafe extern "C" {
    fn __fpurge(stream: *mut FILE);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn freopen(
    path: *const c_char,
    mode: *const c_char,
    stream: *mut FILE,
) -> *mut FILE {
    type Function = unsafe extern "C" fn(*const c_char, *const c_char, *mut FILE) -> *mut FILE;
    let mut stream = standard::current(stream);
    let mut space = Space::new();
    // SAFETY: the caller promises path, which may be null, and mode.
    let (managed, mode_text) = unsafe {
        let found = resolve(libc::AT_FDCWD, path, &mut space);
        (!matches!(found, Where::Kernel(..)), CStr::from_ptr(mode))
    };
    if managed && cookie::descriptor_of_ours(stream).is_none() {
        standard::before(cookie::descriptor(stream));
        stream = standard::current(stream);
    }
    match cookie::descriptor_of_ours(stream) {
        // SAFETY: the stream is open.
        Some(fd) => pointer(unsafe { reopen_ours(stream, fd, path, mode_text) }),
        None if managed => {
            // A stream of libc's cannot become one that calls back, and its address must stay.
            // SAFETY: the caller gives the stream up if this fails.
            unsafe { fclose(stream) };
            pointer(Err(libc::EOPNOTSUPP))
        }
        None => libc_call!(c"freopen" as Function, ptr::null_mut(), path, mode, stream),
    }
}

alias! {
    fopen64 = fopen as (path: *const c_char, mode: *const c_char) -> *mut FILE;
    _IO_fopen = fopen as (path: *const c_char, mode: *const c_char) -> *mut FILE;
    _IO_fdopen = fdopen as (fd: c_int, mode: *const c_char) -> *mut FILE;
    fileno_unlocked = fileno as (stream: *mut FILE) -> c_int;
    _IO_fclose = fclose as (stream: *mut FILE) -> c_int;
    freopen64 = freopen as (path: *const c_char, mode: *const c_char, stream: *mut FILE)
        -> *mut FILE;
}
