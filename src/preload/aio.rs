//! POSIX asynchronous I/O: `aio_read` and its family, `lio_listio`.
//!
//! Invariants: what concerns a managed file is done before the call that asks for it returns, and
//! its outcome is put where libc keeps it, so that libc's own `aio_error`, `aio_return`,
//! `aio_suspend` and `aio_cancel` tell the truth of it. A write is a copy in memory, sooner done
//! than a thread is woken. Not here: `io_submit` and rings, which are the kernel's.

use std::ffi::{c_int, c_void};

use libc::{off_t, sigval, ssize_t};

use crate::real::{Served, alias, answer, kernel, libc_call};
use crate::state::{self, Held};
use crate::{data, real};

type Function = unsafe extern "C" fn(sigval);

/// glibc's `struct sigevent`, of which the libc crate does not show all.
#[repr(C)]
struct Event {
    value: sigval,
    signal: c_int,
    notify: c_int,
    function: Option<Function>,
    attributes: *const libc::pthread_attr_t,
    reserved: [u64; 4],
}

/// glibc's `struct aiocb`, the same as `aiocb64`.
#[repr(C)]
struct Request {
    fd: c_int,
    operation: c_int,
    priority: c_int,
    buffer: *mut c_void,
    bytes: usize,
    event: Event,
    next: *mut c_void,
    absolute_priority: c_int,
    policy: c_int,
    error: c_int,
    value: ssize_t,
    offset: off_t,
    reserved_end: [u64; 4],
}

const _: () = assert!(size_of::<Request>() == size_of::<libc::aiocb>());

/// The most by which a request may stand back (`AIO_PRIO_DELTA_MAX`).
const PRIORITY_MAX: c_int = 20;
/// A signal's origin, as the kernel is told of it.
const SI_ASYNCIO: c_int = -4;

/// What the kernel is told of a signal that says that I/O is over.
#[repr(C)]
struct Told {
    signal: c_int,
    errno: c_int,
    code: c_int,
    pid: libc::pid_t,
    uid: libc::uid_t,
    value: sigval,
    reserved: [u64; 12],
}

const _: () = assert!(size_of::<Told>() == size_of::<libc::siginfo_t>());

fn send(signal: c_int, value: sigval) {
    // SAFETY: neither takes anything.
    let (pid, uid) = unsafe { (libc::getpid(), libc::getuid()) };
    let told = Told { signal, errno: 0, code: SI_ASYNCIO, pid, uid, value, reserved: [0; 12] };
    let _: c_int = kernel!(SYS_rt_sigqueueinfo, pid, signal, &raw const told);
}

/// What a thread that tells is to call.
struct Call {
    function: Function,
    value: sigval,
}

extern "C" fn tell(call: *mut c_void) -> *mut c_void {
    // SAFETY: `start` gives this thread the box.
    let Call { function, value } = *unsafe { Box::from_raw(call.cast::<Call>()) };
    // SAFETY: the program asked for this call.
    unsafe { function(value) };
    std::ptr::null_mut()
}

fn start(call: Call, attributes: *const libc::pthread_attr_t) {
    let call = Box::into_raw(Box::new(call)).cast();
    // SAFETY: attributes are plain data that init writes; the caller's are null or made by libc.
    unsafe {
        let mut thread = 0;
        let mut own: libc::pthread_attr_t = std::mem::zeroed();
        let chosen = if attributes.is_null() {
            libc::pthread_attr_init(&raw mut own);
            libc::pthread_attr_setdetachstate(&raw mut own, libc::PTHREAD_CREATE_DETACHED);
            &raw const own
        } else {
            attributes
        };
        if libc::pthread_create(&raw mut thread, chosen, tell, call) != 0 {
            drop(Box::from_raw(call.cast::<Call>()));
        }
        if attributes.is_null() {
            libc::pthread_attr_destroy(&raw mut own);
        }
    }
}

/// Says that something is over, as the program wants to hear it.
fn notify(event: &Event) {
    match (event.notify, event.function) {
        (libc::SIGEV_SIGNAL, _) => send(event.signal, event.value),
        (libc::SIGEV_THREAD, Some(function)) => {
            start(Call { function, value: event.value }, event.attributes);
        }
        _ => {}
    }
}

/// Keeps the outcome of a request and says that it is over; whether it went well.
unsafe fn conclude(request: *mut Request, outcome: Served<ssize_t>) -> bool {
    // SAFETY: the program leaves the request alone until it is over, and that is now.
    unsafe {
        (*request).value = outcome.unwrap_or(-1);
        (*request).error = outcome.err().unwrap_or(0);
        notify(&(*request).event);
    }
    outcome.is_ok()
}

