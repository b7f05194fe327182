//! The shapes of hooks: a call by path or by descriptor is the kernel's, or is served.
//!
//! Invariants: a call that meets a symbolic link fails with ELOOP and is done again where the link
//! leads, at most as often as Linux goes after links. Not here: what a path means (`path`).

use std::ffi::{c_char, c_int};

use terral_client::Kind;

use crate::entrance::{either_inside, instead};
use crate::path::{LINKS_MAX, Name, Space, Where, expand, resolve, resolve_bytes};
use crate::real::{answer, errno, kernel};
use crate::{connect, settings, signals};

/// Whether a symbolic link that is the last component is followed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Last {
    /// Always.
    Followed,
    /// Only if a slash comes after it.
    Itself,
    /// Never: the call makes, removes or moves the name.
    Name,
}

impl Last {
    /// [`Last::Itself`] if `flags` have `AT_SYMLINK_NOFOLLOW`, else [`Last::Followed`].
    #[inline]
    pub fn by(flags: c_int) -> Last {
        if flags & libc::AT_SYMLINK_NOFOLLOW != 0 { Last::Itself } else { Last::Followed }
    }

    /// Whether the last component of `name` is followed.
    pub fn follows(self, name: &Name<'_>) -> bool {
        match self {
            Last::Followed => true,
            Last::Itself => name.directory,
            Last::Name => name.dots,
        }
    }
}

/// Where `name` leads, on which a call has just met a symbolic link; ELOOP if that is the last
/// component, and not to be followed.
#[cold]
pub fn follow(name: &Name<'_>, last: Last) -> Result<Vec<u8>, c_int> {
    let mut path = expand(name.path, last.follows(name))?;
    path.extend_from_slice(name.ending());
    Ok(path)
}

/// EINVAL for flags that a call does not know.
#[inline]
pub fn known(flags: c_int, all: c_int) -> Result<(), c_int> {
    if flags & !all == 0 { Ok(()) } else { Err(libc::EINVAL) }
}

/// What became of a path.
pub enum Found<T> {
    /// It is the kernel's, with these arguments.
    Kernel(c_int, *const c_char),
    /// It was served, or failed.
    Served(Result<T, c_int>),
}

/// Resolves a path and serves it if it is ours, going after symbolic links as `last` says.
///
/// # Safety
/// `path` must be null or a string.
#[inline]
pub unsafe fn find<T>(
    dirfd: c_int,
    path: *const c_char,
    last: Last,
    space: &mut Space,
    mut serve: impl FnMut(Name<'_>) -> Result<T, c_int>,
) -> Found<T> {
    // SAFETY: the caller's promise.
    let mut found = unsafe { resolve(dirfd, path, space) };
    // A path that was followed ends in `.` where the one given ended in `..`.
    let mut up = false;
    for _ in 0..=LINKS_MAX {
        match found {
            Where::Kernel(dirfd, path) => return Found::Kernel(dirfd, path),
            Where::Failed(errno) => return Found::Served(Err(errno)),
            Where::Managed(name) => {
                up |= name.up;
                let name = Name { up, ..name };
                let _quiet = signals::quiet();
                match serve(name) {
                    Err(libc::ELOOP) => match follow(&name, last) {
                        Ok(path) => found = resolve_bytes(path, space),
                        Err(errno) => return Found::Served(Err(errno)),
                    },
                    served => return Found::Served(served),
                }
            }
        }
    }
    Found::Served(Err(libc::ELOOP))
}

/// A path as a call is given it, and what to do with a link at its end.
pub type Given = (c_int, *const c_char, Last);

/// What became of two paths.
enum FoundBoth<T> {
    /// Both are the kernel's.
    Kernel((c_int, *const c_char), (c_int, *const c_char)),
    /// They were served, or failed.
    Served(Result<T, c_int>),
}

/// What is wrong with the way to a name, if something is. A dot at the end has all before it on the
/// way.
#[cold]
pub fn way_to(name: &Name<'_>) -> Result<(), c_int> {
    let above = name.above().get(name.absolute.len() - name.path.len()..).unwrap_or(b"");
    match connect::with(|client| client.stat(above))?.kind {
        Kind::Directory => Ok(()),
        Kind::Symlink => Err(libc::ELOOP),
        Kind::File | Kind::Fifo | Kind::Socket => Err(libc::ENOTDIR),
    }
}

/// EBADF if there is nothing from which a path of the kernel's could begin.
fn kernel_way(at: c_int, path: *const c_char) -> Result<(), c_int> {
    // SAFETY: the callers pass a string, of which the first byte is there.
    let begins_there = at != libc::AT_FDCWD && unsafe { *path } != b'/' as c_char;
    let flags: c_int = if begins_there { kernel!(SYS_fcntl, at, libc::F_GETFD) } else { 0 };
    if flags < 0 { Err(errno()) } else { Ok(()) }
}

/// What Linux finds wrong with a first path before it looks at the second: only with the way there
/// if it is moved ([`Last::Name`]), else with all of it.
#[cold]
fn looked_up(first: Where<'_>, last: Last) -> Result<(), c_int> {
    let way = last == Last::Name;
    match first {
        Where::Kernel(at, path) if way => kernel_way(at, path),
        Where::Kernel(at, path) => {
            let found: c_int = kernel!(SYS_faccessat, at, path, libc::F_OK);
            if found == 0 { Ok(()) } else { Err(errno()) }
        }
        Where::Managed(name) => {
            let path = if way { [name.above(), b"/"].concat() } else { name.text() };
            let last = if way { Last::Followed } else { last };
            let path = [&path[..], b"\0"].concat();
            let look = |name: Name<'_>| match connect::with(|client| client.stat(name.path))?.kind {
                Kind::Symlink if last.follows(&name) => Err(libc::ELOOP),
                Kind::Symlink | Kind::Directory => Ok(()),
                _ if name.directory => Err(libc::ENOTDIR),
                _ => Ok(()),
            };
            // SAFETY: the path ends with the zero that was put there.
            match unsafe {
                find(libc::AT_FDCWD, path.as_ptr().cast(), last, &mut Space::new(), look)
            } {
                Found::Kernel(at, path) => looked_up(Where::Kernel(at, path), Last::Followed),
                Found::Served(looked) => looked,
            }
        }
        Where::Failed(errno) => Err(errno),
    }
}

