//! Keeps the extents of one server: the memory tier, the spill, the log, and the way to the
//! permanent store.
//!
//! Not here: names, sessions, messages. Shared memory comes in through [`existing::Shared`], so
//! that everything can be tested on plain vectors.

#![deny(unsafe_code)]

pub mod allocator;
pub mod arena;
pub mod sparse;

pub mod backing;
pub mod existing;
mod heap;
pub mod log;
pub mod small;
pub mod spill;

#[cfg(any(test, feature = "conformance"))]
pub mod private;

pub mod memory;
mod numbers;

mod room;

mod weights;

pub mod inodes;
mod paths;
pub mod ram;

pub mod moving;
mod sizes;
pub mod tier;
