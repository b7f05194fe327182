//! The call on the servers of a run.

use std::ffi::{c_char, c_int};

use libc::{size_t, ssize_t};
use terral_client::Server;

use crate::buffers::handle;
use crate::connection::Connection;
use crate::containers::put;
use crate::error::{count, done, invalid};

/// Bytes of a machine's name, with the zero at its end.
const HOST_BYTES: usize = 72;

/// `struct terral_server`.
#[repr(C)]
struct CServer {
    number: u64,
    memory_bytes: u64,
    used_bytes: u64,
    host: [c_char; HOST_BYTES],
}

const _: () = assert!(size_of::<CServer>() == 96, "terral.h says 96 bytes");

impl From<&Server> for CServer {
    fn from(server: &Server) -> Self {
        let mut host = [0; HOST_BYTES];
        for (into, byte) in host.iter_mut().take(HOST_BYTES - 1).zip(server.host.bytes()) {
            *into = byte as c_char;
        }
        let Server { number, memory_bytes, used_bytes, .. } = *server;
        CServer { number: number.into(), memory_bytes, used_bytes, host }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_least_loaded(connection: *const Connection, into: *mut u64) -> c_int {
    let ask = || {
        // SAFETY: the caller passes a connection.
        let number = unsafe { handle(connection) }?.client.least_loaded()?;
        // SAFETY: the caller passes room for a number.
        unsafe { put(into, number.into()) }
    };
    done(ask())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_servers(
    connection: *const Connection,
    into: *mut CServer,
    room: size_t,
) -> ssize_t {
    let ask = || {
        // SAFETY: the caller passes a connection.
        let servers = unsafe { handle(connection) }?.client.servers()?;
        if into.is_null() && room > 0 {
            return Err(invalid("place for the servers is NULL"));
        }
        for (at, server) in servers.iter().take(room).enumerate() {
            // SAFETY: the caller passes room for so many.
            unsafe { into.add(at).write(server.into()) };
        }
        Ok(servers.len())
    };
    count(ask())
}
