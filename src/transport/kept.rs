//! An instance's directory that is kept open: a process that becomes another user could not reach
//! it by its path, as only the server's user may pass the directory above. Whoever has it open may.
//!
//! Not here: when it is opened (before ids change), and who else is in it.

use std::ffi::c_int;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use crate::{high, kernel};

/// Longest name of a directory by its descriptor, its zero included.
const NAME_BYTES: usize = 32;

static DIRECTORY: AtomicI32 = AtomicI32::new(-1);
/// Device and inode, to know it again: the program may have closed it.
static LOOKS: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];
static PATH: OnceLock<PathBuf> = OnceLock::new();

// Straight to the kernel: libc's names may be the ones that the preload library stands for.

fn looks(fd: c_int) -> Option<[u64; 2]> {
    // SAFETY: stat is plain data; all zero is a value of it.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: fstat fills the struct it is given, which is ours.
    let done = unsafe { kernel::enter()(libc::SYS_fstat, fd, &raw mut stat) };
    (done == 0).then_some([stat.st_dev, stat.st_ino])
}

fn is_there(fd: c_int) -> bool {
    fd >= 0 && looks(fd) == Some([0, 1].map(|at| LOOKS[at].load(Ordering::Acquire)))
}

fn open(instance: &Path) -> Option<c_int> {
    let mut path = [0u8; 4096];
    let bytes = instance.as_os_str().as_bytes();
    path.get_mut(..bytes.len())?.copy_from_slice(bytes);
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: the path is a string with its zero; the numbers are descriptors of ours.
    unsafe {
        let low = kernel::enter()(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0);
        if low < 0 || bytes.len() == path.len() {
            return None;
        }
        let Some(high) = high::again(low as c_int) else {
            return Some(low as c_int);
        };
        kernel::enter()(libc::SYS_close, low);
        Some(high)
    }
}

/// Keeps the directory of `instance` open, for all that this process and its children open there
/// from now on. One instance of a process is kept. Leaves errno as it may be.
pub fn keep(instance: &Path) {
    if is_there(DIRECTORY.load(Ordering::Acquire))
        || PATH.get_or_init(|| instance.into()) != instance
    {
        return;
    }
    if let Some((fd, found)) = open(instance).and_then(|fd| Some((fd, looks(fd)?))) {
        LOOKS[0].store(found[0], Ordering::Release);
        LOOKS[1].store(found[1], Ordering::Release);
        DIRECTORY.store(fd, Ordering::Release);
    }
}

/// Whether the program must not close this descriptor.
#[inline]
pub fn is_kept(fd: c_int) -> bool {
    let kept = DIRECTORY.load(Ordering::Relaxed);
    kept >= 0 && kept == fd && is_there(fd)
}

/// The descriptor that is kept, if it is there.
pub fn kept() -> Option<c_int> {
    Some(DIRECTORY.load(Ordering::Relaxed)).filter(|fd| *fd >= 0 && is_there(*fd))
}

/// Does something with the path by which this process reaches the directory of `instance`.
pub fn reach<T>(instance: &Path, call: impl FnOnce(&Path) -> T) -> T {
    let fd = DIRECTORY.load(Ordering::Acquire);
    if fd < 0 || PATH.get().is_none_or(|kept| kept != instance) || !is_there(fd) {
        return call(instance);
    }
    let mut name = [0u8; NAME_BYTES];
    let mut rest = &mut name[..];
    // It fits: ten digits at most.
    let _ = write!(rest, "/proc/thread-self/fd/{fd}");
    let length = NAME_BYTES - rest.len();
    call(Path::new(std::ffi::OsStr::from_bytes(&name[..length])))
}
