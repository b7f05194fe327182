//! Files whose bytes are on another machine: a file's bytes stay at its *home*, the member where it
//! was born, and all that is done with it elsewhere is asked of the server there.
//!
//! Invariants: a question is bound to one request, and never answers another one: what is read was
//! read after the request began, but for what is kept (`shown`). It is asked again in each session
//! until it is answered, and done once, also if the asking server dies meanwhile: which question it
//! is follows from the request. Only what was appended while the home's process died may be there
//! or not, and its writer is told so. Not here: who has a file's attributes (`members`), and how
//! frames travel (`network`).

pub mod asking;
pub mod batches;
pub mod calls;
pub mod committing;
pub mod desk;
mod fitting;
pub mod giving_back;
pub mod holders;
mod keeping;
pub mod layouts;
pub mod lent;
pub mod linking;
pub mod loans;
pub mod locking;
pub mod offered;
pub mod offers;
pub mod parts;
pub mod pieces;
pub mod places;
pub mod placing;
pub mod role;
pub mod shown;
pub mod striped;
pub mod stripes;
pub mod through;
pub mod users;
