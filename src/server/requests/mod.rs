//! Requests on their way to the roles, and what is done without one: what is looked after now
//! and then.

pub mod admission;
pub mod handling;
pub mod tending;
