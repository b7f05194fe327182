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
        _ => managed.check_open().and_then(|()| controlled_open(fd, managed, command, argument)),
    }
}

fn controlled_open(
    fd: c_int,
    managed: &Managed,
    command: c_int,
    argument: c_long,
) -> Served<c_int> {
    match command {
        libc::F_SETFL => {
            let kept: c_int = kernel!(SYS_fcntl, fd, command, argument as c_int & KEPT);
            if kept < 0 {
                return Err(crate::real::errno());
            }
            for (asked, flag) in
                [(libc::O_APPEND, access::APPEND), (libc::O_DIRECT, access::DIRECT)]
            {
                managed.file.set_flag(flag, argument as c_int & asked != 0);
            }
            Ok(0)
        }
        libc::F_GETLK
        | libc::F_SETLK
        | libc::F_SETLKW
        | libc::F_OFD_GETLK
        | libc::F_OFD_SETLK
        | libc::F_OFD_SETLKW => {
            managed.share(fd);
            locks::control(managed, command, argument as *mut libc::flock)
        }
        _ => Err(libc::EINVAL),
    }
}

// `fcntl` is variadic; reading an argument nobody passed is harmless, and it is then not used.
#[unsafe(no_mangle)]
unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: c_long) -> c_int {
    match state::managed(fd) {
        Some(held) => crate::real::answer(controlled(fd, &held, command, argument)),
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
