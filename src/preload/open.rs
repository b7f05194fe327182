//! `open` and its family.
//!
//! Invariants: an open either gives a descriptor of the kernel's that carries the description, or
//! leaves nothing open. Not here: streams (`stdio`) and directories' streams (`directory`).

use std::ffi::{c_char, c_int};
use std::sync::atomic::{AtomicU32, Ordering};

use terral_client::{File, Ino, OpenHow, Opened, access, descriptor, own_files, plain};

use crate::hook::{Last, by_path, way_to};
use crate::path::{Name, standing_for};
use crate::real::{Served, alias, answer, kernel, set_errno};
use crate::standing::Standing;
use crate::{close, connect, fifos, settings, state};

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
    let mut length = read_status(&mut text);
    if length < 0 {
        length = own_files::again(|| read_status(&mut text)).unwrap_or(-1);
    }
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

fn read_status(text: &mut [u8; 512]) -> isize {
    // Not of the process: once its first thread has ended, that has no umask.
    let path = c"/proc/thread-self/status".as_ptr();
    let file: c_int = kernel!(SYS_openat, libc::AT_FDCWD, path, 0, 0);
    if file < 0 {
        return -1;
    }
    let length: isize = kernel!(SYS_read, file, text.as_mut_ptr(), text.len());
    let _: c_int = kernel!(SYS_close, file);
    length
}

#[unsafe(no_mangle)]
unsafe extern "C" fn umask(mask: libc::mode_t) -> libc::mode_t {
    UMASK.store(mask & 0o777, Ordering::Relaxed);
    kernel!(SYS_umask, mask)
}

/// How often a FIFO may go just before it is opened.
const ATTEMPTS: u32 = 100;
/// Flags that the kernel's descriptor of a file is opened with, and keeps through `exec`.
const CARRIED: c_int = libc::O_CLOEXEC
    | libc::O_SYNC
    | libc::O_DSYNC
    | libc::O_NOFOLLOW
    | libc::O_NONBLOCK
    | libc::O_ASYNC;
/// Flags that it is given, and may change; of the others [`state::Managed`] knows.
pub const KEPT: c_int = libc::O_NONBLOCK | libc::O_NOATIME | libc::O_ASYNC;
/// What 64-bit Linux says of every open file.
const LARGE_FILE: c_int = 0o100_000;
/// What an `O_PATH` open looks at; the other flags are nothing to it.
pub const FOR_PATH: c_int =
    libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC | LARGE_FILE;

/// How `open` flags ask.
fn how(name: &Name<'_>, flags: c_int, mode: u32) -> Served<OpenHow> {
    let unnamed = flags & libc::O_TMPFILE == libc::O_TMPFILE;
    let directory = !unnamed && (name.directory || flags & libc::O_DIRECTORY != 0);
    let create = flags & libc::O_CREAT != 0;
    if create && flags & libc::O_DIRECTORY != 0 {
        return Err(libc::EINVAL);
    }
    if create && directory {
        let dots = name.dots && flags & libc::O_EXCL != 0;
        return way_to(name).and(Err(if dots { libc::EEXIST } else { libc::EISDIR }));
    }
    let rights = if flags & libc::O_PATH != 0 {
        0
    } else {
        match flags & libc::O_ACCMODE {
            libc::O_RDONLY if unnamed => return Err(libc::EINVAL),
            libc::O_RDONLY => access::READ,
            libc::O_WRONLY => access::WRITE,
            libc::O_RDWR => access::READ | access::WRITE,
            _ => return Err(libc::EINVAL),
        }
    };
    let append = if flags & libc::O_APPEND != 0 { access::APPEND } else { 0 };
    let direct = if flags & libc::O_DIRECT != 0 { access::DIRECT } else { 0 };
    let itself = libc::O_PATH | libc::O_NOFOLLOW;
    let link = if flags & itself == itself && !name.directory { access::LINK } else { 0 };
    Ok(OpenHow {
        access: (rights | append | direct | link | access::KERNEL) as u8,
        create,
        exclusive: create && flags & libc::O_EXCL != 0,
        truncate: flags & libc::O_TRUNC != 0,
        directory,
        unnamed,
        mode: masked(mode),
        token: 0,
        on: None,
    })
}

/// Whether `open` with these flags goes after a link that is the last component.
pub fn last(flags: c_int) -> Last {
    if flags & (libc::O_CREAT | libc::O_EXCL) == libc::O_CREAT | libc::O_EXCL {
        Last::Name
    } else if flags & libc::O_NOFOLLOW != 0 {
        Last::Itself
    } else {
        Last::Followed
    }
}

/// Those that `open` knows; it does not look at others.
pub const OPEN: c_int = FOR_PATH
    | libc::O_ACCMODE
    | libc::O_CREAT
    | libc::O_EXCL
    | libc::O_NOCTTY
    | libc::O_TRUNC
    | libc::O_APPEND
    | libc::O_NONBLOCK
    | libc::O_SYNC
    | libc::O_ASYNC
    | libc::O_DIRECT
    | libc::O_NOATIME
    | libc::O_TMPFILE;

fn meaningful(flags: c_int) -> c_int {
    flags & if flags & libc::O_PATH != 0 { FOR_PATH } else { OPEN }
}

/// What an open came to.
pub enum Open {
    /// This descriptor.
    Descriptor(c_int),
    /// A FIFO, which [`fifos::open`] opens, outside of any call that is served.
    Fifo(Ino),
}

/// Opens a name under the prefix; ELOOP if a link is in the way.
pub fn open_any(name: &Name<'_>, flags: c_int, mode: u32) -> Served<Open> {
    let flags = meaningful(flags);
    let how = how(name, flags, mode)?;
    let opened = connect::with(|client| client.open_any(name.path, how));
    if opened.as_ref().is_err_and(|errno| *errno == libc::ELOOP) && flags & libc::O_NOFOLLOW != 0 {
        return Err(not_followed(name, flags));
    }
    held(opened?, flags)
}

