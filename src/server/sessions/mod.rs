//! The clients: their sessions, the descriptions of open files, and what each has in hand.

pub mod clients;
pub mod descriptions;
pub mod hands;
