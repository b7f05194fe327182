//! How many bytes of names a directory has that one machine gives another. Tests can have it fewer,
//! so that small directories are too large.

use terral_format::wire::body::Body;

/// Bytes of a message that are not names, with room to spare.
const ROOM: u64 = 4 << 10;

/// The bounds of servers that are not built for tests.
const USUAL: Limits =
    Limits { given: Body::MAX as u64 - ROOM, lent: 896 << 10, borrowed: Body::MAX as u64 / 4 * 3 };

/// With how many bytes of names a directory changes its place.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// One with more is not given to another machine at all.
    pub given: u64,
    /// One with more is not lent or shown, but used by asking the machine that decides it: to give
    /// it back and forth, or whole to each that looks, would cost more.
    pub lent: u64,
    /// One with more, lent when it was smaller, goes back at once, before it is too large to.
    pub borrowed: u64,
}

/// Those of this server.
#[cfg(not(test))]
pub const fn limits() -> Limits {
    USUAL
}

#[cfg(test)]
pub use tests::limits;

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;

    use super::{Limits, USUAL};

    thread_local! {
        static LIMITS: Cell<Limits> = const { Cell::new(USUAL) };
    }

    /// Those of servers of this thread.
    pub fn limits() -> Limits {
        LIMITS.get()
    }

    /// What `act` gives if servers of this thread have these meanwhile.
    pub(crate) fn with<T>(limits: Limits, act: impl FnOnce() -> T) -> T {
        LIMITS.set(limits);
        let done = act();
        LIMITS.set(USUAL);
        done
    }
}
