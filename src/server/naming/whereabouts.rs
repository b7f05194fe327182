//! Where a directory is in the permanent store: by the names that lead to it, as far as they are
//! known here. A directory that was inherited may have none here: others are asked for them.
//!
//! Invariant: what has no name is nowhere, and never the top of the store.

use terral_format::ids::Ino;
use terral_format::{Error, ErrorKind, Result};

use crate::core::paths::refuse;
use crate::core::state::State;
use crate::naming::elsewhere;

/// The path of a directory in the permanent store.
///
/// # Errors
/// If it must wait for what others know; [`ErrorKind::Backing`] if one of them does not say it;
/// [`ErrorKind::NotFound`] if it was removed, or nobody knows a name of it.
pub fn of(state: &mut State, directory: Ino) -> Result<Vec<u8>> {
    if let Some(path) = state.names.path(directory) {
        return Ok(path);
    }
    let gone = || refuse(ErrorKind::NotFound, b"directory");
    let links = state.names.inode(directory).map_or(0, |inode| inode.links);
    let thing = elsewhere::thing_of(state, directory).filter(|_| links > 0).ok_or_else(gone)?;
    let members = state.members.as_mut().ok_or_else(gone)?;
    if members.take_silent_on(thing) {
        let why = format!("where directory {directory} is: who knows it does not answer");
        return Err(Error::new(ErrorKind::Backing, why));
    }
    if members.has_heard_all(thing) {
        return Err(gone());
    }
    members.wants_memory(thing);
    Err(state.fetches.wait())
}
