//! The authority: who a client is, and what it may do.

pub mod audit;
pub mod authn;
pub mod lease;
pub mod revoked;
pub mod vouched;

pub mod hearing;

pub mod authz;
pub mod caller;
