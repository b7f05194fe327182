//! Locks on files: those of `fcntl`, `flock` and `lockf`, and giving a process's own back where it
//! closes a descriptor of the file.
//!
//! Not here: who holds what, waiting, and deadlocks (`terral-client` and the server).

use std::cell::Cell;
use std::ffi::{c_char, c_int};

use libc::off_t;
use terral_client::{File, HeldLock, LockKind, LockRange, LockWait, Locker, access};

use crate::hook::by_fd;
use crate::real::{Served, alias, errno, kernel, libc_call, set_errno};
use crate::state::{self, Managed};
use crate::{connect, memory, settings, signals};

/// The bytes that a `struct flock` is about.
fn range(managed: &Managed, asked: &libc::flock) -> Served<LockRange> {
    let base = match c_int::from(asked.l_whence) {
        libc::SEEK_SET => 0,
        libc::SEEK_CUR => managed.file.offset(),
        libc::SEEK_END => managed.file.size(),
        _ => return Err(libc::EINVAL),
    };
    let start = i64::try_from(base).ok().and_then(|base| base.checked_add(asked.l_start));
    LockRange::of(start.ok_or(libc::EOVERFLOW)?, asked.l_len).map_err(|error| error.to_errno())
}

fn kind(asked: &libc::flock) -> Served<LockKind> {
    match c_int::from(asked.l_type) {
        libc::F_RDLCK => Ok(LockKind::Shared),
        libc::F_WRLCK => Ok(LockKind::Exclusive),
        libc::F_UNLCK => Ok(LockKind::Unlock),
        _ => Err(libc::EINVAL),
    }
}

fn take(file: &File, by: Locker, range: LockRange, kind: LockKind, wait: bool) -> Served<c_int> {
    let mut waits = LockWait::default();
    let mut before = signals::handled();
    loop {
        let wait = wait.then_some(&mut waits);
        let Some(turn) = connect::serve(|| file.lock_or_queue(by, range, kind, wait))? else {
            return Ok(0);
        };
        // Not inside the client: signal handlers may use files meanwhile.
        let seen = Cell::new(before);
        let handled = || {
            seen.set(signals::handled());
            seen.get() != before
        };
        if !turn.wait(handled) {
            let stopped = || {
                file.stop_waiting();
                Ok(())
            };
            return connect::serve(stopped).and(Err(libc::EINTR));
        }
        // Those that had run by then have calls restarted; of later ones the next wait sees.
        before = seen.get();
    }
}

/// `F_GETLK`: says what is in the way, or that nothing is.
fn test(managed: &Managed, by: Locker, asked: &mut libc::flock) -> Served<c_int> {
    let (range, kind) = (range(managed, asked)?, kind(asked)?);
    if kind == LockKind::Unlock {
        return Err(libc::EINVAL);
    }
    match connect::serve(|| managed.file.lock_test(by, range, kind))? {
        None => asked.l_type = libc::F_UNLCK as i16,
        Some(HeldLock { pid, range, kind }) => {
            let exclusive = kind == LockKind::Exclusive;
            asked.l_type = if exclusive { libc::F_WRLCK } else { libc::F_RDLCK } as i16;
            asked.l_whence = libc::SEEK_SET as i16;
            asked.l_start = range.first as i64;
            asked.l_len = range.length();
            asked.l_pid = if pid == 0 { -1 } else { pid as i32 };
        }
    }
    Ok(0)
}

/// `fcntl`'s commands on locks. The descriptor is shared already: whoever waits for a lock is to
/// hear of its end, however it comes.
pub fn control(managed: &Managed, command: c_int, at: *mut libc::flock) -> Served<c_int> {
    managed.check_open()?;
    let mut asked = memory::get(at)?;
    let of_file = matches!(command, libc::F_OFD_GETLK | libc::F_OFD_SETLK | libc::F_OFD_SETLKW);
    if of_file && asked.l_pid != 0 {
        return Err(libc::EINVAL);
    }
    let by = if of_file { Locker::Description } else { Locker::Process };
    if matches!(command, libc::F_GETLK | libc::F_OFD_GETLK) {
        test(managed, by, &mut asked)?;
        return memory::put(asked, at).map(|()| 0);
    }
    let wait = matches!(command, libc::F_SETLKW | libc::F_OFD_SETLKW);
    take(&managed.file, by, range(managed, &asked)?, kind(&asked)?, wait)
}

