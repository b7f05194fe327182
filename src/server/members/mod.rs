//! This server as a member of a partition: its part in the protocol between servers, and what its
//! requests need of that. A server that is alone has none of it ([`State::members`] is `None`).
//!
//! Invariants: what a step of the protocol has changed is in the same transaction as what the step
//! was told of; frames are sent, and clients told, once the log has it. Not here: what things are,
//! and how they come and go (`sharing`).
//!
//! [`State::members`]: crate::core::state::State::members

mod removing;

pub mod control;

pub mod at_home;
pub mod certifying;
pub mod copies;
pub mod following;
pub mod moving;
pub mod newcomers;
mod numbers;
pub mod placement;
pub mod places;
pub mod policies;
pub mod requiring;
pub mod role;
pub mod roles;
pub mod stepping;
pub mod telling;
pub mod traffic;