/// Reads or writes as a request says; whether that went well.
unsafe fn transfer(held: &Held, request: *mut Request, reads: bool) -> bool {
    // SAFETY: the program promises the request, and the buffer that it names.
    let outcome = unsafe {
        let Request { buffer, bytes, offset, .. } = *request;
        if reads {
            data::read_at(held, data::room(buffer, bytes), offset)
        } else {
            data::write_at(held, data::bytes(buffer, bytes), offset)
        }
    };
    // SAFETY: as above.
    unsafe { conclude(request, outcome) }
}

/// Serves a request if it is about a managed file: whether it was taken.
unsafe fn submit(request: *mut Request, reads: bool) -> Option<c_int> {
    // SAFETY: the caller promises the request.
    let (fd, priority) = unsafe { ((*request).fd, (*request).priority) };
    let held = state::managed(fd)?;
    if !(0..=PRIORITY_MAX).contains(&priority) {
        // SAFETY: as above.
        unsafe { ((*request).error, (*request).value) = (libc::EINVAL, -1) };
        return Some(answer(Err(libc::EINVAL)));
    }
    // SAFETY: as above.
    unsafe { transfer(&held, request, reads) };
    Some(0)
}

type Ask = unsafe extern "C" fn(*mut Request) -> c_int;

#[unsafe(no_mangle)]
unsafe extern "C" fn aio_read(request: *mut Request) -> c_int {
    // SAFETY: the caller promises the request.
    let served = unsafe { submit(request, true) };
    served.unwrap_or_else(|| libc_call!(c"aio_read" as Ask, -1, request))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aio_write(request: *mut Request) -> c_int {
    // SAFETY: the caller promises the request.
    let served = unsafe { submit(request, false) };
    served.unwrap_or_else(|| libc_call!(c"aio_write" as Ask, -1, request))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aio_fsync(operation: c_int, request: *mut Request) -> c_int {
    type Function = unsafe extern "C" fn(c_int, *mut Request) -> c_int;
    // SAFETY: the caller promises the request.
    let Some(held) = state::managed(unsafe { (*request).fd }) else {
        return libc_call!(c"aio_fsync" as Function, -1, operation, request);
    };
    if operation != libc::O_SYNC && operation != libc::O_DSYNC {
        return answer(Err(libc::EINVAL));
    }
    if let Err(errno) = held.check_open() {
        return answer(Err(errno));
    }
    let safe = data::safe(&held).map(|()| 0);
    // SAFETY: as above.
    unsafe { conclude(request, safe) };
    0
}

/// Requests of a list that are libc's business, and whether one of the others failed.
unsafe fn serve_list(list: &[*mut Request]) -> Served<(Vec<*mut Request>, bool)> {
    let mut rest = Vec::new();
    rest.try_reserve_exact(list.len()).map_err(|_| libc::EAGAIN)?;
    let mut failed = false;
    for request in list.iter().copied().filter(|request| !request.is_null()) {
        // SAFETY: the caller promises each request.
        let (fd, operation) = unsafe { ((*request).fd, (*request).operation) };
        let held = if operation == libc::LIO_NOP { None } else { state::managed(fd) };
        let Some(held) = held else {
            rest.push(request);
            continue;
        };
        // SAFETY: as above.
        let done = unsafe {
            match operation {
                libc::LIO_READ | libc::LIO_WRITE => {
                    transfer(&held, request, operation == libc::LIO_READ)
                }
                _ => conclude(request, Err(libc::EINVAL)),
            }
        };
        failed |= !done;
    }
    Ok((rest, failed))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lio_listio(
    mode: c_int,
    list: *const *mut Request,
    count: c_int,
    event: *const Event,
) -> c_int {
    type List = unsafe extern "C" fn(c_int, *const *mut Request, c_int, *const Event) -> c_int;
    let waits = mode == libc::LIO_WAIT;
    let known = waits || mode == libc::LIO_NOWAIT;
    if !known || count <= 0 || list.is_null() {
        return libc_call!(c"lio_listio" as List, -1, mode, list, count, event);
    }
    // SAFETY: the caller promises so many entries, each null or a request.
    let served = unsafe { serve_list(std::slice::from_raw_parts(list, count as usize)) };
    let (rest, failed) = match served {
        Ok(served) => served,
        Err(errno) => return answer(Err(errno)),
    };
    let mut told = 0;
    if !rest.is_empty() {
        let (first, left) = (rest.as_ptr(), rest.len() as c_int);
        told = libc_call!(c"lio_listio" as List, -1, mode, first, left, event);
    } else if !waits && !event.is_null() {
        // SAFETY: the caller promises it.
        notify(unsafe { &*event });
    }
    if failed && waits && told == 0 {
        real::set_errno(libc::EIO);
        return -1;
    }
    told
}

alias! {
    aio_read64 = aio_read as (request: *mut Request) -> c_int;
    aio_write64 = aio_write as (request: *mut Request) -> c_int;
    aio_fsync64 = aio_fsync as (operation: c_int, request: *mut Request) -> c_int;
    lio_listio64 = lio_listio as (
        mode: c_int, list: *const *mut Request, count: c_int, event: *const Event
    ) -> c_int;
}
