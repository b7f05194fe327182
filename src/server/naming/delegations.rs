//! Which files of other members a transaction gives names, or takes some of several, where there is
//! a permanent store: their
//! homes delegate their names, and the store is owed what that makes of them by this server, in the
//! order of all that it does. Once the store has it they are returned.
//!
//! Not here: what a home does (`delegating`), and who returns them (`sharing/returning`).

use std::collections::{BTreeMap, BTreeSet};

use terral_format::Result;
use terral_format::disk::membership::{Membership, Transacts};
use terral_format::fingerprint::Fingerprint;
use terral_format::ids::{Ino, Number};
use terral_format::wire::transactions::{Delegated, Destination, TransactionId, Way};

use crate::core::state::State;
use crate::far::asking;
use crate::naming::destinations::{by_number, destination, is_in, made_in, number_of};
use crate::naming::planning::{Change, Plan};
use crate::naming::{counting, elsewhere, homes};

/// A file whose names are delegated.
pub(super) struct Held {
    /// Its number. It may be called nothing here afterwards.
    pub file: Number,
    /// How many it has.
    pub links: u32,
    /// What the store has of it, as its home says.
    pub fingerprint: Option<Fingerprint>,
    /// That is what it is to replace.
    pub rewritten: bool,
    /// What becomes of its names.
    pub becomes: Becomes,
}

/// What becomes of the names of a file.
pub(super) struct Becomes {
    /// Which it loses, each by its directory.
    pub lost: Way,
    /// Which it gets.
    pub got: Vec<Destination>,
}

/// What is to be delegated, by file.
///
/// # Errors
/// [`ErrorKind::NotFound`] if a directory is no more.
pub(super) fn wanted(state: &State, plan: &Plan<'_>) -> Result<BTreeMap<Ino, Delegated>> {
    let mut all = BTreeMap::new();
    for (ino, operation, to, change) in delegated(state, plan) {
        let (gets, loses) = (change.gets.len(), change.loses.len());
        // By which it was found, if it loses none.
        let mut names = state.names.names_of(ino);
        names.retain(|(parent, _)| elsewhere::is_here(state, *parent));
        let names = if loses == 0 { names } else { change.loses };
        let names = by_number(state, names)?;
        let above: BTreeSet<Ino> = change.gets.iter().map(|(at, _)| made_in(plan, *at).0).collect();
        let above = above.into_iter().map(|at| elsewhere::way_to(state, at));
        let above = above.collect::<Result<Vec<Way>>>()?;
        let to = to.to_vec();
        let more = gets.saturating_sub(loses) as u32;
        let less = loses.saturating_sub(gets) as u32;
        all.insert(ino, Delegated { operation, more, less, names, above, to });
    }
    Ok(all)
}

/// Which operation changes the names of a file first, the paths of all that it gets, and what comes
/// of that.
type Named<'p> = (Ino, u32, &'p [Vec<u8>], Change);

/// Files whose names are, or may be all that are let go.
fn delegated<'p>(state: &State, plan: &'p Plan<'_>) -> Vec<Named<'p>> {
    let takes = plan.delegates(state);
    if !homes::decide(state) || (!takes && plan.given().next().is_none()) {
        return Vec::new();
    }
    let given: BTreeMap<_, _> = plan.given().map(|(ino, at, paths)| (ino, (at, paths))).collect();
    let all = plan.changes(state).into_iter().filter_map(|(ino, change)| {
        let given = given.get(&ino).copied();
        if !change.gets.is_empty() {
            return given.map(|(at, paths)| (ino, at, paths, change));
        }
        asking::number_of(state, ino).filter(|_| takes)?;
        let at = plan.taken_by(ino).map(|(at, _)| at).or(given.map(|(at, _)| at))?;
        Some((ino, at, &[][..], change))
    });
    all.collect()
}

/// What becomes of the names of each.
///
/// # Errors
/// As those of [`wanted`].
pub(super) fn become_of(state: &State, plan: &Plan<'_>) -> Result<BTreeMap<Ino, Becomes>> {
    let mut all = BTreeMap::new();
    for (ino, _, _, change) in delegated(state, plan) {
        let got = change.gets.into_iter().map(|name| destination(state, plan, name));
        let (lost, got) = (by_number(state, change.loses)?, got.collect::<Result<_>>()?);
        all.insert(ino, Becomes { lost, got });
    }
    Ok(all)
}

/// Homes have delegated them: the tables have what the store has of each; `named`: all that get
/// names on the way, and lose none of their own.
pub(super) fn are_known<'i>(
    state: &mut State,
    all: &BTreeMap<Ino, Held>,
    named: impl Iterator<Item = &'i Ino>,
) {
    let is_owed = homes::decide(state);
    for ino in named.filter(|ino| is_owed && !all.contains_key(ino)).copied() {
        // The store is owed nothing of what has the same names afterwards.
        let (fingerprint, rewritten) = (None, false);
        state.record(Membership::InStore { ino, fingerprint, rewritten });
    }
    for (ino, Held { links, fingerprint, rewritten, .. }) in all {
        // What else it was called is older.
        for (parent, name) in state.names.names_of(*ino) {
            if !elsewhere::is_here(state, parent) {
                state.record(Membership::Unnamed { parent, name });
            }
        }
        counting::has_links(state, *ino, *links);
        let (ino, fingerprint, rewritten) = (*ino, *fingerprint, *rewritten);
        state.record(Membership::InStore { ino, fingerprint, rewritten });
    }
}

/// All is recorded: they are returned once the store has it. `directories`: in which names are
/// changed.
pub(super) fn are_to_be_returned(
    state: &mut State,
    of: TransactionId,
    all: BTreeMap<Ino, Held>,
    directories: &BTreeSet<Ino>,
) {
    let Some(members) = state.members.as_ref().filter(|_| !all.is_empty()) else { return };
    let directories = directories.iter().filter_map(|at| members.number(*at));
    let directories: Vec<Number> = directories.collect();
    let files = all.into_iter().map(|(ino, held)| (ino, held.file, held.becomes));
    let files: Vec<(Ino, Number, Becomes)> = files.collect();
    let after = state.names.ordinal();
    for (ino, file, Becomes { lost, mut got }) in files {
        let first = state.names.name_of(ino).and_then(|(at, name)| {
            got.iter().position(|to| to.name == name && is_in(state, to, at))
        });
        // That is the one of which it is told how the store has it.
        got.rotate_left(first.unwrap_or_default());
        let has = state.names.names_of(ino).into_iter().map(|(at, _)| at);
        let has = has.filter_map(|at| number_of(state, at).ok());
        let directories = directories.iter().copied().chain(has).collect();
        let returns = Transacts::Returns { of, file, after, directories, lost, got };
        state.record(Membership::Transacts(returns));
    }
    state.debts.hasten_names();
}
