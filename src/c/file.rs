//! Calls on open files.
//!
//! Invariant: a file belongs to the process that opened it. A forked child may use it while that
//! process lives, but only frees its handle when it closes it.

use std::ffi::{c_char, c_int, c_void};

use libc::{iovec, size_t, ssize_t};
use terral_client::{Error, ErrorKind, File, OpenHow, Result, access};

use crate::buffers::{bytes, entries, handle, path, room, unsigned};
use crate::connection::Connection;
use crate::error::{count, done, invalid, owned, position};
use crate::names::{Attributes, give};

/// A vector of at most this is written in one piece.
const GATHER_BYTES: usize = 64 << 10;

/// What `terral_file_t` points to.
pub struct Open {
    pub file: File,
    opener: u32,
}

const FLAGS: c_int = libc::O_ACCMODE
    | libc::O_CREAT
    | libc::O_EXCL
    | libc::O_TRUNC
    | libc::O_APPEND
    | libc::O_DIRECTORY
    | libc::O_CLOEXEC;

/// How `flags` ask to open. Flags that would be ignored in silence are refused, but for O_CLOEXEC:
/// nothing of a file outlives exec anyway.
fn how(flags: c_int, mode: u32) -> Result<OpenHow> {
    if flags & !FLAGS != 0 {
        return Err(invalid("flag that terral_open does not know"));
    }
    let rights = match flags & libc::O_ACCMODE {
        libc::O_RDONLY => access::READ,
        libc::O_WRONLY => access::WRITE,
        libc::O_RDWR => access::READ | access::WRITE,
        _ => return Err(invalid("O_RDONLY, O_WRONLY or O_RDWR")),
    };
    let set = |flag| flags & flag != 0;
    if set(libc::O_TRUNC) && rights & access::WRITE == 0 {
        return Err(invalid("O_TRUNC of a file opened for reading only"));
    }
    if set(libc::O_CREAT) && set(libc::O_DIRECTORY) {
        return Err(invalid("O_CREAT with O_DIRECTORY: use terral_mkdir"));
    }
    let append = if set(libc::O_APPEND) { access::APPEND } else { 0 };
    Ok(OpenHow {
        access: (rights | append) as u8,
        create: set(libc::O_CREAT),
        exclusive: set(libc::O_CREAT) && set(libc::O_EXCL),
        truncate: set(libc::O_TRUNC),
        directory: set(libc::O_DIRECTORY),
        unnamed: false,
        mode,
        token: 0,
        on: None,
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_open(
    connection: *const Connection,
    name: *const c_char,
    flags: c_int,
    mode: libc::mode_t,
) -> *mut Open {
    let open = || {
        // SAFETY: the caller passes a connection and a string.
        let (connection, name) = unsafe { (handle(connection)?, path(name)?) };
        let (client, how) = (&connection.client, how(flags, connection.masked(mode))?);
        let file = client.through(&name, true, |name| client.open(name, how))?;
        Ok(Open { file, opener: std::process::id() })
    };
    owned(open())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_close(file: *mut Open) -> c_int {
    if file.is_null() {
        return done(Err(invalid("handle is NULL")));
    }
    // SAFETY: terral_open made it, and the caller gives it back once.
    let open = unsafe { Box::from_raw(file) };
    let stale = open.file.access() == 0;
    if open.opener != std::process::id() {
        return done(if stale { Err(closed()) } else { Ok(()) });
    }
    let committed = if stale { Err(closed()) } else { open.file.commit() };
    open.file.close();
    done(committed)
}

fn closed() -> Error {
    Error::new(ErrorKind::BadHandle, "file of a process or server that is gone")
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_read(
    file: *const Open,
    buffer: *mut c_void,
    length: size_t,
) -> ssize_t {
    // SAFETY: the caller passes a file and a buffer of that length.
    let (open, buffer) = unsafe { (handle(file), room(buffer, length)) };
    count(open.and_then(|open| open.file.read(buffer?)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_write(
    file: *const Open,
    buffer: *const c_void,
    length: size_t,
) -> ssize_t {
    // SAFETY: the caller passes a file and a buffer of that length.
    let (open, buffer) = unsafe { (handle(file), bytes(buffer, length)) };
    count(open.and_then(|open| open.file.write(buffer?)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_pread(
    file: *const Open,
    buffer: *mut c_void,
    length: size_t,
    offset: i64,
) -> ssize_t {
    // SAFETY: the caller passes a file and a buffer of that length.
    let (open, buffer) = unsafe { (handle(file), room(buffer, length)) };
    count(open.and_then(|open| open.file.read_at(buffer?, unsigned(offset)?)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_pwrite(
    file: *const Open,
    buffer: *const c_void,
    length: size_t,
    offset: i64,
) -> ssize_t {
    // SAFETY: the caller passes a file and a buffer of that length.
    let (open, buffer) = unsafe { (handle(file), bytes(buffer, length)) };
    count(open.and_then(|open| open.file.write_at(buffer?, unsigned(offset)?)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_append(
    file: *const Open,
    buffer: *const c_void,
    length: size_t,
) -> ssize_t {
    // SAFETY: the caller passes a file and a buffer of that length.
    let (open, buffer) = unsafe { (handle(file), bytes(buffer, length)) };
    count(open.and_then(|open| {
        let buffer = buffer?;
        open.file.append(buffer).map(|_| buffer.len())
    }))
}

/// Moves pieces one after the other until one is cut short. A failure counts only if nothing moved.
fn one_by_one(
    entries: &[iovec],
    at: Option<u64>,
    mut moves: impl FnMut(&iovec, Option<u64>) -> Result<usize>,
) -> Result<usize> {
    let mut total = 0;
    for entry in entries {
        match moves(entry, at.map(|at| at + total as u64)) {
            Ok(moved) => {
                total += moved;
                if moved != entry.iov_len {
                    break;
                }
            }
            Err(error) if total == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(total)
}

/// Reads into a vector, at `at` or at the file's position.
///
/// # Safety
/// `file` must be null or live, `vector` must have `entry_count` entries with the buffers they
/// name.
unsafe fn read_vector(
    file: *const Open,
    vector: *const iovec,
    entry_count: c_int,
    at: Option<i64>,
) -> Result<usize> {
    // SAFETY: the caller's promises.
    let (open, (entries, _)) = unsafe { (handle(file)?, entries(vector, entry_count)?) };
    let at = at.map(unsigned).transpose()?;
    if entries.is_empty() {
        return open.file.read(&mut []);
    }
    one_by_one(entries, at, |entry, at| {
        // SAFETY: the caller's promise of each buffer.
        let room = unsafe { room(entry.iov_base, entry.iov_len) }?;
        match at {
            Some(at) => open.file.read_at(room, at),
            None => open.file.read(room),
        }
    })
}

fn write_piece(file: &File, piece: &[u8], at: Option<u64>) -> Result<usize> {
    match at {
        Some(at) => file.write_at(piece, at),
        None => file.write(piece),
    }
}

/// Writes a vector, at `at` or where `terral_write` would.
///
/// # Safety
/// As [`read_vector`].
unsafe fn write_vector(
    file: *const Open,
    vector: *const iovec,
    entry_count: c_int,
    at: Option<i64>,
) -> Result<usize> {
    // SAFETY: the caller's promises.
    let (open, (entries, whole)) = unsafe { (handle(file)?, entries(vector, entry_count)?) };
    let at = at.map(unsigned).transpose()?;
    let appends = at.is_none() && open.file.access() & access::APPEND != 0;
    if entries.len() != 1 && (appends || whole <= GATHER_BYTES) {
        let mut gathered = Vec::new();
        let full = |_| Error { kind: ErrorKind::System, errno: libc::ENOMEM, context: OOM.into() };
        gathered.try_reserve_exact(whole).map_err(full)?;
        for entry in entries {
            // SAFETY: the caller's promise of each buffer.
            gathered.extend_from_slice(unsafe { bytes(entry.iov_base, entry.iov_len) }?);
        }
        return write_piece(&open.file, &gathered, at);
    }
    one_by_one(entries, at, |entry, at| {
        // SAFETY: the caller's promise of each buffer.
        write_piece(&open.file, unsafe { bytes(entry.iov_base, entry.iov_len) }?, at)
    })
}

const OOM: &str = "no memory to append a vector in one piece";

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_readv(file: *const Open, vector: *const iovec, n: c_int) -> ssize_t {
    // SAFETY: the caller passes a file and a vector of that many buffers.
    count(unsafe { read_vector(file, vector, n, None) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_writev(file: *const Open, vector: *const iovec, n: c_int) -> ssize_t {
    // SAFETY: the caller passes a file and a vector of that many buffers.
    count(unsafe { write_vector(file, vector, n, None) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_preadv(
    file: *const Open,
    vector: *const iovec,
    n: c_int,
    offset: i64,
) -> ssize_t {
    // SAFETY: the caller passes a file and a vector of that many buffers.
    count(unsafe { read_vector(file, vector, n, Some(offset)) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_pwritev(
    file: *const Open,
    vector: *const iovec,
    n: c_int,
    offset: i64,
) -> ssize_t {
    // SAFETY: the caller passes a file and a vector of that many buffers.
    count(unsafe { write_vector(file, vector, n, Some(offset)) })
}

fn seek(file: &File, offset: i64, whence: c_int) -> Result<i64> {
    if file.access() == 0 {
        return Err(closed());
    }
    let base = match whence {
        libc::SEEK_SET => 0,
        libc::SEEK_CUR => file.offset(),
        libc::SEEK_END => file.size(),
        _ => return Err(invalid("SEEK_SET, SEEK_CUR or SEEK_END")),
    };
    let target = base.checked_add_signed(offset).and_then(|at| i64::try_from(at).ok());
    let target = target.ok_or_else(|| invalid("position before the start or beyond any file"))?;
    file.set_offset(unsigned(target)?);
    Ok(target)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_seek(file: *const Open, offset: i64, whence: c_int) -> i64 {
    // SAFETY: the caller passes a file.
    position(unsafe { handle(file) }.and_then(|open| seek(&open.file, offset, whence)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_ftruncate(file: *const Open, size_bytes: i64) -> c_int {
    // SAFETY: the caller passes a file.
    done(unsafe { handle(file) }.and_then(|open| open.file.truncate(unsigned(size_bytes)?)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_sync(file: *const Open) -> c_int {
    // SAFETY: the caller passes a file.
    done(unsafe { handle(file) }.and_then(|open| open.file.sync()))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_fstat(file: *const Open, attributes: *mut Attributes) -> c_int {
    // SAFETY: the caller passes a file and room.
    done(unsafe { handle(file).and_then(|open| give(&open.file.attributes()?, attributes)) })
}
