//! What this process knows of its own locks. No lock and no allocation: a signal handler may come
//! here again.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use terral_format::ids::Ino;

/// Files kept apart; with more, every close asks.
const FILES: usize = 16;

/// Of which files this process may hold locks of its own, so that closing others costs nothing.
/// A forked child has its parent's files in it, but counts for nothing until it locks itself.
#[derive(Default)]
pub(crate) struct OwnLocks {
    pid: AtomicU32,
    /// Of any file: the table is full, or the locks are from before an exec.
    any: AtomicBool,
    files: [AtomicU64; FILES],
}

impl OwnLocks {
    /// This process may hold locks of this file; `None`: of any.
    pub(crate) fn may_hold(&self, ino: Option<Ino>) {
        self.pid.store(std::process::id(), Ordering::SeqCst);
        let order = Ordering::SeqCst;
        let put = |ino: Ino| {
            let is_there = self.files.iter().any(|file| file.load(order) == ino.0);
            let free = |file: &AtomicU64| file.compare_exchange(0, ino.0, order, order).is_ok();
            is_there || self.files.iter().any(free)
        };
        if !ino.is_some_and(put) {
            self.any.store(true, order);
        }
    }

    /// Whether it may; of this file it does not from now on.
    pub(crate) fn forget(&self, ino: Ino) -> bool {
        if self.pid.load(Ordering::SeqCst) != std::process::id() {
            return false;
        }
        let mut held = self.any.load(Ordering::SeqCst);
        for file in &self.files {
            let order = Ordering::SeqCst;
            held |= file.compare_exchange(ino.0, 0, order, order).is_ok();
        }
        held
    }

    /// Cheap: whether this or a parent process ever took one.
    pub(crate) fn is_used(&self) -> bool {
        self.pid.load(Ordering::Relaxed) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::{FILES, OwnLocks};
    use terral_format::ids::Ino;

    #[test]
    fn only_files_that_may_be_locked_are_asked_about() {
        let own = OwnLocks::default();
        assert!(!own.is_used() && !own.forget(Ino(1)));
        own.may_hold(Some(Ino(1)));
        own.may_hold(Some(Ino(1)));
        assert!(own.is_used() && !own.forget(Ino(2)));
        assert!(own.forget(Ino(1)) && !own.forget(Ino(1)));
        (1..=FILES as u64).for_each(|ino| own.may_hold(Some(Ino(ino))));
        assert!(!own.forget(Ino(99)));
        own.may_hold(Some(Ino(50)));
        assert!(own.forget(Ino(50)) && own.forget(Ino(99)), "with more, of any");
        let after_exec = OwnLocks::default();
        after_exec.may_hold(None);
        assert!(after_exec.is_used() && after_exec.forget(Ino(7)));
    }
}
