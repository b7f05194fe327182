//! Changes that clients committed in shared memory without waiting: how they are applied, and what
//! is lent to sessions for them.

pub mod applying;
pub mod lending;
pub mod preallocating;
pub mod waiting;
