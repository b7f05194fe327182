//! The server: answers sessions. Roles so far: authn, authz, naming, storage; and the drain.
//!
//! Not here: how bytes are kept (`store`) and how messages move (`transport`).

#![deny(unsafe_code)]

mod authn;
mod authz;
mod debts;
mod descriptions;
mod names;

mod changes;
mod locks;
mod sessions;
mod xattrs;

mod state;

mod lookup;

mod mapping;

mod reclaim;

mod eviction;

mod packing;

mod storage;

mod operations;

mod links;

mod deferred;

mod locking;
mod xattr_requests;

mod requests;
mod shared;

mod copying;

mod owed_names;

mod drain;
mod options;

mod instance;

mod serve;

pub use instance::{is_dying, is_rubbish, is_served, tidy};
pub use options::Options;
pub use serve::{Outcome, serve};
