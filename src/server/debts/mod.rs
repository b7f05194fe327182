//! What is dirty: which files the permanent store is owed, since when, and their new versions.

pub mod ledger;
pub mod owing;
pub mod version;
