//! What the figures beside the IOR-like cases have in common: how much to do, and what a worker is
//! told.
//!
//! Not here: any figure.

use anyhow::Result;

use crate::bench_host::Host;
use crate::bench_report::Fact;
use crate::bench_worker::{Pass, Work};

/// Bytes of a call, unless there are fewer to write.
const TRANSFER: u64 = 1 << 20;

/// How much to do.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Rounds of what is repeated.
    pub rounds: usize,
    /// Bytes of the file that is drained.
    pub drain_bytes: u64,
    /// Bytes of a checkpoint.
    pub checkpoint_bytes: u64,
    /// Seconds of computing after it.
    pub compute_s: f64,
    /// Names for rates.
    pub names: u64,
    /// Names for memory per name.
    pub kept_names: u64,
    /// Files of the repository that git looks at.
    pub git_files: u64,
}

/// A figure that one can ask for by name.
pub struct Extra {
    /// For `--cases`.
    pub name: &'static str,
    /// Measures it.
    pub measure: fn(&Host, &Effort) -> Result<Vec<Fact>>,
}

/// A pass of one process that writes `bytes`.
pub fn writing(work: Work, bytes: u64) -> Pass {
    let transfer = bytes.min(TRANSFER);
    Pass { work, name: String::new(), bytes, transfer, process: 0, processes: 1, count: 0 }
}
