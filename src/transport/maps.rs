//! Chunks in a program's address space: one range of addresses into which chunks are mapped one
//! after the other, each pinned by a lock that the kernel keeps as long as any process has it
//! mapped.
//!
//! The lock is an OFD read lock on the chunk's bytes of its segment, taken through the very open
//! file that the chunk is mapped through: a mapping keeps its file open, in forked children too,
//! until it is unmapped or its process ends. Who may store there locks the same bytes once more,
//! [`SEGMENT_BYTES`] further on. Not here: which chunk, and when it may be mapped.

use std::ffi::{c_int, c_void};
use std::fs::OpenOptions;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use terral_format::ids::PageNumber;
use terral_format::local::geometry::{CHUNK_BYTES, PAGE_BYTES, SEGMENT_BYTES, SEGMENT_PAGES};
use terral_format::{Error, Result};

use crate::segments::segment_path;
use crate::system::check;
use crate::{kept, kernel};

const HUGE_BYTES: usize = 2 << 20;
/// What a reservation takes from the flags of `mmap`.
const PLACING: c_int = libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE | libc::MAP_32BIT;

/// What `mmap` was asked for.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// Address wanted, or 0.
    pub at: usize,
    /// Bytes, more than 0.
    pub length: usize,
    /// As `mmap` takes it.
    pub protection: c_int,
    /// As `mmap` takes it.
    pub flags: c_int,
    /// Offset in the file, whole pages.
    pub offset: u64,
}

impl How {
    /// Whether what is stored there becomes the file's.
    pub fn stores(&self) -> bool {
        self.flags & libc::MAP_TYPE != libc::MAP_PRIVATE && self.protection & libc::PROT_WRITE != 0
    }
}

/// A range of addresses that is filled from its start; unmapped when dropped.
pub struct Window<'i> {
    instance: &'i Path,
    how: How,
    base: *mut u8,
    bytes: usize,
    /// The segment mapped last, with all locks of its chunks.
    open: Option<(u32, OwnedFd)>,
}

fn reserve(at: usize, bytes: usize, placing: c_int) -> Result<*mut u8> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | placing;
    // SAFETY: the caller of mmap chose the address; without MAP_FIXED nothing is replaced.
    let start = unsafe {
        kernel::enter()(libc::SYS_mmap, at as *mut c_void, bytes, libc::PROT_NONE, flags, -1, 0)
    };
    check(start, || format!("{bytes} bytes of addresses")).map(|start| start as *mut u8)
}

fn unmap(start: *mut u8, bytes: usize) {
    if bytes > 0 {
        // SAFETY: a part of a reservation that nobody else knows.
        unsafe { kernel::enter()(libc::SYS_munmap, start, bytes) };
    }
}

impl<'i> Window<'i> {
    /// Reserves the addresses.
    pub fn reserve(instance: &'i Path, how: How) -> Result<Self> {
        let bytes = how.length.next_multiple_of(PAGE_BYTES);
        let placing = how.flags & PLACING;
        let base = if how.at == 0 && placing == 0 && bytes >= HUGE_BYTES {
            // Where huge pages can be mapped whole.
            let start = reserve(0, bytes + HUGE_BYTES, 0)?;
            let wanted = (how.offset as usize).wrapping_sub(start.addr()) % HUGE_BYTES;
            unmap(start, wanted);
            let base = start.wrapping_add(wanted);
            unmap(base.wrapping_add(bytes), HUGE_BYTES - wanted);
            base
        } else {
            reserve(how.at, bytes, placing)?
        };
        Ok(Window { instance, how, base, bytes, open: None })
    }

    /// Pins the chunk at `page`. The caller looks again whether it still is the one.
    pub fn pin(&mut self, page: PageNumber) -> Result<()> {
        let segment = page.0 / SEGMENT_PAGES;
        if self.open.as_ref().is_none_or(|(open, _)| *open != segment) {
            let path = segment_path(self.instance, segment);
            let opened = kept::reach(self.instance, |instance| {
                let path = segment_path(instance, segment);
                OpenOptions::new().read(true).write(self.how.stores()).open(path)
            });
            let file = opened.map_err(|e| Error::system(&e, path.display().to_string()))?;
            self.open = Some((segment, file.into()));
        }
        self.lock(page, libc::F_RDLCK)
    }

    /// Takes the pin back: the chunk is another one by now.
    pub fn unpin(&mut self, page: PageNumber) -> Result<()> {
        self.lock(page, libc::F_UNLCK)
    }

    fn lock(&self, page: PageNumber, kind: c_int) -> Result<()> {
        let Some((_, file)) = &self.open else { return Ok(()) };
        let stored = self.how.stores().then(|| stored_at(page));
        for at in [Some(bytes_of(page)), stored].into_iter().flatten() {
            let mut lock = lock_of(at, kind);
            let (fd, command) = (file.as_raw_fd(), libc::F_OFD_SETLK);
            // SAFETY: the lock is a valid struct flock that outlives the call.
            let done = unsafe { kernel::enter()(libc::SYS_fcntl, fd, command, &raw mut lock) };
            check(done, || "pin a chunk".into())?;
        }
        Ok(())
    }

    /// Maps `bytes` bytes at `within` of the pinned chunk at `page`, to `at` in the window.
    pub fn place(
        &mut self,
        at: usize,
        page: PageNumber,
        within: usize,
        bytes: usize,
    ) -> Result<()> {
        let Some((_, file)) = &self.open else { return Ok(()) };
        assert!(at + bytes <= self.bytes && (within + bytes) as u64 <= CHUNK_BYTES);
        let flags = self.how.flags & !PLACING | libc::MAP_FIXED;
        let (to, offset) = (self.base.wrapping_add(at), bytes_of(page) as usize + within);
        let (protection, fd) = (self.how.protection, file.as_raw_fd());
        // SAFETY: inside the reservation, which nobody else knows yet.
        let mapped =
            unsafe { kernel::enter()(libc::SYS_mmap, to, bytes, protection, flags, fd, offset) };
        check(mapped, || "map a chunk".into()).map(drop)
    }

