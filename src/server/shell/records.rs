//! What servers of a pool leave for each other, and what is needed to write it, for who finds a
//! server its way in. Not here: what a server writes while it serves (`keeping`).

use terral_format::Result;
pub use terral_format::wire::pool::{
    Generation, Inherited, Invited, Keys, Machine, PRINCIPALS, Server, Stage, Wanted, inherited,
    is_name, read, roster, write,
};
pub use terral_format::wire::roster::{Secret, Standing};
pub use terral_network::tcp::public_half;
pub use terral_transport::process::boot_id;

use crate::core::world::World;
use crate::shell::host::Clock;

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
