//! The clock that deadlines are by: it is never set, goes on while the machine sleeps, and is the
//! same in all its processes.

/// Nanoseconds since the machine was started.
pub fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place for the answer; the clock exists since Linux 2.6.39.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::now_ns;

    #[test]
    fn it_goes_on() {
        let before = now_ns();
        assert!(before > 0 && now_ns() >= before);
    }
}
