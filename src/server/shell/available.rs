//! Memory that programs can still get: of the machine, and of the control groups of this process.

use std::fs;
use std::path::{Path, PathBuf};

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
