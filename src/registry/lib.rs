//! Small state that outlives the servers that write it: keys with revisions, changed in
//! transactions, some of them for as long as a lease is kept. One trait, and who keeps it: etcd
//! ([`etcd`]), or, in tests, this process (`embedded`).
//!
//! Not here: what the keys mean (`server`, `cli`), and who may change what in a partition.

#![deny(unsafe_code)]

pub mod registry;

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;

#[cfg(any(test, feature = "conformance"))]
pub mod embedded;

mod answers;

pub mod place;

pub mod login;

pub mod etcd;
