//! The capability that a program was given in a file, to present instead of its user's own.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use terral_format::wire::capability::{Capability, Operations, TEXT_MAX};
use terral_format::{Error, ErrorKind, Result};

/// Environment variable that names the file.
pub const VARIABLE: &str = "TERRAL_CAPABILITY";
/// Bits of a mode by which others than the owner may read.
const OTHERS: u32 = 0o044;

/// What is in a file.
///
/// # Errors
/// Those of [`Capability::of`]; [`ErrorKind::Invalid`] if others can read it: whoever reads it may
/// do what it allows.
pub fn read(path: &Path) -> Result<Capability> {
    let failed = |error: std::io::Error| Error::system(&error, path.display().to_string());
    let file = std::fs::File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.permissions().mode() & OTHERS != 0 {
        let context = format!("{}: others can read it (chmod 600)", path.display());
        return Err(Error::new(ErrorKind::Invalid, context));
    }
    let mut text = String::new();
    file.take(TEXT_MAX).read_to_string(&mut text).map_err(failed)?;
    Capability::of(&text).map_err(|error| Error {
        context: format!("{}: {}", path.display(), error.context),
        ..error
    })
}

/// What the environment names.
///
/// # Errors
/// As [`read`].
pub fn of_environment() -> Result<Option<Capability>> {
    let said = std::env::var_os(VARIABLE).filter(|path| !path.is_empty());
    said.map(|path| read(Path::new(&path))).transpose()
}

/// Whether its holder must ask for what others see in shared memory.
pub(crate) fn must_ask(capability: &Capability) -> bool {
    let scope = capability.scope();
    let bound = scope.below.is_some_and(|place| !place.is_empty());
    bound || !scope.rights.operations.contain(Operations::LIST)
}
