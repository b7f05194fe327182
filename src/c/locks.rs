//! Named locks, and files that are written with their tokens.
//!
//! Invariant: as for files, a lock belongs to the process that took it; a forked child only frees
//! its handle.

use std::ffi::{c_char, c_int, c_void};
use std::time::Duration;

use terral_client::{LockHow, NamedLock, News, Result};

use crate::buffers::{handle, text};
use crate::connection::Connection;
use crate::error::{done, invalid, number, owned};
use crate::file;
use crate::objects;

/// `terral_lock_callback`.
type Told = unsafe extern "C" fn(context: *mut c_void, news: c_int);

/// Where the caller wants to hear of something, in another thread.
struct Listener {
    told: Told,
    context: *mut c_void,
}

// SAFETY: that function and context are good in any thread, the caller of terral_lock_tell says.
unsafe impl Send for Listener {}

impl Listener {
    fn hears(&self, news: News) {
        let news = match news {
            News::Wanted => 1,
            News::Lost => 2,
        };
        // SAFETY: the caller's function, with the caller's context.
        unsafe { (self.told)(self.context, news) };
    }
}

fn how(kind: c_int, timeout_ms: i64, lease_ms: i64) -> Result<LockHow> {
    let shared = match kind {
        0 => false,
        1 => true,
        _ => return Err(invalid("TERRAL_LOCK_EXCLUSIVE or TERRAL_LOCK_SHARED")),
    };
    let timeout = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
    let lease = match u64::try_from(lease_ms) {
        Ok(0) => LockHow::default().lease,
        Ok(lease_ms) => Duration::from_millis(lease_ms),
        Err(_) => return Err(invalid("negative lease")),
    };
    Ok(LockHow { shared, timeout, lease })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_lock_acquire(
    connection: *const Connection,
    name: *const c_char,
    kind: c_int,
    timeout_ms: i64,
    lease_ms: i64,
) -> *mut NamedLock {
    let acquire = || {
        // SAFETY: the caller passes a connection and a string.
        let (connection, name) = unsafe { (handle(connection)?, text(name)?) };
        NamedLock::acquire(&connection.client, name, how(kind, timeout_ms, lease_ms)?)
    };
    owned(acquire())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_lock_token(lock: *const NamedLock) -> u64 {
    // SAFETY: the caller passes a lock.
    unsafe { lock.as_ref() }.map_or(0, NamedLock::token)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_lock_is_held(lock: *const NamedLock) -> c_int {
    // SAFETY: the caller passes a lock.
    unsafe { lock.as_ref() }.is_some_and(NamedLock::is_held).into()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_lock_is_wanted(lock: *const NamedLock) -> c_int {
    // SAFETY: the caller passes a lock.
    number(unsafe { handle(lock) }.and_then(|lock| lock.is_wanted().map(c_int::from)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_lock_tell(
    lock: *const NamedLock,
    told: Option<Told>,
    context: *mut c_void,
) -> c_int {
    let tell = || {
        // SAFETY: the caller passes a lock.
        let lock = unsafe { handle(lock)? };
        let told = told.ok_or_else(|| invalid("callback is NULL"))?;
        let listener = Listener { told, context };
        lock.tell(move |news| listener.hears(news));
        Ok(())
    };
    done(tell())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_lock_release(lock: *mut NamedLock) -> c_int {
    if lock.is_null() {
        return done(Err(invalid("handle is NULL")));
    }
    // SAFETY: one of ours, which the caller gives back once.
    done(unsafe { Box::from_raw(lock) }.release())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_fence(file: *const file::Open, lock: *const NamedLock) -> c_int {
    // SAFETY: the caller passes a file and a lock.
    let given = unsafe { handle(file).and_then(|file| Ok((file, handle(lock)?))) };
    done(given.and_then(|(open, lock)| lock.fence(&open.file)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_object_fence(
    object: *const objects::Open,
    lock: *const NamedLock,
) -> c_int {
    // SAFETY: the caller passes an object and a lock.
    let given = unsafe { handle(object).and_then(|object| Ok((object, handle(lock)?))) };
    done(given.and_then(|(open, lock)| lock.fence(open.object.file())))
}
