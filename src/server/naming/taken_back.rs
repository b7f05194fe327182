//! Files whose names were delegated to a member that will not say any more what has become of them:
//! it was removed, or has been gone for long at the end. They are called as before, unless the
//! permanent store has them under another one of the names that they were to get, for good or on
//! the way: then that is their name. So what is brought next goes where it is there.
//!
//! Invariant: what the store cannot say just now is asked again. Not here: how names are delegated,
//! and returned (`delegating`).

use terral_format::disk::NameOperation;
use terral_format::disk::facts::Fact;
use terral_format::disk::membership::Membership;
use terral_format::fingerprint::{Fingerprint, Object};
use terral_format::ids::{Ino, Lsn, ROOT};
use terral_format::local::names::flag;
use terral_format::{ErrorKind, Result};

use crate::core::paths::{components, join};
use crate::core::state::State;
use crate::naming::counting;
use crate::naming::names::{Name, is_known};

/// It is known what a file is called, of which this was to be its name, one after the other.
///
/// # Errors
/// Those of the store, if it cannot say.
pub(super) fn is_taken_back(state: &mut State, ino: Ino, to: &[Vec<u8>]) -> Result<()> {
    let Some(inode) = state.names.inode(ino) else { return Ok(()) };
    if to.is_empty() {
        return has_lost(state, ino);
    }
    let own = state.names.path(ino);
    let known = inode.published.filter(|_| is_known(&inode));
    // The last one first.
    let paths = own.iter().chain(to.iter().rev());
    let found = known.map_or(Ok(None), |known| is_at(state, known, paths))?;
    let Some((path, fingerprint)) = found else {
        // Another file has its name by now, which came to be with what it was to get.
        let free = to.iter().rev().filter_map(|path| place_of(state, path));
        let free = free
            .collect::<Vec<Name>>()
            .into_iter()
            .find(|(at, name)| state.names.child_here(*at, name).is_none());
        if let Some((parent, name)) = free.filter(|_| own.is_none()) {
            state.record(Membership::Named { ino, parent, name });
        }
        return Ok(());
    };
    let (fingerprint, rewritten) = (Some(fingerprint), false);
    state.record(Membership::InStore { ino, fingerprint, rewritten });
    if Some(&path) == own.as_ref() {
        return Ok(());
    }
    match place_of(state, &path).filter(|(at, name)| is_free(state, *at, name)) {
        Some((parent, name)) => {
            if state.names.child_here(parent, &name).is_some() {
                state.record(Membership::Unnamed { parent, name: name.clone() });
            }
            state.record(Membership::Named { ino, parent, name });
        }
        // In a directory that nobody knows but who made it.
        None => comes_back(state, ino, (path, own)),
    }
    Ok(())
}

/// One that was to lose names, and get none, has lost those under which the store does not have it,
/// if it has it under others.
fn has_lost(state: &mut State, ino: Ino) -> Result<()> {
    let Some(before) = state.names.inode(ino) else { return Ok(()) };
    let Some(known) = before.published else { return Ok(()) };
    let (mut lost, mut fingerprint) = (Vec::new(), None);
    for (parent, name) in state.names.names_of(ino) {
        let Some(above) = state.names.path(parent) else { continue };
        match is_at(state, known, std::iter::once(&join(&above, &name)))? {
            Some((_, found)) => fingerprint = Some(found),
            None => lost.push((parent, name)),
        }
    }
    if fingerprint.is_none() || lost.is_empty() {
        return Ok(());
    }
    for (parent, name) in lost {
        state.record(Membership::Unnamed { parent, name });
    }
    let rewritten = before.is(flag::REWRITTEN);
    state.record(Membership::InStore { ino, fingerprint, rewritten });
    Ok(())
}

/// Names that were counted no more are again: if it was `only` to lose some, those that it has.
pub(super) fn counts_again(state: &mut State, ino: Ino, names: u32, only: bool) {
    let links = state.names.inode(ino).map_or(0, |inode| inode.links);
    let has = state.names.names_of(ino).len() as i64 - i64::from(links);
    let names = i64::from(names);
    counting::gets_more(state, ino, if only { has.clamp(0, names) } else { names });
}

/// Under which of these paths the store has a file, and how it looks there.
fn is_at<'p>(
    state: &State,
    known: Fingerprint,
    paths: impl Iterator<Item = &'p Vec<u8>>,
) -> Result<Option<(Vec<u8>, Fingerprint)>> {
    let Some(backing) = &state.backing else { return Ok(None) };
    for path in paths {
        match backing.stat(path) {
            Ok(found) if found.fingerprint.is_same_object(known) => {
                return Ok(Some((path.clone(), found.fingerprint)));
            }
            Err(error) if !is_missing(error.kind) => return Err(error),
            _ => {}
        }
    }
    Ok(None)
}

pub(super) fn is_missing(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NotFound | ErrorKind::NotDirectory)
}

/// Where a name is, if its directory is known here.
fn place_of(state: &State, path: &[u8]) -> Option<Name> {
    let parts = components(path).ok()?;
    let (name, above) = parts.split_last()?;
    let mut at = ROOT;
    for part in above {
        at = state.names.child_here(at, part)?;
        state.names.inode(at).filter(|inode| inode.is_directory())?;
    }
    Some((at, name.to_vec()))
}

/// Whether nothing has a name that its home alone knows, and no directory.
fn is_free(state: &State, at: Ino, name: &[u8]) -> bool {
    state.names.child_here(at, name).is_none_or(|other| {
        let far = state.names.inode(other).is_some_and(|inode| inode.is(flag::FAR));
        far || state.names.is_delegated(other)
    })
}

/// The store is to have it under its own name again, if nothing has that there.
fn comes_back(state: &mut State, ino: Ino, (from, to): (Vec<u8>, Option<Vec<u8>>)) {
    let Some(to) = to else { return };
    let (lsn, over) = (Lsn(state.names.ordinal().0 + 1), Some(Object::NONE));
    let operation = NameOperation::Rename { from, to, ino, over };
    state.record(Fact::Owed { lsn, operation });
}
