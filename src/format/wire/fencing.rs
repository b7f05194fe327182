//! Named locks and the tokens that they give: what their holders say, and what a file that they
//! protect is told.
//!
//! A token is a number that grows with each holder who has a lock alone. A file that was told one
//! is not written with a lower one any more. Not here: who has a lock (`locks`).

use serde::{Deserialize, Serialize};

/// What is said of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fencing {
    /// The caller has its lock, whole: he wants a token. [`ErrorKind::Stale`] if he has not.
    ///
    /// [`ErrorKind::Stale`]: crate::ErrorKind::Stale
    Take {
        /// Unless he says [`Fencing::Renew`] within this, the lock is given to who wants it,
        /// milliseconds.
        lease_ms: u32,
    },
    /// He has it yet, by this token. [`ErrorKind::Stale`] if he has not.
    ///
    /// [`ErrorKind::Stale`]: crate::ErrorKind::Stale
    Renew {
        /// His.
        token: u64,
        /// As that of [`Fencing::Take`].
        lease_ms: u32,
    },
    /// It is written with this token or a greater one from now on, by everybody.
    /// [`ErrorKind::Stale`] if it was told a greater one.
    ///
    /// [`ErrorKind::Stale`]: crate::ErrorKind::Stale
    Fence {
        /// Not 0.
        token: u64,
    },
}

/// What is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fenced {
    /// The token of the lock, or of what it protects.
    pub token: u64,
    /// Somebody waits for the lock.
    pub wanted: bool,
}
