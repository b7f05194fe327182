//! What servers say to each other of names that the home of a file has let go for another member,
//! which takes them away, or does not after all. Each time has a number, of the home's: later ones
//! are greater.
//!
//! All of it may be said again, and heard late: it is true for good. Not here: how a home is asked
//! to let a name go ([`super::things::Change::LetGoOf`]).

use serde::{Deserialize, Serialize};

/// So many are told of at once, at most.
pub const WHICH_MAX: usize = 1024;

/// Of which times what is said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LettingGo {
    /// By the home: what has come of these? Of one by which a request goes just now nothing is
    /// said.
    Asks(Vec<u64>),
    /// To it: these names have gone.
    Gone(Vec<u64>),
    /// To it: these have not, and do not by that any more, nor by any before, but for what is under
    /// way.
    Stayed(Vec<u64>),
    /// By the home: it knows what has come of these.
    Knows(Vec<u64>),
}

impl LettingGo {
    /// Of how many.
    pub fn count(&self) -> usize {
        match self {
            LettingGo::Asks(all) | LettingGo::Gone(all) => all.len(),
            LettingGo::Stayed(all) | LettingGo::Knows(all) => all.len(),
        }
    }
}
