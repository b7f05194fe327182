//! How a file of the permanent store looked, to know it again.

use serde::{Deserialize, Serialize};

/// How the backing's copy of a file looked when it was last read or published: if it looks
/// different later, somebody else changed it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// Inode number in the backing.
    pub inode: u64,
    /// Bytes.
    pub size: u64,
    /// Last change, nanoseconds since 1970.
    pub changed_ns: u64,
}
