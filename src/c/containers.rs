//! Calls on containers, and on objects that are not open: by their address.

use std::ffi::{c_char, c_int, c_void};

use terral_client::objects::{Address, Container, ObjectId, ObjectStatus};
use terral_client::{Client, Result};

use crate::buffers::{self, handle, path};
use crate::connection::Connection;
use crate::error::{done, invalid, number, owned};

/// What `terral_container_t` points to.
pub struct Held {
    pub client: Client,
    pub container: Container,
}

/// `struct terral_object_id`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Id {
    high: u64,
    low: u64,
}

/// `struct terral_address`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CAddress {
    id: Id,
    server: u64,
}

/// `struct terral_object_status`.
#[repr(C)]
struct Status {
    size_bytes: u64,
    modified_ns: u64,
    memory_bytes: u64,
    owed_bytes: u64,
    sealed: u32,
    safe: u32,
    reserved: [u64; 3],
}

const _: () = assert!(size_of::<CAddress>() == 24 && size_of::<Status>() == 64, "as terral.h says");

impl From<ObjectId> for Id {
    fn from(id: ObjectId) -> Self {
        Id { high: (id.0 >> 64) as u64, low: id.0 as u64 }
    }
}

impl From<Id> for ObjectId {
    fn from(id: Id) -> Self {
        ObjectId(u128::from(id.high) << 64 | u128::from(id.low))
    }
}

impl From<Address> for CAddress {
    fn from(address: Address) -> Self {
        CAddress { id: address.id.into(), server: address.server.into() }
    }
}

/// A server's number, which may be any.
pub fn server_number(said: u64) -> Result<u16> {
    u16::try_from(said).map_err(|_| invalid("server of an object"))
}

impl CAddress {
    pub fn read(self) -> Result<Address> {
        Address { server: server_number(self.server)?, id: self.id.into() }.checked()
    }
}

impl From<ObjectStatus> for Status {
    fn from(status: ObjectStatus) -> Self {
        Status {
            size_bytes: status.bytes,
            modified_ns: status.modified_ns,
            memory_bytes: status.memory_bytes,
            owed_bytes: status.owed_bytes,
            sealed: status.sealed.into(),
            safe: status.in_backing.into(),
            reserved: [0; 3],
        }
    }
}

/// Writes something where the caller wants it.
///
/// # Safety
/// `into` must be null or have room for it.
pub unsafe fn put<T>(into: *mut T, value: T) -> Result<()> {
    if into.is_null() {
        return Err(invalid("place for the answer is NULL"));
    }
    // SAFETY: not null, and the caller's promise.
    unsafe { into.write(value) };
    Ok(())
}

