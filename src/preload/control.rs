//! `fcntl`, `ioctl`, and whether a descriptor is a terminal.
//!
//! Not here: copies of numbers (`close`) and locks (`locks`), which `fcntl` shares.

use std::ffi::{c_int, c_long, c_ulong, c_void};

use terral_client::access;

use crate::hook::by_open_fd;
use crate::open::KEPT;
use crate::real::{Served, alias, kernel};
use crate::state::{self, Managed};
use crate::{close, locks, memory};

// `F_SETSIG`, `F_GETSIG`, `F_SETOWN_EX`, `F_GETOWN_EX`, `F_GETOWNER_UIDS` of fcntl.h, in a row.
const F_SETSIG: c_int = 10;
const F_GETOWN_EX: c_int = 16;
const F_GETOWNER_UIDS: c_int = 17;
const F_OWNER_PGRP: c_int = 2;
const F_DUPFD_QUERY: c_int = 1027;
const F_GET_RW_HINT: c_int = 1035;
const F_SET_RW_HINT: c_int = 1036;
const DN_MULTISHOT: u32 = 0x8000_0000;
/// Those that there are.
const SEALS: c_long = 0x3f;
/// `RWH_WRITE_LIFE_EXTREME`.
const HINT_MAX: u64 = 5;
// Of linux/fs.h and asm/ioctls.h.
const FIBMAP: c_ulong = 1;
const FIGETBSZ: c_ulong = 2;
const FICLONE: c_ulong = 0x4004_9409;
const FICLONERANGE: c_ulong = 0x4020_940d;
const FIDEDUPERANGE: c_ulong = 0xc018_9436;
const FIFREEZE: c_ulong = 0xc004_5877;
const FITHAW: c_ulong = 0xc004_5878;
const FIOQSIZE: c_ulong = 0x5460;
const BLOCK_BYTES: c_int = 4096;

fn status_flags(fd: c_int, managed: &Managed) -> c_int {
    let access = managed.file.access();
    let rights = match (access & access::READ != 0, access & access::WRITE != 0) {
        (true, true) => libc::O_RDWR,
        (false, true) => libc::O_WRONLY,
        (true, false) => libc::O_RDONLY,
        (false, false) => libc::O_PATH,
    };
    let append = if access & access::APPEND != 0 { libc::O_APPEND } else { 0 };
    let kernel: c_int = kernel!(SYS_fcntl, fd, libc::F_GETFL);
    let direct = if access & access::DIRECT != 0 { libc::O_DIRECT } else { 0 };
    let told = libc::O_ACCMODE | libc::O_APPEND | libc::O_DIRECT;
    let changing = told | libc::O_PATH | libc::O_EXCL | KEPT;
    let unknown = if managed.file.is_directory() { kernel } else { kernel & !libc::O_DIRECTORY };
    rights | append | direct | (kernel & KEPT) | (managed.flags.unwrap_or(unknown) & !changing)
}

fn controlled(fd: c_int, managed: &Managed, command: c_int, argument: c_long) -> Served<c_int> {
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => close::duplicate(fd, command, argument as c_int),
        libc::F_GETFD | libc::F_SETFD => {
            let value: c_int = kernel!(SYS_fcntl, fd, command, argument);
            if value < 0 { Err(crate::real::errno()) } else { Ok(value) }
        }
        libc::F_GETFL => Ok(status_flags(fd, managed)),
        F_DUPFD_QUERY => {
            managed.standing.name(fd, &managed.file);
            let other = argument as c_int;
            state::managed(other).iter().for_each(|held| held.standing.name(other, &held.file));
            passed(fd, command, argument)
        }
        libc::F_SETFL => managed.check_open().and_then(|()| set_flags(fd, managed, argument)),
        _ => {
            // Plain ones have all that the kernel keeps for one in common.
            managed.standing.name(fd, &managed.file);
            managed.check_open().and_then(|()| controlled_open(fd, managed, command, argument))
        }
    }
}

/// Who gets the signals, as glibc has it: −1 from the kernel may be a group.
fn owner(fd: c_int) -> Served<c_int> {
    let mut owner = Owner { kind: 0, id: 0 };
    let done: c_int = kernel!(SYS_fcntl, fd, F_GETOWN_EX, &raw mut owner);
    match owner.kind {
        _ if done < 0 => Err(crate::real::errno()),
        F_OWNER_PGRP => Ok(-owner.id),
        _ => Ok(owner.id),
    }
}

/// `struct f_owner_ex`.
#[repr(C)]
struct Owner {
    kind: c_int,
    id: libc::pid_t,
}

/// The kernel's answer, of the descriptor that stands for the file.
fn passed(fd: c_int, command: c_int, argument: c_long) -> Served<c_int> {
    let value: c_int = kernel!(SYS_fcntl, fd, command, argument);
    if value < 0 { Err(crate::real::errno()) } else { Ok(value) }
}

/// Leases are never given: somebody else may always have the file open.
fn lease(managed: &Managed, command: c_int, argument: c_long) -> Served<c_int> {
    let kinds = [libc::F_RDLCK, libc::F_WRLCK, libc::F_UNLCK];
    match c_int::try_from(argument) {
        _ if command == libc::F_GETLEASE => Ok(libc::F_UNLCK),
        _ if managed.file.is_directory() => Err(libc::EINVAL),
        Ok(kind) if kinds.contains(&kind) => Err(libc::EAGAIN),
        _ => Err(libc::EINVAL),
    }
}

/// A watch of a directory, which is refused as where Linux has none; it ends when it is asked to.
fn watch(managed: &Managed, argument: c_long) -> Served<c_int> {
    match argument as u32 & !DN_MULTISHOT {
        0 => Ok(0),
        _ if managed.file.is_directory() => Err(libc::EINVAL),
        _ => Err(libc::ENOTDIR),
    }
}

