//! `open` and its family.
//!
//! Invariants: an open either gives a descriptor of the kernel's that carries the description, or
//! leaves nothing open. Not here: streams (`stdio`) and directories' streams (`directory`).

use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::{AtomicU32, Ordering};

use terral_client::{OpenHow, access, descriptor};

use crate::path::{Name, Space, Where, resolve, standing_for};
use crate::real::{Served, alias, answer, kernel, set_errno};
use crate::{close, connect, settings, state};

const UNREAD: u32 = u32::MAX;
static UMASK: AtomicU32 = AtomicU32::new(UNREAD);

/// `mode` without the bits of the process's umask.
pub fn masked(mode: u32) -> u32 {
    mode & 0o7777 & !umask_now()
}

fn umask_now() -> u32 {
    let known = UMASK.load(Ordering::Relaxed);
    if known != UNREAD {
        return known;
    }
    // The kernel tells it without changing it here only; fields before Umask are short.
    let mut text = [0u8; 512];
    let file: c_int = kernel!(SYS_openat, libc::AT_FDCWD, c"/proc/self/status".as_ptr(), 0, 0);
    let length: isize = kernel!(SYS_read, file, text.as_mut_ptr(), text.len());
    let _: c_int = kernel!(SYS_close, file);
    let text = &text[..length.max(0) as usize];
    let at = text.windows(6).position(|window| window == b"Umask:");
    let digits = text[at.map_or(text.len(), |at| at + 6)..].iter();
    let digits =
        digits.skip_while(|byte| !byte.is_ascii_digit()).take_while(|b| b.is_ascii_digit());
    let mask = digits.fold(0u32, |mask, digit| (mask << 3) | u32::from(digit - b'0'));
    let mask = if at.is_some() { mask & 0o777 } else { 0o022 };
    UMASK.store(mask, Ordering::Relaxed);
    mask
}

#[unsafe(no_mangle)]
unsafe extern "C" fn umask(mask: libc::mode_t) -> libc::mode_t {
    UMASK.store(mask & 0o777, Ordering::Relaxed);
    kernel!(SYS_umask, mask)
}

/// How `open` flags ask; EOPNOTSUPP for what is not offered.
fn how(name: &Name<'_>, flags: c_int, mode: u32) -> Served<OpenHow> {
    if flags & libc::O_TMPFILE == libc::O_TMPFILE {
        return Err(libc::EOPNOTSUPP);
    }
    let directory = name.directory || flags & libc::O_DIRECTORY != 0;
    let create = flags & libc::O_CREAT != 0;
    if create && directory {
        return Err(if flags & libc::O_DIRECTORY != 0 { libc::EINVAL } else { libc::EISDIR });
    }
    let rights = if flags & libc::O_PATH != 0 {
        0
    } else {
        match flags & libc::O_ACCMODE {
            libc::O_RDONLY => access::READ,
            libc::O_WRONLY => access::WRITE,
            libc::O_RDWR => access::READ | access::WRITE,
            _ => return Err(libc::EINVAL),
        }
    };
    let append = if flags & libc::O_APPEND != 0 { access::APPEND } else { 0 };
    let plain = flags & libc::O_PATH == 0;
    Ok(OpenHow {
        access: (rights | append | access::KERNEL) as u8,
        create: create && plain,
        exclusive: create && plain && flags & libc::O_EXCL != 0,
        truncate: plain && flags & libc::O_TRUNC != 0,
        directory,
        unnamed: false,
        mode: masked(mode),
    })
}

/// Opens a name under the prefix.
pub fn open_name(name: &Name<'_>, flags: c_int, mode: u32) -> Served<c_int> {
    let how = how(name, flags, mode)?;
    let file = connect::with(|client| client.open(name.path, how))?;
    let cloexec = flags & libc::O_CLOEXEC != 0;
    let held = descriptor::hold(settings::instance(), file.description(), file.nonce(), cloexec);
    let fd = match held {
        Ok(fd) => fd,
        Err(error) => {
            let _ = connect::serve(|| {
                file.close();
                Ok(())
            });
            return Err(error.raw_os_error().unwrap_or(libc::EIO));
        }
    };
    let path = Some(Box::from(name.path));
    if let Err(errno) = state::install(fd, state::Managed { file: file.clone(), path }) {
        let _: c_int = kernel!(SYS_close, fd);
        close::tell(&file);
        return Err(errno);
    }
    Ok(fd)
}