/// What a connection and a name make.
///
/// # Safety
/// `connection` must be null or live, `name` null or a string.
unsafe fn made(
    connection: *const Connection,
    name: *const c_char,
    make: impl Fn(&Connection, &[u8]) -> Result<Container>,
) -> *mut Held {
    // SAFETY: the caller's promises.
    let given = unsafe { handle(connection).and_then(|at| Ok((at, buffers::text(name)?))) };
    owned(
        given.and_then(|(at, name)| {
            Ok(Held { client: at.client.clone(), container: make(at, name)? })
        }),
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_container_create(
    connection: *const Connection,
    name: *const c_char,
    mode: libc::mode_t,
) -> *mut Held {
    // SAFETY: the caller passes a connection and a string.
    unsafe {
        made(connection, name, |at, name| Container::create(&at.client, name, at.masked(mode)))
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_container_open(
    connection: *const Connection,
    name: *const c_char,
) -> *mut Held {
    // SAFETY: the caller passes a connection and a string.
    unsafe { made(connection, name, |at, name| Container::open(&at.client, name)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_container_at(
    connection: *const Connection,
    name: *const c_char,
) -> *mut Held {
    // SAFETY: the caller passes a connection and a string.
    let found = unsafe { handle(connection).and_then(|at| Ok((at, path(name)?))) };
    owned(found.and_then(|(at, name)| {
        let container = at.client.through(&name, true, |name| Container::at(&at.client, name))?;
        Ok(Held { client: at.client.clone(), container })
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_container_bind(held: *mut Held, name: *const c_char) -> c_int {
    let bind = || {
        // SAFETY: the caller passes a container that nobody else uses, and a string.
        let (held, name) = unsafe { (held.as_mut(), path(name)?) };
        let held = held.ok_or_else(|| invalid("handle is NULL"))?;
        let (client, container) = (&held.client, &held.container);
        held.container = client.through(&name, false, |name| container.clone().bind(name))?;
        Ok(())
    };
    done(bind())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_container_remove(held: *const Held) -> c_int {
    // SAFETY: the caller passes a container.
    done(unsafe { handle(held) }.and_then(|held| held.container.clone().remove()))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_container_flush(held: *const Held) -> c_int {
    // SAFETY: the caller passes a container.
    done(unsafe { handle(held) }.and_then(|held| held.container.flush()))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_container_close(held: *mut Held) {
    if !held.is_null() {
        // SAFETY: one of ours, which the caller gives back once.
        drop(unsafe { Box::from_raw(held) });
    }
}

/// `terral_address_callback`.
type Each = unsafe extern "C" fn(context: *mut c_void, address: *const CAddress) -> c_int;

fn list(held: &Held, each: Each, context: *mut c_void) -> Result<bool> {
    let mut all = held.container.list()?.into_iter().map(CAddress::from);
    // SAFETY: the caller's function, with the caller's context and an address that outlives it.
    Ok(all.any(|address| unsafe { each(context, &address) } != 0))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_container_list(
    held: *const Held,
    each: Option<Each>,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller passes a container.
    let held = unsafe { handle(held) };
    let each = each.ok_or_else(|| invalid("callback is NULL"));
    number(held.and_then(|held| list(held, each?, context).map(c_int::from)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_object_id_random(into: *mut Id) -> c_int {
    // SAFETY: the caller passes room.
    done(ObjectId::random().and_then(|id| unsafe { put(into, id.into()) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_object_id_derive(
    job: *const c_char,
    rank: u64,
    step: u64,
    into: *mut Id,
) -> c_int {
    // SAFETY: the caller passes a string and room.
    done(unsafe {
        buffers::text(job).and_then(|job| put(into, ObjectId::derived(job, rank, step).into()))
    })
}

/// A container, and an address in it.
///
/// # Safety
/// Both must be null or live.
pub unsafe fn addressed<'a>(
    held: *const Held,
    address: *const CAddress,
) -> Result<(&'a Held, Address)> {
    // SAFETY: the caller's promises.
    let address = unsafe { address.as_ref() }.ok_or_else(|| invalid("address is NULL"))?;
    // SAFETY: the same.
    Ok((unsafe { handle(held) }?, address.read()?))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_object_stat(
    held: *const Held,
    address: *const CAddress,
    into: *mut Status,
) -> c_int {
    // SAFETY: the caller passes a container, an address and room.
    done(unsafe {
        addressed(held, address)
            .and_then(|(held, address)| put(into, held.container.status(address)?.into()))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_object_seal(held: *const Held, address: *const CAddress) -> c_int {
    // SAFETY: the caller passes a container and an address.
    let addressed = unsafe { addressed(held, address) };
    done(addressed.and_then(|(held, address)| held.container.seal(address)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_object_remove(held: *const Held, address: *const CAddress) -> c_int {
    // SAFETY: the caller passes a container and an address.
    let addressed = unsafe { addressed(held, address) };
    done(addressed.and_then(|(held, address)| held.container.remove_object(address)))
}

/// Does something with an object and a name.
///
/// # Safety
/// Pointers must be null or live, `name` null or a string.
unsafe fn named(
    held: *const Held,
    address: *const CAddress,
    name: *const c_char,
    call: impl Fn(&Container, Address, &[u8]) -> Result<()>,
) -> Result<()> {
    // SAFETY: the caller's promises.
    let ((held, address), name) = unsafe { (addressed(held, address)?, path(name)?) };
    held.client.through(&name, false, |name| call(&held.container, address, name))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_object_bind(
    held: *const Held,
    address: *const CAddress,
    name: *const c_char,
) -> c_int {
    // SAFETY: the caller passes a container, an address and a string.
    done(unsafe { named(held, address, name, Container::bind_object) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_object_move(
    held: *const Held,
    address: *const CAddress,
    name: *const c_char,
) -> c_int {
    // SAFETY: the caller passes a container, an address and a string.
    done(unsafe { named(held, address, name, Container::move_object) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_object_copy(
    held: *const Held,
    address: *const CAddress,
    server: u64,
    into: *mut CAddress,
) -> c_int {
    // SAFETY: the caller passes a container and an address.
    let copied = unsafe { addressed(held, address) }
        .and_then(|(held, address)| held.container.copy_object(address, server_number(server)?));
    // SAFETY: the caller passes room.
    done(copied.and_then(|copy| unsafe { put(into, copy.into()) }))
}