/// [`find`] for a call with two paths, which are both ours or both the kernel's: EXDEV otherwise.
///
/// # Safety
/// Both paths must be null or strings.
unsafe fn find_both<T>(
    one: Given,
    other: Given,
    spaces: &mut [Space; 2],
    mut serve: impl FnMut(Name<'_>, Name<'_>) -> Result<T, c_int>,
) -> FoundBoth<T> {
    if settings::active() && (one.1.is_null() || other.1.is_null()) {
        return FoundBoth::Served(Err(libc::EFAULT));
    }
    let [first, second] = spaces;
    // SAFETY: the caller's promise.
    let mut found = unsafe { (resolve(one.0, one.1, first), resolve(other.0, other.1, second)) };
    for _ in 0..=LINKS_MAX {
        let (from, to) = match found {
            (Where::Kernel(from_at, from), Where::Kernel(to_at, to)) => {
                return FoundBoth::Kernel((from_at, from), (to_at, to));
            }
            (Where::Failed(errno), _) => return FoundBoth::Served(Err(errno)),
            (Where::Managed(from), Where::Managed(to)) => (from, to),
            (first, Where::Failed(errno)) => {
                return FoundBoth::Served(Err(looked_up(first, one.2).err().unwrap_or(errno)));
            }
            (first, _) => {
                return FoundBoth::Served(looked_up(first, one.2).and(Err(libc::EXDEV)));
            }
        };
        let _quiet = signals::quiet();
        match serve(from, to) {
            Err(libc::ELOOP) => {}
            served => return FoundBoth::Served(served),
        }
        let followed = (follow(&from, one.2), follow(&to, other.2));
        if let (Err(errno), Err(_)) = followed {
            return FoundBoth::Served(Err(errno));
        }
        let paths = (followed.0.unwrap_or(from.text()), followed.1.unwrap_or(to.text()));
        found = (resolve_bytes(paths.0, first), resolve_bytes(paths.1, second));
    }
    FoundBoth::Served(Err(libc::ELOOP))
}

/// A path as the kernel is given it.
pub type At = (c_int, *const c_char);

/// A hook with two paths: `serve` for names of ours, `kernel` for the kernel's, and `again`, which
/// is the whole call, where the kernel did not find what a link outside leads to inside.
///
/// # Safety
/// Both paths must be null or strings.
pub unsafe fn by_both(
    (one, other): (Given, Given),
    serve: impl FnMut(Name<'_>, Name<'_>) -> Result<c_int, c_int>,
    kernel: impl FnOnce(At, At) -> c_int,
    again: impl FnOnce(At, At) -> c_int,
) -> c_int {
    let mut spaces = [Space::new(), Space::new()];
    // SAFETY: the caller's promise.
    match unsafe { find_both(one, other, &mut spaces, serve) } {
        FoundBoth::Kernel(from, to) => {
            let told = kernel(from, to);
            // SAFETY: as above.
            match unsafe { either_inside(told, from, to) } {
                Some(inside) => again(instead(&inside.0, from), instead(&inside.1, to)),
                None => told,
            }
        }
        FoundBoth::Served(served) => answer(served),
    }
}

/// The shape of a hook by path: `by_path!(dirfd, path, last, |dirfd, path| kernel, |name| served)`.
/// `served` is a `Result<value, errno>`; the kernel's answer is passed on as it is, unless it did
/// not find what a link outside leads to inside.
macro_rules! by_path {
    ($dirfd:expr, $path:expr, $last:expr,
        |$d:ident, $p:ident| $kernel:expr, |$name:ident| $served:expr) => {{
        let (mut dirfd, mut path) = ($dirfd, $path);
        let mut space = crate::path::Space::new();
        let mut entered;
        let mut serve = |$name: crate::path::Name<'_>| $served;
        loop {
            #[allow(unused_unsafe, reason = "some callers are inside an unsafe block")]
            // SAFETY: the caller passes a string or null, as the function it means to call demands.
            match unsafe { crate::hook::find(dirfd, path, $last, &mut space, &mut serve) } {
                crate::hook::Found::Kernel($d, $p) => {
                    let told = $kernel;
                    if !crate::entrance::lost(&told) {
                        break told;
                    }
                    #[allow(unused_unsafe, reason = "as above")]
                    // SAFETY: as above.
                    match unsafe { crate::entrance::inside($d, $p) } {
                        Some(inside) => entered = inside,
                        None => break told,
                    }
                    (dirfd, path) = (libc::AT_FDCWD, entered.as_ptr());
                }
                crate::hook::Found::Served(served) => break crate::real::answer(served),
            }
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

/// The same for calls that an `O_PATH` descriptor does not allow.
macro_rules! by_open_fd {
    ($fd:expr, $kernel:expr, |$held:ident| $served:expr) => {
        crate::hook::by_fd!($fd, $kernel, |$held| match $held.check_open() {
            Ok(()) => $served,
            Err(errno) => Err(errno),
        })
    };
}
pub(crate) use by_open_fd;
