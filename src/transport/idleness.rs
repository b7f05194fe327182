//! Whether there is a core that nobody wants: how a process that uses only such time gives way.
//!
//! `SCHED_IDLE` alone is not enough. The kernel takes a core where only such a process runs for an
//! idle one, and wakes others there; most kernels do not interrupt a system call for them
//! (`PREEMPT_NONE`), and who gave his core away without sleeping (`sched_yield`) gets it back at
//! the next tick only. So between its calls the process looks who else wants to run, and rests the
//! longer the more often somebody does.
//!
//! Invariants: system calls only, no lock and no allocation once it is made.

use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use crate::kernel;
use crate::process::cores;

/// Longest rest. Then it goes on for a step, whoever else wants to run: 0.3 % of a core, as much as
/// `SCHED_IDLE` has beside a loop.
const REST_MAX_MS: i32 = 128;
/// If giving the core away took longer, somebody else has had it.
const OTHERS: Duration = Duration::from_micros(50);
/// Longest line of `/proc/loadavg`.
const LINE_BYTES: usize = 64;

/// What a process has seen of others so far.
pub struct Idleness {
    /// Of `/proc/loadavg`, where there is one.
    load: Option<File>,
    cores: u32,
    rest_ms: i32,
}

impl Idleness {
    /// Nothing yet.
    pub fn new() -> Self {
        // SAFETY: no memory is passed.
        let all = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
        let (all, cores) = (u32::try_from(all).unwrap_or(0), cores());
        // Who may use some of the cores cannot tell from all who run which of them those want.
        let load = (cores >= all).then(|| File::open("/proc/loadavg").ok()).flatten();
        Idleness { load, cores, rest_ms: 0 }
    }

    /// The descriptor it needs.
    pub fn needs(&self) -> Option<RawFd> {
        self.load.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Gives way to who wants to run, and rests if somebody does. False: the other end of `stream`
    /// was closed, or shut down.
    pub fn give_way(&mut self, stream: RawFd) -> bool {
        let begin = Instant::now();
        // SAFETY: no memory is passed.
        unsafe { libc::sched_yield() };
        let wanted = begin.elapsed() > OTHERS || self.others() >= self.cores;
        self.rest_ms = next_rest(self.rest_ms, wanted);
        let mut end = libc::pollfd { fd: stream, events: libc::POLLRDHUP, revents: 0 };
        // SAFETY: one structure that lives through the call.
        unsafe { libc::poll(&raw mut end, 1, self.rest_ms) < 1 }
    }

    /// How many want to run just now, beside this process; 0 where that is not told.
    fn others(&self) -> u32 {
        let mut line = [0; LINE_BYTES];
        let Some(fd) = self.needs() else { return 0 };
        // SAFETY: a buffer of the length given that lives through the call.
        let read =
            unsafe { kernel::enter()(libc::SYS_pread64, fd, line.as_mut_ptr(), line.len(), 0i64) };
        running(&line[..usize::try_from(read).unwrap_or(0)]).saturating_sub(1)
    }
}

fn next_rest(rest_ms: i32, wanted: bool) -> i32 {
    match wanted {
        true => (rest_ms * 2).clamp(2, REST_MAX_MS),
        false => rest_ms / 2,
    }
}

/// How many run or could, of a line as `0.20 0.18 0.12 3/602 12345` (proc(5)); 0 if it is none.
fn running(line: &[u8]) -> u32 {
    let field = line.split(|byte| *byte == b' ').nth(3).unwrap_or_default();
    let digits = field.split(|byte| *byte == b'/').next().unwrap_or_default();
    std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{Idleness, REST_MAX_MS, next_rest, running};

    #[test]
    fn the_kernel_says_how_many_want_to_run() {
        assert_eq!(running(b"0.20 0.18 0.12 3/602 12345\n"), 3);
        assert_eq!(running(b"0.20 0.18 0.12 1024/602 12345\n"), 1024);
        for none in [&b""[..], b"0.20 0.18", b"a b c d", b"a b c /1", b"\xff \xff \xff \xff/\xff"] {
            assert_eq!(running(none), 0);
        }
        let seen = Idleness::new();
        assert!(
            seen.needs().is_none() || running(&std::fs::read("/proc/loadavg").expect("is")) > 0
        );
    }

    #[test]
    fn who_is_in_others_way_rests_longer_and_who_is_not_soon_does_not_rest() {
        let after = |first, wanted| (0..20).fold(first, |rest, _| next_rest(rest, wanted));
        assert_eq!((after(0, true), after(REST_MAX_MS, false)), (REST_MAX_MS, 0));
        assert_eq!([0, 2, 64].map(|rest| next_rest(rest, true)), [2, 4, REST_MAX_MS]);
    }
}
