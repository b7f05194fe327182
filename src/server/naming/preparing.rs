//! What a transaction sets of what was born on other machines, and which names it gives that, in
//! two phases. Each home writes down what it is to set, and is sure from then on that it can, and
//! counts the names, until it hears that they never come to be; then the server of the client
//! decides, in the record of its own part; then the homes are told, or ask. If a witness is to
//! know of it, too, that writes it down before it is decided, and has forgotten it before it is
//! said that it never comes to be.
//!
//! Invariants: homes are asked one after the other, in the order of what they have, with all
//! directories in hand: so no two transactions wait for each other. An id is used once, by one run
//! of a request: who lets go of what it has begins anew with another. Not here: what waits for what
//! is in doubt (`doubts`), and who tells whom (`sharing/transacting`).

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};

use rustc_hash::FxHasher;
use terral_format::disk::facts::Fact;
use terral_format::disk::membership::{Membership, Transacts};
use terral_format::ids::{Ino, Member, Number, Thing};
use terral_format::wire::peers::{Failure, Work};
use terral_format::wire::things::{By, Change, Outcome};
use terral_format::wire::transactions::{Gets, Preparing, Returned, Set, TransactionId};
use terral_format::{Error, ErrorKind, Result};

use crate::authority::caller::Caller;
use crate::core::left_out::{Step, does};
use crate::core::paths::refuse;
use crate::core::state::State;
use crate::debts::owing;
use crate::members::requiring::{self, Have};
use crate::members::role::Doubt;
use crate::naming::delegations::Held;
use crate::naming::planning::Plan;
use crate::naming::xattrs::Values;
use crate::naming::xattrs_elsewhere;
use crate::naming::{counting, delegating, delegations, doubts, elsewhere, further, letting_go};
use crate::naming::{permitting, taken_back, xattr_requests};

/// `w` of permission bits.
const WRITE: u32 = 2;

/// What a home is to do to a file of its.
#[derive(Hash)]
struct Part {
    home: Number,
    what: Preparing,
}

/// All homes can do what a transaction says.
///
/// # Errors
/// If it must wait for one; and what they say.
pub(super) fn await_homes(state: &mut State, plan: &mut Plan<'_>) -> Result<()> {
    let all = parts(state, plan)?;
    if all.is_empty() {
        return Ok(());
    }
    let gets = |part: &Part| part.what.delegated.as_ref().is_some_and(|it| !it.to.is_empty());
    if plan.is_copied() && all.iter().any(gets) {
        return Err(Error::new(ErrorKind::Unsupported, COPIED));
    }
    let (of, witness) = begun(state, plan.is_copied(), &all)?;
    let (mut files, mut all_become) = (Vec::new(), delegations::become_of(state, plan)?);
    for Part { home, what } in all {
        let sets = !what.sets.is_empty();
        let what = Change::Prepare(of, Box::new(Preparing { witness, ..what }));
        let by = By { person: (*plan.caller.person).clone(), what };
        let outcome = elsewhere::ask_home(state, home, &Work::Change(by.body()?));
        if outcome.as_ref().is_err_and(|error| error.kind == ErrorKind::BadHandle) {
            // It is not called so any more: that was looked up before.
            return Err(requiring::anew(state));
        }
        let place = state.members.as_ref().and_then(|members| members.place(home));
        let outcome = outcome?;
        if let (Outcome::LetGoOf(fingerprint, ..), Some(ino)) = (&outcome, place) {
            letting_go::is_its_last(state, ino, *fingerprint);
            // Nothing else is prepared of it.
            files.extend(sets.then_some(home));
            continue;
        }
        files.push(home);
        let Outcome::Delegated(links, fingerprint, rewritten) = outcome else { continue };
        if let Some((ino, becomes)) = place.and_then(|ino| Some((ino, all_become.remove(&ino)?))) {
            plan.has_delegated(ino, Held { file: home, links, fingerprint, rewritten, becomes });
        }
    }
    if files.is_empty() {
        return Ok(());
    }
    if let Some(witness) = witness.filter(|_| does(Step::AskWitness)) {
        await_witness(state, plan.caller, (of, witness), &files)?;
    }
    // Which it is as long as nothing was let go meanwhile.
    match state.members.as_ref().is_some_and(|members| members.is_undecided(of)) {
        true => {
            plan.is_prepared(of, files);
            Ok(())
        }
        false => Err(requiring::anew(state)),
    }
}

