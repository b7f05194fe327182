//! Users whose servers somebody else needs, as root's server and the process that starts them say
//! it to each other. Not here: who starts them, and for whom he does.

use serde::{Deserialize, Serialize};

/// Most outcomes in one message.
pub const AT_ONCE: usize = 32;
/// Most that are said to be needed.
pub const NEEDED_MAX: usize = 512;
/// Longest reason, in bytes.
pub const WHY_MAX: usize = 200;

/// A user's server that is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Needed {
    /// Whose it is.
    pub owner: u32,
    /// Who looks at what is his.
    pub asker: u32,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Started {
    /// It was started, for that one.
    Begun,
    /// It runs, as far as is known: it comes.
    Runs,
    /// None is started for him: why.
    Refused(String),
    /// He has had so many started that he is to wait: why.
    TooMany(String),
}
