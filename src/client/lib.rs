//! Turns file operations into copies through shared memory and, where those do not suffice, into
//! messages to the server of this machine.
//!
//! Opens one socket once per process, for the handshake; starts no threads; survives fork: a child
//! gets a session of its own at its first call. Not here: interposition, paths with a prefix.

#![deny(unsafe_code)]

mod session;

mod map;

mod chunk;

mod copy;

mod file;

mod client;

pub use client::Client;
pub use file::File;
pub use terral_format::ids::{DescriptionSlot, Ino};
pub use terral_format::message::{
    Attributes, Change, Drain, Kind, Name, OpenHow, Safety, Space, Status, Totals,
};
pub use terral_format::tables::access;
pub use terral_format::{Error, ErrorKind, Result};
pub use terral_transport::descriptor;