/// Why that is refused.
const COPIED: &str = "with a permanent directory, other machines' files get no names by a \
                      transaction of which two servers know";

/// What each home is to do, in the order in which they are asked.
fn parts(state: &State, plan: &Plan<'_>) -> Result<Vec<Part>> {
    let mut all = BTreeMap::<Ino, Preparing>::new();
    for (ino, sets) in plan.set_elsewhere() {
        all.entry(*ino).or_default().sets.clone_from(sets);
    }
    for (ino, gets) in plan.counted_elsewhere(state) {
        all.entry(ino).or_default().gets = Some(gets);
    }
    for (ino, delegated) in delegations::wanted(state, plan)? {
        all.entry(ino).or_default().delegated = Some(delegated);
    }
    let part = |(ino, what)| {
        let gone = || Error::new(ErrorKind::NotFound, format!("file {ino}"));
        let home = xattrs_elsewhere::home_of(state, ino).ok_or_else(gone)?;
        Ok(Part { home, what })
    };
    let mut all = all.into_iter().map(part).collect::<Result<Vec<Part>>>()?;
    all.sort_unstable_by_key(|part| part.home);
    Ok(all)
}

/// Which transaction the present request is about to decide, and who is to know of it, too.
fn begun(
    state: &mut State,
    copied: bool,
    parts: &[Part],
) -> Result<(TransactionId, Option<Member>)> {
    let late = || Error::new(ErrorKind::Busy, "nobody waits for it");
    let number = state.world.random()? as u64;
    let members = state.members.as_mut().ok_or_else(late)?;
    let asker = members.asker().ok_or_else(late)?;
    let homes = parts.iter().map(|part| part.home.born()).collect();
    let witness = copied.then(|| members.witness_for(&homes).ok_or_else(nobody_else));
    let mut hasher = FxHasher::default();
    parts.hash(&mut hasher);
    let what = hasher.finish();
    // An id is for the same of the same files: another request here may have changed these since.
    let begun = members.begins_transaction(asker, what, (number, witness.transpose()?));
    begun.ok_or_else(|| requiring::anew(state))
}

fn nobody_else() -> Error {
    let none = "a transaction of which two servers know: the run has no other one";
    Error::new(ErrorKind::Unsupported, none)
}

/// So many servers can know whether a transaction has come to be.
///
/// # Errors
/// [`ErrorKind::Invalid`], [`ErrorKind::Unsupported`].
pub(super) fn may_be_copied(state: &State, copies: u8) -> Result<()> {
    let others = || {
        let members = state.members.as_ref();
        members.and_then(|members| members.witness_for(&BTreeSet::new()))
    };
    match copies {
        1 => Ok(()),
        2 => others().map(drop).ok_or_else(nobody_else),
        _ => Err(Error::new(ErrorKind::Invalid, "a transaction: copies: 1 or 2")),
    }
}

/// Who is to know of it, too, has written down that it comes to be.
fn await_witness(
    state: &mut State,
    caller: &Caller,
    (of, witness): (TransactionId, Member),
    files: &[Number],
) -> Result<()> {
    let members = state.members.as_ref();
    let new = members.is_some_and(|members| !members.has_asked_witness(of));
    let new = new && does(Step::NoteWitness);
    if let Some(asker) = members.and_then(|members| members.asker()).filter(|_| new) {
        // Before anything of it is said: whatever becomes of this process, it is asked to forget.
        state.record(Membership::Transacts(Transacts::Asks { of, witness, asker }));
    }
    let what = Change::Witness(of, files.to_vec());
    let by = By { person: (*caller.person).clone(), what };
    let its = Number::new(witness, 0).map(Thing::File);
    let its = its.ok_or_else(|| Error::new(ErrorKind::Malformed, "a witness"))?;
    let answer = match requiring::need(state, its, &Work::Change(by.body()?))? {
        Have::Done(answer) => answer,
        Have::Here | Have::Shown | Have::Missed => Err(Failure::Removed(witness)),
    };
    if state.members.as_ref().is_some_and(|members| members.is_removed(witness)) {
        // With another one.
        return Err(requiring::anew(state));
    }
    if answer == Err(Failure::Silent(witness)) {
        state.members.iter_mut().for_each(|members| members.witness_is_silent(of));
        let context = format!(
            "transaction {of}: {witness}, which is to know of it, does not answer: it is undone, \
             unless this machine is lost before that one does"
        );
        return Err(Error { context, ..Failure::Silent(witness).error() });
    }
    elsewhere::outcome(state, answer).map(drop)
}

