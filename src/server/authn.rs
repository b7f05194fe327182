//! Who a client is. One mechanism so far: `peer`, the kernel's word for a local process.

use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use terral_format::capability::{Credential, Principal};
use terral_format::person::Person;
use terral_format::{Error, ErrorKind, Result};
use terral_transport::permission::Reach;
use terral_transport::process::{self, Process};
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

/// Whether this machine protects files from getting names from others.
pub fn protects_links() -> bool {
    static PROTECTS: OnceLock<bool> = OnceLock::new();
    let read = || std::fs::read("/proc/sys/fs/protected_hardlinks");
    *PROTECTS.get_or_init(|| read().is_ok_and(|text| text.starts_with(b"1")))
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

/// Refuses a process that says it acts as somebody as whom the kernel would not let it act.
pub fn permit_acting(process: &Process, person: &Person) -> Result<()> {
    let may = Reach::of(process.pid()).is_some_and(|reach| reach.includes(person));
    // What was read is that process's only if it still is there.
    if may && process.is_alive() {
        return Ok(());
    }
    let context = format!("process {}: may not act as user {}", process.pid(), person.user);
    Err(Error::new(ErrorKind::Unauthorized, context))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use super::{Person, Process, permit_acting, user};

    #[test]
    fn only_what_the_kernel_lets_a_process_be_is_believed() {
        let own = terral_transport::permission::acting().person.clone();
        let this = Process::open(std::process::id()).expect("this process");
        assert!(permit_acting(&this, &own).is_ok());
        let other = Person { user: 65534, group: 65534, groups: Vec::new() };
        assert_eq!(permit_acting(&this, &other).is_ok(), user() == 0);
        if user() != 0 {
            return;
        }
        let mut command = Command::new("sleep");
        let mut child = command.arg("60").uid(65534).gid(65534).spawn().expect("sleep");
        let process = Process::open(child.id()).expect("the child");
        let told = [permit_acting(&process, &other), permit_acting(&process, &own)];
        child.kill().expect("it can be killed");
        child.wait().expect("it ends");
        assert!(told[0].is_ok() && told[1].is_err(), "{told:?}");
        assert!(permit_acting(&process, &other).is_err(), "nobody is there any more");
    }
}
