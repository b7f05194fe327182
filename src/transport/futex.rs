//! Sleeping on a word of shared memory, and waking who sleeps there (futex(2)).

use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

use crate::kernel;

/// Sleeps while `word` holds `expected`, at most `limit` (`None`: for ever). May wake for no
/// reason. False: a signal handler ran meanwhile; with a limit that is so whether or not the
/// handler asked for calls to be restarted.
pub fn wait(word: &AtomicU32, expected: u32, limit: Option<Duration>) -> bool {
    // SAFETY: the word outlives the call.
    unsafe { wait_at(word.as_ptr(), expected, limit) }
}

/// As [`wait`], on the low half of a word.
pub fn wait_low(word: &AtomicU64, expected: u32, limit: Option<Duration>) -> bool {
    // SAFETY: the word outlives the call.
    unsafe { wait_at(low(word), expected, limit) }
}

/// Wakes all who sleep on the low half of a word.
pub fn wake_low(word: &AtomicU64) {
    // SAFETY: the word outlives the call.
    unsafe { kernel::enter()(libc::SYS_futex, low(word), libc::FUTEX_WAKE, i32::MAX) };
}

fn low(word: &AtomicU64) -> *mut u32 {
    let half: *mut u32 = word.as_ptr().cast();
    if cfg!(target_endian = "big") { half.wrapping_add(1) } else { half }
}

/// # Safety
/// `word` must outlive the call.
unsafe fn wait_at(word: *mut u32, expected: u32, limit: Option<Duration>) -> bool {
    let limit = limit.map(|limit| libc::timespec {
        tv_sec: limit.as_secs() as libc::time_t,
        tv_nsec: limit.subsec_nanos().into(),
    });
    let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let operation = libc::FUTEX_WAIT;
    // SAFETY: the caller's promise; the timespec outlives the call, too.
    let woken = unsafe { kernel::enter()(libc::SYS_futex, word, operation, expected, limit) };
    woken == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::EINTR)
}

/// Wakes at most `count` sleepers.
pub fn wake(word: &AtomicU32, count: i32) {
    // SAFETY: the word outlives the call.
    unsafe { kernel::enter()(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, count) };
}

/// Whether a call that waits has to end when a signal handler has run: not if every handler of this
/// process asks for calls to be restarted (`SA_RESTART`, signal(7)). Which one ran is not known.
/// Those of faults do not count: they run where the fault is, not in a call that waits.
pub fn handlers_interrupt() -> bool {
    let faults = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE];
    (1..=64).filter(|signal| !faults.contains(signal)).any(|signal| {
        // SAFETY: all zero is a value of the struct, and the call only fills it.
        unsafe {
            let mut is: libc::sigaction = std::mem::zeroed();
            let known = libc::sigaction(signal, std::ptr::null(), &mut is) == 0;
            let handled = is.sa_sigaction != libc::SIG_DFL && is.sa_sigaction != libc::SIG_IGN;
            known && handled && is.sa_flags & libc::SA_RESTART == 0
        }
    })
}

#[cfg(test)]
mod tests {
    use super::handlers_interrupt;
    use std::os::unix::thread::JoinHandleExt;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    extern "C" fn handler(_signal: i32) {}

    fn handle(signal: i32, flags: i32) {
        // SAFETY: all zero is a value of the struct; the handler touches nothing.
        unsafe {
            let mut how: libc::sigaction = std::mem::zeroed();
            how.sa_sigaction = handler as extern "C" fn(i32) as usize;
            how.sa_flags = flags;
            assert_eq!(libc::sigaction(signal, &how, std::ptr::null_mut()), 0);
        }
    }

    #[test]
    fn a_handler_ends_the_sleep_and_it_is_known_whether_it_wants_that() {
        handle(libc::SIGUSR2, libc::SA_RESTART);
        assert!(!handlers_interrupt());
        handle(libc::SIGUSR1, 0);
        assert!(handlers_interrupt());
        static WORD: AtomicU32 = AtomicU32::new(0);
        static OVER: AtomicU32 = AtomicU32::new(0);
        let sleeper = std::thread::spawn(|| {
            let woken = super::wait(&WORD, 0, Some(Duration::from_secs(20)));
            OVER.store(1, Ordering::SeqCst);
            woken
        });
        while OVER.load(Ordering::SeqCst) == 0 {
            // SAFETY: the thread is joined only below.
            unsafe { libc::pthread_kill(sleeper.as_pthread_t(), libc::SIGUSR1) };
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(!sleeper.join().expect("no panic"));
        assert!(super::wait(&WORD, 0, Some(Duration::from_millis(1))), "a limit is no signal");
    }
}
