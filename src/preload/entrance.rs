//! Symbolic links of the kernel's that lead under the prefix: it cannot follow them, and says that
//! there is nothing.
//!
//! Invariants: looked for only after such a failure, which then costs two more system calls; errno
//! is left as it was. Not here: links under the prefix (`path`).

use std::ffi::{CStr, CString, c_char, c_int};

use crate::path::{
    LINKS_MAX, PATH_BYTES, Space, Where, kernel_base, link_of, resolve, standing_for,
};
use crate::real::{Answer, errno, kernel, set_errno};
use crate::{connect, settings, signals};

/// Whether the kernel said that there is nothing.
#[inline]
pub fn lost<T: Answer>(told: &T) -> bool {
    told.is_failure() && errno() == libc::ENOENT && settings::active() && !connect::inside()
}

/// Where a path that the kernel does not find leads under the prefix, if it does.
///
/// # Safety
/// `path` must be null or a string.
#[cold]
pub unsafe fn inside(dirfd: c_int, path: *const c_char) -> Option<CString> {
    if path.is_null() {
        return None;
    }
    // SAFETY: the caller promises a string.
    let given = unsafe { CStr::from_ptr(path) }.to_bytes();
    let named = given.split(|byte| *byte == b'/').any(|part| part == settings::prefix_name());
    if !named && !meets_link(dirfd, path) {
        set_errno(libc::ENOENT);
        return None;
    }
    let _quiet = signals::quiet();
    let mut here = [0u8; PATH_BYTES];
    let found = if given.starts_with(b"/") {
        search(given.to_vec())
    } else if given.is_empty() {
        None
    } else {
        kernel_base(dirfd, &mut here).and_then(|base| search([base, b"/", given].concat()))
    };
    set_errno(libc::ENOENT);
    found
}

/// Whether the kernel meets a symbolic link on the way to where it finds nothing: compilers look in
/// vain for thousands of files, and one call tells.
fn meets_link(dirfd: c_int, path: *const c_char) -> bool {
    // SAFETY: the structure is plain data; all zero is a value of it.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = (libc::O_PATH | libc::O_CLOEXEC) as u64;
    how.resolve = libc::RESOLVE_NO_SYMLINKS;
    let fd: c_int = kernel!(SYS_openat2, dirfd, path, &raw const how, size_of::<libc::open_how>());
    if fd >= 0 {
        let _: c_int = kernel!(SYS_close, fd);
        return true;
    }
    errno() != libc::ENOENT
}

/// Whether a path is served here, or fails here; links that lead inside are followed.
///
/// # Safety
/// `path` must be null or a string.
pub unsafe fn is_ours(path: *const c_char) -> bool {
    if !settings::active() {
        return false;
    }
    let mut space = Space::new();
    // SAFETY: the caller's promise.
    unsafe {
        if standing_for(path).is_some() {
            return true;
        }
        match resolve(libc::AT_FDCWD, path, &mut space) {
            Where::Kernel(..) if connect::inside() => false,
            Where::Kernel(at, path) => {
                let saved = errno();
                let found = inside(at, path).is_some();
                set_errno(saved);
                found
            }
            _ => true,
        }
    }
}

/// As [`inside`], for a call on two paths that has failed so; `None` if neither leads inside.
///
/// # Safety
/// Both paths must be null or strings.
pub unsafe fn either_inside(
    told: c_int,
    one: (c_int, *const c_char),
    other: (c_int, *const c_char),
) -> Option<(Option<CString>, Option<CString>)> {
    if !lost(&told) {
        return None;
    }
    // SAFETY: the caller's promise.
    let found = unsafe { (inside(one.0, one.1), inside(other.0, other.1)) };
    (found.0.is_some() || found.1.is_some()).then_some(found)
}

/// What to call with instead.
pub fn instead(inside: &Option<CString>, given: (c_int, *const c_char)) -> (c_int, *const c_char) {
    inside.as_ref().map_or(given, |path| (libc::AT_FDCWD, path.as_ptr()))
}

fn is_below_prefix(path: &[u8]) -> bool {
    let rest = path.strip_prefix(settings::prefix());
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// Goes up an absolute path to what there is; that may be a link, or a directory by another name
/// in which the prefix is looked for.
fn search(mut path: Vec<u8>) -> Option<CString> {
    let mut links = 0;
    let mut end = path.len();
    loop {
        while end > 1 && path[end - 1] == b'/' {
            end -= 1;
        }
        let mut target = [0u8; PATH_BYTES];
        let link = CString::new(&path[..end]).ok()?;
        let room = target.len();
        let at = libc::AT_FDCWD;
        let length: isize = kernel!(SYS_readlinkat, at, link.as_ptr(), target.as_mut_ptr(), room);
        let slash = path[..end].iter().rposition(|byte| *byte == b'/')?;
        if length < 0 {
            match errno() {
                libc::ENOENT if slash > 0 => end = slash,
                libc::ENOENT => return by_another_name(c"/", &path),
                libc::EINVAL => return by_another_name(&link, &path[end..]),
                _ => return None,
            }
            continue;
        }
        let target = target.get(..length as usize)?;
        let base = if target.starts_with(b"/") { &[] } else { &path[..=slash] };
        path = [base, target, &path[end..]].concat();
        if is_below_prefix(&path) {
            return CString::new(path).ok();
        }
        end = path.len();
        links += 1;
        if links > LINKS_MAX {
            return None;
        }
    }
}

/// The prefix, if `rest` begins with its last component and `directory` is the one above it.
fn by_another_name(directory: &CStr, rest: &[u8]) -> Option<CString> {
    let rest = &rest[rest.iter().position(|byte| *byte != b'/')?..];
    let after = rest.strip_prefix(settings::prefix_name())?;
    if !after.is_empty() && !after.starts_with(b"/") {
        return None;
    }
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
    let fd: c_int = kernel!(SYS_openat, libc::AT_FDCWD, directory.as_ptr(), flags, 0);
    let mut space = [0u8; 32];
    let mut here = [0u8; PATH_BYTES];
    let base = link_of(fd, &mut space).and_then(|_| kernel_base(fd, &mut here));
    let path = base.map(|base| [base, if base == b"/" { b"" } else { b"/" }, rest].concat());
    let _: c_int = kernel!(SYS_close, fd);
    path.filter(|path| is_below_prefix(path)).and_then(|path| CString::new(path).ok())
}
