//! The shell around the server: its threads, the door, the instance's directory. Only here, and in
//! what the threads share, does anybody lock, wait, start a thread or ask the kernel.

pub mod addresses;
pub mod available;
mod door;
pub mod draining;
pub mod fetchers;
pub mod host;
pub mod instance;
pub mod keeping;
pub mod leftover;
pub mod links;
pub mod listed;
pub mod options;
pub mod parking;
pub mod part;
pub mod ready;
pub mod records;
pub mod region_file;
pub mod relaying;
pub mod removal;
pub mod serve;
pub mod spill_file;
pub mod spillers;
pub mod tickets;
pub mod times;
pub mod watcher;
pub mod way;
pub mod workers;
