//! The process's one client, made at the first call that needs it, and the guard around its calls.
//!
//! Invariants: while a thread is inside the client, hooks it meets go to the kernel, so the
//! client's own files and sockets never come back here, and a signal handler cannot re-enter it.
//! Not here: sessions, forks, and retries, which are the client's.

use std::cell::Cell;
use std::ffi::{OsStr, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use terral_client::{
    Capability, Client, Error, ErrorKind, authorize, read_capability, read_credential, write_with,
};

use crate::joining::{self, Joined};
use crate::real::{Served, kernel};
use crate::settings;
use crate::signals::{self, Quiet};

thread_local! {
    // Const and without a destructor: a plain word of thread-local memory.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

static CLIENT: AtomicPtr<Client> = AtomicPtr::new(ptr::null_mut());
static COMPLAINED: AtomicBool = AtomicBool::new(false);

/// Whether this thread is inside the client right now.
#[inline]
pub fn inside() -> bool {
    INSIDE.with(Cell::get)
}

/// The flag is up; handlers wait until after it is down.
struct Inside(Quiet);

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        INSIDE.with(|inside| inside.set(false));
    }
}

/// Runs a call of the client; its error as errno. Signal handlers wait until it is over; EDEADLK in
/// one that need not, see `signals`.
#[inline]
pub fn serve<T>(call: impl FnOnce() -> Result<T, Error>) -> Served<T> {
    let quiet = signals::quiet();
    if INSIDE.with(|inside| inside.replace(true)) {
        return Err(libc::EDEADLK);
    }
    let _inside = Inside(quiet);
    call().map_err(|error| errno_of(&error))
}

/// Runs a call that needs the client, connecting first if nobody has.
pub fn with<T>(call: impl FnOnce(&Client) -> Result<T, Error>) -> Served<T> {
    serve(|| call(client()?))
}

fn client() -> Result<&'static Client, Error> {
    let known = CLIENT.load(Ordering::Acquire);
    if !known.is_null() {
        // SAFETY: once published the client is never freed.
        return Ok(unsafe { &*known });
    }
    terral_client::while_waiting(signals::hurry);
    signals::watch_faults();
    let fresh = Box::into_raw(Box::new(beside()?));
    match CLIENT.compare_exchange(ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: it was just published, and is never freed.
        Ok(_) => Ok(unsafe { &*fresh }),
        Err(other) => {
            // SAFETY: `fresh` was never published; `other` was, and is never freed.
            unsafe {
                drop(Box::from_raw(fresh));
                Ok(&*other)
            }
        }
    }
}

/// A client of this machine's server, which is started if there is none and there may be one.
fn beside() -> Result<Client, Error> {
    // One that is coming may be up, and not be in yet.
    if !joining::is_underway() {
        match connected() {
            Err(error) if error.kind == ErrorKind::Unreachable && settings::spread().is_some() => {}
            found => return found,
        }
    }
    if joining::join() == Joined::Said {
        COMPLAINED.store(true, Ordering::Relaxed);
    }
    connected()
}

fn connected() -> Result<Client, Error> {
    let path = |named| Path::new(OsStr::from_bytes(named));
    let shows = match (settings::capability(), settings::credential()) {
        (b"", b"") => None,
        (b"", named) => Some(authorized(path(named))?),
        (named, _) => Some(read_capability(path(named)).map_err(unusable("TERRAL_CAPABILITY"))?),
    };
    write_with(settings::token());
    Client::beside_with(settings::instance(), shows)
}

/// What the server gives for a credential.
fn authorized(path: &Path) -> Result<Capability, Error> {
    let unusable = unusable("TERRAL_CREDENTIAL");
    let credential = read_credential(path).map_err(&unusable)?;
    let authorized = authorize(settings::instance(), &credential, false);
    authorized.map_err(|error| match error.kind {
        ErrorKind::Unreachable => error,
        _ => unusable(error),
    })
}

/// A program that was to have less than its user has nothing, and is told why.
fn unusable(variable: &str) -> impl Fn(Error) -> Error {
    move |error| {
        if !COMPLAINED.swap(true, Ordering::Relaxed) {
            complain(&format!("terral: {variable}: {error}\n"));
        }
        Error::new(ErrorKind::Denied, error.context)
    }
}

fn complain(line: &str) {
    let _: isize = kernel!(SYS_write, 2, line.as_ptr(), line.len());
}

#[cold]
fn errno_of(error: &Error) -> c_int {
    if error.kind != ErrorKind::Unreachable {
        return error.to_errno();
    }
    if !COMPLAINED.swap(true, Ordering::Relaxed) {
        let line = format!(
            "terral: {error}; files under {} are out of reach. Start the program with `terral \
             run`, on another machine than that with --hosts or --spread, or start the server \
             again with `terral serve`.\n",
            String::from_utf8_lossy(settings::prefix()),
        );
        complain(&line);
    }
    libc::ENOTCONN
}
