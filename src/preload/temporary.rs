//! `mkstemp` and its family: names that did not exist before.
//!
//! Invariants: the template is changed only where its six X stand. Not here: `tmpfile`, which is
//! the kernel's.

use std::ffi::{CStr, CString, c_char, c_int};

use crate::hook::{Last, by_path};
use crate::open::{open_at, open_name};
use crate::path::Name;
use crate::real::{Served, alias, answer, errno, kernel, libc_call};
use crate::{connect, open};

const LETTERS: &[u8; 62] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
const ATTEMPTS: u32 = 1000;
const PLACES: usize = 6;

fn random() -> u64 {
    let mut value = [0u8; 8];
    let _: isize = kernel!(SYS_getrandom, value.as_mut_ptr(), value.len(), 0);
    u64::from_ne_bytes(value)
}

/// Fills the X of `template` until `make` does not meet an existing name.
///
/// # Safety
/// `template` must be a string that may be written.
unsafe fn attempt(
    template: *mut c_char,
    suffix: c_int,
    path: &[u8],
    mut make: impl FnMut(&[u8]) -> Served<c_int>,
) -> Served<c_int> {
    // SAFETY: the caller's promise.
    let length = unsafe { CStr::from_ptr(template) }.to_bytes().len();
    let after = usize::try_from(suffix).map_err(|_| libc::EINVAL)?;
    let end = length.checked_sub(after).ok_or(libc::EINVAL)?;
    let start = end.checked_sub(PLACES).ok_or(libc::EINVAL)?;
    // SAFETY: the places lie within the string, and nobody else holds a reference to it.
    let places =
        unsafe { std::slice::from_raw_parts_mut(template.cast::<u8>().add(start), PLACES) };
    let at = path.len().checked_sub(after + PLACES).ok_or(libc::EINVAL)?;
    if places != b"XXXXXX" || &path[at..at + PLACES] != b"XXXXXX" {
        return Err(libc::EINVAL);
    }
    let mut path = path.to_vec();
    for _ in 0..ATTEMPTS {
        let mut number = random();
        for place in places.iter_mut() {
            *place = LETTERS[(number % 62) as usize];
            number /= 62;
        }
        path[at..at + PLACES].copy_from_slice(places);
        match make(&path) {
            Err(libc::EEXIST) => {}
            Err(errno) => {
                places.copy_from_slice(b"XXXXXX");
                return Err(errno);
            }
            made => return made,
        }
    }
    places.copy_from_slice(b"XXXXXX");
    Err(libc::EEXIST)
}

/// The same below a directory of the kernel's that a link in the template leads to.
unsafe fn attempt_elsewhere(
    template: *mut c_char,
    suffix: c_int,
    path: *const c_char,
    make: impl Fn(*const c_char) -> c_int,
) -> c_int {
    // SAFETY: the caller promises a template that may be written, and a path.
    answer(unsafe {
        attempt(template, suffix, CStr::from_ptr(path).to_bytes(), |path| {
            let path = CString::new(path).map_err(|_| libc::EINVAL)?;
            let made = make(path.as_ptr());
            if made < 0 { Err(errno()) } else { Ok(made) }
        })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mkostemps(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int {
    type Function = unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int;
    let all = (flags & !libc::O_ACCMODE) | libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
    by_path!(
        libc::AT_FDCWD,
        template.cast_const(),
        Last::Name,
        |at, path| if path == template.cast_const() {
            libc_call!(c"mkostemps" as Function, -1, template, suffix, flags)
        } else {
            // SAFETY: the caller promises a template that may be written.
            unsafe {
                attempt_elsewhere(template, suffix, path, |path| open_at(at, path, all, 0o600))
            }
        },
        |name| {
            let make = |path: &[u8]| open_name(&Name { path, ..name }, all, 0o600);
            // SAFETY: as above.
            unsafe { attempt(template, suffix, name.path, make) }
        }
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mkstemp(template: *mut c_char) -> c_int {
    // SAFETY: the same contract.
    unsafe { mkostemps(template, 0, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mkostemp(template: *mut c_char, flags: c_int) -> c_int {
    // SAFETY: the same contract.
    unsafe { mkostemps(template, 0, flags) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mkstemps(template: *mut c_char, suffix: c_int) -> c_int {
    // SAFETY: the same contract.
    unsafe { mkostemps(template, suffix, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mkdtemp(template: *mut c_char) -> *mut c_char {
    type Function = unsafe extern "C" fn(*mut c_char) -> *mut c_char;
    by_path!(
        libc::AT_FDCWD,
        template.cast_const(),
        Last::Name,
        |at, path| if path == template.cast_const() {
            libc_call!(c"mkdtemp" as Function, std::ptr::null_mut(), template)
        } else {
            // SAFETY: the caller promises a template that may be written.
            let made = unsafe {
                attempt_elsewhere(template, 0, path, |path| kernel!(SYS_mkdirat, at, path, 0o700))
            };
            if made < 0 { std::ptr::null_mut() } else { template }
        },
        |name| {
            let mode = open::masked(0o700);
            let make =
                |path: &[u8]| connect::with(|client| client.make_directory(path, mode)).map(|()| 0);
            // SAFETY: as above.
            unsafe { attempt(template, 0, name.path, make) }.map(|_| template)
        }
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mktemp(template: *mut c_char) -> *mut c_char {
    type Function = unsafe extern "C" fn(*mut c_char) -> *mut c_char;
    let found: c_int = by_path!(
        libc::AT_FDCWD,
        template.cast_const(),
        Last::Name,
        |_at, path| if path == template.cast_const() {
            return libc_call!(c"mktemp" as Function, template, template);
        } else {
            let is_free = |path: *const c_char| {
                // SAFETY: the structure is plain data; the path is a string.
                let found = unsafe { libc::lstat(path, &mut std::mem::zeroed()) };
                if found == 0 { answer(Err(libc::EEXIST)) } else { 0 }
            };
            // SAFETY: the caller promises a template that may be written.
            unsafe { attempt_elsewhere(template, 0, path, is_free) }
        },
        |name| {
            let is_free = |path: &[u8]| match connect::with(|client| client.stat(path)) {
                Ok(_) => Err(libc::EEXIST),
                Err(libc::ENOENT) => Ok(0),
                Err(errno) => Err(errno),
            };
            // SAFETY: as above.
            unsafe { attempt(template, 0, name.path, is_free) }
        }
    );
    if found < 0 && !template.is_null() {
        // SAFETY: as above; an empty name says that there is none.
        unsafe { *template = 0 };
    }
    template
}

alias! {
    __mktemp = mktemp as (template: *mut c_char) -> *mut c_char;
    mkstemp64 = mkstemp as (template: *mut c_char) -> c_int;
    mkostemp64 = mkostemp as (template: *mut c_char, flags: c_int) -> c_int;
    mkstemps64 = mkstemps as (template: *mut c_char, suffix: c_int) -> c_int;
    mkostemps64 = mkostemps as (template: *mut c_char, suffix: c_int, flags: c_int) -> c_int;
}
