//! Reads the list of principals, and the keys of issuers that it names.
//!
//! Invariant: what others than the server's user and root may write says nothing here. It is read
//! when somebody logs in, so that a change counts at once; who comes to the door meanwhile waits,
//! the sessions' requests do not.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use terral_format::{Error, ErrorKind, Result};

use crate::authority::principals::Principals;

/// In an instance of a pool: the list that the pool has.
pub const KEPT: &str = "principals";
/// Longest file that is read, bytes.
const BYTES_MAX: u64 = 1 << 20;
/// Bits of a mode by which others than the owner may write.
const OTHERS_WRITE: u32 = 0o022;
/// Most files of keys in a directory.
const KEYS_MAX: usize = 64;

fn failed(path: &Path) -> impl Fn(std::io::Error) -> Error {
    move |error| Error::system(&error, path.display().to_string())
}

fn invalid(path: &Path, why: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Invalid, format!("{}: {why}", path.display()))
}

fn read_file(path: &Path) -> Result<Vec<u8>> {
    let file = File::open(path).map_err(failed(path))?;
    let found = file.metadata().map_err(failed(path))?;
    let own = rustix::process::geteuid().as_raw();
    if !found.is_file() {
        return Err(invalid(path, "no file"));
    }
    if ![0, own].contains(&found.uid()) || found.permissions().mode() & OTHERS_WRITE != 0 {
        return Err(invalid(path, "others can write it (chmod go-w, and its owner you or root)"));
    }
    let mut bytes = Vec::new();
    file.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed(path))?;
    if bytes.len() as u64 > BYTES_MAX { Err(invalid(path, "too long")) } else { Ok(bytes) }
}

/// A file, or those in a directory whose names say that they have keys.
fn key_files(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.into()]);
    }
    let entries = fs::read_dir(path).map_err(failed(path))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    let of_keys = ["json", "jwks", "pem", "pub"];
    files.retain(|file| file.extension().is_some_and(|end| of_keys.iter().any(|of| end == *of)));
    files.sort();
    files.truncate(KEYS_MAX);
    Ok(files)
}

/// What the file says, as it is.
///
/// # Errors
/// If it cannot be read, or can be written by others.
pub fn text(path: &Path) -> Result<String> {
    String::from_utf8(read_file(path)?).map_err(|_| invalid(path, "no text"))
}

/// Who is who, as a file says it.
///
/// # Errors
/// If it, or keys that it names, cannot be read, can be written by others, or say what makes no
/// sense; with the file and the line.
pub fn read(path: &Path) -> Result<Principals> {
    let mut all = Principals::read(&text(path)?).map_err(|error| invalid(path, error.context))?;
    let mut places = all.key_places();
    places.sort();
    places.dedup();
    for place in places {
        for file in key_files(Path::new(&place))? {
            let bytes = read_file(&file)?;
            all.give_keys(&place, &bytes).map_err(|error| invalid(&file, error.context))?;
        }
    }
    Ok(all)
}

/// Writes such a file down, for this user alone.
///
/// # Errors
/// If it cannot be.
pub fn keep(path: &Path, text: &[u8]) -> Result<()> {
    let mut how = File::options();
    let file = how.write(true).create(true).truncate(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(text)).map_err(failed(path))
}

/// Whether [`read`] would read it.
///
/// # Errors
/// As [`read`].
pub fn check(path: &Path) -> Result<()> {
    read(path).map(drop)
}