/// The same for who wants a file, and not to wait for the other end of a FIFO: EACCES.
pub fn open_name(name: &Name<'_>, flags: c_int, mode: u32) -> Served<c_int> {
    match open_any(name, flags, mode)? {
        Open::Descriptor(fd) => Ok(fd),
        Open::Fifo(_) => Err(libc::EACCES),
    }
}

fn held(opened: Opened, flags: c_int) -> Served<Open> {
    match opened {
        Opened::File(file) => hold(file, flags).map(Open::Descriptor),
        Opened::Fifo(ino) => Ok(Open::Fifo(ino)),
    }
}

/// The errno for a link that is not to be followed; ELOOP is for those on the way, too.
fn not_followed(name: &Name<'_>, flags: c_int) -> c_int {
    let itself = connect::with(|client| client.stat(name.path));
    match itself {
        Ok(_) if !name.directory && flags & libc::O_DIRECTORY != 0 => libc::ENOTDIR,
        _ => libc::ELOOP,
    }
}

/// A descriptor of what was opened.
fn hold(file: File, flags: c_int) -> Served<c_int> {
    let (description, carried) = (file.description(), flags & CARRIED);
    let instance = settings::instance();
    let plain = if flags & (CARRIED & !libc::O_CLOEXEC | KEPT) == 0 {
        plain::copy(instance, flags & libc::O_CLOEXEC != 0)
    } else {
        None
    };
    let standing = Standing::new(plain.is_some());
    let held = || descriptor::hold(instance, description, file.nonce(), carried);
    let fd = match plain.map_or_else(held, Ok) {
        Ok(fd) => fd,
        Err(error) => {
            close::tell(&file);
            return Err(error.raw_os_error().unwrap_or(libc::EIO));
        }
    };
    if flags & KEPT & !CARRIED != 0 {
        let _: c_int = kernel!(SYS_fcntl, fd, libc::F_SETFL, flags & KEPT);
    }
    let gone = libc::O_CREAT | libc::O_NOCTTY | libc::O_TRUNC | libc::O_CLOEXEC | KEPT;
    let large = if flags & libc::O_PATH != 0 { 0 } else { LARGE_FILE };
    let managed = state::Managed::new(file, Some((flags & !gone) | large), standing);
    if let Err((errno, managed)) = state::install(fd, managed) {
        let _: c_int = kernel!(SYS_close, fd);
        close::tell(&managed.file);
        return Err(errno);
    }
    Ok(fd)
}

/// Opens anew what a managed descriptor has open, as Linux does by its own name of that.
pub fn open_again(held: &state::Managed, flags: c_int) -> Served<c_int> {
    if flags & libc::O_NOFOLLOW != 0 && flags & libc::O_PATH == 0 {
        return Err(libc::ELOOP);
    }
    if flags & (libc::O_CREAT | libc::O_EXCL) == libc::O_CREAT | libc::O_EXCL {
        return Err(libc::EEXIST);
    }
    let flags = meaningful(flags & !libc::O_CREAT);
    let file = Name { absolute: b"", path: b"", directory: false, dots: false, up: false };
    let how = how(&file, flags, 0)?;
    match self::held(connect::serve(|| held.file.reopen(how))?, flags)? {
        Open::Descriptor(fd) => Ok(fd),
        Open::Fifo(ino) => fifos::open(ino, flags),
    }
}

/// What Linux refuses before it looks at the path: a file without a name that is not to be written,
/// or to be made under one.
fn asks_nonsense(flags: c_int) -> bool {
    let unnamed = flags & libc::O_TMPFILE == libc::O_TMPFILE;
    unnamed && (flags & libc::O_CREAT != 0 || flags & libc::O_ACCMODE == libc::O_RDONLY)
}

/// Opens what a path leads to, and waits for the other end of a FIFO.
fn open_path(dirfd: c_int, path: *const c_char, flags: c_int, mode: u32) -> c_int {
    for _ in 0..ATTEMPTS {
        let mut fifo = None;
        let fd = by_path!(
            dirfd,
            path,
            last(meaningful(flags)),
            |at, path| {
                let fd: c_int = kernel!(SYS_openat, at, path, flags, mode);
                if fd >= 0 {
                    state::foreign(fd);
                }
                fd
            },
            |name| Ok(match open_any(&name, flags, mode)? {
                Open::Descriptor(fd) => fd,
                Open::Fifo(ino) => {
                    fifo = Some(ino);
                    -1
                }
            })
        );
        match fifo.map(|ino| fifos::open(ino, flags)) {
            None => return fd,
            // It lost its last name meanwhile: there is another thing of that name, or none.
            Some(Err(libc::ENOENT)) => {}
            Some(opened) => return answer(opened),
        }
    }
    answer(Err(libc::ENOENT))
}

/// `openat`, for every hook that opens.
pub fn open_at(dirfd: c_int, path: *const c_char, flags: c_int, mode: u32) -> c_int {
    if asks_nonsense(flags) {
        return answer(Err(libc::EINVAL));
    }
    // SAFETY: the callers pass a string or null, as their own contract demands.
    if let Some((_, held)) = unsafe { standing_for(path) } {
        return answer(open_again(&held, flags));
    }
    let fd = open_path(dirfd, path, flags, mode);
    let both = libc::O_CREAT | libc::O_DIRECTORY;
    if fd < 0 && flags & (both | libc::O_PATH) == both {
        // Linux looks at the flags before it looks at the path.
        set_errno(libc::EINVAL);
    }
    fd
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
