//! Checkpoints: an object for each process, one name for all, which comes when all is there.
//!
//! What is being written is a container that no listing shows; its end writes a manifest into it
//! and gives it its name by one rename. Invariant: a directory of this name is whole in memory,
//! whoever dies when. In DIR, where files arrive one by one, it is whole if all that its manifest
//! says is there, which is looked at before it is used. Not here: how processes talk.

mod manifest;

mod copies;

mod whole;

mod keeping;

mod attempt;

mod series;

pub use attempt::Checkpoint;
pub use manifest::{PARTS_MAX, Part};
pub use series::Checkpoints;
pub use whole::Whole;
