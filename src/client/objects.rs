//! Objects: bytes that are found by an address instead of a name, in containers.
//!
//! An object is a file of the same store, in a directory that is not listed (`RESERVED` below the
//! root), with one directory below it for each server that creates in it: whoever creates there is
//! alone in it, so nobody is asked. Invariant: the address says the whole path; there is no table
//! of objects beside that of names. Not here: what files do, checkpoints.

mod address;

mod vector;

mod stripes;

mod parts;

mod striped;

mod attribute;

mod object;

mod submitting;

mod clearing;

mod copying;

mod container;

mod striping;

mod sealing;

pub use address::{Address, ObjectId};
pub use attribute::Value;
pub use container::{Container, ObjectStatus, RESERVED};
pub use object::Object;
pub use stripes::{STRIPE_BYTES, STRIPES_MAX, Stripes};
pub use vector::{EXTENTS_MAX, Extent};

pub(crate) use attribute::attribute_of;
pub(crate) use clearing::clear;
pub(crate) use container::{all_containers, make as make_below, set_aside, tidy};
