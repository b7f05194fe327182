//! Turns file operations into copies through shared memory and, where those do not suffice, into
//! messages to the server of this machine.
//!
//! Opens one socket once per process, for the handshake; starts no threads; survives fork: a child
//! gets a session of its own at its first call. Not here: interposition, paths with a prefix.

#![deny(unsafe_code)]

mod in_hand;
mod own_locks;

mod session;

mod locks;
mod xattrs;

mod map;

mod names;

mod chunk;

mod copy;

mod holes;

mod maps;

mod file;

mod deferred;

mod client;

pub use client::Client;
pub use file::{File, ShortPath};
pub use holes::Extent;
pub use locks::LockTurn;
pub use names::Followed;
pub use terral_format::ids::{DescriptionSlot, Ino};
pub use terral_format::locks::{HeldLock, LockKind, LockRange, Locker};
pub use terral_format::message::{
    Attributes, Change, Drain, Kind, Name, OpenHow, RenameHow, Safety, Space, Status, Totals,
    XattrHow,
};
pub use terral_format::tables::access;
pub use terral_format::{Error, ErrorKind, Result};
pub use terral_transport::descriptor;
pub use terral_transport::maps::How as MapHow;
pub use terral_transport::permission::Person;
pub use terral_transport::requests::while_waiting;
