//! Files of an instance's directory that are mapped.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use terral_format::{Error, Result};

/// Opens one; with a length, it is made if it is not there.
///
/// # Errors
/// What the file system says.
pub fn region_file(path: &Path, bytes: Option<usize>) -> Result<File> {
    let failed = |error: std::io::Error| Error::system(&error, path.display().to_string());
    let mut how = OpenOptions::new();
    let how = how.read(true).write(true).create(bytes.is_some()).truncate(false).mode(0o600);
    let file = how.open(path).map_err(failed)?;
    if let Some(bytes) = bytes {
        file.set_len(bytes as u64).map_err(failed)?;
    }
    Ok(file)
}
