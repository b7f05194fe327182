//! Names of files that were born here, which are delegated to who decides a transaction, where
//! there is a permanent store: he changes them there, too, in the order of all that he owes it, and
//! returns them. Meanwhile nothing of the file is brought, and no name of it changes here.
//!
//! Invariants: what the store has of it is settled when they are delegated, and told; of a file
//! that has several it has all then. They are until it is known that the transaction never comes to
//! be, or they are returned. Not here: who asks for it (`delegations`), and what waits (`doubts`).

use terral_format::disk::facts::Fact;
use terral_format::disk::membership::Membership;
use terral_format::ids::{Ino, Number, ROOT};
use terral_format::local::names::{Inode, flag};
use terral_format::wire::message::Kind;
use terral_format::wire::things::Outcome;
use terral_format::wire::transactions::{Delegated, Destination, Returned};
use terral_format::{Error, ErrorKind, Result};

use crate::core::paths::refuse;
use crate::core::state::State;
use crate::debts::owing;
use crate::far::places;
use crate::members::role::Members;
use crate::naming::names::{Name, is_known};
use crate::naming::{counting, elsewhere, exchanging, homes};
use crate::needs::asking as store;

/// What it looks like in the permanent store, once that is settled; who asks may have its names.
///
/// # Errors
/// If that must wait; [`ErrorKind::BadHandle`] if it is not called so, or that is not known;
/// [`ErrorKind::Unsupported`] if it has several names, and the store does not get it now.
pub(super) fn delegate(state: &mut State, ino: Ino, wanted: &Delegated) -> Result<Outcome> {
    let path = state.names.path(ino).unwrap_or_default();
    let inode = state.names.inode(ino).filter(|inode| inode.kind == Kind::File);
    let Some(inode) = inode.filter(|_| homes::decide(state)) else {
        return Err(Error::new(ErrorKind::Malformed, "names that are to be delegated"));
    };
    let members = state.members.as_ref();
    let unsure = |members: &Members| members.is_created(ino) || members.is_adrift(ino);
    let counts = |members: &Members| members.uncounted().any(|(of, ..)| of == ino);
    let is_unsure = members.is_some_and(|members| unsure(members) || counts(members));
    let is_called = |(directory, name): &(Number, Vec<u8>)| {
        let place = members.and_then(|members| members.place(*directory));
        place.is_some_and(|at| state.names.child_here(at, name) == Some(ino))
    };
    let is_called = !wanted.names.is_empty() && wanted.names.iter().all(is_called);
    // Who asks may have what this is found out by.
    if is_unsure || !is_called || state.names.is_leaving(ino) {
        return Err(refuse(ErrorKind::BadHandle, &path));
    }
    if state.names.has_further(ino) && !is_known(&inode) {
        return Err(comes_first(state, &inode, &path));
    }
    is_settled(state, &inode, &path)?;
    counting::may_count(state, ino)?;
    for way in &wanted.above {
        // No directory moves just now, and who asks knows where they are.
        exchanging::leads_on(state, ROOT, way, true)?;
    }
    state.fetches.spoil(&[&path[..]]);
    let inode = state.names.inode(ino).unwrap_or(inode);
    Ok(Outcome::Delegated(inode.links, inode.published, inode.is(flag::REWRITTEN)))
}

/// Of what has several names all are in the store before any is changed: then it does not matter
/// which is its first one.
fn comes_first(state: &mut State, inode: &Inode, path: &[u8]) -> Error {
    if state.is_written(inode.ino) {
        let what = "it has several names, and is open for writing: a transaction changes none";
        let path = String::from_utf8_lossy(path).into_owned();
        return Error::new(ErrorKind::Unsupported, format!("/{path}: {what}"));
    }
    owing::owe(state, inode.ino);
    state.debts.hasten_names();
    store::wait_until_settled(state)
}

