//! Connecting to a server.
//!
//! Invariant: a process has one session per server, however often it connects: a session lasts as
//! long as its process, and a server has only so many.

use std::ffi::{OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use terral_client::{Client, Error, ErrorKind, Result};

use crate::buffers;
use crate::error::{invalid, owned};

/// What `terral_t` points to.
pub struct Connection {
    pub client: Client,
    /// The process's umask when it connected.
    umask: u32,
}

impl Connection {
    /// `mode` without the bits of the umask.
    pub fn masked(&self, mode: libc::mode_t) -> u32 {
        mode & 0o7777 & !self.umask
    }
}

static CLIENTS: Mutex<Vec<Client>> = Mutex::new(Vec::new());

/// The process's client of this instance, made if there is none that works.
fn client(instance: &Path) -> Result<Client> {
    // Never waited for: a fork may have left it locked for ever. A second session is no harm.
    let Ok(mut clients) = CLIENTS.try_lock() else { return Client::connect(instance) };
    if let Some(at) = clients.iter().position(|client| client.instance() == instance) {
        if clients[at].status().is_ok() {
            return Ok(clients[at].clone());
        }
        clients.swap_remove(at);
    }
    let client = Client::connect(instance)?;
    clients.push(client.clone());
    Ok(client)
}

/// The directory of the instance with this name, or at this path.
fn located(instance: &OsStr) -> PathBuf {
    if instance.as_bytes().contains(&b'/') {
        return instance.into();
    }
    // SAFETY: geteuid takes nothing and cannot fail.
    let user = unsafe { libc::geteuid() };
    Path::new("/dev/shm").join(format!("terral-{user}")).join(instance)
}

/// The umask, as the kernel tells it without changing it.
fn umask() -> u32 {
    // The name in it is what the program made it.
    let status = std::fs::read("/proc/thread-self/status").unwrap_or_default();
    let status = String::from_utf8_lossy(&status);
    let digits = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    let mask = digits.and_then(|digits| u32::from_str_radix(digits.trim(), 8).ok());
    mask.unwrap_or(0o022) & 0o777
}

fn connect(instance: Option<&OsStr>) -> Result<Connection> {
    let said = std::env::var_os("TERRAL_INSTANCE").filter(|name| !name.is_empty());
    let unsaid = || {
        let what = "TERRAL_INSTANCE is not set (start the program with `terral run`)";
        Error::new(ErrorKind::Unreachable, what)
    };
    let instance = match instance {
        Some(name) if name.is_empty() => return Err(invalid("name of the instance is empty")),
        Some(name) => located(name),
        None => located(&said.ok_or_else(unsaid)?),
    };
    Ok(Connection { client: client(&instance)?, umask: umask() })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_connect(instance: *const c_char) -> *mut Connection {
    if instance.is_null() {
        return owned(connect(None));
    }
    // SAFETY: the caller passes a string.
    let name = unsafe { buffers::text(instance) };
    owned(name.and_then(|name| connect(Some(OsStr::from_bytes(name)))))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn terral_disconnect(connection: *mut Connection) {
    if !connection.is_null() {
        // SAFETY: terral_connect made it, and the caller gives it back once.
        drop(unsafe { Box::from_raw(connection) });
    }
}
