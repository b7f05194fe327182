//! What goes from a full memory to the spill, and what comes back: bytes that the permanent store
//! does not have yet.
//!
//! Invariants: chunks are copied, and read, without the server's lock; a chunk leaves memory only
//! as it was copied; spilled chunks are dropped once the store has them. See
//! `docs/decisions/2026-11-22-spill.md`. Not here: the file they lie in (`terral_store::spill`).

mod choosing;
mod chunks;
pub mod jobs;
pub mod leaving;
pub mod returning;
pub mod under_way;
