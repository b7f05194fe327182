//! A shared mapping of a file, seen only as atomics: whatever another process does to the memory,
//! reading it is defined.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::AtomicU64;

use terral_format::local::geometry::PAGE_BYTES;
use terral_format::{Error, ErrorKind, Result};
use zerocopy::{FromBytes, KnownLayout};

use crate::system::check;

/// A mapped file. Unmapped when dropped.
pub struct Region {
    base: *mut u8,
    bytes: usize,
    writable: bool,
}

// SAFETY: the mapping is plain memory, reached only through atomics.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Maps the first `bytes` of `file`, which must be at least that long.
    ///
    /// # Errors
    /// [`ErrorKind::Malformed`] if the file is shorter: touching the rest would be SIGBUS.
    pub fn map(file: &File, bytes: usize, writable: bool) -> Result<Self> {
        let length = file.metadata().map_err(|e| Error::system(&e, "shared memory"))?.len();
        if length < bytes as u64 || bytes == 0 {
            let context = format!("shared memory: {length} bytes where {bytes} belong");
            return Err(Error::new(ErrorKind::Malformed, context));
        }
        let access = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing of ours.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                access,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                file.as_raw_fd(),
                0,
            )
        };
        check(base as i64, || format!("map {bytes} bytes of shared memory"))?;
        Ok(Region { base: base.cast(), bytes, writable })
    }

    /// Memory of this process alone, zeros at first.
    ///
    /// # Errors
    /// If no address space is left.
    pub fn anonymous(bytes: usize) -> Result<Self> {
        // SAFETY: a new anonymous mapping.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        check(base as i64, || format!("map {bytes} bytes"))?;
        Ok(Region { base: base.cast(), bytes, writable: true })
    }

    /// Maps a whole file, which must have at least `least` bytes.
    ///
    /// # Errors
    /// As [`Region::map`].
    pub fn map_whole(file: &File, least: usize) -> Result<Self> {
        let length = file.metadata().map_err(|e| Error::system(&e, "shared memory"))?.len();
        Region::map(file, least.max(length as usize), false)
    }

    /// Bytes that are mapped.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Maps a descriptor received from a server; it may be closed afterwards.
    pub fn map_received(descriptor: OwnedFd, bytes: usize, writable: bool) -> Result<Self> {
        Region::map(&File::from(descriptor), bytes, writable)
    }

    fn place<T>(&self, offset: usize, bytes: usize) -> *const T {
        let end = offset.checked_add(bytes);
        assert!(end.is_some_and(|end| end <= self.bytes), "offset {offset} is outside the region");
        assert!(offset.is_multiple_of(align_of::<T>()), "offset {offset} is not aligned");
        // SAFETY: just checked to lie inside the mapping.
        unsafe { self.base.add(offset).cast() }
    }

    /// The structure at `offset`. Its fields must be atomics (all of `terral_format::local::tables`
    /// is); a read-only region must only be loaded from.
    ///
    /// # Panics
    /// If it does not fit inside the region: offsets come from our own geometry.
    pub fn view<T: FromBytes + KnownLayout>(&self, offset: usize) -> &T {
        let place: *const T = self.place(offset, size_of::<T>());
        // SAFETY: in bounds, aligned, mapped while `self` lives; any bit pattern is a T.
        unsafe { &*place }
    }

    /// `count` words from `offset` on.
    ///
    /// # Panics
    /// As [`Region::view`].
    pub fn words(&self, offset: usize, count: usize) -> &[AtomicU64] {
        let place: *const AtomicU64 = self.place(offset, count * 8);
        // SAFETY: in bounds, aligned, mapped while `self` lives; atomics may be shared.
        unsafe { std::slice::from_raw_parts(place, count) }
    }

    /// Makes the pages of `bytes` from `offset` on exist.
    ///
    /// # Errors
    /// [`ErrorKind::NoSpace`] if memory is full: touching them would be SIGBUS.
    ///
    /// # Panics
    /// As [`Region::view`].
    pub fn prepare(&self, offset: usize, bytes: usize) -> Result<()> {
        let from = offset / PAGE_BYTES * PAGE_BYTES;
        let length = offset + bytes - from;
        let place: *const u8 = self.place(from, length);
        // SAFETY: a range of our own mapping; its contents stay as they are.
        let made =
            unsafe { libc::madvise(place.cast_mut().cast(), length, libc::MADV_POPULATE_WRITE) };
        let error = std::io::Error::last_os_error();
        // Linux before 5.14 cannot: the pages come when they are touched, as everywhere there.
        if made == 0 || error.raw_os_error() == Some(libc::EINVAL) {
            return Ok(());
        }
        Err(Error {
            kind: ErrorKind::NoSpace,
            errno: 0,
            context: format!("shared memory ({error})"),
        })
    }

    /// Copies message bytes out of the region.
    ///
    /// # Panics
    /// As [`Region::view`].
    pub fn copy_out(&self, offset: usize, into: &mut [u8]) {
        let place: *const u8 = self.place(offset, into.len());
        // SAFETY: in bounds. Another process may write meanwhile; the copy is then any mixture,
        // which every user of it checks.
        unsafe { std::ptr::copy_nonoverlapping(place, into.as_mut_ptr(), into.len()) };
    }

    /// Copies message bytes into the region.
    ///
    /// # Panics
    /// As [`Region::view`], and if the region is read-only.
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) {
        assert!(self.writable, "a read-only region");
        let place: *const u8 = self.place(offset, bytes.len());
        // SAFETY: in bounds and writable; only the owner of a request slot writes its message.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place.cast_mut(), bytes.len()) };
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: our own mapping; every reference into it borrows `self`.
        unsafe { libc::munmap(self.base.cast(), self.bytes) };
    }
}

/// A word of this process that reads 1 in it and 0 in a forked child: how a child notices, at the
/// price of one load, that it needs a session of its own.
pub struct ForkMark(Region);

impl ForkMark {
    /// A mark, not set.
    pub fn new() -> Result<Self> {
        let region = Region::anonymous(4096)?;
        // SAFETY: the mapping just made.
        let told =
            unsafe { libc::madvise(region.base.cast(), region.bytes, libc::MADV_WIPEONFORK) };
        check(told.into(), || "MADV_WIPEONFORK".into())?;
        Ok(ForkMark(region))
    }

    /// Whether this process set the mark itself.
    pub fn is_set(&self) -> bool {
        self.0.words(0, 1)[0].load(std::sync::atomic::Ordering::Acquire) == 1
    }

    /// Sets it.
    pub fn set(&self) {
        self.0.words(0, 1)[0].store(1, std::sync::atomic::Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::{ForkMark, Region};
    use std::sync::atomic::Ordering;

    #[test]
    fn two_mappings_see_one_memory_and_a_short_file_is_refused() {
        let file = tempfile::tempfile().expect("temporary file");
        file.set_len(8192).expect("room");
        let (a, b) = (Region::map(&file, 8192, true), Region::map(&file, 8192, false));
        let (a, b) = (a.expect("maps"), b.expect("maps"));
        a.words(4096, 1)[0].store(7, Ordering::Relaxed);
        assert_eq!(b.words(4096, 1)[0].load(Ordering::Relaxed), 7);
        assert!(Region::map(&file, 8193, false).is_err());
    }

    #[test]
    fn the_mark_stands_in_the_process_that_made_it() {
        let mark = ForkMark::new().expect("maps");
        assert!(!mark.is_set());
        mark.set();
        assert!(mark.is_set());
    }
}
