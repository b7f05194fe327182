//! What clients and servers, and servers among themselves, say to each other, and by what right.
//!
//! Not here: how it lies in memory that they share (`local`).

mod digits;

pub mod principal;

pub mod credential;

pub mod capability;

pub mod login;

pub mod containers;

pub mod person;

pub mod presentation;

pub mod locks;

pub mod fencing;

pub mod updates;

pub mod placed;

pub mod placement;

pub mod attributes;

pub mod answering;

pub mod roster;

pub mod moving;

pub mod letting_go;

pub mod pool;

pub mod status;

pub mod far;
pub mod far_files;

pub mod manner;

pub mod transactions;

pub mod opened;
pub mod starting;

pub mod message;

pub mod handshake;

pub mod body;
pub mod peers;

pub mod things;

pub mod remembered;

mod bytes;
mod list;
mod permission;
