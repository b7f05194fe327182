//! Paths: as clients send them, and as people read them.

use terral_format::local::geometry::{NAME_MAX, PATH_MAX};
use terral_format::{Error, ErrorKind, Result};

/// A path for a person.
pub fn shown(path: &[u8]) -> String {
    format!("/{}", String::from_utf8_lossy(path))
}

/// The error for a path.
pub fn refuse(kind: ErrorKind, path: &[u8]) -> Error {
    Error::new(kind, shown(path))
}

/// The components of a path as clients must send it: relative, normal, within the limits.
pub fn components(path: &[u8]) -> Result<Vec<&[u8]>> {
    if path.is_empty() {
        return Ok(Vec::new());
    }
    if path.len() >= PATH_MAX {
        return Err(Error::new(ErrorKind::NameTooLong, "path"));
    }
    let parts: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
    for part in &parts {
        if part.len() > NAME_MAX {
            return Err(refuse(ErrorKind::NameTooLong, path));
        }
        if part.is_empty() || *part == b"." || *part == b".." || part.contains(&0) {
            return Err(refuse(ErrorKind::Invalid, path));
        }
    }
    Ok(parts)
}

/// `directory/name`, or `name` in the root.
pub fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.into() } else { [directory, b"/", name].concat() }
}
