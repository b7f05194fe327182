//! Names of files that were born here, which are delegated to who decides a transaction, where
//! there is a permanent store: he changes them there, too, in the order of all that he owes it, and
//! returns them. Meanwhile nothing of the file is brought, and no name of it changes here.
//!
//! Invariants: what the store has of it is settled when they are delegated, and told; of a file
//! that has several it has all then. One that only loses names keeps others: its last one is let go
//! instead. They are until it is known that the transaction never comes to
//! be, or they are returned. Not here: who asks for it (`delegations`), and what waits (`doubts`).

use terral_format::disk::facts::Fact;
use terral_format::disk::membership::Membership;
use terral_format::ids::{Ino, Member, Number, ROOT};
use terral_format::local::names::{Inode, flag};
use terral_format::wire::message::Kind;
use terral_format::wire::moving::Renamed;
use terral_format::wire::things::Outcome;
use terral_format::wire::transactions::{Delegated, Destination, Returned, Way};
use terral_format::{Error, ErrorKind, Result};
use terral_store::backing::Found;

use crate::core::paths::{join, refuse};
use crate::core::state::State;
use crate::debts::owing;
use crate::far::places;
use crate::members::role::Members;
use crate::naming::names::{Name, is_known};
use crate::naming::{counting, elsewhere, exchanging, further, homes, taken_back};
use crate::needs::asking as store;

/// What it looks like in the permanent store, once that is settled; who asks may have its names.
///
/// # Errors
/// If that must wait; [`ErrorKind::BadHandle`] if it is not called so, or that is not known;
/// [`ErrorKind::Unsupported`] if it has several names, and the store does not get it now, or it
/// would lose them all at once.
pub(super) fn delegate(
    state: &mut State,
    ino: Ino,
    (by, witness): (Member, Option<Member>),
    wanted: &Delegated,
) -> Result<Outcome> {
    let path = state.names.path(ino).unwrap_or_default();
    let inode = state.names.inode(ino).filter(|inode| inode.kind == Kind::File);
    let Some(inode) = inode.filter(|_| homes::decide(state)) else {
        return Err(Error::new(ErrorKind::Malformed, "names that are to be delegated"));
    };
    if let ([(directory, name)], []) = (&wanted.names[..], &wanted.to[..])
        && !counting::is_several(state, ino)
    {
        return further::lets_go(state, ino, by, (*directory, name));
    }
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
    if wanted.to.is_empty() {
        keeps_some(state, ino, wanted, witness)?;
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

/// A file that only loses names has others then.
fn keeps_some(state: &State, ino: Ino, wanted: &Delegated, witness: Option<Member>) -> Result<()> {
    let (has, lost) = (state.names.names_of(ino).len(), wanted.names.len());
    let what = match witness {
        _ if lost >= has => "a file of another machine, which loses all of several names at once",
        Some(_) => "a file of another machine, which keeps names: two servers know of none such",
        None => return Ok(()),
    };
    Err(Error::new(ErrorKind::Unsupported, what))
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
    counted: i64,
) -> Result<()> {
    let Returned { lost, got, fingerprint, rewritten } = returned;
    elsewhere::file_is_here(state, ino, b"")?;
    if got.is_empty() {
        return has_lost(state, ino, lost, counted);
    }
    let names = got.iter().map(|to| place_of(state, to)).collect::<Result<Vec<Name>>>()?;
    let before = state.names.path(ino);
    gets(state, ino, names, lost)?;
    loses(state, ino, lost);
    let after = state.names.path(ino);
    let paths: Vec<&[u8]> = before.iter().chain(&after).map(|path| &path[..]).collect();
    state.fetches.spoil(&paths);
    let Some(inode) = state.names.inode(ino) else { return Ok(()) };
    counting::gets_more(state, ino, got.len() as i64 - lost.len() as i64 - counted);
    // It may have been cut to nothing meanwhile.
    let rewritten = fingerprint.is_some() && (*rewritten || inode.is(flag::REWRITTEN));
    let fingerprint = *fingerprint;
    state.record(Membership::InStore { ino, fingerprint, rewritten });
    Ok(())
}

/// It has lost these, and got none: how it looks in the store with others is seen there, as who
/// decided it may know none of them.
fn has_lost(state: &mut State, ino: Ino, lost: &Way, counted: i64) -> Result<()> {
    let Some(before) = state.names.inode(ino) else { return Ok(()) };
    let seen = seen_besides(state, ino, lost)?;
    let paths: Vec<Vec<u8>> = state.names.path(ino).into_iter().collect();
    loses(state, ino, lost);
    let after = state.names.path(ino);
    let paths: Vec<&[u8]> = paths.iter().chain(&after).map(|path| &path[..]).collect();
    state.fetches.spoil(&paths);
    counting::gets_more(state, ino, -(lost.len() as i64) - counted);
    // It may have been cut to nothing meanwhile.
    let (fingerprint, rewritten) = (before.published, before.is(flag::REWRITTEN));
    state.record(Membership::InStore { ino, fingerprint, rewritten });
    if let Some(Found { attributes, fingerprint, .. }) = seen {
        let ours = attributes.modified_ns == before.modified_ns;
        let modified_ns = if ours { 0 } else { attributes.modified_ns };
        let (before, after, again) = (fingerprint, fingerprint, true);
        exchanging::is_seen_renamed(state, ino, Renamed { before, after, modified_ns, again });
    }
    Ok(())
}

/// What the store has under the first of its names that are not among these.
///
/// # Errors
/// If that cannot be known now.
fn seen_besides(state: &State, ino: Ino, lost: &Way) -> Result<Option<Found>> {
    let is_lost = |(parent, name): &Name| {
        lost.iter().any(|(at, its)| its == name && exchanging::known(state, *at) == Some(*parent))
    };
    let kept = state.names.names_of(ino).into_iter().find(|name| !is_lost(name));
    let path = kept.and_then(|(parent, name)| Some(join(&state.names.path(parent)?, &name)));
    let Some((path, backing)) = path.zip(state.backing.as_ref()) else { return Ok(None) };
    match backing.stat(&state.names.backing_path(&path)) {
        Err(error) if taken_back::is_missing(error.kind) => Ok(None),
        found => found.map(Some),
    }
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
