//! `stat` in all its forms, `access`, and calls that change mode, owner and times.
//!
//! Invariants: structures of the caller are filled only on success. Not here: names themselves.

use std::ffi::{c_char, c_int, c_uint};

use libc::{gid_t, mode_t, uid_t};
use terral_client::{Change, Kind, Seen, acting, as_real};

use crate::hook::{Last, by_fd, by_open_fd, by_path, known};
use crate::path::{Name, standing_for};
use crate::real::{Served, alias, answer, kernel};
use crate::state::{self, Managed};
use crate::{attributes, connect, fifos, memory};

/// Attributes of a name; ELOOP if it is a link to be followed, ENOTDIR if it asks for a directory
/// and is none.
pub fn of_name(name: &Name<'_>, last: Last) -> Served<Seen> {
    let found = connect::with(|client| client.stat(name.path))?;
    match found.kind {
        Kind::Symlink if last.follows(name) => Err(libc::ELOOP),
        Kind::Directory => Ok(found),
        _ if name.directory => Err(libc::ENOTDIR),
        _ => Ok(found),
    }
}

/// Attributes of an open file.
pub fn of_file(managed: &Managed) -> Served<Seen> {
    connect::serve(|| managed.file.attributes())
}

/// What a path stands for without a name: `dirfd` itself if the path is empty and `flags` allow
/// that, or a descriptor by the kernel's name of it.
///
/// # Safety
/// `path` must be null or a string.
pub unsafe fn without_name(dirfd: c_int, path: *const c_char, flags: c_int) -> Option<state::Held> {
    // SAFETY: the caller's promise.
    unsafe {
        if flags & libc::AT_EMPTY_PATH != 0 && memory::get(path) == Ok(0) {
            return state::managed(dirfd);
        }
        if flags & libc::AT_SYMLINK_NOFOLLOW != 0 {
            return None;
        }
        standing_for(path).map(|(_, held)| held)
    }
}

/// Whether a path with these flags stands for the descriptor it is relative to.
fn is_itself(path: *const c_char, flags: c_int) -> bool {
    flags & libc::AT_EMPTY_PATH != 0 && memory::get(path) == Ok(0)
}

/// Flags of calls that set or check something of a name.
pub const PLACE: c_int = libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH;
/// Those of calls that look.
const LOOK: c_int = PLACE | libc::AT_NO_AUTOMOUNT | libc::AT_STATX_SYNC_TYPE;

