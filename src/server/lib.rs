//! The server: answers sessions. Its rooms, from the ground up: what all stand on (`core`), the
//! roles (`authority sessions debts needs locks members far storage naming files deferred`), what
//! makes use of them (`sharing requests drain recovery`), and the shell of threads and files around
//! it all.
//!
//! Not here: how bytes are kept (`store`) and how messages move (`transport`).

#![deny(unsafe_code)]

mod core;

#[cfg(test)]
#[path = "../../tests/seeds.rs"]
mod seeds;

mod authority;

mod sessions;

mod debts;

mod needs;

mod locks;

mod members;

mod storage;

mod far;

mod naming;

mod files;

mod deferred;

mod sharing;

mod requests;

mod shared;

mod drain;

mod recovery;

mod shell;

#[cfg(test)]
mod sim;

pub use far::desk::Relay;
pub use shell::addresses::{of_interface, reachable};
pub use shell::available;
pub use shell::instance::{is_among_users, is_dying, is_served, server_pid};
pub use shell::keeping::TERM as POOL_TERM;
pub use shell::leftover::{
    FORMAT, Left, claim, examine, format_of, hold, is_claimed, program_of, reads,
};
pub use shell::listed::check as check_principals;
pub use shell::options::{EVERYWHERE, Keytab, Listing, Options, Part, Pool};
pub use shell::records;
pub use shell::removal::{end, is_rubbish, remains, remove, tidy};
pub use shell::serve::{Outcome, serve, serve_with};
pub use shell::tickets::check as check_keytab;
pub use terral_format::ids::Member;
pub use terral_format::wire::roster::{Invitation, Standing, Verdict};
pub use terral_store::backing::{Lacks, check_for_users, home_for, stage_for, unstage_for};
pub use terral_store::spill::directory::check as check_spill;
