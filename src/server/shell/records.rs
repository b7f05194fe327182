//! What servers of a pool leave for each other, and what is needed to write it, for who finds a
//! server its way in. Not here: what a server writes while it serves (`keeping`).

use terral_format::Result;
pub use terral_format::wire::placement::Role;
pub use terral_format::wire::pool::{
    Generation, Inherited, Invited, Keys, Lost, Machine, PRINCIPALS, Server, Stage, Wanted,
    inherited, is_name, read, roster, write,
};
pub use terral_format::wire::roster::{Secret, Standing, Verdict};
pub use terral_network::tcp::public_half;
pub use terral_transport::process::boot_id;

pub use crate::shell::listed::{KEPT as LIST, keep};

use crate::core::world::World;
use crate::shell::host::Clock;

/// What this machine is called by itself (machine-id(5)); empty if it is called nothing.
pub fn machine_id() -> String {
    let id = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    id.trim().to_owned()
}

/// Bits that nobody has seen.
///
/// # Errors
/// If the system has none.
pub fn random() -> Result<u128> {
    Clock.random()
}

/// Those of a key.
///
/// # Errors
/// If the system has none.
pub fn secret() -> Result<[u8; 32]> {
    Clock.secret()
}
