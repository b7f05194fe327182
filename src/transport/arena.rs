//! The arena as a client reaches it: one range of addresses, page number × 4 KiB, into which
//! segments are mapped when they are first needed.
//!
//! Warm means that a store cannot fault into a missing page: the segment is huge, or its pages
//! exist and this process has mapped the chunk. Warm memory is copied into directly; all else goes
//! through `pread` and `pwrite` on the segment's file, which also turn a full `/dev/shm` into an
//! error where a store would be SIGBUS.

use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use terral_format::ids::PageNumber;
use terral_format::local::geometry::{
    CHUNK_PAGES, Geometry, PAGE_BYTES, SEGMENT_BYTES, SEGMENT_CHUNKS, SEGMENT_PAGES,
};
use terral_format::local::tables::segment;
use terral_format::{Error, ErrorKind, Result};

use crate::fault::{Fault, attempt};
use crate::segments::{Segment, Segments};
use crate::system::check;
use crate::{copy, kernel, limit, own_files};

const HUGE_BYTES: usize = 2 << 20;
/// How long another thread may take to map a segment.
const PATIENCE: Duration = Duration::from_secs(1);
const UNSEEN: u8 = 0;
const SEEN: u8 = 1;
const MAPPED: u8 = 2;
const UNMAPPABLE: u8 = 3;
/// Somebody is at it; a process that was forked meanwhile goes on through the file.
const MAPPING: u8 = 4;

// These go to the kernel itself: libc's names may be the ones that the preload library stands for.

/// Calls `transfer(done)` until it has moved `length` bytes; it gives what the kernel answered.
fn transfer_all(length: usize, mut transfer: impl FnMut(usize) -> i64) -> Result<()> {
    let failed = |error: &std::io::Error| Error::system(error, "memory tier");
    let mut done = 0;
    while done < length {
        match transfer(done) {
            0 => return Err(failed(&std::io::ErrorKind::UnexpectedEof.into())),
            count if count > 0 => done += count as usize,
            _ => {
                let error = std::io::Error::last_os_error();
                if error.kind() != std::io::ErrorKind::Interrupted {
                    return Err(failed(&error));
                }
            }
        }
    }
    Ok(())
}

fn write_at(file: &Segment, bytes: &[u8], offset: usize) -> Result<()> {
    transfer_all(bytes.len(), |done| {
        let (rest, fd) = (&bytes[done..], file.as_raw_fd());
        // SAFETY: the kernel reads inside `rest`.
        unsafe { kernel::enter()(libc::SYS_pwrite64, fd, rest.as_ptr(), rest.len(), offset + done) }
    })
}

static ZEROS: [u8; PAGE_BYTES] = [0; PAGE_BYTES];

/// Writes `head` zeros, `bytes` and `tail` zeros with one call. False: only some of them.
fn write_between(file: &Segment, ends: (usize, usize), bytes: &[u8], offset: usize) -> bool {
    let (head, tail) = (&ZEROS[..ends.0], &ZEROS[..ends.1]);
    let parts = [head, bytes, tail]
        .map(|part| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() });
    let all = parts.iter().map(|part| part.iov_len).sum::<usize>() as i64;
    // SAFETY: the kernel reads inside the three parts, which outlive the call.
    let done = unsafe {
        kernel::enter()(libc::SYS_pwritev, file.as_raw_fd(), parts.as_ptr(), parts.len(), offset, 0)
    };
    done == all
}

fn read_at(file: &Segment, into: &mut [u8], offset: usize) -> Result<()> {
    transfer_all(into.len(), |done| {
        let (rest, fd) = (&mut into[done..], file.as_raw_fd());
        // SAFETY: the kernel writes inside `rest`.
        unsafe {
            kernel::enter()(libc::SYS_pread64, fd, rest.as_mut_ptr(), rest.len(), offset + done)
        }
    })
}

/// The mapped arena of one instance.
pub struct Arena {
    base: *mut u8,
    reserved: (*mut u8, usize),
    segments: Vec<AtomicU8>,
    chunks: Vec<AtomicU8>,
    files: Segments,
}