fn whole(managed: &Managed, operation: c_int) -> Served<c_int> {
    managed.check_open()?;
    let kind = match operation & !libc::LOCK_NB {
        libc::LOCK_SH => LockKind::Shared,
        libc::LOCK_EX => LockKind::Exclusive,
        libc::LOCK_UN => LockKind::Unlock,
        _ => return Err(libc::EINVAL),
    };
    let wait = operation & libc::LOCK_NB == 0;
    take(&managed.file, Locker::Flock, LockRange::ALL, kind, wait)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn flock(fd: c_int, operation: c_int) -> c_int {
    by_fd!(fd, kernel!(SYS_flock, fd, operation), |held| {
        held.share(fd);
        whole(&held, operation)
    })
}

/// `lockf`, in terms of `fcntl` as libc does it: from the offset on, exclusive.
fn section(managed: &Managed, command: c_int, length: off_t) -> Served<c_int> {
    let (command, kind) = match command {
        libc::F_ULOCK => (libc::F_SETLK, libc::F_UNLCK),
        libc::F_LOCK => (libc::F_SETLKW, libc::F_WRLCK),
        libc::F_TLOCK => (libc::F_SETLK, libc::F_WRLCK),
        libc::F_TEST => (libc::F_GETLK, libc::F_RDLCK),
        _ => return Err(libc::EINVAL),
    };
    // SAFETY: flock is plain data; all zero is a value of it.
    let mut asked: libc::flock = unsafe { std::mem::zeroed() };
    (asked.l_type, asked.l_whence) = (kind as i16, libc::SEEK_CUR as i16);
    asked.l_len = length;
    control(managed, command, &raw mut asked)?;
    if command == libc::F_GETLK && c_int::from(asked.l_type) != libc::F_UNLCK {
        return Err(libc::EACCES);
    }
    Ok(0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lockf(fd: c_int, command: c_int, length: off_t) -> c_int {
    type Function = unsafe extern "C" fn(c_int, c_int, off_t) -> c_int;
    by_fd!(fd, libc_call!(c"lockf" as Function, -1, fd, command, length), |held| {
        held.share(fd);
        section(&held, command, length)
    })
}

alias! {
    lockf64 = lockf as (fd: c_int, command: c_int, length: off_t) -> c_int;
}

/// Gives back what the process itself has locked of `file`, of which it is about to close a
/// descriptor (fcntl(2)), unless that only stands for a path. Costs next to nothing where it never
/// took a lock; errno stays.
pub fn release(file: &File) {
    if file.access() & (access::READ | access::WRITE) == 0 {
        return;
    }
    let before = errno();
    // Should the server be gone, so are the locks.
    let _ = connect::serve(|| file.release_locks());
    set_errno(before);
}

/// Does the same for the descriptors that an exec of `path` will close, if it can succeed: the
/// kernel closes them after its point of no return, and tells nobody.
///
/// # Safety
/// `path` must be null or a string.
pub unsafe fn release_for_exec(dirfd: c_int, path: *const c_char, flags: c_int) {
    if !settings::active() {
        return;
    }
    let before = errno();
    let mut runs = false;
    for fd in state::managed_between(0, u32::MAX) {
        let its: c_int = kernel!(SYS_fcntl, fd, libc::F_GETFD);
        if its < 0 || its & libc::FD_CLOEXEC == 0 {
            continue;
        }
        if !runs {
            runs = kernel_says_it_runs(dirfd, path, flags);
            if !runs {
                break;
            }
        }
        if let Some(held) = state::managed(fd) {
            release(&held.file);
        }
    }
    set_errno(before);
}

fn kernel_says_it_runs(dirfd: c_int, path: *const c_char, flags: c_int) -> bool {
    let flags = flags | libc::AT_EACCESS;
    let may: c_int = kernel!(SYS_faccessat2, dirfd, path, libc::X_OK, flags);
    // SAFETY: stat is plain data; all zero is a value of it.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    let flags = flags & !libc::AT_EACCESS;
    let found: c_int = kernel!(SYS_newfstatat, dirfd, path, &raw mut stat, flags);
    may == 0 && found == 0 && stat.st_mode & libc::S_IFMT == libc::S_IFREG
}
