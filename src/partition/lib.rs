//! Who decides what among the servers of a partition, and who has borrowed it: one server's part of
//! the protocol, as a state machine. It is told what happened ([`effect::Input`]) and says what is
//! to be done ([`effect::Effect`]).
//!
//! Not here: I/O, threads, clocks, sockets, and what things are made of. A body is bytes that the
//! server's roles have written and will read.

#![deny(unsafe_code)]

pub use terral_format::ids;

#[cfg(test)]
#[path = "../../tests/seeds.rs"]
mod seeds;

mod changes;
mod fitting;
mod left_out;
pub mod members;
pub mod terms;

pub mod channel;
pub mod lease;

pub mod effect;

pub mod borrower;
pub mod decider;

pub mod durable;
pub mod machine;

mod departing;
mod removal;

#[cfg(test)]
mod explore;
