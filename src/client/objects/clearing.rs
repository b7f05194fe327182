//! Directories that are removed with all that is in them, also while others remove them.

use terral_format::{ErrorKind, Result};

use crate::client::Client;
use crate::{Kind, Name};

/// That something is no more is what was wanted.
pub(super) fn unless_gone(done: Result<()>) -> Result<()> {
    match done {
        Err(error) if error.kind == ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Names of a directory; none if it is no more.
pub(super) fn names_of(client: &Client, path: &[u8]) -> Result<Vec<Name>> {
    match client.list(path) {
        Err(error) if error.kind == ErrorKind::NotFound => Ok(Vec::new()),
        listed => listed,
    }
}

/// Removes a directory and all that is in it; what cannot be, as it went with a machine, is in the
/// way of nothing else.
///
/// # Errors
/// [`ErrorKind::NotEmpty`] if somebody goes on making names there; those of removing names, the
/// first.
pub(crate) fn clear(client: &Client, path: &[u8]) -> Result<()> {
    let mut cleared = Ok(());
    for name in names_of(client, path)? {
        let below = [path, &name.name].join(&b'/');
        let gone = match name.kind {
            Kind::Directory => clear(client, &below),
            _ => unless_gone(client.unlink(&below)),
        };
        cleared = cleared.and(gone);
    }
    cleared?;
    unless_gone(client.remove_directory(path))
}
