//! Where a path leads: to the kernel, or to a name under the prefix.
//!
//! Invariants: a path is taken by its letters, without a message, as long as no symbolic link is in
//! the way; a call that meets one fails with ELOOP and is done again where it leads. `..` after
//! a name means what the name is a link to. What leads out of the prefix goes to the kernel as an
//! absolute path. Absolute paths elsewhere cost one comparison, relative ones a look for the
//! prefix's last component while the directory they start from is the kernel's. Not here: links
//! outside that lead inside (`entrance`).

use std::ffi::{CStr, c_char, c_int};
use std::mem::MaybeUninit;

use terral_client::Kind;

use crate::real::kernel;
use crate::{connect, cwd, memory, settings, state};

/// Longest path, its zero included.
pub const PATH_BYTES: usize = 4096;
/// Most symbolic links, or turns between the kernel and the prefix, that one path may take.
pub const LINKS_MAX: u32 = 40;
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

    fn bytes(&mut self) -> &mut [MaybeUninit<u8>] {
        let first = self.0.as_mut_ptr().cast::<MaybeUninit<u8>>();
        // SAFETY: the same memory, as bytes that need not be initialised.
        unsafe { std::slice::from_raw_parts_mut(first, SPACE_BYTES) }
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
    /// It was `..`.
    pub up: bool,
}

impl Name<'_> {
    /// What follows the path to say the same as the fields.
    pub fn ending(&self) -> &'static [u8] {
        match (self.directory, self.dots) {
            (_, true) => b"/.",
            (true, false) => b"/",
            (false, false) => b"",
        }
    }

    /// The absolute path of what must be a directory for there to be such a name.
    pub fn above(&self) -> &[u8] {
        let slash = self.absolute.iter().rposition(|byte| *byte == b'/');
        if self.dots { self.absolute } else { &self.absolute[..slash.unwrap_or(0)] }
    }

    /// The absolute path, with an ending that says the same.
    pub fn text(&self) -> Vec<u8> {
        [self.absolute, self.ending()].concat()
    }
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
/// `path` must be null or meant to be a string, which stays.
#[inline]
pub unsafe fn resolve(dirfd: c_int, path: *const c_char, space: &mut Space) -> Where<'_> {
    if path.is_null() || !settings::active() {
        return Where::Kernel(dirfd, path);
    }
    if let Err(errno) = memory::check_string(path, PATH_BYTES) {
        return Where::Failed(errno);
    }
    // SAFETY: just seen to be a string, and bytes are read only up to its zero.
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

/// The number N of `/dev/stdin`, `/dev/stdout`, `/dev/stderr`, `/dev/fd/N`, `/proc/self/fd/N`, and
/// what follows it.
fn standing(path: &[u8]) -> Option<(c_int, &[u8])> {
    match path {
        b"/dev/stdin" => return Some((0, b"")),
        b"/dev/stdout" => return Some((1, b"")),
        b"/dev/stderr" => return Some((2, b"")),
        _ => {}
    }
    let fronts: [&[u8]; 3] = [b"/dev/fd/", b"/proc/self/fd/", b"/proc/thread-self/fd/"];
    let digits = fronts.iter().find_map(|front| path.strip_prefix(*front))?;
    let end = digits.iter().position(|byte| *byte == b'/').unwrap_or(digits.len());
    let number = std::str::from_utf8(&digits[..end]).ok()?.parse().ok()?;
    Some((number, &digits[end..]))
}

/// The managed descriptor that the whole of `path` is the kernel's name of.
///
/// # Safety
/// `path` must be null or a string.
#[inline]
pub unsafe fn standing_for(path: *const c_char) -> Option<(c_int, state::Held)> {
    if path.is_null() || !settings::active() || memory::check_string(path, PATH_BYTES).is_err() {
        return None;
    }
    // SAFETY: just seen to be a string; a byte after its first is read only if that is no zero.
    let begins = unsafe {
        let bytes = path.cast::<u8>();
        *bytes == b'/' && matches!(*bytes.add(1), b'd' | b'p')
    };
    if !begins || connect::inside() {
        return None;
    }
    // SAFETY: as above.
    let (fd, rest) = standing(unsafe { CStr::from_ptr(path) }.to_bytes())?;
    state::managed(fd).filter(|_| rest.is_empty()).map(|held| (fd, held))
}