/// What the store has of a file is known, and nothing of its name is owed.
fn is_settled(state: &mut State, inode: &Inode, path: &[u8]) -> Result<()> {
    homes::await_drain(state, inode.ino)?;
    let mut owed = state.names.owed().iter().map(|(_, operation)| operation);
    let is_owed = owed.any(|operation| {
        let its = operation.inos().contains(&Some(inode.ino));
        its || operation.paths().contains(&path)
    });
    if is_owed {
        state.debts.hasten_names();
    }
    let begun = inode.is(flag::INTENT) || inode.is(flag::CONTESTED);
    if begun {
        owing::owe(state, inode.ino);
    }
    match is_owed || begun || state.names.is_unsettled(path) {
        true => Err(store::wait_until_settled(state)),
        false => Ok(()),
    }
}

/// The names of a file come back: those that it was to have it has, of which so many are counted,
/// and the store has what that makes of it.
///
/// # Errors
/// If that must wait; if the tables have no room.
pub(super) fn is_returned(
    state: &mut State,
    ino: Ino,
    returned: &Returned,
    counted: u32,
) -> Result<()> {
    let Returned { lost, got, fingerprint, rewritten } = returned;
    elsewhere::file_is_here(state, ino, b"")?;
    let names = got.iter().map(|to| place_of(state, to)).collect::<Result<Vec<Name>>>()?;
    let before = state.names.path(ino);
    gets(state, ino, names, lost)?;
    loses(state, ino, lost);
    let after = state.names.path(ino);
    let paths: Vec<&[u8]> = before.iter().chain(&after).map(|path| &path[..]).collect();
    state.fetches.spoil(&paths);
    let Some(inode) = state.names.inode(ino) else { return Ok(()) };
    let links = inode.links.saturating_add(got.len() as u32);
    let links = links.saturating_sub((lost.len() as u32).saturating_add(counted));
    if links != inode.links {
        counting::has_links(state, ino, links);
    }
    // It may have been cut to nothing meanwhile.
    let rewritten = fingerprint.is_some() && (*rewritten || inode.is(flag::REWRITTEN));
    let fingerprint = *fingerprint;
    state.record(Membership::InStore { ino, fingerprint, rewritten });
    Ok(())
}

/// Where a name is to be: its directory has a place, and those above that the transaction has made.
fn place_of(state: &mut State, to: &Destination) -> Result<Name> {
    let gone = || Error::new(ErrorKind::NotFound, "a directory in which a file has got a name");
    let known = exchanging::known(state, to.directory).ok_or_else(gone)?;
    let parent = exchanging::leads_on(state, known, &to.made, false)?;
    Ok((parent, to.name.clone()))
}

/// A file is called so, too, from now on. One that loses its only name has the first of these in
/// its place.
fn gets(state: &mut State, ino: Ino, names: Vec<Name>, lost: &[(Number, Vec<u8>)]) -> Result<()> {
    let had = state.names.names_of(ino);
    let mut is_first = had.is_empty() || (had.len() == 1 && !lost.is_empty());
    for (parent, name) in names.into_iter().filter(|name| !had.contains(name)) {
        if let Some(other) = state.names.child_here(parent, &name) {
            state.record(Membership::Unnamed { parent, name: name.clone() });
            // What another machine's file was called nobody here may know by another name.
            if let Some(thing) = elsewhere::thing_of(state, other) {
                places::forget_unused(state, other, thing);
            }
        }
        if std::mem::take(&mut is_first) {
            state.record(Membership::Named { ino, parent, name });
            continue;
        }
        state.names.reserve()?;
        let alias = state.names.next_ino();
        state.record(Fact::Alias { ino, alias, parent, name });
    }
    Ok(())
}

/// It is called so no more.
fn loses(state: &mut State, ino: Ino, names: &[(Number, Vec<u8>)]) {
    for (directory, name) in names {
        let place = exchanging::known(state, *directory);
        let its = place.filter(|at| state.names.child_here(*at, name) == Some(ino));
        if let Some(parent) = its {
            state.record(Membership::Unnamed { parent, name: name.clone() });
        }
    }
}
