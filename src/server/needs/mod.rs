//! What requests need of the permanent store, or of the spill, before they can be carried out.

pub mod asking;
pub mod fetching;
pub mod listings;
pub mod need;