fn fill(found: Served<Seen>, to: *mut libc::stat) -> Served<c_int> {
    memory::put(attributes::stat(&found?), to).map(|()| 0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fstat(fd: c_int, to: *mut libc::stat) -> c_int {
    by_fd!(fd, fifos::shown(fd, to, kernel!(SYS_fstat, fd, to)), |held| fill(of_file(&held), to))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fstatat(
    dirfd: c_int,
    path: *const c_char,
    to: *mut libc::stat,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller promises path and struct.
    if let Some(held) = unsafe { without_name(dirfd, path, flags) } {
        return answer(known(flags, LOOK).and_then(|()| fill(of_file(&held), to)));
    }
    by_path!(
        dirfd,
        path,
        Last::by(flags),
        |at, path| {
            let told = kernel!(SYS_newfstatat, at, path, to, flags);
            if is_itself(path, flags) { fifos::shown(at, to, told) } else { told }
        },
        |name| {
            known(flags, LOOK)?;
            fill(of_name(&name, Last::by(flags)), to)
        }
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn stat(path: *const c_char, to: *mut libc::stat) -> c_int {
    // SAFETY: the same contract.
    unsafe { fstatat(libc::AT_FDCWD, path, to, 0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lstat(path: *const c_char, to: *mut libc::stat) -> c_int {
    // SAFETY: the same contract.
    unsafe { fstatat(libc::AT_FDCWD, path, to, libc::AT_SYMLINK_NOFOLLOW) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ftok(path: *const c_char, project: c_int) -> libc::key_t {
    // SAFETY: stat is plain data; all zero is a value of it.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the caller promises the path.
    if unsafe { stat(path, &raw mut found) } != 0 {
        return -1;
    }
    // As glibc has it.
    let (device, inode) = (found.st_dev & 0xff, found.st_ino & 0xffff);
    (project & 0xff) << 24 | (device as c_int) << 16 | inode as c_int
}

fn fill_extended(found: Served<Seen>, to: *mut libc::statx) -> Served<c_int> {
    memory::put(attributes::statx(&found?), to).map(|()| 0)
}

/// What `statx` does not know.
fn may_look(flags: c_int, mask: c_uint) -> Served<()> {
    const RESERVED: c_uint = 1 << 31;
    let both = flags & libc::AT_STATX_SYNC_TYPE == libc::AT_STATX_SYNC_TYPE;
    if both || mask & RESERVED != 0 { Err(libc::EINVAL) } else { known(flags, LOOK) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn statx(
    dirfd: c_int,
    path: *const c_char,
    flags: c_int,
    mask: c_uint,
    to: *mut libc::statx,
) -> c_int {
    // SAFETY: the caller promises path and struct.
    if let Some(held) = unsafe { without_name(dirfd, path, flags) } {
        let asked = may_look(flags, mask);
        return answer(asked.and_then(|()| fill_extended(of_file(&held), to)));
    }
    by_path!(
        dirfd,
        path,
        Last::by(flags),
        |at, path| {
            let told = kernel!(SYS_statx, at, path, flags, mask, to);
            if is_itself(path, flags) { fifos::shown_extended(at, to, told) } else { told }
        },
        |name| {
            may_look(flags, mask)?;
            fill_extended(of_name(&name, Last::by(flags)), to)
        }
    )
}

/// What `faccessat` does not know.
fn may_ask(wanted: c_int, flags: c_int) -> Served<()> {
    known(wanted, libc::R_OK | libc::W_OK | libc::X_OK)?;
    known(flags, PLACE | libc::AT_EACCESS)
}

/// Whether this thread may do `wanted`, by mode bits alone.
pub fn may(found: &Seen, wanted: c_int) -> Served<c_int> {
    let person = &acting().person;
    let mode = attributes::mode(found);
    let runs = mode & 0o111 != 0 || mode & libc::S_IFMT == libc::S_IFDIR;
    let refused = person.is_root() && wanted & libc::X_OK != 0 && !runs;
    if person.may(found, wanted as u32) && !refused { Ok(0) } else { Err(libc::EACCES) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn faccessat(
    dirfd: c_int,
    path: *const c_char,
    wanted: c_int,
    flags: c_int,
) -> c_int {
    let effective = flags & libc::AT_EACCESS != 0;
    // SAFETY: the caller promises the path.
    if let Some(held) = unsafe { without_name(dirfd, path, flags) } {
        let ask = || {
            may_ask(wanted, flags)?;
            of_file(&held).and_then(|found| may(&found, wanted))
        };
        return answer(if effective { ask() } else { as_real(ask) });
    }
    by_path!(
        dirfd,
        path,
        Last::by(flags),
        |at, path| if flags == 0 {
            kernel!(SYS_faccessat, at, path, wanted)
        } else {
            kernel!(SYS_faccessat2, at, path, wanted, flags)
        },
        |name| {
            let ask = || {
                may_ask(wanted, flags)?;
                of_name(&name, Last::by(flags)).and_then(|found| may(&found, wanted))
            };
            if effective { ask() } else { as_real(ask) }
        }
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn access(path: *const c_char, wanted: c_int) -> c_int {
    // SAFETY: the same contract.
    unsafe { faccessat(libc::AT_FDCWD, path, wanted, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn euidaccess(path: *const c_char, wanted: c_int) -> c_int {
    // SAFETY: the same contract.
    unsafe { faccessat(libc::AT_FDCWD, path, wanted, libc::AT_EACCESS) }
}

fn change_name(name: &Name<'_>, last: Last, change: Change) -> Served<c_int> {
    of_name(name, last)?;
    connect::with(|client| client.change(name.path, change)).map(|()| 0)
}

fn change_file(managed: &Managed, change: Change) -> Served<c_int> {
    connect::serve(|| managed.file.change(change)).map(|()| 0)
}

fn to_mode(mode: mode_t) -> Change {
    Change { mode: Some(mode & 0o7777), ..Change::default() }
}

fn to_owner(user: uid_t, group: gid_t) -> Change {
    let given = |id: u32| (id != u32::MAX).then_some(id);
    Change { uid: given(user), gid: given(group), ..Change::default() }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fchmod(fd: c_int, mode: mode_t) -> c_int {
    let by_kernel = || kernel!(SYS_fchmod, fd, mode);
    by_open_fd!(fd, fifos::changed(fd, || Ok(to_mode(mode)), by_kernel), |held| {
        change_file(&held, to_mode(mode))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fchmodat(
    dirfd: c_int,
    path: *const c_char,
    mode: mode_t,
    flags: c_int,
) -> c_int {
    type Function = unsafe extern "C" fn(c_int, *const c_char, mode_t, c_int) -> c_int;
    // SAFETY: the caller promises the path.
    if let Some(held) = unsafe { without_name(dirfd, path, flags) } {
        return answer(change_file(&held, to_mode(mode)));
    }
    by_path!(
        dirfd,
        path,
        Last::by(flags),
        |at, path| if flags == 0 {
            kernel!(SYS_fchmodat, at, path, mode)
        } else {
            crate::real::libc_call!(c"fchmodat" as Function, -1, at, path, mode, flags)
        },
        |name| match known(flags, PLACE).and_then(|()| of_name(&name, Last::by(flags)))?.kind {
            // As Linux: a link's own mode is never looked at.
            Kind::Symlink => Err(libc::EOPNOTSUPP),
            _ => change_name(&name, Last::by(flags), to_mode(mode)),
        }
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn chmod(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the same contract.
    unsafe { fchmodat(libc::AT_FDCWD, path, mode, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lchmod(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the same contract.
    unsafe { fchmodat(libc::AT_FDCWD, path, mode, libc::AT_SYMLINK_NOFOLLOW) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fchown(fd: c_int, user: uid_t, group: gid_t) -> c_int {
    let by_kernel = || kernel!(SYS_fchown, fd, user, group);
    by_open_fd!(fd, fifos::changed(fd, || Ok(to_owner(user, group)), by_kernel), |held| {
        change_file(&held, to_owner(user, group))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fchownat(
    dirfd: c_int,
    path: *const c_char,
    user: uid_t,
    group: gid_t,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller promises the path.
    if let Some(held) = unsafe { without_name(dirfd, path, flags) } {
        return answer(change_file(&held, to_owner(user, group)));
    }
    by_path!(
        dirfd,
        path,
        Last::by(flags),
        |at, path| kernel!(SYS_fchownat, at, path, user, group, flags),
        |name| {
            known(flags, PLACE)?;
            change_name(&name, Last::by(flags), to_owner(user, group))
        }
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn chown(path: *const c_char, user: uid_t, group: gid_t) -> c_int {
    // SAFETY: the same contract.
    unsafe { fchownat(libc::AT_FDCWD, path, user, group, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lchown(path: *const c_char, user: uid_t, group: gid_t) -> c_int {
    // SAFETY: the same contract.
    unsafe { fchownat(libc::AT_FDCWD, path, user, group, libc::AT_SYMLINK_NOFOLLOW) }
}

/// A change of the kind its caller wants, for `times`.
pub enum Target<'a> {
    /// By name, and whether a link is followed.
    Name(Name<'a>, Last),
    /// By open file.
    File(state::Held),
}

/// Applies `change` to `target`.
pub fn change(target: &Target<'_>, change: Change) -> Served<c_int> {
    match target {
        Target::Name(name, last) => change_name(name, *last, change),
        Target::File(held) => change_file(held, change),
    }
}

/// The `__xstat` family of programs built before glibc 2.33; the version says nothing on 64 bits.
macro_rules! versioned {
    ($($name:ident = $to:ident ($($argument:ident: $type:ty),*);)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(_version: c_int, $($argument: $type),*) -> c_int {
            // SAFETY: the same contract.
            unsafe { $to($($argument),*) }
        }
    )*};
}

versioned! {
    __xstat = stat (path: *const c_char, to: *mut libc::stat);
    __xstat64 = stat (path: *const c_char, to: *mut libc::stat);
    __lxstat = lstat (path: *const c_char, to: *mut libc::stat);
    __lxstat64 = lstat (path: *const c_char, to: *mut libc::stat);
    __fxstat = fstat (fd: c_int, to: *mut libc::stat);
    __fxstat64 = fstat (fd: c_int, to: *mut libc::stat);
    __fxstatat = fstatat (at: c_int, path: *const c_char, to: *mut libc::stat, flags: c_int);
    __fxstatat64 = fstatat (at: c_int, path: *const c_char, to: *mut libc::stat, flags: c_int);
}

alias! {
    stat64 = stat as (path: *const c_char, to: *mut libc::stat) -> c_int;
    lstat64 = lstat as (path: *const c_char, to: *mut libc::stat) -> c_int;
    fstat64 = fstat as (fd: c_int, to: *mut libc::stat) -> c_int;
    fstatat64 = fstatat as (at: c_int, path: *const c_char, to: *mut libc::stat, flags: c_int)
        -> c_int;
    eaccess = euidaccess as (path: *const c_char, wanted: c_int) -> c_int;
}
