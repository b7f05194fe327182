//! Calls on checkpoints.

use std::ffi::{c_char, c_int, c_void};

use libc::{size_t, ssize_t};
use terral_client::Result;
use terral_client::checkpoints::{Checkpoint, Checkpoints, PARTS_MAX, Part, Whole};

use crate::buffers::{bytes, handle, path, room, unsigned};
use crate::connection::Connection;
use crate::containers::{CAddress, put};
use crate::error::{count, done, invalid, owned};
use crate::objects::Open;

/// `struct terral_part`.
#[repr(C)]
#[derive(Clone, Copy)]
struct CPart {
    address: CAddress,
    at: u64,
    bytes: u64,
}

const _: () = assert!(size_of::<CPart>() == 40, "terral.h says 40 bytes");

impl From<Part> for CPart {
    fn from(part: Part) -> Self {
        CPart { address: part.address.into(), at: part.at, bytes: part.bytes }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_checkpoints_open(
    connection: *const Connection,
    directory: *const c_char,
    keep: size_t,
    mode: libc::mode_t,
) -> *mut Checkpoints {
    let open = || {
        // SAFETY: the caller passes a connection and a string.
        let (at, directory) = unsafe { (handle(connection)?, path(directory)?) };
        let (client, mode) = (&at.client, at.masked(mode));
        client.through(&directory, true, |path| Checkpoints::open(client, path, keep, mode))
    };
    owned(open())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_checkpoints_close(checkpoints: *mut Checkpoints) {
    if !checkpoints.is_null() {
        // SAFETY: one of ours, which the caller gives back once.
        drop(unsafe { Box::from_raw(checkpoints) });
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_checkpoints_copies(
    checkpoints: *mut Checkpoints,
    servers: size_t,
) -> c_int {
    // SAFETY: the caller passes checkpoints that no other call uses meanwhile.
    let checkpoints = unsafe { checkpoints.as_mut() }.ok_or_else(|| invalid("handle is NULL"));
    done(checkpoints.and_then(|checkpoints| {
        *checkpoints = checkpoints.clone().with_copies(servers)?;
        Ok(())
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_checkpoint_begin(
    checkpoints: *const Checkpoints,
    step: u64,
) -> *mut Checkpoint {
    // SAFETY: the caller passes checkpoints.
    owned(unsafe { handle(checkpoints) }.and_then(|checkpoints| checkpoints.begin(step)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_checkpoint_join(
    checkpoints: *const Checkpoints,
    step: u64,
    attempt: u64,
) -> *mut Checkpoint {
    // SAFETY: the caller passes checkpoints.
    owned(unsafe { handle(checkpoints) }.and_then(|checkpoints| checkpoints.join(step, attempt)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_checkpoint_attempt(
    checkpoint: *const Checkpoint,
    into: *mut u64,
) -> c_int {
    // SAFETY: the caller passes a checkpoint and room.
    done(unsafe { handle(checkpoint).and_then(|checkpoint| put(into, checkpoint.attempt())) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_checkpoint_create(
    checkpoint: *const Checkpoint,
    rank: u32,
    at: i64,
) -> *mut Open {
    // SAFETY: the caller passes a checkpoint.
    let checkpoint = unsafe { handle(checkpoint) };
    owned(checkpoint.and_then(|of| of.create(rank, unsigned(at)?).map(Open::new)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_checkpoint_dump(
    checkpoint: *const Checkpoint,
    rank: u32,
    at: i64,
    buffer: *const c_void,
    length: size_t,
    into: *mut CPart,
) -> c_int {
    let dump = || {
        // SAFETY: the caller passes a checkpoint and a buffer of that length.
        let (of, buffer) = unsafe { (handle(checkpoint)?, bytes(buffer, length)?) };
        if into.is_null() {
            return Err(invalid("place for the part is NULL"));
        }
        let part = of.dump(rank, unsigned(at)?, buffer)?;
        // SAFETY: the caller passes room.
        unsafe { put(into, part.into()) }
    };
    done(dump())
}

/// The parts that the caller has gathered.
///
/// # Safety
/// `parts` must have `length` entries, if it is not null.
unsafe fn gathered(parts: *const CPart, length: size_t) -> Result<Vec<Part>> {
    if parts.is_null() || length > PARTS_MAX {
        return Err(invalid("parts"));
    }
    // SAFETY: the caller's promise.
    let parts = unsafe { std::slice::from_raw_parts(parts, length) };
    let read =
        |part: &CPart| Ok(Part { address: part.address.read()?, at: part.at, bytes: part.bytes });
    parts.iter().map(read).collect()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_checkpoint_end(
    checkpoint: *mut Checkpoint,
    parts: *const CPart,
    part_count: size_t,
) -> c_int {
    if checkpoint.is_null() {
        return done(Err(invalid("handle is NULL")));
    }
    // SAFETY: one of ours, which the caller gives back once, and so many parts.
    let (checkpoint, parts) = unsafe { (Box::from_raw(checkpoint), gathered(parts, part_count)) };
    done(parts.and_then(|parts| checkpoint.end(&parts)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_checkpoint_abandon(checkpoint: *mut Checkpoint) -> c_int {
    if checkpoint.is_null() {
        return done(Err(invalid("handle is NULL")));
    }
    // SAFETY: one of ours, which the caller gives back once.
    done(unsafe { Box::from_raw(checkpoint) }.abandon())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_checkpoint_leave(checkpoint: *mut Checkpoint) {
    if !checkpoint.is_null() {
        // SAFETY: one of ours, which the caller gives back once.
        drop(unsafe { Box::from_raw(checkpoint) });
    }
}

fn found(checkpoints: &Checkpoints, step: i64) -> Result<Whole> {
    if step != -1 {
        return checkpoints.of_step(unsigned(step)?);
    }
    let none = || terral_client::Error::new(terral_client::ErrorKind::NotFound, "checkpoint");
    checkpoints.latest()?.ok_or_else(none)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_restart_open(checkpoints: *const Checkpoints, step: i64) -> *mut Whole {
    // SAFETY: the caller passes checkpoints.
    owned(unsafe { handle(checkpoints) }.and_then(|checkpoints| found(checkpoints, step)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_restart_step(whole: *const Whole, into: *mut u64) -> c_int {
    // SAFETY: the caller passes a restart and room.
    done(unsafe { handle(whole).and_then(|whole| put(into, whole.step())) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_restart_size(whole: *const Whole, into: *mut u64) -> c_int {
    // SAFETY: the caller passes a restart and room.
    done(unsafe { handle(whole).and_then(|whole| put(into, whole.bytes())) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_restart_read(
    whole: *const Whole,
    buffer: *mut c_void,
    length: size_t,
    at: i64,
) -> ssize_t {
    // SAFETY: the caller passes a restart and a buffer of that length.
    let (whole, buffer) = unsafe { (handle(whole), room(buffer, length)) };
    count(whole.and_then(|whole| whole.read(buffer?, unsigned(at)?)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_restart_close(whole: *mut Whole) {
    if !whole.is_null() {
        // SAFETY: one of ours, which the caller gives back once.
        drop(unsafe { Box::from_raw(whole) });
    }
}
