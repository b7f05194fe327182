//! A member's way to the others: whole frames, in sessions between two members. What is offered is
//! in [`endpoint`]; one suite holds all implementations to it.
//!
//! Not here: what frames mean, who is a member, what is sent again when a session is lost (the
//! partition's `Channel`), and the clients of this machine, who share memory with their server.

#![deny(unsafe_code)]

#[cfg(test)]
#[path = "../../tests/seeds.rs"]
mod seeds;

pub mod endpoint;

mod chance;
mod turns;

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;

#[cfg(any(test, feature = "conformance"))]
pub mod sim;

pub mod tcp;
