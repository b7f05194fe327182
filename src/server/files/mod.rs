//! Open files: descriptions that begin and end.

pub mod closing;
pub mod far_reads;
pub mod opening;
pub mod placed;
