//! Requests on their way to the roles, and what is done without one: what is looked after now
//! and then.

pub mod admission;
pub mod bounding;
pub mod contained;
pub mod ending;
pub mod executing;
pub mod far_locks;
pub mod fencing;
pub mod handling;
pub mod late;
pub mod locking;
pub mod logging_in;
pub mod presenting;
pub mod routing;
pub mod status;
pub mod tending;
pub mod updating;
