//! Segment files that a process keeps open for what is not mapped. Without a lock: a signal handler
//! or a forked child may come at any moment.
//!
//! An application may close our descriptor and get its number for a file of its own, so ours stands
//! at an offset that no other does: asking for it is the cheapest way to know a file again, and
//! reads and writes at given places do not move it. A number that is the application's by now is
//! left alone; one of ours is never closed, so nobody can lose it in the middle of a call.

use std::ffi::c_int;
use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use terral_format::{Error, Result};

use crate::{high, kept, kernel};

/// Segment files that stay open, at most.
const OPEN_FILES: usize = 32;

/// The file of segment `index` in the instance's directory.
pub fn segment_path(instance: &Path, index: u32) -> PathBuf {
    instance.join(format!("seg-{index}"))
}

/// An open segment file, for one call.
pub(crate) enum Segment {
    /// One that stays open.
    Kept(RawFd),
    /// All places were taken.
    Own(OwnedFd),
}

impl AsRawFd for Segment {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Segment::Kept(fd) => *fd,
            Segment::Own(file) => file.as_raw_fd(),
        }
    }
}

/// The open segment files of one arena.
pub(crate) struct Segments {
    instance: PathBuf,
    secret: RandomState,
    /// Descriptor, and 1 + segment in the high half; 0 for none.
    open: [AtomicU64; OPEN_FILES],
}

// Straight to the kernel: libc's names may be the ones that the preload library stands for.
fn seek(fd: RawFd, offset: i64, whence: c_int) -> i64 {
    // SAFETY: no memory is passed.
    unsafe { kernel::enter()(libc::SYS_lseek, fd, offset, whence) }
}

fn word(index: u32, fd: RawFd) -> u64 {
    (u64::from(index) + 1) << 32 | u64::from(fd as u32)
}

impl Segments {
    /// Of the instance in this directory; none is open yet.
    pub(crate) fn new(instance: &Path) -> Self {
        let open = [const { AtomicU64::new(0) }; OPEN_FILES];
        Segments { instance: instance.into(), secret: RandomState::new(), open }
    }

    /// Where our descriptor of a segment stands.
    fn mark(&self, index: u32) -> i64 {
        (self.secret.hash_one(index) >> 2) as i64
    }

    /// The file of segment `index`.
    pub(crate) fn file(&self, index: u32) -> Result<Segment> {
        let mark = self.mark(index);
        let mut place = None;
        for slot in &self.open {
            let found = slot.load(Ordering::Acquire);
            if found >> 32 == u64::from(index) + 1 {
                if seek(found as RawFd, 0, libc::SEEK_CUR) == mark {
                    return Ok(Segment::Kept(found as RawFd));
                }
                place = Some((slot, found));
                break;
            }
            if found == 0 && place.is_none() {
                place = Some((slot, 0));
            }
        }
        let file = self.open(index, mark)?;
        let Some((slot, found)) = place else { return Ok(Segment::Own(file)) };
        let new = word(index, file.as_raw_fd());
        match slot.compare_exchange(found, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(Segment::Kept(file.into_raw_fd())),
            Err(_) => Ok(Segment::Own(file)),
        }
    }

    /// The file of segment `index`, for one call, and not kept.
    pub(crate) fn once(&self, index: u32) -> Result<OwnedFd> {
        self.open(index, self.mark(index))
    }

    fn open(&self, index: u32, mark: i64) -> Result<OwnedFd> {
        let path = segment_path(&self.instance, index);
        let failed = |error: &std::io::Error| Error::system(error, path.display().to_string());
        let opened = kept::reach(&self.instance, |instance| {
            OpenOptions::new().read(true).write(true).open(segment_path(instance, index))
        });
        let file = raised(opened.map_err(|e| failed(&e))?);
        match seek(file.as_raw_fd(), mark, libc::SEEK_SET) {
            -1 => Err(failed(&std::io::Error::last_os_error())),
            _ => Ok(file),
        }
    }
}

impl Drop for Segments {
    fn drop(&mut self) {
        for slot in &self.open {
            let found = slot.load(Ordering::Acquire);
            let index = (found >> 32) as u32;
            let fd = found as RawFd;
            if index > 0 && seek(fd, 0, libc::SEEK_CUR) == self.mark(index - 1) {
                // SAFETY: just seen to be ours, and nobody uses the arena any more.
                drop(unsafe { OwnedFd::from_raw_fd(fd) });
            }
        }
    }
}

/// The same file at a high number, if there is one.
fn raised(file: File) -> OwnedFd {
    match high::again(file.as_raw_fd()) {
        // SAFETY: the kernel just made it for us.
        Some(fd) => unsafe { OwnedFd::from_raw_fd(fd) },
        None => file.into(),
    }
}
