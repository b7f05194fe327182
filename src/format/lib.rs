//! Every byte that leaves a Terral process: ids, errors, capabilities, the words and layouts of
//! shared memory, messages, and log records.
//!
//! Not here: I/O, threads, `unsafe`, policy. The shared-memory words (`local`) carry the grant
//! protocol's transitions, so that the client, the server and the `loom` model in `tests/` run one
//! and the same code.

#![deny(unsafe_code)]

pub mod error;
pub mod ids;
pub mod moment;

pub mod fingerprint;

pub mod frame;

pub mod wire;

pub mod local;

pub mod disk;

pub use error::{Error, ErrorKind, Result};
