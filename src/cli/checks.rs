//! What the doctor looks at: one function for each thing, which looks and judges.
//!
//! Invariant: leaves nothing behind. A verdict that is not `Ok` comes with what to do.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use rustix::fs::SeekFrom;
use rustix::process::Resource;
use serde::Serialize;
use terral_server::available;

use crate::instances;
use crate::machine::{self, SHARED_MEMORY};
use crate::server::preload_library;
use crate::units::{bytes, plural, rate};

/// How a thing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Good.
    Ok,
    /// Works, less well or less safely than it could.
    Warn,
    /// Terral does not work until this is mended.
    Fail,
}

/// A thing, looked at.
#[derive(Debug, Serialize)]
pub struct Check {
    /// Which thing.
    pub name: &'static str,
    /// How it is.
    pub verdict: Verdict,
    /// What was found.
    pub found: String,
    /// What to do, if something is to be done.
    pub advice: Option<String>,
}

pub(crate) fn good(name: &'static str, found: impl Into<String>) -> Check {
    Check { name, verdict: Verdict::Ok, found: found.into(), advice: None }
}

pub(crate) fn bad(
    name: &'static str,
    verdict: Verdict,
    found: impl Into<String>,
    advice: impl Into<String>,
) -> Check {
    Check { name, verdict, found: found.into(), advice: Some(advice.into()) }
}

/// Looks at everything that needs no directory.
pub fn machine() -> Vec<Check> {
    let mut checks = vec![memory(), shared_memory(), bound()];
    checks.extend(control_group());
    checks.extend([huge_pages(), directories(), preload(), addresses(), descriptors()]);
    checks.extend(file_size());
    checks.extend(remove_ipc());
    checks.extend(left_behind());
    checks
}

fn memory() -> Check {
    let (total, free) =
        (available::memory_field("MemTotal"), available::memory_field("MemAvailable"));
    let (Some(total), Some(free)) = (total, free) else {
        let advice = "mount /proc";
        return bad("memory", Verdict::Fail, "/proc/meminfo cannot be read", advice);
    };
    let found = format!("{} of {} free", bytes(free), bytes(total));
    if free < 1 << 30 {
        return bad("memory", Verdict::Warn, found, "end programs, or expect waits for the drain");
    }
    good("memory", found)
}

fn shared_memory() -> Check {
    const NAME: &str = "/dev/shm";
    let enlarge = format!(
        "as root: mount -o remount,size=80% {SHARED_MEMORY} (docker: --shm-size, or --ipc=host)"
    );
    let room = match machine::room(Path::new(SHARED_MEMORY)) {
        Ok(room) => room,
        Err(error) => {
            let advice = format!("as root: mount -t tmpfs tmpfs {SHARED_MEMORY}");
            return bad(NAME, Verdict::Fail, format!("{error:#}"), advice);
        }
    };
    let found = format!("{} of {} free", bytes(room.free_bytes), bytes(room.total_bytes));
    let half = available::memory_field("MemTotal").unwrap_or(0) / 2;
    if room.free_bytes < 128 << 20 {
        let advice = format!("remove what is in it (du -a {SHARED_MEMORY}), or {enlarge}");
        return bad(NAME, Verdict::Fail, found, advice);
    }
    // What mount(8) gives a tmpfs is half of the memory, less a little.
    if room.total_bytes < half / 10 * 9 {
        return bad(NAME, Verdict::Warn, found, enlarge);
    }
    good(NAME, found)
}

fn bound() -> Check {
    match machine::memory_bound(None) {
        Ok(bound) => good("bound", format!("{} unless --memory says otherwise", bytes(bound))),
        Err(error) => {
            bad("bound", Verdict::Fail, format!("{error:#}"), "free memory, or enlarge /dev/shm")
        }
    }
}

/// Pages of `/dev/shm` count for the group that first touched them: the job's.
fn control_group() -> Option<Check> {
    let limit = available::memory_limit()?;
    let left = limit.max_bytes.saturating_sub(limit.used_bytes);
    let found = format!(
        "{} left of {} in {}; files in memory count there",
        bytes(left),
        bytes(limit.max_bytes),
        limit.group.display()
    );
    if left < 1 << 30 {
        let advice = "ask the batch system for the program's memory plus Terral's --memory";
        return Some(bad("cgroup", Verdict::Warn, found, advice));
    }
    Some(good("cgroup", found))
}