/// An absolute path that does not begin with the prefix: the kernel's own names of a managed
/// descriptor lead to what was opened, if it still has a name.
#[inline]
unsafe fn resolve_elsewhere(dirfd: c_int, path: *const c_char, space: &mut Space) -> Where<'_> {
    // SAFETY: the caller promises a string that begins with a slash.
    let begins = unsafe { matches!(*path.cast::<u8>().add(1), b'd' | b'p') };
    if begins && !connect::inside() {
        // SAFETY: as above.
        let given = unsafe { CStr::from_ptr(path) }.to_bytes();
        if let Some((fd, rest)) = standing(given)
            && let Some(held) = state::managed(fd)
            && let Ok(known) = held.path()
        {
            return resolve_bytes([&settings::below_prefix(&known), rest].concat(), space);
        }
    }
    Where::Kernel(dirfd, path)
}

#[cold]
unsafe fn refused(path: *const c_char) -> Option<c_int> {
    // SAFETY: the caller promises a string.
    let length = unsafe { CStr::from_ptr(path) }.to_bytes().len();
    match length {
        0 => Some(libc::ENOENT),
        PATH_BYTES.. => Some(libc::ENAMETOOLONG),
        _ => None,
    }
}

unsafe fn resolve_slowly(
    dirfd: c_int,
    path: *const c_char,
    absolute: bool,
    space: &mut Space,
) -> Where<'_> {
    // The client's own files, if the prefix lies above them. Any other path that is met inside the
    // client is a signal handler's, whose call fails rather than going past Terral.
    if absolute && connect::inside() {
        // SAFETY: the caller promises a string.
        let given = unsafe { CStr::from_ptr(path) }.to_bytes();
        if given.starts_with(settings::instance().as_os_str().as_encoded_bytes()) {
            return Where::Kernel(dirfd, path);
        }
    }
    // SAFETY: the caller promises a string.
    if let Some(errno) = unsafe { refused(path) } {
        return Where::Failed(errno);
    }
    let mut buffer = Buffer::new(space);
    let base = if absolute { Ok(Base::Root) } else { push_base(dirfd, &mut buffer) };
    let base = match base {
        Ok(Base::Kernel) if !push_kernel_base(dirfd, &mut buffer) => {
            return Where::Kernel(dirfd, path);
        }
        Ok(base) => base,
        Err(errno) => return Where::Failed(errno),
    };
    // SAFETY: as above.
    let given = unsafe { CStr::from_ptr(path) }.to_bytes();
    match buffer.walk(given, base == Base::Managed) {
        Ok(Walked::Below) => {
            let end = buffer.end;
            finish(space, end, given)
        }
        Ok(Walked::Elsewhere) => Where::Kernel(dirfd, path),
        Ok(Walked::Left(path)) => resolve_bytes(path, space),
        Err(errno) => Where::Failed(errno),
    }
}

/// Resolves an absolute path that this library has put together.
pub fn resolve_bytes(mut path: Vec<u8>, space: &mut Space) -> Where<'_> {
    for _ in 0..=LINKS_MAX {
        if path.len() >= PATH_BYTES {
            return Where::Failed(libc::ENAMETOOLONG);
        }
        let mut buffer = Buffer::new(space);
        match buffer.walk(&path, false) {
            Ok(Walked::Below) => {
                let end = buffer.end;
                return finish(space, end, &path);
            }
            // Links of the kernel's may be on the way, so its letters stay as they are.
            Ok(Walked::Elsewhere) => return to_kernel(&path, space),
            Ok(Walked::Left(other)) => path = other,
            Err(errno) => return Where::Failed(errno),
        }
    }
    Where::Failed(libc::ELOOP)
}

fn to_kernel<'a>(path: &[u8], space: &'a mut Space) -> Where<'a> {
    let bytes = space.bytes();
    for (to, from) in bytes.iter_mut().zip(path.iter().chain(&[0])) {
        to.write(*from);
    }
    Where::Kernel(libc::AT_FDCWD, bytes.as_ptr().cast())
}

