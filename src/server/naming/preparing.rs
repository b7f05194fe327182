//! What a transaction sets of what was born on other machines, in two phases. Each home writes down
//! what it is to set, and is sure from then on that it can; then the server of the client decides,
//! in the record of its own part; then the homes are told, or ask.
//!
//! Invariants: homes are asked one after the other, in the order of what they have, with all
//! directories in hand: so no two transactions wait for each other. An id is used once, by one run
//! of a request: who lets go of what it has begins anew with another. Not here: what waits for what
//! is in doubt (`doubts`), and who tells whom (`sharing/transacting`).

use terral_format::disk::facts::Fact;
use terral_format::disk::membership::{Membership, Transacts};
use terral_format::ids::{Ino, Number};
use terral_format::wire::peers::Work;
use terral_format::wire::things::{By, Change, Outcome};
use terral_format::wire::transactions::{Set, TransactionId};
use terral_format::{Error, ErrorKind, Result};

use crate::authority::caller::Caller;
use crate::core::paths::refuse;
use crate::core::state::State;
use crate::members::requiring;
use crate::naming::planning::Plan;
use crate::naming::xattrs::Values;
use crate::naming::{elsewhere, permitting, xattr_requests, xattrs_elsewhere};

/// `w` of permission bits.
const WRITE: u32 = 2;

/// All homes can set what a transaction says.
///
/// # Errors
/// If it must wait for one; and what they say.
pub(super) fn await_homes(state: &mut State, plan: &mut Plan<'_>) -> Result<()> {
    let sets = plan.set_elsewhere();
    if sets.is_empty() {
        return Ok(());
    }
    let number = state.world.random()? as u64;
    let members = state.members.as_mut();
    let begun = members.and_then(|members| {
        let asker = members.asker()?;
        Some(members.begins_transaction(asker, number))
    });
    let late = || Error::new(ErrorKind::Busy, "nobody waits for it");
    let of = begun.ok_or_else(late)?;
    let home = |(ino, sets): (&Ino, &Vec<Set>)| {
        let home = xattrs_elsewhere::home_of(state, *ino);
        let gone = || Error::new(ErrorKind::NotFound, format!("file {ino}"));
        home.map(|home| (home, sets.clone())).ok_or_else(gone)
    };
    let mut all = sets.iter().map(home).collect::<Result<Vec<(Number, Vec<Set>)>>>()?;
    all.sort_unstable_by_key(|(home, _)| *home);
    let files = all.iter().map(|(home, _)| *home).collect();
    for (home, sets) in all {
        let by = By { person: (*plan.caller.person).clone(), what: Change::Prepare(of, sets) };
        elsewhere::ask_home(state, home, &Work::Change(by.body()?))?;
    }
    // Which it is as long as nothing was let go meanwhile.
    match state.members.as_ref().and_then(|members| members.decision_of(of)) {
        None => {
            plan.is_prepared(of, files);
            Ok(())
        }
        Some(_) => Err(requiring::anew(state)),
    }
}

/// Another member's transaction is to set these of what was born here.
///
/// # Errors
/// If it must wait; those of setxattr(2), with which operation that is.
pub fn prepare(
    state: &mut State,
    caller: &Caller,
    file: Number,
    (of, sets): (TransactionId, Vec<Set>),
) -> Result<Outcome> {
    let ino = xattr_requests::asked_for(state, file)?;
    let mut values = state.xattrs.of(ino).cloned().unwrap_or_default();
    for set in &sets {
        can_set(state, (caller, ino), &mut values, set).map_err(|error| Error {
            context: format!("operation {}: {}", set.operation, error.context),
            ..error
        })?;
    }
    let since_s = state.world.wall_s();
    state.record(Membership::Transacts(Transacts::Prepared { of, file, sets, since_s }));
    Ok(Outcome::Done(None))
}

fn can_set(
    state: &State,
    (caller, ino): (&Caller, Ino),
    values: &mut Values,
    Set { name, value, how, .. }: &Set,
) -> Result<()> {
    let is = state.attributes(ino).ok_or_else(|| refuse(ErrorKind::NotFound, name))?;
    permitting::permit(caller, &is, WRITE, name)?;
    xattr_requests::check(Some(values), (name, value.as_deref(), *how))?;
    match value {
        Some(value) => drop(values.insert(name.clone(), value.clone())),
        None => drop(values.remove(name)),
    }
    Ok(())
}

/// It is known whether a transaction comes to be: so does what was prepared for it, or it does not.
pub fn settle(state: &mut State, file: Number, (of, is): (TransactionId, bool)) {
    let Some(members) = &state.members else { return };
    let Some(doubt) = members.prepared(file).filter(|doubt| doubt.of == of) else { return };
    let sets = doubt.sets.clone();
    let place = members.place(file).filter(|ino| state.names.inode(*ino).is_some());
    if let Some(ino) = place.filter(|_| is) {
        let time_ns = state.storage.time_ns();
        for Set { name, value, .. } in sets {
            state.record(Fact::Xattr { ino, name, value, time_ns });
        }
    }
    state.record(Membership::Transacts(Transacts::Settled { of, file }));
    state.members.iter_mut().for_each(|members| members.go_on());
}
