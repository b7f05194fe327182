//! Who a client is. One mechanism so far: `peer`, the kernel's word for a local process.

use terral_format::wire::capability::{Credential, Principal};
use terral_format::wire::person::Person;
use terral_format::{Error, ErrorKind, Result};
use terral_transport::socket::Peer;

use crate::core::machine::{Machine, Process};
use crate::core::world::World;

/// How long a credential of a local process is good for, seconds: as long as a long job.
const LIFETIME_S: u64 = 400 * 24 * 3600;

/// The credential of a local process.
///
/// # Errors
/// [`ErrorKind::Denied`] for any user but the server's own: memory of one user is never lent to
/// another.
pub fn identify(world: &dyn World, machine: &dyn Machine, peer: Peer) -> Result<Credential> {
    let own = machine.user();
    if peer.uid != own {
        let context = format!("this server belongs to user {own}, you are user {}", peer.uid);
        return Err(Error::new(ErrorKind::Denied, context));
    }
    Ok(Credential {
        secret: world.secret()?,
        principal: Principal::User(peer.uid),
        issued_s: world.wall_s(),
        lifetime_s: LIFETIME_S,
    })
}

/// Refuses a process that says it acts as somebody as whom the kernel would not let it act.
pub fn permit_acting(machine: &dyn Machine, process: &dyn Process, person: &Person) -> Result<()> {
    // What was read is that process's only if it still is there.
    if machine.may_act(process.pid(), person) && process.is_alive() {
        return Ok(());
    }
    let context = format!("process {}: may not act as user {}", process.pid(), person.user);
    Err(Error::new(ErrorKind::Unauthorized, context))
}
