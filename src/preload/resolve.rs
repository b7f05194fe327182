//! Calls that move or tell the working directory, and those that tell a path's true name.
//!
//! Invariants: the kernel's directory moves first, so that a failure leaves both as they were.
//! Not here: where the logical directory is kept (`cwd`).

use std::ffi::{c_char, c_int, c_long};
use std::ptr;

use libc::size_t;
use terral_client::File;

use crate::hook::{Last, by_fd, by_path};
use crate::path::PATH_BYTES;
use crate::real::{Served, answer, errno, kernel, libc_call};
use crate::state::Managed;
use crate::{cwd, itself, metadata, settings};

/// Stands in `directory` from now on, which is called `path`.
fn enter(directory: File, path: &[u8]) -> Served<c_int> {
    let mut space = [0u8; PATH_BYTES];
    let shadow = cwd::shadow(&mut space).ok_or(libc::ENAMETOOLONG)?;
    let moved: c_int = kernel!(SYS_chdir, shadow);
    if moved != 0 {
        return Err(errno());
    }
    cwd::enter(directory, path).map(|()| 0)
}

fn left(moved: c_int) -> c_int {
    if moved == 0 && cwd::is_managed() {
        cwd::leave();
    }
    moved
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn chdir(path: *const c_char) -> c_int {
    by_path!(
        libc::AT_FDCWD,
        path,
        Last::Followed,
        |_at, path| left(kernel!(SYS_chdir, path)),
        |name| {
            let directory = cwd::open(name.path)?;
            metadata::may(&metadata::of_name(&name, Last::Followed)?, libc::X_OK)?;
            enter(directory, name.path)
        }
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fchdir(fd: c_int) -> c_int {
    by_fd!(fd, left(kernel!(SYS_fchdir, fd)), |held| enter_open(&held))
}

fn enter_open(held: &Managed) -> Served<c_int> {
    if !held.file.is_directory() {
        return Err(libc::ENOTDIR);
    }
    metadata::may(&metadata::of_file(held)?, libc::X_OK)?;
    let path = match held.path() {
        // One that was removed can be entered; its name leads a child nowhere.
        Err(libc::ENOENT) => format!("#{} (deleted)", held.file.ino().0).into_bytes(),
        path => path?,
    };
    enter(held.file.clone(), &path)
}

/// Copies `path` into `buffer` of `room` bytes, or into fresh memory of the caller's to free.
unsafe fn give(path: &[u8], buffer: *mut c_char, room: usize) -> Served<*mut c_char> {
    let fresh = buffer.is_null();
    let room = if fresh && room == 0 { path.len() + 1 } else { room };
    if room <= path.len() {
        return Err(if room == 0 { libc::EINVAL } else { libc::ERANGE });
    }
    // SAFETY: the memory is fresh and large enough, or the caller promises `room` bytes.
    unsafe {
        let to = if fresh { libc::malloc(room).cast() } else { buffer };
        if to.is_null() {
            return Err(libc::ENOMEM);
        }
        ptr::copy_nonoverlapping(path.as_ptr(), to.cast(), path.len());
        *to.add(path.len()) = 0;
        Ok(to)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn getcwd(buffer: *mut c_char, room: size_t) -> *mut c_char {
    if let Some(path) = cwd::with_path(<[u8]>::to_vec) {
        // SAFETY: the caller promises the buffer.
        let give = |path: Vec<u8>| unsafe { give(&settings::below_prefix(&path), buffer, room) };
        return answer(path.and_then(give));
    }
    let mut here = [0u8; PATH_BYTES];
    let length: c_long = kernel!(SYS_getcwd, here.as_mut_ptr(), here.len());
    if length > 1 && here[0] == b'/' {
        // SAFETY: the caller promises the buffer.
        return answer(unsafe { give(&here[..length as usize - 1], buffer, room) });
    }
    type Function = unsafe extern "C" fn(*mut c_char, size_t) -> *mut c_char;
    libc_call!(c"getcwd" as Function, ptr::null_mut(), buffer, room)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __getcwd_chk(buffer: *mut c_char, room: size_t, _real: size_t) -> *mut c_char {
    // SAFETY: the same contract.
    unsafe { getcwd(buffer, room) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn getwd(buffer: *mut c_char) -> *mut c_char {
    // SAFETY: the caller promises PATH_MAX bytes.
    unsafe { getcwd(buffer, PATH_BYTES) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn get_current_dir_name() -> *mut c_char {
    if cwd::is_managed() {
        // SAFETY: null asks for fresh memory.
        return unsafe { getcwd(ptr::null_mut(), 0) };
    }
    type Function = unsafe extern "C" fn() -> *mut c_char;
    libc_call!(c"get_current_dir_name" as Function, ptr::null_mut())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn realpath(path: *const c_char, to: *mut c_char) -> *mut c_char {
    type Function = unsafe extern "C" fn(*const c_char, *mut c_char) -> *mut c_char;
    // SAFETY: the caller promises a string.
    if let Some(text) = unsafe { itself::told(path) } {
        let text = [&text[..], b"\0"].concat();
        // SAFETY: it ends with its zero; the caller promises the rest.
        return unsafe { realpath(text.as_ptr().cast(), to) };
    }
    by_path!(
        libc::AT_FDCWD,
        path,
        Last::Followed,
        |_at, path| libc_call!(c"realpath" as Function, ptr::null_mut(), path, to),
        |name| {
            metadata::of_name(&name, Last::Followed)?;
            let room = if to.is_null() { 0 } else { PATH_BYTES };
            // SAFETY: the caller promises PATH_MAX bytes, or null for fresh memory.
            unsafe { give(name.absolute, to, room) }
        }
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __realpath_chk(
    path: *const c_char,
    to: *mut c_char,
    _room: size_t,
) -> *mut c_char {
    // SAFETY: the same contract.
    unsafe { realpath(path, to) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn canonicalize_file_name(path: *const c_char) -> *mut c_char {
    // SAFETY: null asks for fresh memory.
    unsafe { realpath(path, ptr::null_mut()) }
}