/// Whose directory a path starts from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Base {
    Root,
    Managed,
    Kernel,
}

/// Begins with the directory a relative path starts from, unless it is the kernel's.
fn push_base(dirfd: c_int, buffer: &mut Buffer<'_>) -> Result<Base, c_int> {
    if dirfd == libc::AT_FDCWD {
        let Some(begun) = cwd::with_path(|path| buffer.set(path)) else { return Ok(Base::Kernel) };
        begun??;
    } else {
        let Some(held) = state::managed(dirfd) else { return Ok(Base::Kernel) };
        if !held.file.is_directory() {
            return Err(libc::ENOTDIR);
        }
        held.with_path(|path| buffer.set(path))??;
    }
    Ok(Base::Managed)
}

/// The absolute path of a directory of the kernel's.
pub fn kernel_base(dirfd: c_int, here: &mut [u8; PATH_BYTES]) -> Option<&[u8]> {
    let length: isize = if dirfd == libc::AT_FDCWD {
        kernel!(
            SYS_readlinkat,
            dirfd,
            c"/proc/thread-self/cwd".as_ptr(),
            here.as_mut_ptr(),
            here.len()
        )
    } else {
        let mut space = [0u8; 32];
        let link = link_of(dirfd, &mut space)?;
        kernel!(SYS_readlinkat, libc::AT_FDCWD, link, here.as_mut_ptr(), here.len())
    };
    here.get(..length.max(0) as usize).filter(|path| path.starts_with(b"/"))
}

/// Begins with a directory of the kernel's; false if it cannot tell where that is.
fn push_kernel_base(dirfd: c_int, buffer: &mut Buffer<'_>) -> bool {
    let mut here = [0u8; PATH_BYTES];
    let Some(path) = kernel_base(dirfd, &mut here) else { return false };
    path.split(|byte| *byte == b'/').try_for_each(|part| buffer.push(part)).is_ok()
}

