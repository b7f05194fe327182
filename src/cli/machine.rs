//! What this machine offers: `/dev/shm`, kernel, and memory for an instance.
//!
//! Only looks; judging is the doctor's.

use std::path::Path;

use anyhow::{Context, Result, bail};
use rustix::process::{Resource, Rlimit};

use terral_server::available::available_bytes;

use crate::units::bytes;

/// Where instances live.
pub const SHARED_MEMORY: &str = "/dev/shm";
/// What to do about one that is too small.
const ENLARGE: &str =
    "enlarge it (a container's: --shm-size=SIZE; as root: mount -o remount,size=SIZE /dev/shm)";
/// Least memory an instance works with: two segments of the arena.
pub const LEAST_BYTES: u64 = 128 << 20;

/// Addresses that a server, and each program, needs beside those for file contents: for the tables,
/// most of all.
pub const ADDRESSES: u64 = 2 << 30;
/// Descriptors a server needs beside one for each process that uses it.
const DESCRIPTORS: u64 = 64;

/// Bytes of a file system.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// In all.
    pub total_bytes: u64,
    /// For us.
    pub free_bytes: u64,
}

/// Size of the file system at `path`.
pub fn room(path: &Path) -> Result<Room> {
    let found = rustix::fs::statvfs(path).with_context(|| path.display().to_string())?;
    Ok(Room {
        total_bytes: found.f_blocks.saturating_mul(found.f_frsize),
        free_bytes: found.f_bavail.saturating_mul(found.f_frsize),
    })
}

/// Addresses that `ulimit -v` leaves for file contents.
fn addressable_bytes() -> u64 {
    let limit = rustix::process::getrlimit(Resource::As).current;
    limit.map_or(u64::MAX, |limit| limit.saturating_sub(ADDRESSES))
}

/// An error if a server of ours could not have the descriptors it needs.
pub fn check_descriptors() -> Result<()> {
    let limit = rustix::process::getrlimit(Resource::Nofile).maximum;
    if let Some(most) = limit.filter(|most| *most < DESCRIPTORS) {
        bail!(
            "`ulimit -n` allows {most} descriptors: a server needs {DESCRIPTORS}, and one more \
             for each process that uses it: raise it, also the hard limit (`ulimit -Hn`)"
        );
    }
    Ok(())
}

/// Lets this process, a server, have as many descriptors as it may.
///
/// # Errors
/// If that are too few.
pub fn raise_descriptors() -> Result<()> {
    check_descriptors()?;
    let most = rustix::process::getrlimit(Resource::Nofile).maximum;
    // One that stays low is as good as what it allows.
    let _ = rustix::process::setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most });
    Ok(())
}

/// The memory bound of a new instance: what was asked for, or half of what is free and no more than
/// `/dev/shm` and the limit of addresses can hold.
///
/// # Errors
/// If that is more than they can hold, or too little to work with.
pub fn memory_bound(asked: Option<u64>) -> Result<u64> {
    let free = room(Path::new(SHARED_MEMORY))?.free_bytes;
    let addressable = addressable_bytes();
    let needed = asked.unwrap_or(LEAST_BYTES);
    if needed > addressable {
        bail!(
            "`ulimit -v` is too low: the server and each program need {} of addresses, {} of them \
             for --memory: raise it (`ulimit -v unlimited`), or ask for less",
            bytes(needed + ADDRESSES),
            bytes(needed)
        );
    }
    if let Some(asked) = asked {
        if asked > free {
            bail!(
                "--memory {}: {SHARED_MEMORY} has only {} free: ask for less, or {ENLARGE}",
                bytes(asked),
                bytes(free)
            );
        }
        if asked < LEAST_BYTES {
            bail!("--memory {}: at least {} is needed", bytes(asked), bytes(LEAST_BYTES));
        }
        return Ok(asked);
    }
    let available = available_bytes();
    if free < LEAST_BYTES {
        let (free, least) = (bytes(free), bytes(LEAST_BYTES));
        bail!("{SHARED_MEMORY} has only {free} free, and {least} is the least: {ENLARGE}");
    }
    let bound = (available / 2).min(free).min(addressable);
    if bound < LEAST_BYTES {
        let (free, least) = (bytes(available), bytes(LEAST_BYTES));
        bail!(
            "only {free} of memory is free, and half of it is to be at least {least}: `terral \
             doctor` says more"
        );
    }
    Ok(bound)
}

/// Major and minor version of the running kernel.
pub fn kernel() -> Option<(u32, u32)> {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}
