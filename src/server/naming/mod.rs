//! The naming role: names, attributes, links, extended attributes, and what requests do to them.

pub mod attributes;
pub mod changes;
pub mod executing;
pub mod hidden;
pub mod links;
pub mod listing;
pub mod lookup;
pub mod making;
pub mod names;
pub mod nodes;
pub mod orphans;
pub mod permitting;
pub mod unsettled;
pub mod xattr_requests;
pub mod xattrs;
