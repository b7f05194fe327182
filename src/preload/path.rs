//! Where a path leads: to the kernel, or to a name under the prefix.
//!
//! Invariants: `//`, `.` and `..` are resolved by their letters, as there are no symbolic links
//! under the prefix; `..` above it leads to the kernel, with the path it then stands for. Absolute
//! paths elsewhere cost one comparison, relative ones a flag while the working directory is the
//! kernel's. Not here: symbolic links outside that point inside; those fail in the kernel.

use std::ffi::{CStr, c_char, c_int};
use std::mem::MaybeUninit;

use crate::{connect, cwd, settings, state};

const PATH_BYTES: usize = 4096;
const NAME_BYTES: usize = 255;
const SPACE_BYTES: usize = 2 * PATH_BYTES + 1024;

/// Memory for a resolved path; not touched by paths that go to the kernel as they came.
pub struct Space(MaybeUninit<[u8; SPACE_BYTES]>);

impl Space {
    /// Unused memory.
    #[inline]
    pub fn new() -> Self {
        Space(MaybeUninit::uninit())
    }
}

/// A name under the prefix.
#[derive(Clone, Copy)]
pub struct Name<'a> {
    /// The whole virtual path, absolute and normal.
    pub absolute: &'a [u8],
    /// The path relative to the root; the root itself is empty.
    pub path: &'a [u8],
    /// It ended in a slash or a dot, so only a directory will do.
    pub directory: bool,
    /// Its last component was `.` or `..`.
    pub dots: bool,
}

/// Where a path leads.
pub enum Where<'a> {
    /// To the kernel, with these arguments.
    Kernel(c_int, *const c_char),
    /// Under the prefix.
    Managed(Name<'a>),
    /// Nowhere: this errno.
    Failed(c_int),
}

/// Resolves `path` relative to `dirfd`, which may be `AT_FDCWD`.
///
/// # Safety
/// `path` must be null or a string.
#[inline]
pub unsafe fn resolve(dirfd: c_int, path: *const c_char, space: &mut Space) -> Where<'_> {
    if path.is_null() || !settings::active() {
        return Where::Kernel(dirfd, path);
    }
    // SAFETY: the caller promises a string, and bytes are read only up to its zero.
    let (elsewhere, absolute) = unsafe {
        if *path.cast::<u8>() == b'/' { (!is_below_prefix(path), true) } else { (false, false) }
    };
    if elsewhere {
        return Where::Kernel(dirfd, path);
    }
    if !absolute {
        let of_kernel = match dirfd {
            libc::AT_FDCWD => !cwd::is_managed(),
            _ => dirfd < 0,
        };
        if of_kernel {
            return Where::Kernel(dirfd, path);
        }
    }
    // SAFETY: the caller's promise.
    unsafe { resolve_slowly(dirfd, path, absolute, space) }
}

/// Whether an absolute path begins with the prefix as a component.
///
/// # Safety
/// `path` must be a string that begins with a slash.
#[inline]
unsafe fn is_below_prefix(path: *const c_char) -> bool {
    let mut at = path.cast::<u8>();
    // SAFETY: comparing stops at the first difference, so never after the string's zero.
    unsafe {
        while *at.add(1) == b'/' {
            at = at.add(1);
        }
        for byte in settings::prefix() {
            if *at != *byte {
                return false;
            }
            at = at.add(1);
        }
        *at == 0 || *at == b'/'
    }
}

unsafe fn resolve_slowly(
    dirfd: c_int,
    path: *const c_char,
    absolute: bool,
    space: &mut Space,
) -> Where<'_> {
    if connect::inside() {
        return Where::Kernel(dirfd, path);
    }
    // SAFETY: the caller promises a string.
    let given = unsafe { CStr::from_ptr(path) }.to_bytes();
    let mut buffer = Buffer::new(space);
    let base = if absolute { Ok(true) } else { push_base(dirfd, &mut buffer) };
    match base {
        Ok(true) => {}
        Ok(false) => return Where::Kernel(dirfd, path),
        Err(errno) => return Where::Failed(errno),
    }
    if given.is_empty() {
        return Where::Failed(libc::ENOENT);
    }
    if given.len() >= PATH_BYTES {
        return Where::Failed(libc::ENAMETOOLONG);
    }
    if let Err(errno) = given.split(|byte| *byte == b'/').try_for_each(|part| buffer.push(part)) {
        return Where::Failed(errno);
    }
    let last = given.rsplit(|byte| *byte == b'/').next().unwrap_or(b"");
    let dots = matches!(last, b"." | b"..");
    buffer.finish(dots || last.is_empty(), dots)
}

