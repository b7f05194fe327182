//! All that can happen to three real machines, within bounds: every order of what their clients,
//! the network, time and the control do, with crashes anywhere. See `search` for what is sought.
//!
//! One protocol is there as a model of its own, `two_phases`. Some ways are given and not sought:
//! `ways`, `skipped`, `hostile`. What is bounded is in `bounds`; what a step is, in `step`; what is
//! not modelled (clients' words in shared memory, which `tests/leases.rs` has), not here.

mod bounds;
mod bytes;
mod chance;
mod flaws;
mod garbage;
mod hashing;
mod hostile;
mod malice;
mod oracle;
mod parts;
mod scenarios;
mod search;
mod server;
mod settling;
mod skipped;
mod step;
mod strangers;
mod two_phases;
mod walks;
mod ways;
mod world;
