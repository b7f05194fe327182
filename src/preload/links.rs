//! Hard and symbolic links: made, and read.
//!
//! Invariants: a hard link joins names of one side, ours or the kernel's; a symbolic link may say
//! anything. Not here: following them (`path`).

use std::ffi::{CStr, c_char, c_int};

use libc::{size_t, ssize_t};
use terral_client::Kind;

use crate::hook::{Last, by_both, by_path, known};
use crate::metadata::of_name;
use crate::path::{Name, PATH_BYTES, standing_for};
use crate::real::{Served, answer, kernel};
use crate::state::Held;
use crate::{connect, fifos, itself, memory, metadata, settings};

/// Copies what a link says; what does not fit is cut off, as Linux has it.
fn give(text: &[u8], buffer: *mut c_char, room: size_t) -> Served<ssize_t> {
    let text = &text[..text.len().min(room)];
    memory::give(text, buffer.cast()).map(|()| text.len() as ssize_t)
}

/// What the kernel's own link of a managed descriptor should say.
fn told_of(held: &Held) -> Vec<u8> {
    match held.path() {
        Ok(path) => settings::below_prefix(&path),
        Err(_) => settings::gone(held.file.ino().0),
    }
}

fn read(name: &Name<'_>) -> Served<Vec<u8>> {
    match of_name(name, Last::Itself)?.kind {
        Kind::Symlink => connect::with(|client| client.read_link(name.path)),
        _ => Err(libc::EINVAL),
    }
}