/// What the present request has given up before is known to nobody as something that comes to be:
/// else the same could be done twice, or half.
///
/// # Errors
/// If it must wait for that.
pub(super) fn await_release(state: &mut State) -> Result<()> {
    let members = state.members.as_ref();
    let awaits = members
        .is_some_and(|members| members.asker().is_some_and(|asker| members.awaits_release(asker)));
    if awaits { Err(requiring::released(state)) } else { Ok(()) }
}

/// A transaction fails: who asked for it is told so once no witness knows anything else.
pub(super) fn fails(state: &mut State, error: Error) -> Error {
    let members = state.members.as_ref();
    let knows = members
        .is_some_and(|members| members.asker().is_some_and(|asker| members.has_witness(asker)));
    match knows && !state.fetches.is_waiting() && state.fetches.may_wait() {
        true => requiring::anew(state),
        false => error,
    }
}

/// Another member's transaction is to do this to what was born here.
///
/// # Errors
/// If it must wait; those of setxattr(2), and link(2), with which operation that is.
pub fn prepare(
    state: &mut State,
    caller: &Caller,
    file: Number,
    (of, wanted): (TransactionId, &Preparing),
) -> Result<Outcome> {
    let Preparing { sets, gets, delegated, witness } = wanted;
    let ino = xattr_requests::asked_for(state, file)?;
    doubts::must_be_free(state, ino)?;
    let mut values = state.xattrs.of(ino).cloned().unwrap_or_default();
    for set in sets {
        let done = can_set(state, (caller, ino), &mut values, set);
        done.map_err(|error| of_operation(set.operation, error))?;
    }
    let links = delegated.iter().filter(|it| it.more > 0).map(|it| it.operation);
    for operation in gets.iter().map(|gets| gets.operation).chain(links) {
        let path = state.names.path(ino).unwrap_or_default();
        let permitted = further::permit_linking(state, caller, ino, &path);
        permitted.map_err(|error| of_operation(operation, error))?;
    }
    let outcome = match delegated {
        Some(delegated) => delegating::delegate(state, ino, (of.by, *witness), delegated)
            .map_err(|error| of_operation(delegated.operation, error))?,
        None => Outcome::Done(None),
    };
    let delegated = delegated.as_ref().filter(|_| matches!(outcome, Outcome::Delegated(..)));
    if delegated.is_none() && sets.is_empty() && gets.is_none() {
        // It was let go.
        return Ok(outcome);
    }
    if let Some(Gets { names, .. }) = gets {
        counting::may_get(state, ino, *names)?;
    }
    let (sets, since_s) = (sets.clone(), state.world.wall_s());
    let mut records = vec![Transacts::Prepared { of, file, sets, since_s }];
    let (more, less) = delegated.map_or((0, 0), |it| (it.more, it.less));
    counting::gets_more(state, ino, i64::from(more) - i64::from(less));
    let names = gets.map(|gets| gets.names).or((more > 0).then_some(more));
    let counted = names.map(|names| Transacts::Gets { of, file, names });
    let loses = (less > 0).then_some(Transacts::Loses { of, file, names: less });
    let to = delegated.map(|delegated| delegated.to.clone());
    let delegated = to.map(|to| Transacts::Delegated { of, file, to });
    let watched = witness.map(|witness| Transacts::Watched { of, file, witness });
    records.extend(counted.into_iter().chain(loses).chain(delegated).chain(watched));
    records.into_iter().for_each(|record| state.record(Membership::Transacts(record)));
    Ok(outcome)
}

