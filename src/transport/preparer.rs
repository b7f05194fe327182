//! A process that makes memory exist with time that nobody else wants (`idleness`).
//!
//! A process, not a thread of the server: at `SCHED_IDLE` it may be stopped for long wherever it
//! is, also inside the kernel with a lock of its address space, and the server's threads shall
//! never wait for that. It gives way between huge pages, and ends when the server does.
//!
//! Invariants: after the fork it makes system calls only; it is forked before its parent locks
//! anything, as a lock would live on in it while it has not run yet. Not here: when, and how much.

use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use terral_format::local::geometry::{PAGE_BYTES, SEGMENT_BYTES};
use terral_format::local::tables::segment;
use terral_format::{Error, ErrorKind, Result};

use crate::idleness::Idleness;
use crate::kernel;
use crate::system::{check, retry};

const HUGE_BYTES: usize = 2 << 20;
/// `madvise(2)`; Linux 6.1.
const MADV_COLLAPSE: i32 = 25;
/// Longest name of a segment's file, with the slash before it and the zero behind.
const NAME_BYTES: usize = 24;
/// Answers of the process: the states of a prepared segment, or that there is no memory for it.
const FAILED: u8 = 0xff;

/// The process.
pub struct Preparer {
    process: libc::pid_t,
    stream: UnixStream,
}

impl Preparer {
    /// Starts it, for the segments of an instance, whose directory need not be there yet. It ends
    /// with the calling thread.
    pub fn start(instance: &Path) -> Result<Self> {
        let failed = |e: &std::io::Error| Error::system(e, "prepare memory");
        let path = instance.as_os_str().as_bytes();
        // Room for the name of a segment, too: the child allocates nothing.
        let mut name = Vec::with_capacity(path.len() + NAME_BYTES);
        name.extend_from_slice(path);
        let (stream, theirs) = UnixStream::pair().map_err(|e| failed(&e))?;
        let idleness = Idleness::new();
        // SAFETY: the child makes system calls only, on memory of its own, and never returns.
        let process = unsafe { libc::fork() };
        if process == 0 {
            work(name, theirs.as_raw_fd(), idleness);
        }
        check(process.into(), || "a process to prepare memory".into())?;
        Ok(Preparer { process, stream })
    }

    /// Makes the memory of a segment exist; gives its state. `None`: `stop` became readable before.
    ///
    /// # Errors
    /// [`ErrorKind::NoSpace`] if there is no memory, others if the process is gone.
    pub fn prepare(&mut self, index: u32, stop: BorrowedFd<'_>) -> Result<Option<u64>> {
        let failed = |e: &std::io::Error| Error::system(e, "prepare memory");
        self.stream.write_all(&index.to_ne_bytes()).map_err(|e| failed(&e))?;
        let mut watch = [self.stream.as_fd(), stop].map(|fd| polled(fd.as_raw_fd(), libc::POLLIN));
        // SAFETY: as many structures as said, which live through the call.
        let wait = || i64::from(unsafe { libc::poll(watch.as_mut_ptr(), 2, -1) });
        check(retry(wait), || "prepare memory".into())?;
        if watch[1].revents != 0 {
            return Ok(None);
        }
        let mut answer = [FAILED];
        self.stream.read_exact(&mut answer).map_err(|e| failed(&e))?;
        match answer[0] {
            FAILED => Err(Error::new(ErrorKind::NoSpace, "memory for a segment")),
            state => Ok(Some(state.into())),
        }
    }
}

impl Drop for Preparer {
    fn drop(&mut self) {
        // It sees its end of the stream, at its next huge page. Nobody waits for that: where every
        // core computes it may take long, and what is not reaped goes with the server.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
        // SAFETY: our own child; no memory is passed.
        unsafe { libc::waitpid(self.process, std::ptr::null_mut(), libc::WNOHANG) };
    }
}

fn polled(fd: RawFd, events: i16) -> libc::pollfd {
    libc::pollfd { fd, events, revents: 0 }
}

// The child.

fn work(mut path: Vec<u8>, stream: RawFd, mut idleness: Idleness) -> ! {
    close_all_but(stream, idleness.needs());
    be_idle();
    let above = path.len();
    let mut index = [0u8; 4];
    // SAFETY: buffers of the lengths given that live through the calls; a descriptor of our own; a
    // path that ends with a zero.
    unsafe {
        while libc::recv(stream, index.as_mut_ptr().cast(), index.len(), libc::MSG_WAITALL) == 4 {
            path.truncate(above);
            let _ = write!(&mut path, "/seg-{}\0", u32::from_ne_bytes(index));
            let flags = libc::O_RDWR | libc::O_CLOEXEC | libc::O_NOFOLLOW;
            let file = libc::open(path.as_ptr().cast(), flags);
            let state = if file < 0 { None } else { make(file, stream, &mut idleness) };
            libc::close(file);
            let answer = [state.unwrap_or(FAILED)];
            libc::send(stream, answer.as_ptr().cast(), 1, libc::MSG_NOSIGNAL);
        }
        libc::_exit(0)
    }
}

/// The least of all priorities, and an end with the parent.
fn be_idle() {
    // SAFETY: one structure that lives through the call; 0 means the caller.
    unsafe {
        let none = libc::sched_param { sched_priority: 0 };
        libc::sched_setscheduler(0, libc::SCHED_IDLE, &none);
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::prctl(libc::PR_SET_NAME, c"terral-prepare".as_ptr());
    }
}

