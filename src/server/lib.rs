//! The server: answers sessions. Roles so far: authn, authz, naming, storage; and the drain.
//!
//! Not here: how bytes are kept (`store`) and how messages move (`transport`).

#![deny(unsafe_code)]

mod world;

mod left_out;
mod machine;

mod paths;

mod authn;
mod authz;
mod version;

mod debts;
mod descriptions;
mod hidden;
mod names;

mod changes;
mod locks;
mod sessions;
mod xattrs;

mod fetching;
mod unsettled;
mod waiting;

mod hands;
mod lingering;
mod starting;

mod storage;

mod victims;

mod state;

mod lending;

mod lookup;

mod mapping;

mod reclaim;

mod eviction;

mod spilling;

mod packing;

mod closing;

mod executing;

mod granting;

mod operations;

mod links;
mod nodes;

mod deferred;

mod locking;
mod xattr_requests;

mod requests;

mod admission;
mod shared;
mod tending;

mod fetchers;
mod spillers;

mod copying;

mod passes;

mod owed_names;

mod publishing;

mod drain;
mod options;

pub mod available;

mod ready;

mod recovery;

mod host;

mod region_file;
mod spill_file;

mod instance;

mod leftover;
mod removal;

mod door;

mod watcher;

mod serve;

#[cfg(test)]
mod sim;

pub use instance::{is_dying, is_served, server_pid};
pub use leftover::{FORMAT, Left, claim, examine, format_of, hold, is_claimed, program_of, reads};
pub use options::Options;
pub use removal::{end, is_rubbish, remains, remove, tidy};
pub use serve::{Outcome, serve};
pub use terral_store::spill::directory::check as check_spill;