// SAFETY: the arena is shared memory; the protocol of `terral_format` orders who touches what.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// Reserves the addresses of an arena; maps nothing yet.
    pub fn reserve(instance: &Path, geometry: &Geometry) -> Result<Self> {
        let bytes = geometry.arena_bytes() as usize + HUGE_BYTES;
        // SAFETY: a new inaccessible mapping at an address of the kernel's choice.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        check(start as i64, || format!("reserve {bytes} bytes of addresses"))?;
        let start: *mut u8 = start.cast();
        let states = |count: u32| (0..count).map(|_| AtomicU8::new(UNSEEN)).collect();
        Ok(Arena {
            // SAFETY: HUGE_BYTES of slack were reserved for the alignment.
            base: unsafe { start.add(start.align_offset(HUGE_BYTES)) },
            reserved: (start, bytes),
            segments: states(geometry.segments),
            chunks: states(geometry.segments * SEGMENT_CHUNKS),
            files: Segments::new(instance),
        })
    }

    /// Writes `bytes` at `offset` bytes into the pages from `page` on; `state` is the segment's
    /// (see [`segment`]). The caller holds a pin on the chunk.
    ///
    /// # Errors
    /// [`ErrorKind::NoSpace`] if a page cannot be had: the write must be given up or tried
    /// elsewhere.
    pub fn write(&self, page: PageNumber, offset: usize, bytes: &[u8], state: u64) -> Result<()> {
        let at = self.place(page, offset, bytes.len())?;
        if self.is_warm(page, state) {
            // SAFETY: in the arena, mapped writable, every page exists; copying owns nothing.
            let copied = unsafe { attempt(|| copy::into_arena(self.base.add(at), bytes)) };
            return copied.map_err(|fault| self.failed(fault));
        }
        match self.file(page) {
            Some(file) => write_at(&file?, bytes, at % SEGMENT_BYTES),
            None => {
                self.make_mapped(page, at, bytes.len(), libc::MADV_POPULATE_WRITE)?;
                self.write(page, offset, bytes, segment::HUGE)
            }
        }
    }

    /// The segment's file, if calls on it can be made: not where the program has no descriptor
    /// left, or a limit on the size of its files, which a segment is not.
    fn file(&self, page: PageNumber) -> Option<Result<Segment>> {
        if limit::file_bytes() < SEGMENT_BYTES as u64 {
            return None;
        }
        match self.files.file(page.0 / SEGMENT_PAGES) {
            Err(error) if own_files::is_full(&error) => None,
            file => Some(file),
        }
    }

    /// Maps what is at `at`, whose pages need not exist yet, and has them made.
    #[cold]
    fn make_mapped(&self, page: PageNumber, at: usize, bytes: usize, how: i32) -> Result<()> {
        let first = at / PAGE_BYTES * PAGE_BYTES;
        let last = (at + bytes).next_multiple_of(PAGE_BYTES);
        let (segment, begin) = (page.0 / SEGMENT_PAGES, Instant::now());
        let mut mapped = self.map_segment(segment);
        // Another thread may be at it.
        while !mapped && self.is_being_mapped(segment) && begin.elapsed() < PATIENCE {
            std::thread::yield_now();
            mapped = self.map_segment(segment);
        }
        // SAFETY: mapped pages of the arena, which keep what they hold.
        let made = mapped
            .then(|| unsafe { libc::madvise(self.base.add(first).cast(), last - first, how) == 0 });
        // Linux before 5.14 cannot: they come when they are touched.
        let cannot = || std::io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL);
        match made {
            Some(made) if made || cannot() => Ok(()),
            _ => Err(Error::new(ErrorKind::NoSpace, "memory tier")),
        }
    }

    /// Writes as [`Arena::write`], with so many zeros (each less than a page) before and behind.
    pub fn write_between(
        &self,
        page: PageNumber,
        offset: usize,
        bytes: &[u8],
        (head, tail): (usize, usize),
        state: u64,
    ) -> Result<()> {
        let (start, end) = (offset - head, offset + bytes.len());
        let at = self.place(page, start, head + bytes.len() + tail)?;
        if !self.is_warm(page, state)
            && let Some(file) = self.file(page)
            && write_between(&file?, (head, tail), bytes, at % SEGMENT_BYTES)
        {
            return Ok(());
        }
        self.write(page, start, &ZEROS[..head], state)?;
        self.write(page, end, &ZEROS[..tail], state)?;
        self.write(page, offset, bytes, state)
    }

    /// Reads as [`Arena::write`] writes. The caller checks afterwards that the chunk is still the
    /// one.
    pub fn read(&self, page: PageNumber, offset: usize, into: &mut [u8], state: u64) -> Result<()> {
        let at = self.place(page, offset, into.len())?;
        if self.is_warm(page, state) {
            // SAFETY: in the arena, mapped, every page exists; copying owns nothing.
            let copied = unsafe { attempt(|| copy::out_of_arena(self.base.add(at), into)) };
            return copied.map_err(|fault| self.failed(fault));
        }
        match self.file(page) {
            Some(file) => read_at(&file?, into, at % SEGMENT_BYTES),
            None => {
                self.make_mapped(page, at, into.len(), libc::MADV_POPULATE_READ)?;
                self.read(page, offset, into, segment::HUGE)
            }
        }
    }

    /// What a copy failed for: the caller's memory is not there, or ours.
    #[cold]
    fn failed(&self, fault: Fault) -> Error {
        let (start, bytes) = (self.reserved.0.addr(), self.reserved.1);
        match (start..start + bytes).contains(&fault.address) {
            true => Error::new(ErrorKind::NoSpace, "memory tier"),
            false => fault.error(),
        }
    }

    /// Byte offset in the arena; an entry that points outside it is a lie.
    fn place(&self, page: PageNumber, offset: usize, bytes: usize) -> Result<usize> {
        let at = page.0 as usize * PAGE_BYTES + offset;
        let end = at.checked_add(bytes);
        let arena = self.segments.len() * SEGMENT_BYTES;
        let last = at / SEGMENT_BYTES == (at + bytes.max(1) - 1) / SEGMENT_BYTES;
        if end.is_some_and(|end| end <= arena) && last {
            return Ok(at);
        }
        Err(Error::new(ErrorKind::Malformed, format!("page {page} outside the arena")))
    }

    fn is_warm(&self, page: PageNumber, state: u64) -> bool {
        match state {
            segment::HUGE => self.map_segment(page.0 / SEGMENT_PAGES),
            segment::POPULATED => self.map_chunk(page),
            _ => false,
        }
    }

    fn is_being_mapped(&self, index: u32) -> bool {
        self.segments[index as usize].load(Ordering::Acquire) == MAPPING
    }

    fn map_segment(&self, index: u32) -> bool {
        match self.segments[index as usize].load(Ordering::Acquire) {
            MAPPED => true,
            UNMAPPABLE => false,
            _ => self.map_segment_slowly(index),
        }
    }

    #[cold]
    fn map_segment_slowly(&self, index: u32) -> bool {
        let state = &self.segments[index as usize];
        let order = (Ordering::AcqRel, Ordering::Acquire);
        if let Err(other) = state.compare_exchange(UNSEEN, MAPPING, order.0, order.1) {
            return other == MAPPED;
        }
        let map = |file: &dyn AsRawFd| {
            // SAFETY: inside our own reservation, segment-aligned; nobody uses it before MAPPED.
            let got = unsafe {
                libc::mmap(
                    self.base.add(index as usize * SEGMENT_BYTES).cast(),
                    SEGMENT_BYTES,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_SHARED | libc::MAP_FIXED,
                    file.as_raw_fd(),
                    0,
                )
            };
            got != libc::MAP_FAILED
        };
        let mapped = match self.files.file(index) {
            Ok(file) => map(&file),
            // The map keeps the file, and no descriptor does.
            Err(error) if own_files::is_full(&error) => {
                let once = || self.files.once(index).is_ok_and(|file| map(&file));
                own_files::again(once).unwrap_or(false)
            }
            Err(_) => false,
        };
        state.store(if mapped { MAPPED } else { UNMAPPABLE }, Ordering::Release);
        mapped
    }

    /// The first touch of a 4 KiB-paged chunk is cheaper through the file; from the second on, the
    /// chunk is mapped whole.
    fn map_chunk(&self, page: PageNumber) -> bool {
        let chunk = page.0 / CHUNK_PAGES;
        let state = &self.chunks[chunk as usize];
        match state.load(Ordering::Acquire) {
            MAPPED => true,
            UNMAPPABLE => false,
            UNSEEN => {
                state.store(SEEN, Ordering::Release);
                false
            }
            _ => {
                let bytes = CHUNK_PAGES as usize * PAGE_BYTES;
                let mapped = self.map_segment(page.0 / SEGMENT_PAGES)
                    // SAFETY: a mapped chunk of the arena.
                    && unsafe {
                        let start = self.base.add(chunk as usize * bytes);
                        libc::madvise(start.cast(), bytes, libc::MADV_POPULATE_WRITE) == 0
                    };
                state.store(if mapped { MAPPED } else { UNMAPPABLE }, Ordering::Release);
                mapped
            }
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: our own reservation, with all that was mapped into it.
        unsafe { libc::munmap(self.reserved.0.cast(), self.reserved.1) };
    }
}