/// Nothing of the server's must live as long as this process.
fn close_all_but(one: RawFd, other: Option<RawFd>) {
    let (one, other) = (one as u32, other.map_or(one as u32, |fd| fd as u32));
    let (low, high) = (one.min(other), one.max(other));
    for (first, last) in
        [(0, low.checked_sub(1)), (low + 1, high.checked_sub(1)), (high + 1, Some(u32::MAX))]
    {
        if let Some(last) = last.filter(|last| *last >= first) {
            // SAFETY: no memory is passed; nobody here uses what is closed.
            unsafe { kernel::enter()(libc::SYS_close_range, first, last, 0) };
        }
    }
}

/// Makes all pages of a segment exist, huge if possible. `None`: no memory, or over.
fn make(file: RawFd, stream: RawFd, idleness: &mut Idleness) -> Option<u8> {
    let bytes = SEGMENT_BYTES + HUGE_BYTES;
    // SAFETY: a reservation of our own; the aligned segment lies inside, and it is unmapped whole.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let start = libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0);
        if start == libc::MAP_FAILED {
            return None;
        }
        let base = start.byte_add(start.cast::<u8>().align_offset(HUGE_BYTES));
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        let mapped = libc::mmap(base, SEGMENT_BYTES, access, flags, file, 0) != libc::MAP_FAILED;
        let state = if mapped { populate(base, stream, idleness) } else { None };
        libc::munmap(start, bytes);
        state
    }
}

/// # Safety
/// A segment is mapped at `base`, writable.
unsafe fn populate(base: *mut libc::c_void, stream: RawFd, idleness: &mut Idleness) -> Option<u8> {
    // SAFETY: advice on the segment only, which the caller has mapped.
    let advise = |at: usize, bytes: usize, advice: i32| unsafe {
        libc::madvise(base.byte_add(at), bytes, advice) == 0
    };
    advise(0, SEGMENT_BYTES, libc::MADV_HUGEPAGE);
    let mut huge = true;
    for at in (0..SEGMENT_BYTES).step_by(HUGE_BYTES) {
        // The server may be gone, or want no more.
        if !idleness.give_way(stream) {
            return None;
        }
        // One page of 512 has the others added as they are put together.
        let one = huge && advise(at, PAGE_BYTES, libc::MADV_POPULATE_WRITE);
        huge = one && advise(at, HUGE_BYTES, MADV_COLLAPSE);
        if !huge && !advise(at, HUGE_BYTES, libc::MADV_POPULATE_WRITE) {
            return None;
        }
    }
    Some(if huge { segment::HUGE } else { segment::POPULATED } as u8)
}

#[cfg(test)]
mod tests {
    use super::Preparer;
    use std::fs::File;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::fs::MetadataExt;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};
    use terral_format::local::geometry::SEGMENT_BYTES;
    use terral_format::local::tables::segment;

    /// An instance with segment `index`, of which nothing exists yet.
    fn with_segment(index: u32) -> (tempfile::TempDir, File, Preparer) {
        let home = tempfile::tempdir_in("/dev/shm").expect("directory");
        let file = File::create(home.path().join(format!("seg-{index}"))).expect("file");
        file.set_len(SEGMENT_BYTES as u64).expect("length");
        let preparer = Preparer::start(home.path()).expect("starts");
        (home, file, preparer)
    }

    #[test]
    fn a_segment_is_made_whole_and_a_missing_one_is_an_error() {
        let (_home, file, mut preparer) = with_segment(3);
        let (stop, mut say) = std::io::pipe().expect("pipe");
        let state = preparer.prepare(3, stop.as_fd()).expect("prepares");
        assert!(matches!(state, Some(segment::HUGE | segment::POPULATED)), "{state:?}");
        let blocks = file.metadata().expect("there").blocks();
        assert_eq!(blocks * 512, SEGMENT_BYTES as u64);
        assert!(preparer.prepare(4, stop.as_fd()).is_err(), "there is no such segment");
        // Not by closing it: what other tests have just forked may have it, too.
        say.write_all(b"stop").expect("writes");
        assert_eq!(preparer.prepare(3, stop.as_fd()).expect("stops"), None);
    }

    #[test]
    fn who_gives_his_core_away_without_sleeping_has_it_back_soon() {
        let (_home, file, mut preparer) = with_segment(0);
        let (stop, mut say) = std::io::pipe().expect("pipe");
        let over = AtomicBool::new(false);
        // SAFETY: no memory is passed.
        let cores = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }.max(1);
        let begin = Instant::now();
        let state = std::thread::scope(|scope| {
            for _ in 0..cores {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        std::thread::yield_now();
                    }
                });
            }
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(400));
                say.write_all(b"stop").expect("writes");
                over.store(true, Ordering::Relaxed);
            });
            preparer.prepare(0, stop.as_fd())
        });
        assert_eq!(state.expect("stops"), None);
        // It has rested 2, 4, 8 … 128, 128 … ms between its steps.
        let steps = 7 + begin.elapsed().as_millis() as u64 / 128;
        let made = file.metadata().expect("there").blocks() * 512;
        assert!(made <= steps * super::HUGE_BYTES as u64, "{made} bytes, {steps} steps");
    }
}
