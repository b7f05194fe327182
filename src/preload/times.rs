//! `utimensat` and its older variants.
//!
//! Invariants: times before 1970 become 1970, since the server counts from there, in 64 bits of
//! nanoseconds; those after 2554 become the last of that year's. Not here: mode and owner
//! (`metadata`).

use std::ffi::{c_char, c_int};

use libc::{timespec, timeval};
use terral_client::{Change, File, OpenHow, access};

use crate::hook::{Last, by_path, known};
use crate::metadata::{PLACE, Target, change, of_name, without_name};
use crate::real::{Served, answer, kernel};
use crate::{connect, fifos, memory, state};

const NS: u64 = 1_000_000_000;

/// Last access and last modification, or none for now.
type Times = Option<[timespec; 2]>;

fn one(time: &timespec) -> Served<Option<u64>> {
    match time.tv_nsec {
        libc::UTIME_OMIT => Ok(None),
        libc::UTIME_NOW => now().map(Some),
        0..1_000_000_000 => {
            let whole = (time.tv_sec.max(0) as u64).saturating_mul(NS);
            Ok(Some(whole.saturating_add(time.tv_nsec as u64)))
        }
        _ => Err(libc::EINVAL),
    }
}

fn now() -> Served<u64> {
    connect::with(|client| Ok(client.time_ns()))
}

/// The caller's two times; none if there are to be none.
fn both(times: *const timespec) -> Served<Times> {
    if times.is_null() { Ok(None) } else { memory::get(times.cast()).map(Some) }
}

/// What they ask for; none means now.
fn wanted(times: &Times) -> Served<Change> {
    let (accessed_ns, modified_ns) = match times {
        None => {
            let now = Some(now()?);
            (now, now)
        }
        Some([accessed, modified]) => (one(accessed)?, one(modified)?),
    };
    Ok(Change { accessed_ns, modified_ns, ..Change::default() })
}

/// Whether both are to be now: that may also do who may write (utimensat(2)).
fn is_now(times: &Times) -> bool {
    let now = |both: &[timespec; 2]| both.iter().all(|time| time.tv_nsec == libc::UTIME_NOW);
    times.as_ref().is_none_or(now)
}

/// Sets the times of what is not one's own, by writing to it.
#[cold]
fn touch(target: &Target<'_>) -> Served<c_int> {
    let how = OpenHow { access: access::WRITE as u8, ..OpenHow::default() };
    let touched = |file: File| {
        let touched = file.touch();
        file.close();
        touched
    };
    match target {
        Target::Name(name, _) => {
            connect::with(|client| client.open(name.path, how).and_then(touched))
        }
        Target::File(held) => connect::serve(|| touched(held.file.reopen(how)?.into_file()?)),
    }
    .map(|()| 0)
}

/// Sets the times that the caller wants.
fn set(target: &Target<'_>, times: &Times) -> Served<c_int> {
    let wanted = match (wanted(times), target) {
        // Linux looks for the file first.
        (Err(libc::EINVAL), Target::Name(name, last)) => {
            return of_name(name, *last).and(Err(libc::EINVAL));
        }
        (wanted, _) => wanted?,
    };
    match change(target, wanted) {
        Err(libc::EPERM) if is_now(times) => touch(target),
        done => done,
    }
}

/// Whether there is nothing to set: Linux then does not even look for the file.
fn is_nothing(times: &Times) -> bool {
    let omitted = |both: &[timespec; 2]| both.iter().all(|time| time.tv_nsec == libc::UTIME_OMIT);
    times.as_ref().is_some_and(omitted)
}

fn set_file(fd: c_int, times: &Times) -> Option<c_int> {
    let held = state::managed(fd)?;
    let open = held.check_open();
    Some(answer(open.and_then(|()| set(&Target::File(held), times))))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn utimensat(
    dirfd: c_int,
    path: *const c_char,
    times: *const timespec,
    flags: c_int,
) -> c_int {
    let given = match both(times) {
        Ok(given) => given,
        Err(errno) => return answer(Err(errno)),
    };
    if is_nothing(&given) {
        return 0;
    }
    if path.is_null() {
        // As glibc has it.
        return answer(Err(libc::EINVAL));
    }
    // SAFETY: the caller promises the path.
    if let Some(held) = unsafe { without_name(dirfd, path, flags) } {
        return answer(set(&Target::File(held), &given));
    }
    by_path!(
        dirfd,
        path,
        Last::by(flags),
        |at, path| kernel!(SYS_utimensat, at, path, times, flags),
        |name| {
            known(flags, PLACE)?;
            set(&Target::Name(name, Last::by(flags)), &given)
        }
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn futimens(fd: c_int, times: *const timespec) -> c_int {
    if fd < 0 {
        // The kernel's call would take it for a path that is missing.
        return answer(Err(libc::EBADF));
    }
    let given = match both(times) {
        Ok(given) => given,
        Err(errno) => return answer(Err(errno)),
    };
    if is_nothing(&given) {
        return 0;
    }
    match set_file(fd, &given) {
        Some(answer) => answer,
        None => {
            let by_kernel = || kernel!(SYS_utimensat, fd, std::ptr::null::<c_char>(), times, 0);
            fifos::changed(fd, || wanted(&given), by_kernel)
        }
    }
}

/// Runs `call` with the two times as timespec, or null.
fn with_micros(times: *const timeval, call: impl FnOnce(*const timespec) -> c_int) -> c_int {
    if times.is_null() {
        return call(std::ptr::null());
    }
    match memory::get(times.cast::<[timeval; 2]>()) {
        Err(errno) => answer(Err(errno)),
        Ok(times) => call(times.map(fine).as_ptr()),
    }
}

fn fine(time: timeval) -> timespec {
    timespec { tv_sec: time.tv_sec, tv_nsec: time.tv_usec.saturating_mul(1000) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn utimes(path: *const c_char, times: *const timeval) -> c_int {
    // SAFETY: the same contract.
    with_micros(times, |times| unsafe { utimensat(libc::AT_FDCWD, path, times, 0) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lutimes(path: *const c_char, times: *const timeval) -> c_int {
    let flags = libc::AT_SYMLINK_NOFOLLOW;
    // SAFETY: the same contract.
    with_micros(times, |times| unsafe { utimensat(libc::AT_FDCWD, path, times, flags) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn futimes(fd: c_int, times: *const timeval) -> c_int {
    // SAFETY: the same contract.
    with_micros(times, |times| unsafe { futimens(fd, times) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn futimesat(dirfd: c_int, path: *const c_char, times: *const timeval) -> c_int {
    // SAFETY: the same contract.
    with_micros(times, |times| unsafe { utimensat(dirfd, path, times, 0) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn utime(path: *const c_char, times: *const libc::utimbuf) -> c_int {
    if times.is_null() {
        // SAFETY: the same contract.
        return unsafe { utimensat(libc::AT_FDCWD, path, std::ptr::null(), 0) };
    }
    let times = match memory::get(times) {
        Ok(times) => times,
        Err(errno) => return answer(Err(errno)),
    };
    let fine = [times.actime, times.modtime].map(|tv_sec| timespec { tv_sec, tv_nsec: 0 });
    // SAFETY: the same contract.
    unsafe { utimensat(libc::AT_FDCWD, path, fine.as_ptr(), 0) }
}