    /// The window is the program's now. Gives its address.
    pub fn keep(self) -> usize {
        let mut window = std::mem::ManuallyDrop::new(self);
        drop(window.open.take());
        window.base.addr()
    }
}

impl Drop for Window<'_> {
    fn drop(&mut self) {
        unmap(self.base, self.bytes);
    }
}

fn bytes_of(page: PageNumber) -> i64 {
    i64::from(page.0 % SEGMENT_PAGES) * PAGE_BYTES as i64
}

fn stored_at(page: PageNumber) -> i64 {
    bytes_of(page) + SEGMENT_BYTES as i64
}

fn lock_of(at: i64, kind: c_int) -> libc::flock {
    // SAFETY: flock is plain data; all zero is a value of it.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = at;
    lock.l_len = CHUNK_BYTES as i64;
    lock
}

fn is_locked(segment: BorrowedFd<'_>, at: i64) -> bool {
    let mut lock = lock_of(at, libc::F_WRLCK);
    let (fd, command) = (segment.as_raw_fd(), libc::F_OFD_GETLK);
    // SAFETY: the lock is a valid struct flock that outlives the call.
    let asked = unsafe { kernel::enter()(libc::SYS_fcntl, fd, command, &raw mut lock) };
    // What cannot be told is not given away.
    asked == -1 || i32::from(lock.l_type) != libc::F_UNLCK
}

/// Whether anybody has the chunk at `page` mapped; `segment` is its segment's file.
pub fn is_mapped(segment: &impl AsFd, page: PageNumber) -> bool {
    is_locked(segment.as_fd(), bytes_of(page))
}

/// Whether anybody may store into the chunk at `page` through a map.
pub fn is_stored_to(segment: &impl AsFd, page: PageNumber) -> bool {
    is_locked(segment.as_fd(), stored_at(page))
}

#[cfg(test)]
mod tests {
    use super::{How, Window, is_mapped, is_stored_to};
    use crate::segments::segment_path;
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use terral_format::ids::PageNumber;
    use terral_format::local::geometry::{CHUNK_PAGES, SEGMENT_BYTES, SEGMENT_PAGES};

    fn how(length: usize, protection: i32, flags: i32) -> How {
        How { at: 0, length, protection, flags, offset: 0 }
    }

    #[test]
    fn a_chunk_is_pinned_as_long_as_any_part_of_it_is_mapped() {
        let home = tempfile::tempdir_in("/dev/shm").expect("directory");
        let segment = File::create_new(segment_path(home.path(), 1)).expect("file");
        segment.set_len(SEGMENT_BYTES as u64).expect("room");
        let pages = [3, 1].map(|chunk| PageNumber(SEGMENT_PAGES + chunk * CHUNK_PAGES));
        segment.write_all_at(b"three", u64::from(3 * CHUNK_PAGES) * 4096).expect("writes");

        let mut window =
            Window::reserve(home.path(), how(3 << 20, libc::PROT_READ, libc::MAP_SHARED))
                .expect("addresses");
        for (at, page) in pages.into_iter().enumerate() {
            window.pin(page).expect("pins");
            let bytes = (2 << 20) >> at;
            window.place(at << 21, page, 0, bytes).expect("maps");
        }
        let start = window.keep();
        assert_eq!(start % (2 << 20), 0);
        // SAFETY: just mapped, for reading.
        assert_eq!(unsafe { std::slice::from_raw_parts(start as *const u8, 5) }, b"three");
        assert!(pages.iter().all(|page| is_mapped(&segment, *page)));
        assert!(!pages.iter().any(|page| is_stored_to(&segment, *page)));
        assert!(!is_mapped(&segment, PageNumber(SEGMENT_PAGES + 2 * CHUNK_PAGES)));
        // SAFETY: mapped above, and not used any more; a part, then the rest.
        assert_eq!(unsafe { libc::munmap(start as *mut _, (3 << 20) - 4096) }, 0);
        assert!(is_mapped(&segment, pages[1]));
        // SAFETY: as above.
        assert_eq!(unsafe { libc::munmap((start + (3 << 20) - 4096) as *mut _, 4096) }, 0);
        assert!(!pages.iter().any(|page| is_mapped(&segment, *page)));
    }

    #[test]
    fn who_may_store_is_seen_and_a_window_given_up_leaves_nothing() {
        let home = tempfile::tempdir_in("/dev/shm").expect("directory");
        let segment = File::create_new(segment_path(home.path(), 0)).expect("file");
        segment.set_len(SEGMENT_BYTES as u64).expect("room");
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let page = PageNumber(CHUNK_PAGES);
        for (flags, stores) in [(libc::MAP_SHARED, true), (libc::MAP_PRIVATE, false)] {
            let mut window =
                Window::reserve(home.path(), how(4096, access, flags)).expect("addresses");
            window.pin(page).expect("pins");
            window.place(0, page, 0, 4096).expect("maps");
            assert!(is_mapped(&segment, page));
            assert_eq!(is_stored_to(&segment, page), stores);
            window.unpin(page).expect("unpins");
            assert!(!is_mapped(&segment, page) && !is_stored_to(&segment, page));
            window.pin(page).expect("pins");
            drop(window);
            assert!(!is_mapped(&segment, page) && !is_stored_to(&segment, page));
        }
    }
}