fn of_operation(operation: u32, error: Error) -> Error {
    let context = format!("operation {operation}: {}", error.context);
    Error { context, ..error }
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
    ends(state, file, of, |state, ino, doubt| {
        if is {
            set_all(state, ino, doubt.sets);
        } else if doubt.gets > 0 {
            counting::never_got(state, ino, doubt.gets);
        } else if doubt.loses > 0 {
            counting::gets_more(state, ino, i64::from(doubt.loses));
        }
    });
}

/// It has come to be, and its names come back that were delegated for it. Done again, it is as if
/// done once.
///
/// # Errors
/// If that must wait; if the tables have no room.
pub fn is_returned(
    state: &mut State,
    file: Number,
    (of, returned): (TransactionId, &Returned),
) -> Result<Outcome> {
    let members = state.members.as_ref();
    let doubt = members.and_then(|it| it.prepared(file)).filter(|doubt| doubt.of == of);
    let counted = doubt.map_or(0, |doubt| i64::from(doubt.gets) - i64::from(doubt.loses));
    let place = members.filter(|_| doubt.is_some_and(|doubt| doubt.delegated.is_some()));
    let place = place.and_then(|members| members.place(file));
    if doubt.is_some() && place.is_none() {
        // They were taken back, and the rest of it has come to be, too.
        settle(state, file, (of, true));
    }
    if let Some(ino) = place.filter(|ino| state.names.inode(*ino).is_some()) {
        delegating::is_returned(state, ino, returned, counted)?;
        settle(state, file, (of, true));
        owing::owe(state, ino);
    }
    Ok(Outcome::Done(None))
}

/// It will not be heard what has become of the names that were delegated: they are those before.
/// What else was prepared stays so.
pub fn takes_back(state: &mut State, file: Number, of: TransactionId) {
    let members = state.members.as_ref();
    let doubt = members.and_then(|it| it.prepared(file)).filter(|doubt| doubt.of == of);
    let to = doubt.and_then(|doubt| doubt.delegated.clone()).unwrap_or_default();
    let place = members.and_then(|members| members.place(file));
    if place.is_some_and(|ino| taken_back::is_taken_back(state, ino, &to).is_err()) {
        // The store is asked again.
        return;
    }
    ends(state, file, of, |state, ino, doubt| {
        let Doubt { sets, gets, loses, since_s, witness, .. } = doubt;
        if gets > 0 {
            counting::never_got(state, ino, gets);
        } else if loses > 0 {
            taken_back::counts_again(state, ino, loses, to.is_empty());
        }
        if !sets.is_empty() {
            let watched = witness.map(|witness| Transacts::Watched { of, file, witness });
            let prepared = Transacts::Prepared { of, file, sets, since_s };
            let all = std::iter::once(prepared).chain(watched);
            all.for_each(|record| state.record(Membership::Transacts(record)));
        }
        owing::owe(state, ino);
    });
}

/// Who knows whether it came to be is gone for good, and somebody says. Whatever that is, names
/// that it gives stay counted: if others have seen them they have them, and may have moved them.
pub fn resolve(state: &mut State, file: Number, (of, is): (TransactionId, bool)) {
    ends(state, file, of, |state, ino, doubt| {
        if is {
            set_all(state, ino, doubt.sets);
        }
    });
}

fn ends(
    state: &mut State,
    file: Number,
    of: TransactionId,
    settles: impl FnOnce(&mut State, Ino, Doubt),
) {
    let Some(members) = &state.members else { return };
    let Some(doubt) = members.prepared(file).filter(|doubt| doubt.of == of).cloned() else {
        return;
    };
    let place = members.place(file).filter(|ino| state.names.inode(*ino).is_some());
    // First: as long as it is prepared it is taken for one that may have several names.
    state.record(Membership::Transacts(Transacts::Settled { of, file }));
    if let Some(ino) = place {
        settles(state, ino, doubt);
    }
    state.members.iter_mut().for_each(|members| members.go_on());
}

fn set_all(state: &mut State, ino: Ino, sets: Vec<Set>) {
    let time_ns = state.storage.time_ns();
    for Set { name, value, .. } in sets {
        state.record(Fact::Xattr { ino, name, value, time_ns });
    }
}
