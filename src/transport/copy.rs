//! The copy itself. Writing into memory that is not in the cache costs a read of each line first,
//! unless the stores bypass the cache: 22 against 12 GB/s measured for 64 KiB and more.

/// From this length on, stores into the arena bypass the cache: whole pages.
const STREAM_BYTES: usize = 4 << 10;

/// Copies `bytes` to `to`.
///
/// # Safety
/// `to..to + bytes.len()` is mapped and writable and does not overlap `bytes`.
pub(crate) unsafe fn into_arena(to: *mut u8, bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() >= STREAM_BYTES && std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the caller's promise; the feature is there.
        unsafe { stream(to, bytes) };
        return;
    }
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn stream(to: *mut u8, bytes: &[u8]) {
    use std::arch::x86_64::{__m256i, _mm_sfence, _mm256_loadu_si256, _mm256_stream_si256};
    const LINE: usize = 128;
    let head = to.align_offset(64).min(bytes.len());
    let body = (bytes.len() - head) / LINE * LINE;
    // SAFETY: head + body + tail is exactly the caller's range; the body is 64-aligned at `to`.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, head);
        let (mut from, mut into) = (bytes.as_ptr().add(head), to.add(head));
        let end = from.add(body);
        while from < end {
            let (source, target) = (from.cast::<__m256i>(), into.cast::<__m256i>());
            let a = _mm256_loadu_si256(source);
            let b = _mm256_loadu_si256(source.add(1));
            let c = _mm256_loadu_si256(source.add(2));
            let d = _mm256_loadu_si256(source.add(3));
            _mm256_stream_si256(target, a);
            _mm256_stream_si256(target.add(1), b);
            _mm256_stream_si256(target.add(2), c);
            _mm256_stream_si256(target.add(3), d);
            from = from.add(LINE);
            into = into.add(LINE);
        }
        _mm_sfence();
        std::ptr::copy_nonoverlapping(from, into, bytes.len() - head - body);
    }
}

#[cfg(test)]
mod tests {
    use super::into_arena;

    #[test]
    fn every_alignment_and_length_arrives() {
        let source: Vec<u8> = (0..70_000u32).map(|i| (i * 7 % 251) as u8).collect();
        for (from, to, length) in
            [(0, 0, 0), (1, 3, 100), (0, 0, 16384), (5, 9, 16384), (3, 64, 65536), (7, 1, 50_001)]
        {
            let mut target = vec![0u8; 70_100];
            // SAFETY: `to + length` lies inside `target`.
            unsafe { into_arena(target.as_mut_ptr().add(to), &source[from..from + length]) };
            assert_eq!(target[to..to + length], source[from..from + length]);
            assert!(target[..to].iter().chain(&target[to + length..]).all(|byte| *byte == 0));
        }
    }
}
