//! Memory of the caller's, which may not be there: EFAULT then, as from the kernel.
//!
//! Invariants: a string is looked at once, as a whole, before anything else is done with it; other
//! structures are copied. Not here: what is in them, and threads that take memory away while a call
//! uses it.

use std::ffi::c_char;
use std::mem::MaybeUninit;

use terral_client::fault;

use crate::real::Served;
use crate::signals;

/// Does `copy`, which owns nothing; EFAULT if memory was not there.
#[inline]
fn attempt(copy: impl FnMut()) -> Served<()> {
    signals::watch_faults();
    // SAFETY: the callers below pass copies.
    unsafe { fault::attempt(copy) }.map_err(|_| libc::EFAULT)
}

/// Whether a string begins at `at`, of less than `longest` bytes: EFAULT, or ENAMETOOLONG.
#[inline]
pub fn check_string(at: *const c_char, longest: usize) -> Served<()> {
    let mut length = 0;
    // SAFETY: bytes up to the zero, or a fault.
    attempt(|| length = unsafe { libc::strnlen(at, longest) })?;
    if length < longest { Ok(()) } else { Err(libc::ENAMETOOLONG) }
}

/// What is at `at`.
#[inline]
pub fn get<T: Copy>(at: *const T) -> Served<T> {
    let mut value = MaybeUninit::uninit();
    // SAFETY: as many bytes as a value has, from wherever it is, or a fault.
    attempt(|| unsafe { std::ptr::copy_nonoverlapping(at, value.as_mut_ptr(), 1) })?;
    // SAFETY: just written; the callers ask for plain data, of which any bytes are a value.
    Ok(unsafe { value.assume_init() })
}

/// Stores `value` at `at`.
#[inline]
pub fn put<T: Copy>(value: T, at: *mut T) -> Served<()> {
    // SAFETY: what the caller means to be overwritten, or a fault.
    attempt(|| unsafe { std::ptr::copy_nonoverlapping(&raw const value, at, 1) })
}

/// Stores `bytes` from `at` on.
pub fn give(bytes: &[u8], at: *mut u8) -> Served<()> {
    // SAFETY: as above.
    attempt(|| unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len()) })
}

/// Adds the `count` values at `at` to `list`.
pub fn append<T: Copy>(list: &mut Vec<T>, at: *const T, count: usize) -> Served<()> {
    list.try_reserve_exact(count).map_err(|_| libc::ENOMEM)?;
    let (length, room) = (list.len(), list.spare_capacity_mut().as_mut_ptr().cast::<T>());
    // SAFETY: there is room for so many; the source is read, or a fault.
    attempt(|| unsafe { std::ptr::copy_nonoverlapping(at, room, count) })?;
    // SAFETY: just written.
    unsafe { list.set_len(length + count) };
    Ok(())
}

/// Where the addresses of programs end (x86-64).
const END: usize = 0x7fff_ffff_f000;

/// The address of a buffer that no reference may have: null, which is as little there as 1.
pub fn not_null<T>(at: *const T) -> *const T {
    if at.is_null() { std::ptr::without_provenance(1) } else { at }
}

/// The address of a buffer of `count` bytes, or, where no program has so many, one that
/// [`check_range`] refuses, whatever is left of the count.
pub fn or_nowhere<T>(at: *const T, count: usize) -> *const T {
    match check_place(at.addr(), count) {
        Ok(()) => not_null(at),
        Err(_) => std::ptr::without_provenance(END + 8),
    }
}

/// EFAULT for addresses that no program has, also of nothing there.
#[inline]
pub fn check_range(bytes: &[u8]) -> Served<()> {
    check_place(bytes.as_ptr().addr(), bytes.len())
}

/// The same for `count` bytes from an address on.
#[inline]
pub fn check_place(at: usize, count: usize) -> Served<()> {
    let there = at.checked_add(count).is_some_and(|end| end <= END);
    if there || cfg!(not(target_arch = "x86_64")) { Ok(()) } else { Err(libc::EFAULT) }
}

/// A call that writes `bytes` of the caller's: as much as is there, as Linux does.
pub fn as_far(bytes: &[u8], mut call: impl FnMut(&[u8]) -> Served<usize>) -> Served<usize> {
    match call(bytes) {
        Err(libc::EFAULT) => match fault::readable(bytes) {
            0 => Err(libc::EFAULT),
            there => call(&bytes[..there]),
        },
        done => done,
    }
}

/// The same for one that reads into `room`.
pub fn as_far_into(
    room: &mut [u8],
    mut call: impl FnMut(&mut [u8]) -> Served<usize>,
) -> Served<usize> {
    match call(room) {
        Err(libc::EFAULT) => match fault::writable(room) {
            0 => Err(libc::EFAULT),
            there => call(&mut room[..there]),
        },
        done => done,
    }
}
