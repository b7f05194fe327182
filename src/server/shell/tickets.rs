//! Kerberos, as a server needs it: the file with its keys, and what is shown to it.
//!
//! Invariants: keys that others than the server's user and root can read are not used; no network
//! and no name service is asked. What is asked of files is asked when somebody logs in, so that new
//! keys count at once; who comes to the door meanwhile waits, the sessions' requests do not.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use terral_format::wire::login::TOKEN_MAX;
use terral_format::{Error, ErrorKind, Result};
use terral_transport::kerberos;

use crate::authority::by_gss::{Answered, Ticket};
use crate::shell::options::Keytab;

/// Bits of a mode by which others than the owner may read or write.
const OTHERS: u32 = 0o066;

impl Ticket for kerberos::Answered {
    fn name(&self) -> &str {
        kerberos::Answered::name(self)
    }

    fn says(self: Box<Self>, message: &[u8], seal: &[u8]) -> Result<u64> {
        kerberos::Answered::says(*self, message, seal)
    }
}

/// Refuses keys that are not the server's alone.
fn is_secret(path: &Path) -> Result<()> {
    let failed = |error: std::io::Error| Error::system(&error, path.display().to_string());
    // Not opened: what is no file may keep who opens it.
    let found = fs::metadata(path).map_err(failed)?;
    let own = rustix::process::geteuid().as_raw();
    let invalid =
        |what: &str| Err(Error::new(ErrorKind::Invalid, format!("{}: {what}", path.display())));
    if !found.is_file() {
        return invalid("no file");
    }
    if ![0, own].contains(&found.uid()) || found.permissions().mode() & OTHERS != 0 {
        return invalid(
            "others can read it, or it is theirs (chmod 600, and its owner you or root)",
        );
    }
    Ok(())
}

/// Whether a server can use these keys on this machine.
///
/// # Errors
/// [`ErrorKind::Unsupported`] without Kerberos; [`ErrorKind::Invalid`] for keys that are none, or
/// that others can read.
pub fn check(keytab: &Keytab) -> Result<()> {
    is_secret(&keytab.file)?;
    kerberos::Answers::with(&keytab.file).map(drop)
}

/// Answers who shows a ticket.
///
/// # Errors
/// As [`check`]; [`ErrorKind::Unauthorized`] for a ticket that is not good here.
pub fn answer(keytab: &Keytab, token: &[u8]) -> Result<Answered> {
    if token.len() > TOKEN_MAX {
        return Err(Error::new(ErrorKind::Unauthorized, "Kerberos: the ticket is too long"));
    }
    is_secret(&keytab.file)?;
    let keys = kerberos::Answers::with(&keytab.file)?;
    let (ticket, answer) = keys.answer(&keytab.service, token)?;
    Ok(Answered { ticket: Box::new(ticket), answer })
}
