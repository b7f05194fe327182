//! The deadline word: until when what this machine has borrowed from others may be used without
//! asking. The server moves it on while those who lent agree; a process that was stopped, or whose
//! machine was, finds it past.
//!
//! What is borrowed is marked, in its map entry or in the flags of its inode; a server that is
//! alone marks nothing, and then nobody looks at the word. Rules:
//!
//! * Who uses something marked notes the word *before* the first byte or word of it is read or
//!   changed, and looks at the clock when the last one is: then nothing of it lay beyond the
//!   deadline, also if the word was moved on meanwhile. A writer looks while he is still in his
//!   hazard slot.
//! * Past it, nobody says success, and nobody undoes: the server is asked, which knows what became
//!   of the chunk or the name. Its answer is that what was done counts, or that it is not there and
//!   is to be done anew.
//! * The server never moves the word back, and takes away what it has lost before it moves it on.
//!
//! The clock is `CLOCK_BOOTTIME`, which goes on while the machine sleeps. Not here: who lends.

use crate::local::sync::{AtomicU64, Ordering};

/// Until when something may be used; noted before it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Until(u64);

impl Until {
    /// As long as one likes: it is not borrowed.
    pub const ALWAYS: Until = Until(u64::MAX);

    /// Another machine has it: it is to be asked for.
    pub const NEVER: Until = Until(0);

    /// By the deadline word, if it is borrowed.
    #[inline]
    pub fn noted(deadline: &AtomicU64, borrowed: bool) -> Self {
        if borrowed { Until(deadline.load(Ordering::SeqCst)) } else { Until::ALWAYS }
    }

    /// Whether that is over by the clock, which is looked at only if it can be.
    #[inline]
    pub fn is_over(self, now_ns: impl FnOnce() -> u64) -> bool {
        self != Until::ALWAYS && now_ns() >= self.0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Until;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn what_is_not_borrowed_asks_no_clock() {
        let deadline = AtomicU64::new(0);
        assert!(!Until::noted(&deadline, false).is_over(|| unreachable!("no clock")));
        assert!(Until::noted(&deadline, true).is_over(|| 0));
        assert!(Until::NEVER.is_over(|| 0));
    }

    #[test]
    fn a_word_that_moves_on_helps_who_notes_it_then() {
        let deadline = AtomicU64::new(10);
        let before = Until::noted(&deadline, true);
        assert!(!before.is_over(|| 9) && before.is_over(|| 10));
        deadline.store(20, Ordering::SeqCst);
        assert!(before.is_over(|| 11) && !Until::noted(&deadline, true).is_over(|| 11));
    }
}
