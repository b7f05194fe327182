//! Processes, by descriptors that cannot come to mean another process.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use terral_format::{Error, ErrorKind, Result};

use crate::system::{check, retry};
use crate::{kernel, proc_file};

/// A process that was alive when this was made; readable once it is dead.
pub struct Process {
    pid: u32,
    descriptor: OwnedFd,
}

impl Process {
    /// The process `pid` now is.
    pub fn open(pid: u32) -> Result<Self> {
        // SAFETY: no memory is passed.
        let descriptor = unsafe { kernel::enter()(libc::SYS_pidfd_open, pid, 0) };
        let descriptor = check(descriptor, || format!("process {pid}"))?;
        // SAFETY: a new descriptor of ours.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor as RawFd) };
        Ok(Process { pid, descriptor })
    }

    /// Whether there is a process `pid` that has not ended, as far as can be told without a
    /// descriptor where there is none left.
    pub fn lives(pid: u32) -> bool {
        match Process::open(pid) {
            Ok(process) => process.is_alive(),
            // SAFETY: no signal is sent.
            Err(error) => error.errno == libc::EMFILE && unsafe { libc::kill(pid as i32, 0) } == 0,
        }
    }

    /// The process `pid`, if it is still the one that started at `ticks`.
    pub fn reopen(pid: u32, ticks: u64) -> Option<Self> {
        let process = Process::open(pid).ok()?;
        (started_ticks(pid).ok()? == ticks && process.is_alive()).then_some(process)
    }

    /// A process that is no more: for what it left behind.
    pub fn gone(pid: u32) -> Option<Self> {
        // A descriptor that is readable at once, as that of a dead process is.
        let descriptor = std::fs::File::open("/dev/null").ok()?.into();
        Some(Process { pid, descriptor })
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether it has not ended yet.
    pub fn is_alive(&self) -> bool {
        let mut poll =
            libc::pollfd { fd: self.descriptor.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd that lives through the call.
        unsafe { libc::poll(&mut poll, 1, 0) == 0 }
    }
}

impl AsFd for Process {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// A process of this user, or for root of anybody, that was started with this entry, `NAME=value`,
/// in its environment, and sees at this path what is there for us; not this one. (Where machines
/// share their processes, and not `/dev/shm`, one path is of several things.)
pub fn with_environment(entry: &[u8], seen: &Path) -> Option<Process> {
    let is = |path: &Path| fs::metadata(path).map(|found| (found.dev(), found.ino()));
    let ours = is(seen).ok();
    let sees = |pid: u32| {
        let there = Path::new("/proc").join(pid.to_string()).join("root");
        match is(&there.join(seen.strip_prefix("/").unwrap_or(seen))) {
            Ok(theirs) => ours.is_none_or(|ours| ours == theirs),
            Err(error) => error.kind() != std::io::ErrorKind::NotFound,
        }
    };
    let has = |pid: u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|one| one == entry) && sees(pid)
    };
    let names = fs::read_dir("/proc").ok()?.flatten().map(|found| found.file_name());
    let pids = names.filter_map(|name| name.to_str()?.parse::<u32>().ok());
    let mut others = pids.filter(|pid| *pid != std::process::id() && has(*pid));
    // Once it is held, the number cannot come to mean another one.
    others.find_map(|pid| Process::open(pid).ok().filter(|_| has(pid)))
}

/// When `pid` started, in clock ticks since boot (proc(5), field 22 of `stat`).
pub fn started_ticks(pid: u32) -> Result<u64> {
    let path = format!("/proc/{pid}/stat");
    let stat = proc_file::read(&path).map_err(|e| Error::system(&e, path))?;
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let field = after_name.split_ascii_whitespace().nth(19).and_then(|field| field.parse().ok());
    field.ok_or_else(|| Error::new(ErrorKind::Malformed, format!("/proc/{pid}/stat")))
}

/// Whether `pid` runs: it is there, and neither ended, nor being taken apart, nor killed and only
/// not aware of it yet (proc(5), `ShdPnd` and `SigPnd` of `status`).
pub fn is_running(pid: u32) -> bool {
    let status = proc_file::read(&format!("/proc/{pid}/status")).unwrap_or_default();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    let pends = |name: &str| {
        let signals = field(name).and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
        signals.is_some_and(|set| set >> (libc::SIGKILL - 1) & 1 == 1)
    };
    let state = field("State:").and_then(|state| state.trim_start().chars().next());
    state.is_some_and(|state| state != 'Z' && state != 'X')
        && !pends("SigPnd:")
        && !pends("ShdPnd:")
}

/// `4711 (python3)`: a process as people know it.
pub fn shown(pid: u32) -> String {
    let name = proc_file::read(&format!("/proc/{pid}/comm")).unwrap_or_default();
    // Whatever the process calls itself, it is one line.
    let name: String = name.trim().chars().filter(|c| !c.is_control()).collect();
    if name.is_empty() { pid.to_string() } else { format!("{pid} ({name})") }
}

/// Whether `pid` has the file at `path` mapped, as far as can be told: a program that was replaced
/// by another (execve(2)) has nothing mapped any more.
pub fn has_mapped(pid: u32, path: &Path) -> bool {
    let Ok(maps) = proc_file::read(&format!("/proc/{pid}/maps")) else { return true };
    let Ok(file) = fs::metadata(path) else { return false };
    // proc(5): address, permissions, offset, device, inode, path.
    let inode = |line: &str| line.split_ascii_whitespace().nth(4).and_then(|at| at.parse().ok());
    maps.lines().any(|line| inode(line) == Some(file.ino()))
}

/// The id of this boot of the machine.
pub fn boot_id() -> Result<String> {
    let path = "/proc/sys/kernel/random/boot_id";
    let id = fs::read_to_string(path).map_err(|e| Error::system(&e, path))?;
    Ok(id.trim().into())
}

/// The user this process acts as.
pub fn user() -> u32 {
    // SAFETY: always succeeds.
    unsafe { libc::geteuid() }
}

/// Cores this process may run on. (The standard library's answer also reads every control group,
/// which a short-lived program would pay for.)
pub fn cores() -> u32 {
    // SAFETY: an all-zero set is an empty one, and the call fills one of the size given.
    let count = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set);
        libc::CPU_COUNT(&set)
    };
    count.max(1) as u32
}

