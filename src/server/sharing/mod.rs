//! Things that servers of a partition lend and show each other: what they are, as bytes and in the
//! tables; how clients leave them; and what others want done to them here.
//!
//! Not here: who has what (`members`, and the protocol behind it).

pub mod adopting;
pub mod adrift;
pub mod arriving;
pub mod batching;
pub mod bodies;
pub mod borrowing;
pub mod carrying;
pub mod circles;
pub mod containers;
pub mod credentials;
pub mod departing;
pub mod everywhere;
pub mod keeping;
pub mod large;
pub mod leasing;
pub mod leaving;
pub mod letting_go;
pub mod letting_in;
pub mod moving;
mod own;
pub mod removal;
pub mod restoring;
mod returning;
pub mod revoking;
pub mod ruling;

pub mod guiding;

pub mod safety;
pub mod serving;
pub mod staying;
pub mod succeeding;

pub mod newcomers;

pub mod starting;
pub mod transacting;
pub mod unnamed;
pub mod user_wants;
pub mod users;