fn huge_pages() -> Check {
    const NAME: &str = "huge pages";
    let path = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
    let setting = fs::read_to_string(path).unwrap_or_default();
    let chosen = setting.split(['[', ']']).nth(1).unwrap_or("none");
    let collapses = machine::kernel().is_some_and(|version| version >= (6, 1));
    let found = format!("shmem_enabled is {chosen}");
    let advice = format!("as root: echo advise > {path}");
    match (chosen, collapses) {
        ("none", _) => {
            let advice = "a kernel with CONFIG_TRANSPARENT_HUGEPAGE writes about twice as fast";
            bad(NAME, Verdict::Warn, "the kernel has none for /dev/shm", advice)
        }
        ("deny", _) | ("never", false) => bad(NAME, Verdict::Warn, found, advice),
        (_, true) => good(NAME, format!("{found}; Terral asks for them page by page")),
        (_, false) => good(NAME, found),
    }
}

/// Open files are marked by offsets of directories, which Linux 6.6 to 6.11 refuse on tmpfs.
fn directories() -> Check {
    const NAME: &str = "kernel";
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let large = 0x7fff_ffff_u64 << 32;
    let tried = File::open(SHARED_MEMORY)
        .and_then(|directory| Ok(rustix::fs::seek(&directory, SeekFrom::Start(large))? == large));
    match tried {
        Ok(true) => good(NAME, format!("Linux {release}")),
        _ => bad(
            NAME,
            Verdict::Fail,
            format!("Linux {release}: tmpfs directories refuse large offsets (6.6 to 6.11 do)"),
            "use another kernel; without, `terral run` cannot serve files, put and get work",
        ),
    }
}

fn preload() -> Check {
    match preload_library() {
        Ok(path) => good("preload", path.display().to_string()),
        Err(error) => {
            let advice = "install it with `make install`, or set TERRAL_PRELOAD";
            bad("preload", Verdict::Fail, format!("{error:#}"), advice)
        }
    }
}

fn addresses() -> Check {
    const NAME: &str = "ulimit -v";
    let Some(limit) = rustix::process::getrlimit(Resource::As).current else {
        return good(NAME, "unlimited");
    };
    let wanted = machine::memory_bound(None).unwrap_or(0) + machine::ADDRESSES;
    let found = bytes(limit);
    if limit < wanted {
        let advice = "ulimit -v unlimited, or a smaller --memory: all of it is mapped";
        return bad(NAME, Verdict::Warn, found, advice);
    }
    good(NAME, found)
}

fn descriptors() -> Check {
    const NAME: &str = "ulimit -n";
    match rustix::process::getrlimit(Resource::Nofile).current {
        Some(limit) if limit < 1024 => {
            let advice = "ulimit -n 4096: the server holds one for each client process";
            bad(NAME, Verdict::Warn, limit.to_string(), advice)
        }
        Some(limit) => good(NAME, limit.to_string()),
        None => good(NAME, "unlimited"),
    }
}

fn file_size() -> Option<Check> {
    let limit = rustix::process::getrlimit(Resource::Fsize).current?;
    let advice = "ulimit -f unlimited: the server's memory is files in /dev/shm";
    let verdict = if limit < 1 << 30 { Verdict::Fail } else { Verdict::Warn };
    Some(bad("ulimit -f", verdict, bytes(limit), advice))
}

/// systemd-logind removes what a user has in `/dev/shm` when the last session ends.
fn remove_ipc() -> Option<Check> {
    const NAME: &str = "RemoveIPC";
    // A system user's are left alone; elsewhere than under systemd nobody removes anything.
    let system_user = rustix::process::geteuid().as_raw() < 1000;
    if !Path::new("/run/systemd/system").exists() || system_user {
        return Some(good(NAME, "nobody removes this user's files from /dev/shm at logout"));
    }
    if logind_setting("RemoveIPC").as_deref() == Some("no") {
        return Some(good(NAME, "no"));
    }
    let user = rustix::process::geteuid().as_raw();
    if Path::new("/var/lib/systemd/linger").read_dir().is_ok_and(|mut users| {
        users.any(|entry| entry.is_ok_and(|entry| is_name_of(&entry.file_name(), user)))
    }) {
        return Some(good(NAME, "yes, but this user lingers"));
    }
    Some(bad(
        NAME,
        Verdict::Warn,
        "yes: files in memory are lost when you log out while they are owed",
        "loginctl enable-linger, or as root RemoveIPC=no in /etc/systemd/logind.conf",
    ))
}

