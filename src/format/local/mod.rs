//! Memory that a server and its clients share on one machine: where things lie in it, and the words
//! by which they agree. The words carry their protocols' transitions, so that client, server and
//! the `loom` models in `tests/` run one and the same code.
//!
//! Not here: what outlives the machine's memory (`disk`).

mod sync;

pub mod deferred;

pub mod lock_set;

pub mod lock_table;

pub mod geometry;

pub mod clock;
pub mod lease;

pub mod entry;
pub mod hazard;
pub mod pages;
pub mod size;

pub mod batch;
pub mod spill;

#[cfg(not(loom))]
pub mod tables;

pub mod names;

pub mod changes;
