//! The naming role: names, attributes, links, extended attributes, and what requests do to them.

mod aliases;
pub mod attributes;
pub mod changes;
pub mod creating;
pub mod elsewhere;
pub mod executing;
mod hand;
pub mod hidden;
pub mod homes;
pub mod links;
pub mod listing;
pub mod lookup;
pub mod lost;
pub mod making;
pub mod membership;
pub mod names;
pub mod nodes;
pub mod orphans;
mod owed;
pub mod permitting;
mod records;
mod replacing;
mod snapshot;
pub mod starting;
pub mod unsettled;
pub mod xattr_requests;
pub mod xattrs;
