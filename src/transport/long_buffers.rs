//! Memory of long messages, in a server: what was freed is used again for the next one.
//!
//! glibc maps memory of its own for what is long, or gives what was freed at the end of a heap back
//! at once: each message is a fault for each of its pages then, and the kernel clears them. A
//! server that has parts of files come home, or shows large directories, does so for each of them.
//!
//! Invariant: not in a program, whose memory is its own affair. What is kept is bounded: for each
//! of the allocator's heaps, of which there is one a thread at most, what is free at its end.

/// What is at most so long is in a heap, where it is found again: twice what a chunk has.
const HEAPED_BYTES: i32 = 4 << 20;
/// So much that is free at the end of a heap stays.
const KEPT_BYTES: i32 = 16 << 20;

/// From now on long buffers of this process are used again. For a server that is about to hear
/// others; another allocator than glibc's goes on as it does.
pub fn keep() {
    #[cfg(target_env = "gnu")]
    // SAFETY: changes two numbers of the allocator, which has a lock for that.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, HEAPED_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_BYTES);
    }
}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use super::keep;

    const BYTES: usize = 2 << 20;
    const PAGE_BYTES: usize = 4096;

    /// Faults of this thread so far that nothing was read for.
    fn faults() -> i64 {
        // SAFETY: all zeros are one of these, and the call fills it.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
            usage
        };
        usage.ru_minflt
    }

    /// A message comes, and is done with.
    fn message(of: usize) {
        let mut bytes = Vec::<u8>::with_capacity(BYTES);
        bytes.resize(BYTES, of as u8);
        assert_eq!(std::hint::black_box(&bytes)[BYTES / 2], of as u8);
    }

    #[test]
    fn a_second_message_does_not_have_its_memory_made_anew() {
        keep();
        message(1);
        let before = faults();
        (0..64).for_each(message);
        // Each page of each of them, otherwise.
        let pages = (BYTES / PAGE_BYTES) as i64;
        assert!(faults() - before < 4 * pages, "{} faults", faults() - before);
    }
}