/// The number of the calling thread, on this machine.
pub fn thread() -> u32 {
    // SAFETY: always succeeds, and touches no memory.
    unsafe { kernel::enter()(libc::SYS_gettid) as u32 }
}

/// The group this process acts as.
pub fn group() -> u32 {
    // SAFETY: always succeeds.
    unsafe { libc::getegid() }
}

/// Waits for any of a set of descriptors to become readable.
pub struct WaitSet(OwnedFd);

impl WaitSet {
    /// An empty set.
    pub fn new() -> Result<Self> {
        // SAFETY: no memory is passed.
        let set = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        check(set.into(), || "epoll".into())?;
        // SAFETY: a new descriptor of ours.
        Ok(WaitSet(unsafe { OwnedFd::from_raw_fd(set) }))
    }

    /// Adds a descriptor; [`WaitSet::wait`] gives `token` when it is readable. Closing removes it.
    pub fn add(&self, descriptor: BorrowedFd<'_>, token: u64) -> Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: token };
        let (set, added) = (self.0.as_raw_fd(), descriptor.as_raw_fd());
        // SAFETY: the event lives through the call.
        let done = unsafe { libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, added, &mut event) };
        check(done.into(), || "epoll".into()).map(drop)
    }

    /// Takes a descriptor out again, if it is in.
    pub fn remove(&self, descriptor: BorrowedFd<'_>) {
        let (set, removed) = (self.0.as_raw_fd(), descriptor.as_raw_fd());
        // SAFETY: no memory is passed.
        unsafe { libc::epoll_ctl(set, libc::EPOLL_CTL_DEL, removed, std::ptr::null_mut()) };
    }

    /// Tokens of readable descriptors; empty after `limit`. Waits for ever without one.
    pub fn wait(&self, limit: Option<Duration>) -> Result<Vec<u64>> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
        // Rounded up: who waits until then must not be back before.
        let up = |limit: Duration| limit.as_nanos().div_ceil(1_000_000).min(1 << 30) as i32;
        let limit = limit.map_or(-1, up);
        let (set, room) = (self.0.as_raw_fd(), events.len() as i32);
        // SAFETY: the events live through the call, and their number is given.
        let mut wait = || unsafe { libc::epoll_wait(set, events.as_mut_ptr(), room, limit) };
        let count = check(retry(|| wait().into()), || "epoll".into())?;
        Ok(events[..count as usize].iter().map(|event| event.u64).collect())
    }
}

