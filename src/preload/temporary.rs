//! `mkstemp` and its kin: names that did not exist before.
//!
//! Invariants: the template is changed only where its six X stand. Not here: `tmpfile`, which is
//! the kernel's.

use std::ffi::{CStr, c_char, c_int};

use crate::open::open_name;
use crate::path::{Name, by_path};
use crate::real::{Served, alias, kernel, libc_call};
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
    name: &Name<'_>,
    mut make: impl FnMut(&Name<'_>) -> Served<c_int>,
) -> Served<c_int> {
    // SAFETY: the caller's promise.
    let length = unsafe { CStr::from_ptr(template) }.to_bytes().len();
    let after = usize::try_from(suffix).map_err(|_| libc::EINVAL)?;
    let end = length.checked_sub(after).ok_or(libc::EINVAL)?;
    let start = end.checked_sub(PLACES).ok_or(libc::EINVAL)?;
    // SAFETY: the places lie within the string, and nobody else holds a reference to it.
    let places =
        unsafe { std::slice::from_raw_parts_mut(template.cast::<u8>().add(start), PLACES) };
    let at = name.path.len().checked_sub(after + PLACES).ok_or(libc::EINVAL)?;
    if places != b"XXXXXX" || &name.path[at..at + PLACES] != b"XXXXXX" {
        return Err(libc::EINVAL);
    }
    let mut path = name.path.to_vec();
    for _ in 0..ATTEMPTS {
        let mut number = random();
        for place in places.iter_mut() {
            *place = LETTERS[(number % 62) as usize];
            number /= 62;
        }
        path[at..at + PLACES].copy_from_slice(places);
        match make(&Name { path: &path, ..*name }) {
            Err(libc::EEXIST) => {}
            other => return other,
        }
    }
    places.copy_from_slice(b"XXXXXX");
    Err(libc::EEXIST)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mkostemps(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int {
    type Function = unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int;
    let all = (flags & !libc::O_ACCMODE) | libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
    by_path!(
        libc::AT_FDCWD,
        template.cast_const(),
        |_at, _path| libc_call!(c"mkostemps" as Function, -1, template, suffix, flags),
        |name| {
            // SAFETY: the caller promises a template that may be written.
            unsafe { attempt(template, suffix, &name, |name| open_name(name, all, 0o600)) }
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
    let made: c_int = by_path!(
        libc::AT_FDCWD,
        template.cast_const(),
        |_at, _path| {
            return libc_call!(c"mkdtemp" as Function, std::ptr::null_mut(), template);
        },
        |name| {
            let mode = open::masked(0o700);
            let make = |name: &Name<'_>| {
                connect::with(|client| client.make_directory(name.path, mode)).map(|()| 0)
            };
            // SAFETY: the caller promises a template that may be written.
            unsafe { attempt(template, 0, &name, make) }
        }
    );
    if made == 0 { template } else { std::ptr::null_mut() }
}

alias! {
    mkstemp64 = mkstemp as (template: *mut c_char) -> c_int;
    mkostemp64 = mkostemp as (template: *mut c_char, flags: c_int) -> c_int;
    mkstemps64 = mkstemps as (template: *mut c_char, suffix: c_int) -> c_int;
    mkostemps64 = mkostemps as (template: *mut c_char, suffix: c_int, flags: c_int) -> c_int;
}
