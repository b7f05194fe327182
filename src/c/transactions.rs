//! Calls on transactions.
//!
//! Invariant: a transaction is one thread's at a time, until it is committed or aborted, which
//! frees it.

use std::ffi::{c_char, c_int, c_void};

use libc::size_t;
use terral_client::objects::Address;
use terral_client::transactions::Transaction;
use terral_client::{NamedLock, RenameHow, Result};

use crate::buffers::{bytes, handle, path, text};
use crate::connection::Connection;
use crate::containers::{CAddress, Held, addressed};
use crate::error::{done, invalid, owned};
use crate::names::Attributes;
use crate::objects::value;

/// What `terral_txn_t` points to.
pub struct Making {
    transaction: Transaction,
    /// The umask of the connection.
    masks: u32,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_txn_begin(connection: *const Connection) -> *mut Making {
    // SAFETY: the caller passes a connection.
    let connection = unsafe { handle(connection) };
    owned(
        connection.map(|at| Making {
            transaction: Transaction::begin(&at.client),
            masks: at.masked(0o7777),
        }),
    )
}

/// Adds to a transaction what is about a path.
///
/// # Safety
/// `making` must be null or live and nobody else's, `name` null or a string.
unsafe fn with_path(
    making: *mut Making,
    name: *const c_char,
    add: impl FnOnce(&mut Making, &[u8]),
) -> c_int {
    // SAFETY: the caller's promises.
    let given = unsafe { with(making).and_then(|making| Ok((making, path(name)?))) };
    done(given.map(|(making, name)| add(making, &name)))
}

/// The same for two paths.
///
/// # Safety
/// As [`with_path`]'s.
unsafe fn with_paths(
    making: *mut Making,
    (from, to): (*const c_char, *const c_char),
    add: impl FnOnce(&mut Transaction, &[u8], &[u8]),
) -> c_int {
    // SAFETY: the caller's promises.
    let given = unsafe { with(making).and_then(|making| Ok((making, path(from)?, path(to)?))) };
    done(given.map(|(making, from, to)| add(&mut making.transaction, &from, &to)))
}

/// The same for an object.
///
/// # Safety
/// `making` as [`with_path`]'s, `held` and `address` as [`addressed`]'s.
unsafe fn with_object(
    making: *mut Making,
    held: *const Held,
    address: *const CAddress,
    add: impl FnOnce(&mut Transaction, &Held, Address) -> Result<()>,
) -> c_int {
    // SAFETY: the caller's promises.
    let given = unsafe { with(making).and_then(|making| Ok((making, addressed(held, address)?))) };
    done(given.and_then(|(making, (held, address))| add(&mut making.transaction, held, address)))
}

/// # Safety
/// `making` must be null or live, and nobody else's.
unsafe fn with<'a>(making: *mut Making) -> Result<&'a mut Making> {
    // SAFETY: the caller's promise.
    unsafe { making.as_mut() }.ok_or_else(|| invalid("handle is NULL"))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_txn_rename(
    making: *mut Making,
    from: *const c_char,
    to: *const c_char,
    how: c_int,
) -> c_int {
    let how = match how {
        0 => RenameHow::Replace,
        1 => RenameHow::Keep,
        2 => RenameHow::Exchange,
        _ => return done(Err(invalid("way to rename"))),
    };
    // SAFETY: the caller passes a transaction and two strings.
    unsafe {
        with_paths(making, (from, to), |transaction, from, to| {
            transaction.rename(from, to, how);
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_txn_link(
    making: *mut Making,
    from: *const c_char,
    to: *const c_char,
) -> c_int {
    // SAFETY: the caller passes a transaction and two strings.
    unsafe {
        with_paths(making, (from, to), |transaction, from, to| {
            transaction.link(from, to);
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_txn_unlink(making: *mut Making, name: *const c_char) -> c_int {
    // SAFETY: the caller passes a transaction and a string.
    unsafe {
        with_path(making, name, |making, name| {
            making.transaction.unlink(name);
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_txn_mkdir(
    making: *mut Making,
    name: *const c_char,
    mode: libc::mode_t,
) -> c_int {
    // SAFETY: the caller passes a transaction and a string.
    unsafe {
        with_path(making, name, |making, name| {
            let mode = mode & making.masks;
            making.transaction.make_directory(name, mode);
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_txn_rmdir(making: *mut Making, name: *const c_char) -> c_int {
    // SAFETY: the caller passes a transaction and a string.
    unsafe {
        with_path(making, name, |making, name| {
            making.transaction.remove_directory(name);
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_txn_bind(
    making: *mut Making,
    held: *const Held,
    address: *const CAddress,
    name: *const c_char,
) -> c_int {
    // SAFETY: the caller passes a transaction, a container, an address and a string.
    unsafe {
        with_object(making, held, address, |transaction, held, address| {
            transaction.bind(&held.container, address, &path(name)?).map(drop)
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_txn_move(
    making: *mut Making,
    held: *const Held,
    address: *const CAddress,
    name: *const c_char,
) -> c_int {
    // SAFETY: the caller passes a transaction, a container, an address and a string.
    unsafe {
        with_object(making, held, address, |transaction, held, address| {
            transaction.move_object(&held.container, address, &path(name)?).map(drop)
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_txn_remove(
    making: *mut Making,
    held: *const Held,
    address: *const CAddress,
) -> c_int {
    // SAFETY: the caller passes a transaction, a container and an address.
    unsafe {
        with_object(making, held, address, |transaction, held, address| {
            transaction.remove_object(&held.container, address).map(drop)
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_txn_bind_container(
    making: *mut Making,
    held: *const Held,
    name: *const c_char,
) -> c_int {
    // SAFETY: the caller passes a transaction, a container and a string.
    unsafe {
        let held = match handle(held) {
            Ok(held) => held,
            Err(error) => return done(Err(error)),
        };
        with_path(making, name, |making, name| {
            making.transaction.bind_container(&held.container, name);
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_txn_set_attribute(
    making: *mut Making,
    held: *const Held,
    address: *const CAddress,
    key: *const c_char,
    letter: c_int,
    from: *const c_void,
    length: size_t,
) -> c_int {
    // SAFETY: the caller passes a transaction, a container, an address, a string and a buffer of
    // that length.
    unsafe {
        with_object(making, held, address, |transaction, held, address| {
            let (key, stored) = (text(key)?, bytes(from, length)?);
            let value = if from.is_null() { None } else { Some(value(letter, stored)?) };
            let set = transaction.set_attribute(&held.container, address, key, value.as_ref());
            set.map(drop)
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_txn_must_exist(making: *mut Making, name: *const c_char) -> c_int {
    // SAFETY: the caller passes a transaction and a string.
    unsafe {
        with_path(making, name, |making, name| {
            making.transaction.must_exist(name);
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_txn_must_not_exist(making: *mut Making, name: *const c_char) -> c_int {
    // SAFETY: the caller passes a transaction and a string.
    unsafe {
        with_path(making, name, |making, name| {
            making.transaction.must_not_exist(name);
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_txn_must_be_unchanged(
    making: *mut Making,
    name: *const c_char,
    seen: *const Attributes,
) -> c_int {
    // SAFETY: the caller passes attributes or NULL.
    let Some(seen) = (unsafe { seen.as_ref() }) else {
        return done(Err(invalid("attributes is NULL")));
    };
    let version = seen.version();
    // SAFETY: the caller passes a transaction and a string.
    unsafe {
        with_path(making, name, |making, name| {
            making.transaction.must_be_unchanged(name, version);
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_txn_must_hold(making: *mut Making, lock: *const NamedLock) -> c_int {
    let must_hold = || {
        // SAFETY: the caller passes a transaction that nobody else uses, and a lock.
        let (making, lock) = unsafe { (making.as_mut(), handle(lock)?) };
        making.ok_or_else(|| invalid("handle is NULL"))?.transaction.must_hold(lock);
        Ok(())
    };
    done(must_hold())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_txn_copies(making: *mut Making, servers: size_t) -> c_int {
    // SAFETY: the caller passes a transaction that nobody else uses.
    let making = unsafe { with(making) };
    done(making.and_then(|making| making.transaction.copies(servers).map(drop)))
}

/// Takes a transaction back from the caller.
///
/// # Safety
/// `making` must be null, or one of ours that is given back once.
unsafe fn taken(making: *mut Making) -> Result<Box<Making>> {
    if making.is_null() {
        return Err(invalid("handle is NULL"));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { Box::from_raw(making) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_txn_commit(making: *mut Making) -> c_int {
    // SAFETY: one of ours, which the caller gives back once.
    done(unsafe { taken(making) }.and_then(|making| making.transaction.commit()))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_txn_abort(making: *mut Making) {
    // SAFETY: one of ours, which the caller gives back once; NULL is nothing to be given back.
    drop(unsafe { taken(making) });
}
