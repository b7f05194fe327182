//! Calls that end or copy descriptor numbers.
//!
//! Invariants: a number becomes unknown before the kernel can hand it out anew, and the server is
//! told after the kernel closed it, since it asks the kernel who is left. Not here: `fcntl`'s other
//! commands (`control`).

use std::ffi::{c_int, c_uint};

use terral_client::{File, kept};

use crate::real::{Served, answer, errno, kernel, set_errno};
use crate::{connect, locks, state};

/// Tells the server that a descriptor of `file` is closed.
pub fn tell(file: &File) {
    let _ = connect::serve(|| {
        file.close();
        Ok(())
    });
}

/// What was written to another machine's file, and is to be seen there once it is closed, is there.
/// Gives an error's number, 0 if there was none: it is closed all the same.
fn commit(file: &File) -> c_int {
    connect::serve(|| file.commit()).err().unwrap_or(0)
}

unsafe extern "C" {
    #[link_name = "stdout"]
    static OUT: *mut libc::FILE;
}

/// Called by libc as the process ends in order: what is open yet is committed as if it were closed.
/// What streams have in hand libc writes only then, so that of standard output comes first.
extern "C" fn at_end() {
    for fd in state::managed_between(0, c_uint::MAX) {
        let Some(held) = state::managed(fd).filter(|held| held.file.commits()) else { continue };
        if fd == libc::STDOUT_FILENO {
            // SAFETY: libc's own stream, which it set up before.
            unsafe { libc::fflush(OUT) };
        }
        let _: c_int = commit(&held.file);
    }
}

// SAFETY: the section of functions that are called at the end, which take nothing.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_END: extern "C" fn() = at_end;

/// `close`, for every hook that closes. Where it succeeds errno stays, as with the kernel's:
/// programs close before they tell what failed.
pub fn close_fd(fd: c_int) -> c_int {
    let before = errno();
    if kept::is_kept(fd) {
        set_errno(libc::EBADF);
        return -1;
    }
    // An unknown number may be ours, inherited and never used; whoever closes it must tell.
    drop(state::managed(fd));
    let held = state::take(fd);
    let mut failed = 0;
    if let Some(held) = &held {
        failed = commit(&held.file);
        locks::release(&held.file);
        held.standing.leave();
    }
    let mut closed: c_int = kernel!(SYS_close, fd);
    let mut after = if closed < 0 { errno() } else { before };
    if let Some(held) = held {
        tell(&held.file);
    }
    if closed == 0 && failed != 0 {
        (closed, after) = (-1, failed);
    }
    set_errno(after);
    closed
}

#[unsafe(no_mangle)]
unsafe extern "C" fn close(fd: c_int) -> c_int {
    close_fd(fd)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __close(fd: c_int) -> c_int {
    close_fd(fd)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_uint) -> c_int {
    if flags & libc::CLOSE_RANGE_CLOEXEC == 0 && first <= last {
        for fd in state::managed_between(first, last) {
            close_fd(fd);
        }
        state::reset_between(first, last);
    }
    match kept::kept().map(|kept| kept as c_uint) {
        Some(kept) if first <= kept && kept <= last && flags & libc::CLOSE_RANGE_CLOEXEC == 0 => {
            let before =
                if first < kept { kernel!(SYS_close_range, first, kept - 1, flags) } else { 0 };
            let after =
                if kept < last { kernel!(SYS_close_range, kept + 1, last, flags) } else { 0 };
            if before == 0 { after } else { before }
        }
        _ => kernel!(SYS_close_range, first, last, flags),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn closefrom(first: c_int) {
    let first = first.max(0) as c_uint;
    // SAFETY: close_range takes any numbers.
    unsafe { close_range(first, c_uint::MAX, 0) };
}

/// `fcntl(fd, F_DUPFD…, least)` of a managed descriptor.
pub fn duplicate(fd: c_int, command: c_int, least: c_int) -> Served<c_int> {
    let held = state::managed(fd).ok_or(libc::EBADF)?;
    held.share(fd);
    let copy: c_int = kernel!(SYS_fcntl, fd, command, least);
    if copy < 0 {
        return Err(crate::real::errno());
    }
    if let Err((errno, _)) = state::install(copy, (*held).clone()) {
        let _: c_int = kernel!(SYS_close, copy);
        return Err(errno);
    }
    Ok(copy)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dup(fd: c_int) -> c_int {
    if state::managed(fd).is_some() {
        return answer(duplicate(fd, libc::F_DUPFD, 0));
    }
    let copy: c_int = kernel!(SYS_dup, fd);
    if copy >= 0 {
        state::foreign_copy(fd, copy);
    }
    copy
}

fn is_open(fd: c_int) -> bool {
    let flags: c_int = kernel!(SYS_fcntl, fd, libc::F_GETFD);
    flags >= 0
}

fn copy_onto(from: c_int, to: c_int, flags: c_int) -> c_int {
    let source = state::managed(from);
    source.iter().for_each(|source| source.share(from));
    drop(state::managed(to));
    let target = state::take(to);
    if let Some(target) = &target
        && is_open(from)
    {
        // Whether that fails nobody is told, as by the kernel.
        let _: c_int = commit(&target.file);
        locks::release(&target.file);
    }
    target.iter().for_each(|target| target.standing.leave());
    let copy: c_int = kernel!(SYS_dup3, from, to, flags);
    if copy < 0 {
        if let Some(target) = target {
            let _ = state::install(to, (*target).clone());
        }
        return copy;
    }
    if let Some(source) = source {
        if let Err((errno, _)) = state::install(to, (*source).clone()) {
            let _: c_int = kernel!(SYS_close, to);
            set_errno(errno);
            return -1;
        }
    } else {
        state::foreign_copy(from, to);
    }
    if let Some(target) = target {
        tell(&target.file);
    }
    copy
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dup2(from: c_int, to: c_int) -> c_int {
    if from == to {
        return if is_open(from) { to } else { -1 };
    }
    copy_onto(from, to, 0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __dup2(from: c_int, to: c_int) -> c_int {
    // SAFETY: the same contract.
    unsafe { dup2(from, to) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
    if from == to {
        set_errno(libc::EINVAL);
        return -1;
    }
    copy_onto(from, to, flags)
}
