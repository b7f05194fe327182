//! What a program was given in a file, to present instead of its user's own: a capability, or a
//! credential, for which its server gives one.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use terral_format::wire::capability::{Capability, TEXT_MAX};
use terral_format::wire::credential::{self, Credential};
use terral_format::wire::message::{Reply, Request};
use terral_format::{Error, ErrorKind, Result};

use crate::session::{ask, unexpected};

/// Environment variable that names the file.
pub const VARIABLE: &str = "TERRAL_CAPABILITY";
/// Environment variable that names the file with a credential. A capability goes before it.
pub const CREDENTIAL: &str = "TERRAL_CREDENTIAL";
/// Bits of a mode by which others than the owner may read.
const OTHERS: u32 = 0o044;

/// The text that is in a file, up to so many bytes: whoever reads it may do what it allows.
///
/// # Errors
/// Those of the file; [`ErrorKind::Invalid`] if others can read it.
pub fn read_secret(path: &Path, longest: u64) -> Result<String> {
    let failed = |error: std::io::Error| Error::system(&error, path.display().to_string());
    let file = std::fs::File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.permissions().mode() & OTHERS != 0 {
        let context = format!("{}: others can read it (chmod 600)", path.display());
        return Err(Error::new(ErrorKind::Invalid, context));
    }
    let mut text = String::new();
    file.take(longest).read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}

/// The error, with the file that it is about.
fn of(path: &Path) -> impl Fn(Error) -> Error {
    move |error| Error { context: format!("{}: {}", path.display(), error.context), ..error }
}

/// The capability that is in a file.
///
/// # Errors
/// Those of [`Capability::of`]; [`ErrorKind::Invalid`] if others can read it.
pub fn read(path: &Path) -> Result<Capability> {
    Capability::of(&read_secret(path, TEXT_MAX)?).map_err(of(path))
}

/// The credential that is in a file.
///
/// # Errors
/// Those of [`Credential::of`]; [`ErrorKind::Invalid`] if others can read it.
pub fn read_credential(path: &Path) -> Result<Credential> {
    Credential::of(&read_secret(path, credential::TEXT_MAX)?).map_err(of(path))
}

/// A capability for whom a credential names: that is known on all machines of a run.
///
/// # Errors
/// [`ErrorKind::Unauthorized`] if it is not good there, or has ended.
pub fn authorize(instance: &Path, credential: &Credential, keeps: bool) -> Result<Capability> {
    match ask(instance, Request::Authorize(credential.into(), keeps), None)? {
        Reply::Capability(capability) => Ok(*capability),
        _ => Err(unexpected()),
    }
}

fn named(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// The capability that the environment names.
///
/// # Errors
/// As [`read`].
pub fn of_environment() -> Result<Option<Capability>> {
    named(VARIABLE).map(|path| read(&path)).transpose()
}

/// The credential that the environment names.
///
/// # Errors
/// As [`read_credential`].
pub fn credential_of_environment() -> Result<Option<Credential>> {
    named(CREDENTIAL).map(|path| read_credential(&path)).transpose()
}

/// What the environment says that this process may do at most, with this server.
///
/// # Errors
/// As [`read`], [`read_credential`] and [`authorize`].
pub fn of_environment_at(instance: &Path) -> Result<Option<Capability>> {
    match of_environment()? {
        Some(capability) => Ok(Some(capability)),
        None => {
            let credential = credential_of_environment()?;
            credential.map(|own| authorize(instance, &own, false)).transpose()
        }
    }
}

/// Environment variable with the token of a named lock, decimal: what a process writes, it writes
/// with that.
pub const TOKEN: &str = "TERRAL_LOCK_TOKEN";

static OWN_TOKEN: AtomicU64 = AtomicU64::new(0);

/// What this process opens from now on, and is given no other token of a named lock, it writes with
/// this one; 0: without one. [`Client::connect`](crate::Client::connect) says what the environment
/// does.
pub fn write_with(token: u64) {
    OWN_TOKEN.store(token, Ordering::Relaxed);
}

/// See [`write_with`].
pub(crate) fn own_token() -> u64 {
    OWN_TOKEN.load(Ordering::Relaxed)
}

/// The token that the environment says.
///
/// # Errors
/// [`ErrorKind::Invalid`] if it is no number.
pub(crate) fn token_of_environment() -> Result<Option<u64>> {
    let Some(said) = std::env::var_os(TOKEN).filter(|said| !said.is_empty()) else {
        return Ok(None);
    };
    let number = said.to_str().and_then(|said| said.parse().ok());
    let none = || Error::new(ErrorKind::Invalid, format!("{TOKEN}: no token"));
    number.map(Some).ok_or_else(none)
}
