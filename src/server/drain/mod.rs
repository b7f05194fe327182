//! The drain: brings what is dirty to the permanent store, files and names.

pub mod copying;
pub mod owed_names;
pub mod parts;
pub mod passes;
pub mod publishing;
pub mod turns;
