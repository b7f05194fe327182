//! Who a client is. One mechanism so far: `peer`, the kernel's word for a local process.

use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use terral_format::capability::{Credential, Principal};
use terral_format::{Error, ErrorKind, Result};
use terral_transport::process;
use terral_transport::socket::Peer;

/// How long a credential of a local process is good for, seconds: as long as a long job.
const LIFETIME_S: u64 = 400 * 24 * 3600;

/// Seconds since 1970.
pub fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Nanoseconds since 1970.
pub fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// The user this server acts as, for ever.
pub fn user() -> u32 {
    static USER: OnceLock<u32> = OnceLock::new();
    *USER.get_or_init(process::user)
}

/// The group this server acts as, for ever.
pub fn group() -> u32 {
    static GROUP: OnceLock<u32> = OnceLock::new();
    *GROUP.get_or_init(process::group)
}

/// Random bytes from the system.
pub fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|error| Error::new(ErrorKind::System, format!("random bytes: {error}")))?;
    Ok(bytes)
}

/// The credential of a local process.
///
/// # Errors
/// [`ErrorKind::Denied`] for any user but the server's own: memory of one user is never lent to
/// another.
pub fn identify(peer: Peer) -> Result<Credential> {
    let own = user();
    if peer.uid != own {
        let context = format!("this server belongs to user {own}, you are user {}", peer.uid);
        return Err(Error::new(ErrorKind::Denied, context));
    }
    Ok(Credential {
        secret: random()?,
        principal: Principal::User(peer.uid),
        issued_s: now_s(),
        lifetime_s: LIFETIME_S,
    })
}