/// Seals are of files in memory only: other files are sealed against seals.
fn seals(managed: &Managed, command: c_int, argument: c_long) -> Served<c_int> {
    let writes = managed.file.access() & access::WRITE != 0;
    match command {
        _ if managed.file.is_directory() && command == libc::F_GET_SEALS => Err(libc::EINVAL),
        libc::F_GET_SEALS => Ok(libc::F_SEAL_SEAL),
        _ if writes && argument & !SEALS != 0 => Err(libc::EINVAL),
        _ => Err(libc::EPERM),
    }
}

/// How long what is written is expected to live, as somebody has said; said and told, no more.
fn hint(managed: &Managed, command: c_int, at: *mut u64) -> Served<c_int> {
    if command == F_GET_RW_HINT {
        return memory::put(managed.file.hint(), at).map(|()| 0);
    }
    let hint = memory::get(at.cast_const())?;
    if hint > HINT_MAX {
        return Err(libc::EINVAL);
    }
    managed.file.set_hint(hint);
    Ok(0)
}

fn set_flags(fd: c_int, managed: &Managed, argument: c_long) -> Served<c_int> {
    let kept = argument as c_int & KEPT;
    if kept != 0 {
        managed.standing.name(fd, &managed.file);
    }
    // Plain ones have their flags in common, and none.
    if !managed.standing.is_plain() {
        let set: c_int = kernel!(SYS_fcntl, fd, libc::F_SETFL, kept);
        if set < 0 {
            return Err(crate::real::errno());
        }
    } else if kept != 0 {
        return Err(libc::EMFILE);
    }
    for (asked, flag) in [(libc::O_APPEND, access::APPEND), (libc::O_DIRECT, access::DIRECT)] {
        managed.file.set_flag(flag, argument as c_int & asked != 0);
    }
    Ok(0)
}

fn controlled_open(
    fd: c_int,
    managed: &Managed,
    command: c_int,
    argument: c_long,
) -> Served<c_int> {
    match command {
        libc::F_GETLK
        | libc::F_SETLK
        | libc::F_SETLKW
        | libc::F_OFD_GETLK
        | libc::F_OFD_SETLK
        | libc::F_OFD_SETLKW => {
            managed.share(fd);
            locks::control(managed, command, argument as *mut libc::flock)
        }
        libc::F_GETOWN => owner(fd),
        libc::F_SETOWN | F_SETSIG..=F_GETOWNER_UIDS => passed(fd, command, argument),
        libc::F_GETPIPE_SZ | libc::F_SETPIPE_SZ => Err(libc::EBADF),
        libc::F_GETLEASE | libc::F_SETLEASE => lease(managed, command, argument),
        libc::F_NOTIFY => watch(managed, argument),
        libc::F_GET_SEALS | libc::F_ADD_SEALS => seals(managed, command, argument),
        F_GET_RW_HINT | F_SET_RW_HINT => hint(managed, command, argument as *mut u64),
        _ => Err(libc::EINVAL),
    }
}

// `fcntl` is variadic; reading an argument nobody passed is harmless, and it is then not used.
#[unsafe(no_mangle)]
unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: c_long) -> c_int {
    match state::managed(fd) {
        Some(held) => crate::real::answer(controlled(fd, &held, command, argument)),
        None if command == libc::F_GETOWN => crate::real::answer(owner(fd)),
        None => {
            let value: c_int = kernel!(SYS_fcntl, fd, command, argument);
            if value >= 0 && matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
                state::foreign_copy(fd, value);
            }
            value
        }
    }
}

fn input_output(fd: c_int, managed: &Managed, request: c_ulong, at: *mut c_void) -> Served<c_int> {
    match request {
        libc::FIOCLEX | libc::FIONCLEX => Ok(kernel!(SYS_ioctl, fd, request, at)),
        libc::FIONBIO => Ok(0),
        libc::FIOASYNC => memory::get(at.cast_const().cast::<c_int>()).map(|_| 0),
        FIOQSIZE => {
            let found = crate::metadata::of_file(managed)?;
            memory::put(found.size as i64, at.cast()).map(|()| 0)
        }
        FIGETBSZ => memory::put(BLOCK_BYTES, at.cast()).map(|()| 0),
        FIBMAP if !managed.file.is_directory() => Err(libc::EINVAL),
        FICLONE | FICLONERANGE | FIDEDUPERANGE | FIFREEZE | FITHAW => Err(libc::EOPNOTSUPP),
        libc::FIONREAD if managed.file.is_directory() => Err(libc::ENOTTY),
        libc::FIONREAD => {
            let left = managed.file.size().saturating_sub(managed.file.offset());
            memory::put(left.min(c_int::MAX as u64) as c_int, at.cast()).map(|()| 0)
        }
        _ => Err(libc::ENOTTY),
    }
}

// `ioctl` is variadic in the same way.
#[unsafe(no_mangle)]
unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    by_open_fd!(fd, kernel!(SYS_ioctl, fd, request, argument), |held| {
        input_output(fd, &held, request, argument)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn isatty(fd: c_int) -> c_int {
    if state::managed(fd).is_some() {
        crate::real::set_errno(libc::ENOTTY);
        return 0;
    }
    // SAFETY: termios is plain data; all zero is a value of it.
    let mut terminal: libc::termios = unsafe { std::mem::zeroed() };
    let answer: c_int = kernel!(SYS_ioctl, fd, libc::TCGETS, &raw mut terminal);
    c_int::from(answer == 0)
}

alias! {
    fcntl64 = fcntl as (fd: c_int, command: c_int, argument: c_long) -> c_int;
    __fcntl = fcntl as (fd: c_int, command: c_int, argument: c_long) -> c_int;
}
