//! Calls that make, move and remove names.
//!
//! Invariants: moving between the prefix and elsewhere fails with EXDEV, so that mv copies; a
//! symbolic link that is the last component is the link itself. Not here: making links (`links`).

use std::ffi::{c_char, c_int, c_uint};

use terral_client::{Kind, RenameHow};

use crate::hook::{Last, by_both, by_path, known};
use crate::path::Name;
use crate::real::{Served, alias, kernel};
use crate::{connect, metadata, open};

fn unlink_name(name: &Name<'_>) -> Served<c_int> {
    if name.directory {
        // A link with a slash after it is no directory, as Linux has it.
        metadata::of_name(name, Last::Name)?;
        return Err(libc::EISDIR);
    }
    connect::with(|client| client.unlink(name.path)).map(|()| 0)
}

fn remove_directory(name: &Name<'_>) -> Served<c_int> {
    if name.dots {
        metadata::of_name(name, Last::Name)?;
        // What `..` leads to has at least the directory that led there.
        return Err(if name.up { libc::ENOTEMPTY } else { libc::EINVAL });
    }
    if name.path.is_empty() {
        return Err(libc::EBUSY);
    }
    match connect::with(|client| client.remove_directory(name.path)) {
        Err(libc::ELOOP) if is_link(name) => Err(libc::ENOTDIR),
        removed => removed.map(|()| 0),
    }
}

/// Whether a link is what the name itself stands for, and not on the way to it.
fn is_link(name: &Name<'_>) -> bool {
    let found = connect::with(|client| client.stat(name.path));
    found.is_ok_and(|found| found.kind == Kind::Symlink)
}

fn make_directory(name: &Name<'_>, mode: u32) -> Served<c_int> {
    if name.path.is_empty() || name.dots {
        return Err(
            metadata::of_name(name, Last::Name).map_or_else(|errno| errno, |_| libc::EEXIST)
        );
    }
    let mode = open::masked(mode) & 0o1777;
    connect::with(|client| client.make_directory(name.path, mode)).map(|()| 0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unlinkat(dirfd: c_int, path: *const c_char, flags: c_int) -> c_int {
    by_path!(dirfd, path, Last::Name, |at, path| kernel!(SYS_unlinkat, at, path, flags), |name| {
        known(flags, libc::AT_REMOVEDIR)?;
        match flags {
            0 => unlink_name(&name),
            _ => remove_directory(&name),
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    // SAFETY: the same contract.
    unsafe { unlinkat(libc::AT_FDCWD, path, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rmdir(path: *const c_char) -> c_int {
    // SAFETY: the same contract.
    unsafe { unlinkat(libc::AT_FDCWD, path, libc::AT_REMOVEDIR) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn remove(path: *const c_char) -> c_int {
    // SAFETY: the same contract.
    let gone = unsafe { unlink(path) };
    match crate::real::errno() {
        // SAFETY: the same contract.
        libc::EISDIR | libc::EPERM if gone != 0 => unsafe { rmdir(path) },
        _ => gone,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mkdirat(dirfd: c_int, path: *const c_char, mode: libc::mode_t) -> c_int {
    by_path!(dirfd, path, Last::Name, |at, path| kernel!(SYS_mkdirat, at, path, mode), |name| {
        make_directory(&name, mode)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mkdir(path: *const c_char, mode: libc::mode_t) -> c_int {
    // SAFETY: the same contract.
    unsafe { mkdirat(libc::AT_FDCWD, path, mode) }
}

fn kind_of(path: &[u8]) -> Served<Kind> {
    connect::with(|client| client.stat(path)).map(|found| found.kind)
}

/// Fails unless what is above a name can have names.
fn check_above(name: &Name<'_>) -> Served<()> {
    if name.dots {
        return metadata::of_name(name, Last::Name).map(drop);
    }
    let Some(slash) = name.path.iter().rposition(|byte| *byte == b'/') else { return Ok(()) };
    match kind_of(&name.path[..slash])? {
        Kind::Directory => Ok(()),
        // To be followed.
        Kind::Symlink => Err(libc::ELOOP),
        _ => Err(libc::ENOTDIR),
    }
}

/// Fails as Linux does, in its order, where a name ends in a slash and what has it is no directory.
fn check_slashes(from: &Name<'_>, to: &Name<'_>, how: RenameHow) -> Served<()> {
    check_above(from)?;
    check_above(to)?;
    let moves_directory = kind_of(from.path)? == Kind::Directory;
    let slash = match how {
        RenameHow::Replace => from.directory || to.directory,
        RenameHow::Keep => match kind_of(to.path) {
            Ok(_) => return Err(libc::EEXIST),
            Err(_) => from.directory || to.directory,
        },
        RenameHow::Exchange => {
            if kind_of(to.path)? != Kind::Directory && to.directory {
                return Err(libc::ENOTDIR);
            }
            from.directory
        }
    };
    if slash && !moves_directory { Err(libc::ENOTDIR) } else { Ok(()) }
}

fn move_name(from: &Name<'_>, to: &Name<'_>, flags: c_uint) -> Served<c_int> {
    let how = match flags {
        0 => RenameHow::Replace,
        libc::RENAME_NOREPLACE => RenameHow::Keep,
        libc::RENAME_EXCHANGE => RenameHow::Exchange,
        _ => return Err(libc::EINVAL),
    };
    let stands = |name: &Name<'_>| name.dots || name.path.is_empty();
    if stands(from) || stands(to) {
        check_above(from)?;
        check_above(to)?;
        let exists = how == RenameHow::Keep && !stands(from);
        return Err(if exists { libc::EEXIST } else { libc::EBUSY });
    }
    if from.directory || to.directory {
        check_slashes(from, to, how)?;
    }
    connect::with(|client| client.rename(from.path, to.path, how)).map(|()| 0)
}

fn rename_at(from: (c_int, *const c_char), to: (c_int, *const c_char), flags: c_uint) -> c_int {
    let both = ((from.0, from.1, Last::Name), (to.0, to.1, Last::Name));
    // SAFETY: the callers pass strings or null, as their own contract demands.
    unsafe {
        by_both(
            both,
            |from, to| move_name(&from, &to, flags),
            |from, to| kernel!(SYS_renameat2, from.0, from.1, to.0, to.1, flags),
            |from, to| rename_at(from, to, flags),
        )
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn renameat2(
    from_dirfd: c_int,
    from: *const c_char,
    to_dirfd: c_int,
    to: *const c_char,
    flags: c_uint,
) -> c_int {
    rename_at((from_dirfd, from), (to_dirfd, to), flags)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn renameat(
    from_dirfd: c_int,
    from: *const c_char,
    to_dirfd: c_int,
    to: *const c_char,
) -> c_int {
    rename_at((from_dirfd, from), (to_dirfd, to), 0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    rename_at((libc::AT_FDCWD, from), (libc::AT_FDCWD, to), 0)
}

alias! {
    __mkdir = mkdir as (path: *const c_char, mode: libc::mode_t) -> c_int;
}
