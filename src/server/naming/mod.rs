//! The naming role: names, attributes, links, extended attributes, and what requests do to them.

pub mod changes;
pub mod executing;
pub mod hidden;
pub mod links;
pub mod lookup;
pub mod names;
pub mod nodes;
pub mod operations;
pub mod unsettled;
pub mod xattr_requests;
pub mod xattrs;
