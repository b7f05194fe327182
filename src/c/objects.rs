//! Calls on open objects.
//!
//! Invariant: as for files, an object belongs to the process that opened it; a forked child only
//! frees its handle when it closes it.

use std::ffi::{CString, c_char, c_int, c_void};

use libc::{size_t, ssize_t};
use terral_client::objects::{Container, EXTENTS_MAX, Extent, Object, ObjectId, Stripes, Value};
use terral_client::{Error, ErrorKind, Result};

use crate::buffers::{bytes, handle, room, text, unsigned};
use crate::containers::{CAddress, Held, Id, addressed, put, server_number};
use crate::error::{count, done, invalid, number, owned};

/// What `terral_object_t` points to.
pub struct Open {
    pub object: Object,
    opener: u32,
}

impl Open {
    pub fn new(object: Object) -> Self {
        Open { object, opener: std::process::id() }
    }
}

/// Creates an object as this says, with the id that the caller passes, or a random one.
///
/// # Safety
/// `held` is a container of this library, or NULL, and `id` an id or NULL.
unsafe fn created(
    held: *const Held,
    id: *const Id,
    create: impl FnOnce(&Container, ObjectId) -> Result<Object>,
) -> *mut Open {
    let create = || {
        // SAFETY: as the caller says.
        let (held, id) = unsafe { (handle(held)?, id.as_ref()) };
        let id = id.map_or_else(ObjectId::random, |id| Ok((*id).into()))?;
        create(&held.container, id).map(Open::new)
    };
    owned(create())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_object_create(held: *const Held, id: *const Id) -> *mut Open {
    // SAFETY: the caller passes a container, and an id or NULL.
    unsafe { created(held, id, |container, id| container.create_object(id)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_object_create_on(
    held: *const Held,
    server: u64,
    id: *const Id,
) -> *mut Open {
    let create = |container: &Container, id| container.create_object_on(server_number(server)?, id);
    // SAFETY: the caller passes a container, and an id or NULL.
    unsafe { created(held, id, create) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_object_create_least_loaded(
    held: *const Held,
    id: *const Id,
) -> *mut Open {
    // SAFETY: the caller passes a container, and an id or NULL.
    unsafe { created(held, id, |container, id| container.create_object_least_loaded(id)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_object_create_striped(
    held: *const Held,
    count: u64,
    stripe_bytes: u64,
    id: *const Id,
) -> *mut Open {
    let create = |container: &Container, id| {
        let count = u16::try_from(count).map_err(|_| invalid("stripes of an object"))?;
        container.create_striped(id, Stripes { count, bytes: stripe_bytes })
    };
    // SAFETY: the caller passes a container, and an id or NULL.
    unsafe { created(held, id, create) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_object_open(
    held: *const Held,
    address: *const CAddress,
    writes: c_int,
) -> *mut Open {
    // SAFETY: the caller passes a container and an address.
    let addressed = unsafe { addressed(held, address) };
    owned(addressed.and_then(|(held, address)| {
        held.container.open_object(address, writes != 0).map(Open::new)
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_object_close(open: *mut Open) -> c_int {
    if open.is_null() {
        return done(Err(invalid("handle is NULL")));
    }
    // SAFETY: one of ours, which the caller gives back once.
    let open = unsafe { Box::from_raw(open) };
    let is_own = open.opener == std::process::id();
    done(if is_own { open.object.close() } else { Ok(()) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_object_address(open: *const Open, into: *mut CAddress) -> c_int {
    // SAFETY: the caller passes an object and room.
    done(unsafe { handle(open).and_then(|open| put(into, open.object.address().into())) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_object_read(
    open: *const Open,
    buffer: *mut c_void,
    length: size_t,
    at: i64,
) -> ssize_t {
    // SAFETY: the caller passes an object and a buffer of that length.
    let (open, buffer) = unsafe { (handle(open), room(buffer, length)) };
    count(open.and_then(|open| open.object.read(buffer?, unsigned(at)?)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_object_write(
    open: *const Open,
    buffer: *const c_void,
    length: size_t,
    at: i64,
) -> c_int {
    // SAFETY: the caller passes an object and a buffer of that length.
    let (open, buffer) = unsafe { (handle(open), bytes(buffer, length)) };
    done(open.and_then(|open| open.object.write(buffer?, unsigned(at)?)))
}

/// The caller's extents.
///
/// # Safety
/// `extents` must have `length` entries, if it is not null.
pub unsafe fn extents<'a>(extents: *const Extent, length: size_t) -> Result<&'a [Extent]> {
    if length == 0 {
        return Ok(&[]);
    }
    if extents.is_null() || length > EXTENTS_MAX {
        return Err(invalid("extents"));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(extents, length) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_object_read_vector(
    open: *const Open,
    list: *const Extent,
    extent_count: size_t,
    packed: *mut c_void,
    length: size_t,
) -> ssize_t {
    // SAFETY: the caller passes an object, so many extents, and a buffer of that length.
    let (open, list, packed) =
        unsafe { (handle(open), extents(list, extent_count), room(packed, length)) };
    count(open.and_then(|open| open.object.read_vector(list?, packed?)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_object_write_vector(
    open: *const Open,
    list: *const Extent,
    extent_count: size_t,
    packed: *const c_void,
    length: size_t,
) -> c_int {
    // SAFETY: the caller passes an object, so many extents, and a buffer of that length.
    let (open, list, packed) =
        unsafe { (handle(open), extents(list, extent_count), bytes(packed, length)) };
    done(open.and_then(|open| open.object.write_vector(list?, packed?)))
}

/// Gives a number by way of a pointer.
///
/// # Safety
/// `into` must have room for one, if it is not null.
unsafe fn give(into: *mut u64, value: impl FnOnce() -> Result<u64>) -> Result<()> {
    if into.is_null() {
        return Err(invalid("update id is NULL"));
    }
    let value = value()?;
    // SAFETY: not null, and the caller's.
    unsafe { into.write(value) };
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_object_update_id(open: *const Open, id: *mut u64) -> c_int {
    // SAFETY: the caller passes an object, and room for a number.
    done(unsafe { handle(open).and_then(|open| give(id, || open.object.update_id())) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_object_write_if(
    open: *const Open,
    id: *mut u64,
    list: *const Extent,
    extent_count: size_t,
    packed: *const c_void,
    length: size_t,
) -> c_int {
    let write = || {
        // SAFETY: the caller passes an object, a number or NULL, so many extents, and a buffer of
        // that length.
        let (open, seen, list, packed) = unsafe {
            (handle(open)?, id.as_ref(), extents(list, extent_count)?, bytes(packed, length)?)
        };
        let seen = *seen.ok_or_else(|| invalid("update id is NULL"))?;
        // SAFETY: not null, and the caller's.
        unsafe { give(id, || open.object.write_if(seen, list, packed)) }
    };
    done(write())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_object_punch(open: *const Open, at: i64, length: i64) -> c_int {
    // SAFETY: the caller passes an object.
    let open = unsafe { handle(open) };
    done(open.and_then(|open| open.object.punch(unsigned(at)?, unsigned(length)?)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_object_truncate(open: *const Open, size_bytes: i64) -> c_int {
    // SAFETY: the caller passes an object.
    let open = unsafe { handle(open) };
    done(open.and_then(|open| open.object.truncate(unsigned(size_bytes)?)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_object_sync(open: *const Open) -> c_int {
    // SAFETY: the caller passes an object.
    done(unsafe { handle(open) }.and_then(|open| open.object.sync()))
}

/// A value of the type that a letter says, of these bytes in this machine's order.
pub fn value(letter: c_int, bytes: &[u8]) -> Result<Value> {
    let eight = || <[u8; 8]>::try_from(bytes).map_err(|_| invalid("number that is not 8 bytes"));
    match u8::try_from(letter) {
        Ok(b'i') => Ok(Value::Integer(i64::from_ne_bytes(eight()?))),
        Ok(b'r') => Ok(Value::Real(f64::from_ne_bytes(eight()?))),
        Ok(b't') => {
            let text = String::from_utf8(bytes.to_vec());
            text.map(Value::Text).map_err(|_| invalid("text that is not UTF-8"))
        }
        Ok(b'b') => Ok(Value::Bytes(bytes.to_vec())),
        _ => Err(invalid("type of an attribute")),
    }
}

fn given(value: Value) -> (u8, Vec<u8>) {
    match value {
        Value::Integer(value) => (b'i', value.to_ne_bytes().to_vec()),
        Value::Real(value) => (b'r', value.to_ne_bytes().to_vec()),
        Value::Text(value) => (b't', value.into_bytes()),
        Value::Bytes(value) => (b'b', value),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_object_set_attribute(
    open: *const Open,
    key: *const c_char,
    letter: c_int,
    from: *const c_void,
    length: size_t,
) -> c_int {
    let set = || {
        // SAFETY: the caller passes an object, a string, and a buffer of that length.
        let (open, key, stored) = unsafe { (handle(open)?, text(key)?, bytes(from, length)?) };
        let value = if from.is_null() { None } else { Some(value(letter, stored)?) };
        open.object.set_attribute(key, value.as_ref())
    };
    done(set())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_object_attribute(
    open: *const Open,
    key: *const c_char,
    letter: *mut c_int,
    into: *mut c_void,
    length: size_t,
) -> ssize_t {
    let get = || {
        // SAFETY: the caller passes an object, a string, and a buffer of that length.
        let (open, key, into) = unsafe { (handle(open)?, text(key)?, room(into, length)?) };
        let none = || Error::new(ErrorKind::NoData, "attribute of an object");
        let (of, value) = given(open.object.attribute(key)?.ok_or_else(none)?);
        if !letter.is_null() {
            // SAFETY: not null, and the caller's.
            unsafe { letter.write(of.into()) };
        }
        if length > 0 {
            let small = || Error::new(ErrorKind::OutOfRange, "buffer for an attribute");
            into.get_mut(..value.len()).ok_or_else(small)?.copy_from_slice(&value);
        }
        Ok(value.len())
    };
    count(get())
}

/// `terral_key_callback`.
type Each = unsafe extern "C" fn(context: *mut c_void, key: *const c_char) -> c_int;

fn keys(open: &Open, each: Each, context: *mut c_void) -> Result<bool> {
    let mut all = open.object.attributes()?.into_iter().flat_map(CString::new);
    // SAFETY: the caller's function, with the caller's context and a string that outlives it.
    Ok(all.any(|key| unsafe { each(context, key.as_ptr()) } != 0))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_object_attributes(
    open: *const Open,
    each: Option<Each>,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller passes an object.
    let open = unsafe { handle(open) };
    let each = each.ok_or_else(|| invalid("callback is NULL"));
    number(open.and_then(|open| keys(open, each?, context).map(c_int::from)))
}
