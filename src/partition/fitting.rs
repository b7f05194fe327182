//! How many messages go into one frame. Tests can have it fewer than fit, so that what is said at
//! once comes in parts.

#[cfg(not(test))]
pub use terral_format::wire::peers::fitting;

#[cfg(test)]
pub use tests::fitting;

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;

    use terral_format::wire::peers::{self, Message};

    thread_local! {
        static MOST: Cell<usize> = const { Cell::new(usize::MAX) };
    }

    /// How many of these go into one frame, of machines of this thread.
    pub fn fitting(messages: &[Message]) -> usize {
        peers::fitting(messages).min(MOST.get())
    }

    /// What `act` gives if frames of machines of this thread hold so many messages at most.
    pub(crate) fn with_at_most<T>(most: usize, act: impl FnOnce() -> T) -> T {
        MOST.set(most);
        let done = act();
        MOST.set(usize::MAX);
        done
    }
}
