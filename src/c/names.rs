//! Calls on names: attributes, removal, renaming, directories.

use std::ffi::{CString, c_char, c_int, c_void};

use terral_client::transactions::Version;
use terral_client::{Client, Kind, Number, RenameHow, Result};

use crate::buffers::{handle, path, unsigned};
use crate::connection::Connection;
use crate::error::{done, invalid, number};

/// `struct terral_attributes`.
#[repr(C)]
pub struct Attributes {
    ino: u64,
    size_bytes: u64,
    mode: u32,
    links: u32,
    uid: u32,
    gid: u32,
    accessed_ns: u64,
    modified_ns: u64,
    changed_ns: u64,
    reserved: u64,
}

const _: () = assert!(size_of::<Attributes>() == 64, "terral.h says 64 bytes");

impl Attributes {
    /// What a transaction compares with what is there.
    pub fn version(&self) -> Version {
        let number = Number::of_word(self.ino);
        Version { number, size: self.size_bytes, modified_ns: self.modified_ns }
    }
}

/// As `st_mode` has it.
fn type_bits(kind: Kind) -> u32 {
    match kind {
        Kind::File => libc::S_IFREG,
        Kind::Directory => libc::S_IFDIR,
        Kind::Symlink => libc::S_IFLNK,
        Kind::Fifo => libc::S_IFIFO,
        Kind::Socket => libc::S_IFSOCK,
    }
}

/// Writes attributes where the caller wants them.
///
/// # Safety
/// `into` must be null or have room for them.
pub unsafe fn give(from: &terral_client::Seen, into: *mut Attributes) -> Result<()> {
    if into.is_null() {
        return Err(invalid("attributes is NULL"));
    }
    let kind = type_bits(from.kind);
    let attributes = Attributes {
        ino: from.number.word(),
        size_bytes: from.size,
        mode: kind | (from.mode & 0o7777),
        links: from.links,
        uid: from.uid,
        gid: from.gid,
        accessed_ns: from.accessed_ns,
        modified_ns: from.modified_ns,
        changed_ns: from.changed_ns,
        reserved: 0,
    };
    // SAFETY: not null, and the caller's promise.
    unsafe { into.write(attributes) };
    Ok(())
}

/// Does something with a connection and a name; `last`: also with what a symbolic link of that name
/// leads to.
///
/// # Safety
/// `connection` must be null or live, `name` null or a string.
unsafe fn with_name<T>(
    connection: *const Connection,
    name: *const c_char,
    last: bool,
    call: impl Fn(&Connection, &[u8]) -> Result<T>,
) -> Result<T> {
    // SAFETY: the caller's promises.
    let (connection, name) = unsafe { (handle(connection)?, path(name)?) };
    connection.client.through(&name, last, |name| call(connection, name))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_stat(
    connection: *const Connection,
    name: *const c_char,
    attributes: *mut Attributes,
) -> c_int {
    // SAFETY: the caller passes a connection, a string and room.
    done(unsafe {
        with_name(connection, name, true, |at, name| {
            give(&at.client.stat_through(name)?, attributes)
        })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_truncate(
    connection: *const Connection,
    name: *const c_char,
    size_bytes: i64,
) -> c_int {
    // SAFETY: the caller passes a connection and a string.
    done(unsafe {
        with_name(connection, name, true, |at, name| {
            at.client.truncate(name, unsigned(size_bytes)?)
        })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_unlink(connection: *const Connection, name: *const c_char) -> c_int {
    // SAFETY: the caller passes a connection and a string.
    done(unsafe { with_name(connection, name, false, |at, name| at.client.unlink(name)) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_rename(
    connection: *const Connection,
    from: *const c_char,
    to: *const c_char,
) -> c_int {
    // SAFETY: the caller passes a connection and two strings.
    done(unsafe {
        with_name(connection, from, false, |at, from| {
            let rename = |to: &[u8]| at.client.rename(from, to, RenameHow::Replace);
            at.client.through(&path(to)?, false, rename)
        })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_mkdir(
    connection: *const Connection,
    name: *const c_char,
    mode: libc::mode_t,
) -> c_int {
    // SAFETY: the caller passes a connection and a string.
    done(unsafe {
        with_name(connection, name, false, |at, name| {
            at.client.make_directory(name, at.masked(mode))
        })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_rmdir(connection: *const Connection, name: *const c_char) -> c_int {
    // SAFETY: the caller passes a connection and a string.
    done(unsafe { with_name(connection, name, false, |at, name| at.client.remove_directory(name)) })
}

/// `terral_name_callback`.
type Each = unsafe extern "C" fn(context: *mut c_void, name: *const c_char, mode: u32) -> c_int;

/// Whether the callback stopped the list before its end.
fn list(client: &Client, name: &[u8], each: Each, context: *mut c_void) -> Result<bool> {
    for name in client.list(name)? {
        let kind = type_bits(name.kind);
        let Ok(text) = CString::new(name.name) else { continue };
        // SAFETY: the caller's function, with the caller's context and a string that outlives it.
        if unsafe { each(context, text.as_ptr(), kind) } != 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_list(
    connection: *const Connection,
    name: *const c_char,
    each: Option<Each>,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller passes a connection and a string.
    number(unsafe {
        with_name(connection, name, true, |at, name| {
            let each = each.ok_or_else(|| invalid("callback is NULL"))?;
            list(&at.client, name, each, context).map(c_int::from)
        })
    })
}
