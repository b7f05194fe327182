//! The names of a directory: ours, and those that only the permanent store has.

use terral_format::ids::Ino;
use terral_format::wire::message::{Kind, Name, Reply};
use terral_format::{Error, ErrorKind, Result};

use crate::authority::caller::Caller;
use crate::core::paths::refuse;
use crate::core::state::State;
use crate::naming::{elsewhere, lookup, whereabouts, whole};
use crate::needs::asking;

/// Bytes of names in one reply; leaves room for the rest of the message.
const NAMES_BYTES: usize = 12 << 10;

/// All names of a directory: ours, and those only the backing knows, in order.
pub fn names_of(state: &mut State, caller: &Caller, directory: Ino) -> Result<Vec<Name>> {
    let inode = state.names.inode(directory);
    let inode = inode.ok_or_else(|| Error::new(ErrorKind::NotFound, "directory"))?;
    if !inode.is_directory() {
        let path = state.names.path(directory).unwrap_or_default();
        let link = inode.kind == Kind::Symlink;
        let kind = if link { ErrorKind::Link } else { ErrorKind::NotDirectory };
        return Err(refuse(kind, &path));
    }
    if let Some(names) = elsewhere::names(state, caller, directory)? {
        return Ok(names);
    }
    let mut names = Vec::new();
    if whole::may_have_more(state, &inode) {
        let path = whereabouts::of(state, directory)?;
        if let Some(path) = asking::place(state, &path)? {
            let listed = asking::list(state, path)?;
            let unknown = |name: &&Name| state.names.entry(directory, &name.name).is_none();
            names.extend(listed.names().iter().filter(unknown).cloned());
        }
    }
    for (name, child) in state.names.children(&inode) {
        let number = Some(state.number(child.ino));
        names.push(Name { name, number, kind: child.kind });
    }
    names.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(names)
}

/// Names of a directory after `after`.
pub fn list(state: &mut State, caller: &Caller, path: &[u8], after: &[u8]) -> Result<Reply> {
    let directory = lookup::resolve(state, caller, path)?;
    let fresh = after.is_empty() || state.listing.as_ref().is_none_or(|(of, _)| *of != directory);
    if fresh {
        let mut names = names_of(state, caller, directory)?;
        names.retain(|name| !lookup::is_taken(state, directory, &name.name));
        state.listing = Some((directory, names));
    }
    let names: &[Name] = state.listing.as_ref().map_or(&[], |(_, names)| names);
    let first = names.partition_point(|name| name.name.as_slice() <= after);
    let mut bytes = 0;
    let fits = |name: &&Name| {
        bytes += name.name.len() + 24;
        bytes <= NAMES_BYTES
    };
    let page: Vec<Name> = names[first..].iter().take_while(fits).cloned().collect();
    let last = first + page.len() == names.len();
    if last {
        state.listing = None;
    }
    Ok(Reply::Names { names: page, last })
}