fn is_name_of(name: &std::ffi::OsStr, user: u32) -> bool {
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    passwd.lines().any(|line| {
        let mut fields = line.split(':');
        let same_name = fields.next().is_some_and(|field| name == field);
        same_name && fields.nth(1).and_then(|uid| uid.parse().ok()) == Some(user)
    })
}

/// A setting of logind: the last one said, drop-ins after the main file.
fn logind_setting(name: &str) -> Option<String> {
    let mut files = vec!["/etc/systemd/logind.conf".into()];
    for folder in ["/usr/lib/systemd/logind.conf.d", "/etc/systemd/logind.conf.d"] {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut drop_ins: Vec<_> = entries.map(|entry| entry.path()).collect();
        drop_ins.sort();
        files.extend(drop_ins);
    }
    let texts = files.iter().filter_map(|file| fs::read_to_string(file).ok());
    texts.filter_map(|text| setting(&text, name)).next_back()
}

fn setting(text: &str, name: &str) -> Option<String> {
    let mut values = text.lines().filter_map(|line| {
        let (key, value) = line.trim().split_once('=')?;
        (key.trim() == name).then(|| value.trim().to_ascii_lowercase())
    });
    values.next_back()
}

fn left_behind() -> Option<Check> {
    let gone: Vec<String> = instances::all()
        .into_iter()
        .filter(|found| !found.served)
        .map(|found| found.name)
        .collect();
    if gone.is_empty() {
        return None;
    }
    let found = format!(
        "{} without a server: {}",
        plural(gone.len() as u64, "instance", "instances"),
        gone.join(", ")
    );
    Some(bad("left over", Verdict::Warn, found, "terral recover"))
}

/// Looks at a permanent directory: room, and how fast it takes 64 MiB.
pub fn permanent(directory: &Path) -> Vec<Check> {
    let mut checks = Vec::new();
    match machine::room(directory) {
        Ok(room) => {
            let free = format!("{} of {} free", bytes(room.free_bytes), bytes(room.total_bytes));
            checks.push(if room.free_bytes < 1 << 30 {
                bad("room", Verdict::Warn, free, "make room: what does not fit stays in memory")
            } else {
                good("room", free)
            });
        }
        Err(error) => {
            let advice = "make it: mkdir -p DIR";
            checks.push(bad("room", Verdict::Fail, format!("{error:#}"), advice));
            return checks;
        }
    }
    checks.push(match speed(directory) {
        Ok(per_second) => {
            let found = format!("takes {} (64 MiB and fsync)", rate(per_second, 1.0));
            if per_second < 50 << 20 {
                let advice = "expect to wait at the end for large files";
                bad("speed", Verdict::Warn, found, advice)
            } else {
                good("speed", found)
            }
        }
        Err(error) => {
            let advice = "give a directory in which you may write";
            bad("speed", Verdict::Fail, format!("{error:#}"), advice)
        }
    });
    checks
}

/// Bytes a second.
fn speed(directory: &Path) -> Result<u64> {
    const BYTES: u64 = 64 << 20;
    let path = directory.join(format!(".terral-doctor-{}", std::process::id()));
    let measure = || -> std::io::Result<u64> {
        let mut file = File::create_new(&path)?;
        // Not zeros, which some file systems do not store.
        let block: Vec<u8> =
            (0..1u32 << 18).flat_map(|n| (n.wrapping_mul(2_654_435_761)).to_le_bytes()).collect();
        let begin = Instant::now();
        for _ in 0..BYTES / block.len() as u64 {
            file.write_all(&block)?;
        }
        file.sync_all()?;
        Ok((BYTES as f64 / begin.elapsed().as_secs_f64()) as u64)
    };
    let measured = measure();
    let _ = fs::remove_file(&path);
    measured.with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::{Verdict, permanent, setting};

    #[test]
    fn the_last_setting_counts() {
        let text = "[Login]\n#RemoveIPC=yes\nRemoveIPC=yes\n RemoveIPC = No\n";
        assert_eq!(setting(text, "RemoveIPC").as_deref(), Some("no"));
        assert_eq!(setting("#RemoveIPC=no\n", "RemoveIPC"), None);
    }

    #[test]
    fn a_directory_is_measured_and_left_as_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let checks = permanent(directory.path());
        assert!(checks.iter().all(|check| check.verdict != Verdict::Fail), "{checks:?}");
        assert_eq!(directory.path().read_dir().unwrap().count(), 0);
        let gone = permanent(&directory.path().join("gone"));
        assert_eq!(gone[0].verdict, Verdict::Fail);
        assert!(gone[0].advice.is_some());
    }
}
