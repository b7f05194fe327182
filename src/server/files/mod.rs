//! Open files: descriptions that begin and end.

pub mod closing;
pub mod opening;
