//! Programs that run from the prefix, by their true names: the kernel knows the copies in memory
//! that they run from.
//!
//! Invariants: what is no such copy is told as the kernel tells it. Not here: how copies are made
//! and named (`exec`).

use std::ffi::{CStr, c_char, c_int};

use terral_client::copied;

use crate::path::PATH_BYTES;
use crate::real::kernel;
use crate::{connect, memory, settings};

/// How the kernel calls a program that is executed by its descriptor.
const BY_DESCRIPTOR: &[u8] = b"/dev/fd/";

fn read(path: *const c_char, space: &mut [u8; PATH_BYTES]) -> &[u8] {
    let room = space.as_mut_ptr();
    let length: isize = kernel!(SYS_readlinkat, libc::AT_FDCWD, path, room, PATH_BYTES);
    &space[..length.max(0) as usize]
}

/// What a link of `/proc` to a program says that runs from the prefix; `None` for every other path.
///
/// # Safety
/// `path` must be null or a string.
pub unsafe fn told(path: *const c_char) -> Option<Vec<u8>> {
    if path.is_null() || !settings::active() || memory::check_string(path, PATH_BYTES).is_err() {
        return None;
    }
    // SAFETY: just seen to be a string.
    let text = unsafe { CStr::from_ptr(path) }.to_bytes();
    if !text.starts_with(b"/proc/") || !text.ends_with(b"/exe") || connect::inside() {
        return None;
    }
    let mut space = [0u8; PATH_BYTES];
    let link = read(path, &mut space);
    let called = copied(link)?.called;
    match connect::with(|client| client.path_of_copy(link)) {
        Ok(path) => path.map(|path| settings::below_prefix(&path)),
        Err(_) => Some([settings::prefix(), b"/", called, b" (deleted)"].concat()),
    }
}

/// Has the kernel call this process as it would if it had executed the file itself.
pub fn take_name() {
    // SAFETY: the entry is null or a string that stays.
    let by = unsafe { libc::getauxval(libc::AT_EXECFN) } as *const c_char;
    // SAFETY: as above.
    if by.is_null() || !unsafe { CStr::from_ptr(by) }.to_bytes().starts_with(BY_DESCRIPTOR) {
        return;
    }
    let mut space = [0u8; PATH_BYTES];
    let Some(copied) = copied(read(c"/proc/self/exe".as_ptr(), &mut space)) else { return };
    let mut name = [0u8; 16];
    let length = copied.called.len().min(name.len() - 1);
    name[..length].copy_from_slice(&copied.called[..length]);
    let _: c_int = kernel!(SYS_prctl, libc::PR_SET_NAME, name.as_ptr());
}
