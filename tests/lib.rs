//! What spans rooms and is shared by the tests here: how a source is read, and the house's rules.
//!
//! Not here: tests. `tidy.rs` holds the house to its rules, `grants.rs` explores the grant protocol
//! with `loom` (see `model.rs`), `golden.rs` holds the formats to their stored bytes.

#![deny(unsafe_code)]

pub mod source;

pub mod rules;

pub mod promises;

#[cfg(not(loom))]
pub mod calls;

#[cfg(not(loom))]
pub mod circles;

#[cfg(not(loom))]
pub mod doors;

#[cfg(loom)]
pub mod model;
#[cfg(loom)]
pub mod model_server;
