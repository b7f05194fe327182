//! `mremap` and `remap_file_pages`: a map of a managed file does not grow, and shows no other part.
//!
//! Where a chunk is mapped, the kernel has a segment of the arena, and what follows in it is
//! another file's. Invariants: shrinking and moving stay the kernel's, and so is all that is not a
//! chunk; the kernel is asked which is which, since it alone knows what has become of a map.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use libc::size_t;

use crate::real::{kernel, set_errno};

/// Longest line of `/proc/thread-self/maps`: a path and a hundred bytes before it.
const LINE_BYTES: usize = 4096 + 128;

/// Whether this process, or one it was forked from, has ever mapped a chunk.
static WATCHED: AtomicBool = AtomicBool::new(false);

/// A chunk is about to be mapped.
pub fn watch() {
    WATCHED.store(true, Ordering::Relaxed);
}

/// What a copy is called there that is mapped instead of a chunk.
pub const COPY: &CStr = c"terral-map";

/// Whether a line of that file says that a segment, or a copy, is mapped at `address`.
fn is_segment(line: &[u8], address: usize) -> bool {
    let number = |text: &[u8]| usize::from_str_radix(std::str::from_utf8(text).ok()?, 16).ok();
    let range = line.split(|byte| *byte == b' ').next().unwrap_or_default();
    let mut ends = range.split(|byte| *byte == b'-').map(number);
    let (Some(Some(start)), Some(Some(end))) = (ends.next(), ends.next()) else { return false };
    let name = line.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let ours = name.starts_with(b"seg-") || name == b"memfd:terral-map (deleted)";
    (start..end).contains(&address) && ours && name.len() < line.len()
}

/// Whether a segment is mapped at `address`; so it is taken to be if that cannot be told.
fn maps_segment(address: usize) -> bool {
    let maps: c_int =
        kernel!(SYS_openat, libc::AT_FDCWD, c"/proc/thread-self/maps".as_ptr(), libc::O_CLOEXEC, 0);
    if maps < 0 {
        return true;
    }
    let mut space = [0u8; 2 * LINE_BYTES];
    let (mut filled, mut found) = (0, false);
    loop {
        let rest = &mut space[filled..];
        let count: isize = kernel!(SYS_read, maps, rest.as_mut_ptr(), rest.len());
        if count <= 0 {
            break;
        }
        filled += count as usize;
        let whole = space[..filled].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        found |= space[..whole].split(|b| *b == b'\n').any(|line| is_segment(line, address));
        space.copy_within(whole..filled, 0);
        filled -= whole;
    }
    let _: c_int = kernel!(SYS_close, maps);
    found
}

/// What `mremap` does, for who may not go through the name (see `mapping::map`).
///
/// # Safety
/// As for mremap(2).
#[inline(never)]
pub unsafe fn remap(
    from: *mut c_void,
    old_bytes: size_t,
    new_bytes: size_t,
    flags: c_int,
    to: *mut c_void,
) -> *mut c_void {
    let grows = new_bytes > old_bytes && WATCHED.load(Ordering::Relaxed);
    if grows && maps_segment(from.addr()) {
        set_errno(libc::ENOMEM);
        return libc::MAP_FAILED;
    }
    let moved: isize = kernel!(SYS_mremap, from, old_bytes, new_bytes, flags, to);
    moved as *mut c_void
}

// `mremap` is variadic; reading an argument nobody passed is harmless, and it is then not used.
#[unsafe(no_mangle)]
unsafe extern "C" fn mremap(
    from: *mut c_void,
    old_bytes: size_t,
    new_bytes: size_t,
    flags: c_int,
    to: *mut c_void,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { remap(from, old_bytes, new_bytes, flags, to) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn remap_file_pages(
    from: *mut c_void,
    bytes: size_t,
    protection: c_int,
    page: size_t,
    flags: c_int,
) -> c_int {
    if WATCHED.load(Ordering::Relaxed) && maps_segment(from.addr()) {
        set_errno(libc::EINVAL);
        return -1;
    }
    kernel!(SYS_remap_file_pages, from, bytes, protection, page, flags)
}
