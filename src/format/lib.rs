//! Every byte that leaves a Terral process: ids, errors, capabilities, the words and layouts of
//! shared memory, messages, and log records.
//!
//! Not here: I/O, threads, `unsafe`, policy. The shared-memory words (`entry`, `pages`, `hazard`,
//! `size`) carry the grant protocol's transitions, so that the client, the server and the `loom`
//! model in `tests/` run one and the same code.

#![deny(unsafe_code)]

mod sync;

pub mod deferred;

pub mod error;
pub mod ids;

pub mod locks;

pub mod lock_set;

pub mod lock_table;

pub mod geometry;

pub mod entry;
pub mod hazard;
pub mod pages;
pub mod size;
pub mod spill;

#[cfg(not(loom))]
pub mod tables;

pub mod frame;

pub mod capability;

pub mod person;

pub mod message;

mod permission;

pub mod record;

pub mod names;

pub mod changes;

pub use error::{Error, ErrorKind, Result};
