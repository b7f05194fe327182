//! The authority: who a client is, and what it may do.

pub mod audit;

mod ticket_names;
mod token_keys;

pub mod principals;
pub mod quotas;

pub mod mechanism;

#[cfg(test)]
mod conformance;

pub mod peer;

mod challenges;

pub mod by_gss;
mod by_key;
mod by_token;

mod failures;

pub mod authn;
pub mod lease;

mod credentials;

pub mod containers;
pub mod revoked;
pub mod vouched;

pub mod hearing;

pub mod authz;
pub mod caller;
