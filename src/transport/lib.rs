//! Moves messages and bytes between the processes of one machine: mapped regions, the arena,
//! futexes, request slots, the handshake's socket, processes as descriptors.
//!
//! Not here: what the bytes mean, and any service. This is one of the three rooms that may use
//! `unsafe`; everything it offers is safe to call.

pub mod kernel;
mod proc_file;
mod system;

pub mod process;

pub mod boottime;

pub mod decoder;

pub mod raw_calls;

pub mod dispatch;

pub mod fault;
pub mod high;
mod idleness;
pub mod kept;
pub mod limit;
pub mod long_buffers;
pub mod region;

pub mod own_files;

mod copy;

mod segments;

pub mod preparer;

pub mod arena;
pub mod lock;

pub mod descriptor;
pub mod futex;
pub mod maps;
pub mod nodes;
pub mod peer;
pub mod permission;
pub mod plain;
pub mod program;
pub mod requests;
pub mod socket;

mod gss_library;
mod gss_status;

mod gss_owned;

pub mod kerberos;
