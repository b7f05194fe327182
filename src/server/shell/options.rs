//! How to serve.

use std::path::PathBuf;

/// How to serve.
#[derive(Clone, Debug)]
pub struct Options {
    /// The instance's directory, in memory; made or taken over.
    pub instance: PathBuf,
    /// The permanent directory; used at the first start only.
    pub backing: Option<PathBuf>,
    /// Bound of the memory tier, bytes; used at the first start only.
    pub memory_bytes: u64,
    /// A directory on a disk, for what the permanent directory does not have and that does not fit
    /// in memory; used for an instance that has none.
    pub spill: Option<PathBuf>,
    /// Memory to keep ready for writers, bytes; `None`: an eighth of the bound, at most 2 GiB.
    pub ready_bytes: Option<u64>,
    /// Once this process is gone and no client is left, finish and leave.
    pub launcher: Option<u32>,
}