/// Lets `niceness` more others go first from now on: for the calling thread only, as Linux has it.
pub fn be_nice(niceness: i32) {
    // SAFETY: no memory is passed; 0 means the calling thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, niceness) };
}

/// Closes all descriptors but the first three, and leaves the session's keyring (keyctl(2)) for an
/// empty one: for who is about to become another user, before it has opened anything.
///
/// # Errors
/// What Linux says.
pub fn leave_behind() -> Result<()> {
    /// `KEYCTL_JOIN_SESSION_KEYRING` in Linux.
    const JOIN: libc::c_long = 1;
    // SAFETY: no memory is passed; nobody here uses what is closed.
    let closed = unsafe { kernel::enter()(libc::SYS_close_range, 3_u32, u32::MAX, 0_u32) };
    check(closed, || "close_range".into())?;
    // SAFETY: without a name there is none to be read.
    let joined = unsafe { kernel::enter()(libc::SYS_keyctl, JOIN, std::ptr::null::<u8>()) };
    let error = std::io::Error::last_os_error();
    // Where Linux has no keys there are none.
    match joined < 0 && error.raw_os_error() != Some(libc::ENOSYS) {
        true => Err(Error::system(&error, "a keyring of its own")),
        false => Ok(()),
    }
}

/// Asks to be run soon after a wake-up, for short times, from now on: for the calling thread only.
/// Before Linux 6.12 it changes nothing; there, a thread that is woken on a busy machine may wait
/// for milliseconds.
pub fn be_prompt() {
    /// `struct sched_attr` of sched_setattr(2), its first version.
    #[repr(C)]
    struct Attributes {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        /// For the normal policy: the slice, nanoseconds, at least 100 µs.
        runtime: u64,
        deadline: u64,
        period: u64,
    }
    // SAFETY: no memory is passed; 0 means the calling thread.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    let normal = Attributes {
        size: size_of::<Attributes>() as u32,
        policy: libc::SCHED_OTHER as u32,
        flags: 0,
        nice,
        priority: 0,
        runtime: 100_000,
        deadline: 0,
        period: 0,
    };
    // SAFETY: a structure of the size it says; 0 means the calling thread.
    unsafe { kernel::enter()(libc::SYS_sched_setattr, 0, &raw const normal, 0) };
}

#[cfg(test)]
mod tests {
    use super::{Process, WaitSet, boot_id, started_ticks};
    use std::os::fd::AsFd;
    use std::process::Command;
    use std::time::{Duration, Instant};

    #[test]
    fn who_waits_until_then_is_not_back_before() {
        let (set, limit) = (WaitSet::new().expect("epoll"), Duration::from_micros(1300));
        let begin = Instant::now();
        assert_eq!(set.wait(Some(limit)).expect("waits"), Vec::<u64>::new());
        assert!(begin.elapsed() >= limit, "{:?}", begin.elapsed());
    }

    #[test]
    fn a_process_is_readable_once_it_is_dead() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("sleep");
        let process = Process::open(child.id()).expect("alive");
        let ticks = started_ticks(child.id()).expect("alive");
        assert!(process.is_alive() && Process::reopen(child.id(), ticks).is_some());
        assert!(Process::reopen(child.id(), ticks + 1).is_none());
        let set = WaitSet::new().expect("epoll");
        set.add(process.as_fd(), 7).expect("adds");
        child.kill().expect("kills");
        assert_eq!(set.wait(None).expect("waits"), [7]);
        child.wait().expect("reaps");
        assert!(!process.is_alive());
        assert_eq!(boot_id().expect("linux").len(), 36);
    }
}