#[cfg(test)]
mod tests {
    use super::Arena;
    use crate::preparer::Preparer;
    use crate::segments::segment_path;
    use std::fs::File;
    use std::os::fd::{AsFd, AsRawFd};
    use terral_format::ids::PageNumber;
    use terral_format::local::geometry::{Geometry, SEGMENT_BYTES, SEGMENT_PAGES};
    use terral_format::local::tables::segment;

    #[test]
    fn cold_and_warm_paths_reach_the_same_bytes() {
        let home = tempfile::tempdir_in("/dev/shm").expect("directory");
        let geometry = Geometry::for_memory(2 * SEGMENT_BYTES as u64);
        for index in 0..2 {
            let file = File::create(segment_path(home.path(), index)).expect("file");
            file.set_len(SEGMENT_BYTES as u64).expect("room");
        }
        let arena = Arena::reserve(home.path(), &geometry).expect("addresses");
        let page = PageNumber(SEGMENT_PAGES + 3);
        arena.write(page, 5, b"cold", segment::SPARSE).expect("writes");
        let (stop, _going) = std::io::pipe().expect("pipe");
        let mut preparer = Preparer::start(home.path()).expect("starts");
        let state = preparer.prepare(1, stop.as_fd()).expect("memory").expect("is not stopped");
        let mut seen = [0; 4];
        arena.read(page, 5, &mut seen, state).expect("reads");
        assert_eq!(&seen, b"cold");
        for round in 0..3u8 {
            arena.write(page, 5, &[round; 4], segment::POPULATED).expect("writes");
            arena.read(page, 5, &mut seen, segment::SPARSE).expect("reads");
            assert_eq!(seen, [round; 4]);
        }
        // The application closes all it can, and gets the number for a file of its own.
        let number = arena.files.file(1).expect("is open").as_raw_fd();
        let theirs = tempfile::tempfile().expect("file");
        // SAFETY: no memory is passed; the arena's file gives way.
        assert_eq!(unsafe { libc::dup2(theirs.as_raw_fd(), number) }, number);
        arena.write(page, 5, b"ours", segment::SPARSE).expect("writes");
        arena.read(page, 5, &mut seen, state).expect("reads");
        assert_eq!((&seen, theirs.metadata().expect("is open").len()), (b"ours", 0));
        let outside = PageNumber(2 * SEGMENT_PAGES - 1);
        assert!(arena.write(outside, 4000, &[0; 200], state).is_err());
    }
}