/// `/proc/thread-self/fd/N`, with its zero: that of the process is empty once its first thread has
/// ended.
pub fn link_of(fd: c_int, space: &mut [u8; 32]) -> Option<*const c_char> {
    const FRONT: &[u8] = b"/proc/thread-self/fd/";
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

/// Where a path led by its letters.
enum Walked {
    /// Below the prefix: the buffer holds it.
    Below,
    /// Never to the prefix.
    Elsewhere,
    /// Out of it again: to this absolute path, which may lead back.
    Left(Vec<u8>),
}

/// What lies above the prefix, then `rest`.
fn above_prefix(rest: &[u8]) -> Vec<u8> {
    let prefix = settings::prefix();
    let slash = prefix.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    [&prefix[..slash], b"/", rest].concat()
}

impl<'a> Buffer<'a> {
    fn new(space: &'a mut Space) -> Self {
        Buffer { bytes: space.bytes(), end: 0 }
    }

    fn filled(&self) -> &[u8] {
        // SAFETY: bytes before `end` have been written.
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr().cast(), self.end) }
    }

    /// The path relative to the prefix. Only below it.
    fn path(&self) -> &[u8] {
        &self.filled()[self.end.min(settings::prefix().len() + 1)..]
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), c_int> {
        let room = self.bytes.get_mut(self.end..self.end + bytes.len());
        for (to, from) in room.ok_or(libc::ENAMETOOLONG)?.iter_mut().zip(bytes) {
            to.write(*from);
        }
        self.end += bytes.len();
        Ok(())
    }

    /// Makes it `path` below the prefix.
    fn set(&mut self, path: &[u8]) -> Result<(), c_int> {
        self.end = 0;
        self.append(settings::prefix())?;
        if path.is_empty() {
            return Ok(());
        }
        self.append(b"/")?;
        self.append(path)
    }

    fn pop(&mut self) {
        let slash = self.filled().iter().rposition(|byte| *byte == b'/');
        self.end = slash.unwrap_or(0);
    }

    fn push(&mut self, part: &[u8]) -> Result<(), c_int> {
        match part {
            b"" | b"." => Ok(()),
            b".." => {
                self.pop();
                Ok(())
            }
            _ if part.len() > NAME_BYTES => Err(libc::ENAMETOOLONG),
            _ => {
                self.append(b"/")?;
                self.append(part)
            }
        }
    }

    /// Goes along `given`; `inside` is whether the buffer is below the prefix already.
    fn walk(&mut self, given: &[u8], mut inside: bool) -> Result<Walked, c_int> {
        let top = settings::prefix().len();
        // Components that nobody has looked up: what is before them has no links.
        let mut unseen = 0u32;
        let mut rest = Some(given);
        while let Some(text) = rest {
            let slash = text.iter().position(|byte| *byte == b'/');
            let part = &text[..slash.unwrap_or(text.len())];
            rest = slash.map(|slash| &text[slash + 1..]);
            if part == b".." && inside {
                if unseen > 0 {
                    let parent = self.step_up()?;
                    unseen = 0;
                    if let Some(path) = parent {
                        return Ok(Walked::Left([&path, &b"/"[..], rest.unwrap_or(b"")].concat()));
                    }
                } else if self.end == top {
                    return Ok(Walked::Left(above_prefix(rest.unwrap_or(b""))));
                } else {
                    self.pop();
                }
                continue;
            }
            self.push(part)?;
            if !inside {
                inside = self.end == top && self.filled() == settings::prefix();
            } else if !matches!(part, b"" | b".") {
                unseen += 1;
            }
        }
        Ok(if inside { Walked::Below } else { Walked::Elsewhere })
    }

    /// Goes to the parent of what the path leads to, which must be a directory. Gives where that is
    /// if it lies elsewhere.
    #[cold]
    fn step_up(&mut self) -> Result<Option<Vec<u8>>, c_int> {
        match connect::with(|client| client.stat(self.path())).map(|found| found.kind) {
            Ok(Kind::Directory) => {}
            Ok(Kind::File | Kind::Fifo | Kind::Socket) => return Err(libc::ENOTDIR),
            Ok(Kind::Symlink) | Err(libc::ELOOP) => {
                return Ok(Some([&expand(self.path(), true)?, &b"/.."[..]].concat()));
            }
            Err(errno) => return Err(errno),
        }
        self.pop();
        Ok(None)
    }
}

/// The absolute path that `path`, below the prefix, stands for when the first symbolic link in it
/// is replaced by what it says; ELOOP if there is none, or only the last component, and that is not
/// to be followed.
#[cold]
pub fn expand(path: &[u8], last: bool) -> Result<Vec<u8>, c_int> {
    let mut start = 0;
    while start < path.len() {
        let slash = path[start..].iter().position(|byte| *byte == b'/');
        let end = slash.map_or(path.len(), |slash| start + slash);
        if slash.is_none() && !last {
            break;
        }
        if connect::with(|client| client.stat(&path[..end]))?.kind == Kind::Symlink {
            let target = connect::with(|client| client.read_link(&path[..end]))?;
            let above = settings::below_prefix(path[..start].strip_suffix(b"/").unwrap_or(b""));
            let base: [&[u8]; 2] =
                if target.starts_with(b"/") { [b"", b""] } else { [&above, b"/"] };
            return Ok([base[0], base[1], &target, &path[end..]].concat());
        }
        start = end + 1;
    }
    Err(libc::ELOOP)
}

/// The name in the first `end` bytes of `space`, which came from `given`.
fn finish<'a>(space: &'a mut Space, end: usize, given: &[u8]) -> Where<'a> {
    let last = given.rsplit(|byte| *byte == b'/').find(|part| !part.is_empty()).unwrap_or(b"");
    let dots = matches!(last, b"." | b"..");
    // SAFETY: bytes before `end` have been written.
    let absolute = unsafe { std::slice::from_raw_parts(space.bytes().as_ptr().cast(), end) };
    let path = &absolute[end.min(settings::prefix().len() + 1)..];
    if path.len() >= PATH_BYTES {
        return Where::Failed(libc::ENAMETOOLONG);
    }
    let directory = dots || given.ends_with(b"/");
    Where::Managed(Name { absolute, path, directory, dots, up: last == b".." })
}