/// What an open link says.
fn read_open(held: &Held) -> Served<Vec<u8>> {
    let path = held.path()?;
    connect::with(|client| client.read_link(&path))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn readlink(path: *const c_char, buffer: *mut c_char, room: size_t) -> ssize_t {
    // SAFETY: the same contract.
    unsafe { readlinkat(libc::AT_FDCWD, path, buffer, room) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn readlinkat(
    dirfd: c_int,
    path: *const c_char,
    buffer: *mut c_char,
    room: size_t,
) -> ssize_t {
    // SAFETY: the caller promises the path, and the buffer.
    unsafe {
        if let Some((_, held)) = standing_for(path) {
            return answer(give(&told_of(&held), buffer, room));
        }
        if let Some(text) = itself::told(path) {
            return answer(give(&text, buffer, room));
        }
        if let Some(held) = metadata::without_name(dirfd, path, libc::AT_EMPTY_PATH)
            && held.file.is_link()
        {
            return answer(read_open(&held).and_then(|text| give(&text, buffer, room)));
        }
        by_path!(
            dirfd,
            path,
            Last::Itself,
            |at, path| {
                let count = kernel!(SYS_readlinkat, at, path, buffer, room);
                fifos::named(buffer, count).map_or(count, |text| {
                    // What the kernel has written goes away.
                    let rest = vec![0; usize::try_from(count).unwrap_or(0)];
                    answer(give(&rest, buffer, room).and_then(|_| give(&text, buffer, room)))
                })
            },
            |name| if room == 0 {
                Err(libc::EINVAL)
            } else {
                read(&name).and_then(|text| give(&text, buffer, room))
            }
        )
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __readlink_chk(
    path: *const c_char,
    buffer: *mut c_char,
    count: size_t,
    _room: size_t,
) -> ssize_t {
    // SAFETY: the same contract as readlink.
    unsafe { readlink(path, buffer, count) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __readlinkat_chk(
    dirfd: c_int,
    path: *const c_char,
    buffer: *mut c_char,
    count: size_t,
    _room: size_t,
) -> ssize_t {
    // SAFETY: the same contract as readlinkat.
    unsafe { readlinkat(dirfd, path, buffer, count) }
}

/// A new name, which is no directory: with a slash after it there can be none.
pub fn check_new(name: &Name<'_>) -> Served<()> {
    if !name.directory && !name.path.is_empty() {
        return Ok(());
    }
    let found = match name.dots {
        true => of_name(name, Last::Name),
        false => connect::with(|client| client.stat(name.path)),
    };
    Err(found.map_or_else(|errno| errno, |_| libc::EEXIST))
}

fn make_symbolic(name: &Name<'_>, target: &[u8]) -> Served<c_int> {
    check_new(name)?;
    connect::with(|client| client.make_link(name.path, target)).map(|()| 0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn symlinkat(to: *const c_char, dirfd: c_int, path: *const c_char) -> c_int {
    // Linux looks at it before it looks at the path.
    if let Err(errno) = memory::check_string(to, PATH_BYTES) {
        return answer(Err(errno));
    }
    // SAFETY: just seen to be a string.
    let target = unsafe { CStr::from_ptr(to) }.to_bytes();
    if target.is_empty() {
        return answer(Err(libc::ENOENT));
    }
    by_path!(dirfd, path, Last::Name, |at, path| kernel!(SYS_symlinkat, to, at, path), |name| {
        make_symbolic(&name, target)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn symlink(to: *const c_char, path: *const c_char) -> c_int {
    // SAFETY: the same contract.
    unsafe { symlinkat(to, libc::AT_FDCWD, path) }
}

fn link_name(from: &Name<'_>, last: Last, to: &Name<'_>) -> Served<c_int> {
    of_name(from, last)?;
    check_new(to)?;
    connect::with(|client| client.link(from.path, to.path)).map(|()| 0)
}

/// Gives an open file a name. One that has lost its last one gets none, unless it was made without.
fn link_open(held: &Held, name: &Name<'_>) -> Served<c_int> {
    check_new(name)?;
    let found = metadata::of_file(held)?;
    let tmpfile = libc::O_TMPFILE & !libc::O_DIRECTORY;
    let linkable = |flags: c_int| flags & tmpfile != 0 && flags & libc::O_EXCL == 0;
    // A directory is refused for what it is, by the server.
    let gone = found.links == 0 && found.kind != Kind::Directory;
    if gone && !held.flags.is_none_or(linkable) {
        let there = connect::with(|client| client.stat(name.path));
        return Err(there.map_or_else(|errno| errno, |_| libc::EEXIST));
    }
    connect::serve(|| held.file.link(name.path)).map(|()| 0)
}

/// Flags of `linkat`.
const LINK: c_int = libc::AT_SYMLINK_FOLLOW | libc::AT_EMPTY_PATH;

fn link_at(from: (c_int, *const c_char), to: (c_int, *const c_char), flags: c_int) -> c_int {
    let last = if flags & libc::AT_SYMLINK_FOLLOW != 0 { Last::Followed } else { Last::Itself };
    let stays = if last == Last::Followed { 0 } else { libc::AT_SYMLINK_NOFOLLOW };
    // SAFETY: the callers pass strings or null, as their own contract demands.
    if let Some(held) = unsafe { metadata::without_name(from.0, from.1, flags | stays) } {
        return by_path!(to.0, to.1, Last::Name, |_at, _path| answer(Err(libc::EXDEV)), |name| {
            known(flags, LINK)?;
            link_open(&held, &name)
        });
    }
    let serve = |from: Name<'_>, to: Name<'_>| {
        known(flags, LINK)?;
        link_name(&from, last, &to)
    };
    // SAFETY: as above.
    unsafe {
        by_both(
            ((from.0, from.1, last), (to.0, to.1, Last::Name)),
            serve,
            |from, to| kernel!(SYS_linkat, from.0, from.1, to.0, to.1, flags),
            |from, to| link_at(from, to, flags),
        )
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn linkat(
    from_dirfd: c_int,
    from: *const c_char,
    to_dirfd: c_int,
    to: *const c_char,
    flags: c_int,
) -> c_int {
    link_at((from_dirfd, from), (to_dirfd, to), flags)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn link(from: *const c_char, to: *const c_char) -> c_int {
    link_at((libc::AT_FDCWD, from), (libc::AT_FDCWD, to), 0)
}