/// Begins with the directory a relative path starts from; false if that is the kernel's.
fn push_base(dirfd: c_int, buffer: &mut Buffer<'_>) -> Result<bool, c_int> {
    if dirfd == libc::AT_FDCWD {
        let mut here = [0u8; PATH_BYTES];
        let Some(length) = cwd::copy(&mut here) else { return Ok(false) };
        here[..length].split(|byte| *byte == b'/').try_for_each(|part| buffer.push(part))?;
        return Ok(true);
    }
    let Some(held) = state::managed(dirfd) else { return Ok(false) };
    if !held.file.is_directory() {
        return Err(libc::ENOTDIR);
    }
    // A directory that came from another process: its path is not known here.
    let path = held.path.as_deref().ok_or(libc::EOPNOTSUPP)?;
    settings::prefix().split(|byte| *byte == b'/').try_for_each(|part| buffer.push(part))?;
    path.split(|byte| *byte == b'/').try_for_each(|part| buffer.push(part))?;
    Ok(true)
}

/// A normal absolute path, growing component by component.
struct Buffer<'a> {
    bytes: &'a mut [MaybeUninit<u8>],
    end: usize,
}

impl<'a> Buffer<'a> {
    fn new(space: &'a mut Space) -> Self {
        let first = space.0.as_mut_ptr().cast::<MaybeUninit<u8>>();
        // SAFETY: the same memory, as bytes that need not be initialised.
        let bytes = unsafe { std::slice::from_raw_parts_mut(first, SPACE_BYTES) };
        Buffer { bytes, end: 0 }
    }

    fn filled(&self) -> &[u8] {
        // SAFETY: bytes before `end` have been written.
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr().cast(), self.end) }
    }

    fn push(&mut self, part: &[u8]) -> Result<(), c_int> {
        match part {
            b"" | b"." => {}
            b".." => {
                let slash = self.filled().iter().rposition(|byte| *byte == b'/');
                self.end = slash.unwrap_or(0);
            }
            _ if part.len() > NAME_BYTES => return Err(libc::ENAMETOOLONG),
            _ => {
                let room = self.bytes.get_mut(self.end..self.end + 1 + part.len());
                let room = room.ok_or(libc::ENAMETOOLONG)?;
                room[0].write(b'/');
                for (to, from) in room[1..].iter_mut().zip(part) {
                    to.write(*from);
                }
                self.end += 1 + part.len();
            }
        }
        Ok(())
    }

    fn finish(mut self, directory: bool, dots: bool) -> Where<'a> {
        let prefix = settings::prefix();
        let rest = self.filled().strip_prefix(prefix);
        if rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/') {
            let end = self.end;
            let bytes: &'a [MaybeUninit<u8>] = self.bytes;
            // SAFETY: bytes before `end` have been written.
            let absolute = unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), end) };
            let path = &absolute[end.min(prefix.len() + 1)..];
            if path.len() >= PATH_BYTES {
                return Where::Failed(libc::ENAMETOOLONG);
            }
            return Where::Managed(Name { absolute, path, directory, dots });
        }
        if self.end == 0 || directory {
            self.bytes[self.end].write(b'/');
            self.end += 1;
        }
        self.bytes[self.end].write(0);
        Where::Kernel(libc::AT_FDCWD, self.bytes.as_ptr().cast())
    }
}

/// The shape of a hook by path: `by_path!(dirfd, path, |dirfd, path| kernel, |name| served)`.
/// `served` is a `Result<value, errno>`; the kernel's answer is passed on as it is.
macro_rules! by_path {
    ($dirfd:expr, $path:expr, |$d:ident, $p:ident| $kernel:expr, |$name:ident| $served:expr) => {{
        let mut space = crate::path::Space::new();
        // SAFETY: the caller passes a string or null, as the function it means to call demands.
        match unsafe { crate::path::resolve($dirfd, $path, &mut space) } {
            crate::path::Where::Kernel($d, $p) => $kernel,
            crate::path::Where::Managed($name) => crate::real::answer($served),
            crate::path::Where::Failed(errno) => crate::real::answer(Err(errno)),
        }
    }};
}
pub(crate) use by_path;

/// The shape of a hook by descriptor: `by_fd!(fd, kernel, |held| served)`.
macro_rules! by_fd {
    ($fd:expr, $kernel:expr, |$held:ident| $served:expr) => {
        match crate::state::managed($fd) {
            None => $kernel,
            Some($held) => crate::real::answer($served),
        }
    };
}
pub(crate) use by_fd;
