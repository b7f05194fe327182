//! What every role of the server stands on: time and chance, the machine, and the state that holds
//! the roles and changes by records only. Not here: what requests do.

pub mod invariant;
pub mod left_out;
pub mod limits;
pub mod machine;
pub mod paths;
pub mod state;
pub mod views;
pub mod workers;
pub mod world;
