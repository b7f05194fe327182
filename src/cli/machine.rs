//! What this machine offers: memory, `/dev/shm`, control group, kernel.
//!
//! Only looks; judging is the doctor's.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::units::bytes;

/// Where instances live.
pub const SHARED_MEMORY: &str = "/dev/shm";
/// Least memory an instance works with: two segments of the arena.
const LEAST_BYTES: u64 = 128 << 20;

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

/// A field of `/proc/meminfo`, bytes.
pub fn memory_field(name: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.split(':').next() == Some(name))?;
    let kilobytes: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024)
}

/// The limit that a control group of ours, or one above it, sets.
pub struct Limit {
    /// Which group.
    pub group: PathBuf,
    /// What it may use, bytes.
    pub max_bytes: u64,
    /// What it uses, bytes.
    pub used_bytes: u64,
}

/// Marker in `/proc/self/cgroup`, mount, file of the limit, file of the use: version 2, version 1.
const HIERARCHIES: [(&str, &str, &str, &str); 2] = [
    ("0::/", "/sys/fs/cgroup", "memory.max", "memory.current"),
    ("memory:/", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
];
/// Version 1 says "no limit" with a number about this large.
const NO_LIMIT_BYTES: u64 = 1 << 62;

/// The tightest memory limit of the control groups this process is in, if there is one.
pub fn memory_limit() -> Option<Limit> {
    let text = fs::read_to_string("/proc/self/cgroup").ok()?;
    let left = |limit: &Limit| limit.max_bytes.saturating_sub(limit.used_bytes);
    let mut tightest: Option<Limit> = None;
    for (marker, root, max, used) in HIERARCHIES {
        let mut lines = text.lines();
        let Some(own) = lines.find_map(|line| Some(line.split_once(marker)?.1)) else { continue };
        let own = Path::new(root).join(own);
        for group in own.ancestors().take_while(|group| group.starts_with(root)) {
            let Some(found) = limit_of(group, max, used) else { continue };
            if tightest.as_ref().is_none_or(|limit| left(&found) < left(limit)) {
                tightest = Some(found);
            }
        }
    }
    tightest
}

fn limit_of(group: &Path, max: &str, used: &str) -> Option<Limit> {
    let number = |name: &str| fs::read_to_string(group.join(name)).ok()?.trim().parse().ok();
    let max_bytes: u64 = number(max).filter(|max| *max < NO_LIMIT_BYTES)?;
    Some(Limit { group: group.to_path_buf(), max_bytes, used_bytes: number(used).unwrap_or(0) })
}

/// Bytes that programs can still get without anything being pushed out.
pub fn available_bytes() -> u64 {
    let available = memory_field("MemAvailable").unwrap_or(0);
    let below = |limit: Limit| limit.max_bytes.saturating_sub(limit.used_bytes);
    memory_limit().map_or(available, |limit| available.min(below(limit)))
}

/// The memory bound of a new instance: what was asked for, or half of what is free and no more than
/// `/dev/shm` can hold.
///
/// # Errors
/// If that is more than `/dev/shm` can hold, or too little to work with.
pub fn memory_bound(asked: Option<u64>) -> Result<u64> {
    let free = room(Path::new(SHARED_MEMORY))?.free_bytes;
    if let Some(asked) = asked {
        if asked > free {
            bail!(
                "--memory {}: {SHARED_MEMORY} has only {} free: ask for less, or enlarge it \
                 (as root: mount -o remount,size=SIZE {SHARED_MEMORY})",
                bytes(asked),
                bytes(free)
            );
        }
        if asked < LEAST_BYTES {
            bail!("--memory {}: at least {} is needed", bytes(asked), bytes(LEAST_BYTES));
        }
        return Ok(asked);
    }
    let bound = (available_bytes() / 2).min(free);
    if bound < LEAST_BYTES {
        bail!(
            "{SHARED_MEMORY}: {} is free in it and {} in memory, at least {} is needed: \
             `terral doctor` says more",
            bytes(free),
            bytes(available_bytes()),
            bytes(LEAST_BYTES)
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
