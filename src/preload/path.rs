//! Where a path leads: to the kernel, or to a name under the prefix.
//!
//! Invariants: `//`, `.` and `..` are resolved by their letters, as there are no symbolic links
//! under the prefix; `..` above it leads to the kernel, with the path it then stands for. Absolute
//! paths elsewhere cost one comparison, relative ones a look for the prefix's last component while
//! the directory they start from is the kernel's. Not here: symbolic links outside that point
//! inside; those fail in the kernel.

use std::ffi::{CStr, c_char, c_int};
use std::mem::MaybeUninit;

use crate::real::kernel;
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
    /// Its last component was `.` or `..`, with or without slashes after it.
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
        // SAFETY: as above.
        return unsafe { resolve_elsewhere(dirfd, path, space) };
    }
    if !absolute {
        let of_kernel = match dirfd {
            libc::AT_FDCWD => !cwd::is_managed(),
            _ => state::managed(dirfd).is_none(),
        };
        // SAFETY: as above.
        if of_kernel && !unsafe { names_prefix(path) } {
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

/// Whether a component of a relative path is called as the last one of the prefix; without that it
/// cannot lead there from a directory of the kernel's.
///
/// # Safety
/// `path` must be a string.
#[inline]
unsafe fn names_prefix(path: *const c_char) -> bool {
    let name = settings::prefix_name();
    let mut at = path.cast::<u8>();
    // SAFETY: every step and comparison stops at the string's zero.
    unsafe {
        loop {
            let mut same = 0;
            while same < name.len() && *at.add(same) == name[same] {
                same += 1;
            }
            if same == name.len() && matches!(*at.add(same), b'/' | 0) {
                return true;
            }
            at = at.add(same);
            while !matches!(*at, b'/' | 0) {
                at = at.add(1);
            }
            if *at == 0 {
                return false;
            }
            at = at.add(1);
        }
    }
}

/// The number N of `/dev/stdin`, `/dev/stdout`, `/dev/stderr`, `/dev/fd/N`, `/proc/self/fd/N`.
pub fn standing_for(path: &[u8]) -> Option<c_int> {
    let digits = match path {
        b"/dev/stdin" => return Some(0),
        b"/dev/stdout" => return Some(1),
        b"/dev/stderr" => return Some(2),
        _ => path.strip_prefix(b"/dev/fd/").or_else(|| {
            let below = path.strip_prefix(b"/proc/self/fd/");
            below.or_else(|| path.strip_prefix(b"/proc/thread-self/fd/"))
        }),
    };
    std::str::from_utf8(digits?).ok()?.parse().ok()
}

/// An absolute path that does not begin with the prefix: the kernel's own names of a managed
/// descriptor lead to what was opened, if it still has the name it was opened by.
#[inline]
unsafe fn resolve_elsewhere(dirfd: c_int, path: *const c_char, space: &mut Space) -> Where<'_> {
    // SAFETY: the caller promises a string that begins with a slash.
    let begins = unsafe { matches!(*path.cast::<u8>().add(1), b'd' | b'p') };
    if begins && !connect::inside() {
        // SAFETY: as above.
        let given = unsafe { CStr::from_ptr(path) }.to_bytes();
        if let Some(held) = standing_for(given).and_then(state::managed)
            && let Some(known) = known_name(&held)
        {
            let mut buffer = Buffer::new(space);
            if push_known(known, &mut buffer).is_ok() {
                return buffer.finish(false, false);
            }
        }
    }
    Where::Kernel(dirfd, path)
}

/// The path a file was opened by, if it still leads to it.
pub fn known_name(held: &state::Managed) -> Option<&[u8]> {
    let path = held.path.as_deref()?;
    let found = connect::with(|client| client.stat(path)).ok()?;
    (held.file.is_directory() || found.ino == held.file.ino()).then_some(path)
}

fn push_known(path: &[u8], buffer: &mut Buffer<'_>) -> Result<(), c_int> {
    settings::prefix().split(|byte| *byte == b'/').try_for_each(|part| buffer.push(part))?;
    path.split(|byte| *byte == b'/').try_for_each(|part| buffer.push(part))
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
    let base = if absolute { Ok(Base::Managed) } else { push_base(dirfd, &mut buffer) };
    let from_kernel = match base {
        Ok(base) => base == Base::Kernel,
        Err(errno) => return Where::Failed(errno),
    };
    if from_kernel && !push_kernel_base(dirfd, &mut buffer) {
        return Where::Kernel(dirfd, path);
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
    let last = given.rsplit(|byte| *byte == b'/').find(|part| !part.is_empty()).unwrap_or(b"");
    let dots = matches!(last, b"." | b"..");
    if from_kernel && !buffer.is_below_prefix() {
        return Where::Kernel(dirfd, path);
    }
    buffer.finish(dots || given.ends_with(b"/"), dots)
}

/// Whose directory a relative path starts from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Base {
    Managed,
    Kernel,
}

/// Begins with the directory a relative path starts from, unless it is the kernel's.
fn push_base(dirfd: c_int, buffer: &mut Buffer<'_>) -> Result<Base, c_int> {
    if dirfd == libc::AT_FDCWD {
        let mut here = [0u8; PATH_BYTES];
        let Some(length) = cwd::copy(&mut here) else { return Ok(Base::Kernel) };
        here[..length].split(|byte| *byte == b'/').try_for_each(|part| buffer.push(part))?;
        return Ok(Base::Managed);
    }
    let Some(held) = state::managed(dirfd) else { return Ok(Base::Kernel) };
    if !held.file.is_directory() {
        return Err(libc::ENOTDIR);
    }
    // A directory that came from another process: its path is not known here.
    let path = held.path.as_deref().ok_or(libc::EOPNOTSUPP)?;
    push_known(path, buffer)?;
    Ok(Base::Managed)
}

/// Begins with a directory of the kernel's; false if it cannot tell where that is.
fn push_kernel_base(dirfd: c_int, buffer: &mut Buffer<'_>) -> bool {
    let mut here = [0u8; PATH_BYTES];
    let length: isize = if dirfd == libc::AT_FDCWD {
        kernel!(SYS_readlinkat, dirfd, c"/proc/self/cwd".as_ptr(), here.as_mut_ptr(), here.len())
    } else {
        let mut space = [0u8; 32];
        let Some(link) = link_of(dirfd, &mut space) else { return false };
        kernel!(SYS_readlinkat, libc::AT_FDCWD, link, here.as_mut_ptr(), here.len())
    };
    let Some(path) = here.get(..length.max(0) as usize) else { return false };
    path.starts_with(b"/")
        && path.split(|byte| *byte == b'/').try_for_each(|part| buffer.push(part)).is_ok()
}

/// `/proc/self/fd/N`, with its zero.
pub fn link_of(fd: c_int, space: &mut [u8; 32]) -> Option<*const c_char> {
    const FRONT: &[u8] = b"/proc/self/fd/";
    let mut rest = u32::try_from(fd).ok()?;
    let mut digits = [0u8; 10];
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    let digits = &digits[first..];
    space[..FRONT.len()].copy_from_slice(FRONT);
    space[FRONT.len()..FRONT.len() + digits.len()].copy_from_slice(digits);
    space[FRONT.len() + digits.len()] = 0;
    Some(space.as_ptr().cast())
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

    fn is_below_prefix(&self) -> bool {
        let rest = self.filled().strip_prefix(settings::prefix());
        rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
    }

    fn finish(mut self, directory: bool, dots: bool) -> Where<'a> {
        if self.is_below_prefix() {
            let prefix = settings::prefix();
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