/// A second descriptor of a managed one that the kernel's own names stand for, where the file's
/// name is not known. It shares the offset with the first; Linux would open the file anew.
pub fn open_again(path: *const c_char, flags: c_int) -> Option<Served<c_int>> {
    // SAFETY: the callers pass a string or null.
    let path = unsafe { (!path.is_null()).then(|| CStr::from_ptr(path)) }?.to_bytes();
    let fd = standing_for(path)?;
    let held = state::managed(fd)?;
    let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
    if writes && held.file.access() & access::WRITE == 0 {
        return Some(Err(libc::EACCES));
    }
    if flags & libc::O_TRUNC != 0
        && let Err(errno) = connect::serve(|| held.file.truncate(0))
    {
        return Some(Err(errno));
    }
    let command = if flags & libc::O_CLOEXEC != 0 { libc::F_DUPFD_CLOEXEC } else { libc::F_DUPFD };
    Some(close::duplicate(fd, command, 0))
}

/// `openat`, for every hook that opens.
pub fn open_at(dirfd: c_int, path: *const c_char, flags: c_int, mode: u32) -> c_int {
    let mut space = Space::new();
    // SAFETY: the callers pass a string or null, as their own contract demands.
    match unsafe { resolve(dirfd, path, &mut space) } {
        Where::Managed(name) => answer(open_name(&name, flags, mode)),
        Where::Failed(errno) => answer(Err(errno)),
        Where::Kernel(dirfd, path) => {
            if settings::active()
                && let Some(served) = open_again(path, flags)
            {
                return answer(served);
            }
            let fd: c_int = kernel!(SYS_openat, dirfd, path, flags, mode);
            if fd >= 0 {
                state::foreign(fd);
            }
            fd
        }
    }
}

fn creates(flags: c_int) -> bool {
    flags & (libc::O_CREAT | (libc::O_TMPFILE & !libc::O_DIRECTORY)) != 0
}

// `open` is variadic; reading a mode nobody passed is harmless, and it is then not used.
#[unsafe(no_mangle)]
unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
    open_at(libc::AT_FDCWD, path, flags, if creates(flags) { mode } else { 0 })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn openat(
    dirfd: c_int,
    path: *const c_char,
    flags: c_int,
    mode: libc::mode_t,
) -> c_int {
    open_at(dirfd, path, flags, if creates(flags) { mode } else { 0 })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn creat(path: *const c_char, mode: libc::mode_t) -> c_int {
    open_at(libc::AT_FDCWD, path, libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC, mode)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __open_2(path: *const c_char, flags: c_int) -> c_int {
    open_at(libc::AT_FDCWD, path, flags, 0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __openat_2(dirfd: c_int, path: *const c_char, flags: c_int) -> c_int {
    open_at(dirfd, path, flags, 0)
}

alias! {
    open64 = open as (path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int;
    __open = open as (path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int;
    __open64 = open as (path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int;
    openat64 = openat as (dirfd: c_int, path: *const c_char, flags: c_int, mode: libc::mode_t)
        -> c_int;
    creat64 = creat as (path: *const c_char, mode: libc::mode_t) -> c_int;
    __open64_2 = __open_2 as (path: *const c_char, flags: c_int) -> c_int;
    __openat64_2 = __openat_2 as (dirfd: c_int, path: *const c_char, flags: c_int) -> c_int;
}

/// `memfd_create` and friends give fresh numbers that need no hook; this one can see ours.
#[unsafe(no_mangle)]
unsafe extern "C" fn name_to_handle_at(
    dirfd: c_int,
    path: *const c_char,
    handle: *mut libc::c_void,
    mount: *mut c_int,
    flags: c_int,
) -> c_int {
    if state::managed(dirfd).is_some() {
        set_errno(libc::EOPNOTSUPP);
        return -1;
    }
    kernel!(SYS_name_to_handle_at, dirfd, path, handle, mount, flags)
}
