//! The authority: who a client is, and what it may do.

pub mod authn;
pub mod authz;
pub mod caller;
