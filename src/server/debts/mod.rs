//! What is dirty: which files the permanent store is owed, since when, and their new versions; when
//! they have their turn, and what was brought so far.

pub mod failures;
pub mod ledger;
pub mod names;
pub mod owing;
pub mod policy;
pub mod progress;
pub mod version;
