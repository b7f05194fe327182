//! Names of other members' files that are about to go here: their homes are asked to let them go
//! before, and count them no more. As one is taken away that is written down with it, by which of
//! the home's times it was, so that the home hears of it whatever happens; of one that stays it
//! hears when it asks (`sharing/letting_go`).
//!
//! Invariant: a name is taken away by a time that the home has given, and was not told to have
//! stayed by.
//! Not here: what the home counts (`counting`).

use std::collections::BTreeMap;

use terral_format::disk::membership::Membership;
use terral_format::fingerprint::Fingerprint;
use terral_format::ids::{Ino, Thing};
use terral_format::wire::peers::Work;
use terral_format::wire::things::{By, Change, Outcome};
use terral_format::{Error, ErrorKind, Result};

use crate::authority::caller::Caller;
use crate::core::left_out::{Step, does};
use crate::core::state::State;
use crate::far::asking;
use crate::members::requiring::{self, Have};
use crate::members::role::Members;
use crate::naming::leaving::Time;
use crate::naming::names::Name;
use crate::naming::{counting, elsewhere};

/// A name of a file is about to be removed, or to be taken by something else of this machine: its
/// home lets it go, if that is elsewhere.
///
/// # Errors
/// If it must wait for that; as [`elsewhere::look`]'s.
pub fn may_lose(state: &mut State, caller: &Caller, ino: Ino, place: (Ino, &[u8])) -> Result<()> {
    let Some(file) = asking::number_of(state, ino) else {
        return counting::may_remove(state, ino, 1);
    };
    must_be_returned(state, ino)?;
    let Some((thing, work)) = to_let_go(state, caller, ino, place)? else { return Ok(()) };
    let malformed = |what| Error::new(ErrorKind::Malformed, what);
    let Have::Done(answer) = requiring::need(state, thing, &work)? else {
        return Err(malformed("who has another member's file"));
    };
    match elsewhere::outcome(state, answer) {
        Ok(Outcome::LetGoOf(fingerprint, left, which)) => {
            if which != 0 && !uses(state, (file.born(), which), (thing, &work))? {
                return Err(requiring::asks_again(state));
            }
            state.record(Membership::There { ino, fingerprint });
            let others = state.names.names_here(ino).saturating_sub(1);
            if left == 0 && others > 0 && must_ask_again(state) {
                return Err(requiring::asks_again(state));
            }
            // This one is taken away yet.
            counting::has_links(state, ino, left.max(others).saturating_add(1));
            Ok(())
        }
        Ok(_) => Err(malformed("what another member says")),
        // It has lost it since that was looked up, or does not know yet if it has another one.
        Err(error) if error.kind == ErrorKind::BadHandle => Err(requiring::anew(state)),
        // What has no name is gone, and this one is on its way to be.
        Err(error) if error.kind == ErrorKind::NotFound && state.backing.is_none() => Ok(()),
        Err(error) => Err(error),
    }
}

/// The only name of a file is let go by its home: what the permanent store has of it is known.
pub(super) fn is_its_last(state: &mut State, ino: Ino, fingerprint: Option<Fingerprint>) {
    state.record(Membership::There { ino, fingerprint });
    let names = state.names.names_here(ino).max(1);
    counting::has_links(state, ino, names);
}

/// Its home knows what a transaction that this server has decided has made of a file's names.
///
/// # Errors
/// If that must wait.
pub(super) fn must_be_returned(state: &mut State, ino: Ino) -> Result<()> {
    let members = state.members.as_ref();
    let returns =
        |members: &Members| members.number(ino).is_some_and(|file| members.is_returning(file));
    match members.is_some_and(|members| returns(members)) {
        true => Err(requiring::released(state)),
        false => Ok(()),
    }
}

/// The present request is to take a name away by this time of its home, which was asked so. Whether
/// it may.
fn uses(state: &mut State, time: Time, (thing, work): (Thing, &Work)) -> Result<bool> {
    let (wish, now) = (requiring::wish(state, thing, work)?, state.world.now());
    Ok(state.members.as_mut().is_some_and(|members| members.uses(time, (wish, now))))
}

/// How the home of another member's file is asked to let a name go; `None`: nobody counts them.
fn to_let_go(
    state: &State,
    caller: &Caller,
    ino: Ino,
    (parent, name): (Ino, &[u8]),
) -> Result<Option<(Thing, Work)>> {
    let Some(file) = asking::number_of(state, ino).filter(|_| does(Step::LetGo)) else {
        return Ok(None);
    };
    let members = state.members.as_ref();
    let is_lost = members.is_some_and(|members| members.is_removed(file.born()));
    if is_lost && state.backing.is_none() {
        return Ok(None);
    }
    let unsaid = || Error::new(ErrorKind::Malformed, "a directory that has no number");
    let directory = members.and_then(|members| members.number(parent)).ok_or_else(unsaid)?;
    let by = By { person: (*caller.person).clone(), what: Change::LetGoOf(directory, name.into()) };
    Ok(Some((Thing::File(file), Work::Change(by.body()?))))
}

/// The present request has taken away what it had let go: it is written down with that.
pub(super) fn are_gone(state: &mut State) {
    let uses = state.members.as_mut().map(|members| members.take_uses());
    for (home, which) in uses.into_iter().flatten() {
        state.record(Membership::Gone { home, which, is: true });
    }
}

/// Its home has said that this is the only name, and there are others here: another request of this
/// server has got them since. If it says so again, there is no more to be known.
fn must_ask_again(state: &mut State) -> bool {
    let members = state.members.as_mut().filter(|_| state.backing.is_none());
    members.is_some_and(|members| members.asker().is_some_and(|asker| members.asks_again(asker)))
}

/// Several names of one thing each are about to go at once, as [`may_lose`] has it of one: their
/// homes are asked at the same time.
///
/// # Errors
/// As those of [`may_lose`].
pub(super) fn may_lose_all(
    state: &mut State,
    caller: &Caller,
    losses: &BTreeMap<Ino, Vec<Name>>,
) -> Result<()> {
    let mut late = Ok(());
    for (ino, names) in losses {
        if asking::number_of(state, *ino).is_none() {
            counting::may_remove(state, *ino, names.len() as u32)?;
        }
        must_be_returned(state, *ino)?;
        for (parent, name) in names {
            let Some((thing, work)) = to_let_go(state, caller, *ino, (*parent, name))? else {
                continue;
            };
            match requiring::need(state, thing, &work) {
                Err(error) if state.fetches.is_waiting() => late = Err(error),
                // Several names of one file are asked for one after the other, and its home may
                // wait until it knows of the first.
                Ok(Have::Done(answer)) if names.len() == 1 => {
                    if let Ok(Outcome::LetGoOf(_, _, which @ 1..)) =
                        elsewhere::outcome(state, answer)
                    {
                        let home = thing.number().born();
                        uses(state, (home, which), (thing, &work))?;
                    }
                }
                // It is heard of below.
                _ => {}
            }
        }
    }
    late?;
    let mut names = losses.iter().flat_map(|(ino, names)| names.iter().map(|name| (*ino, name)));
    // Each home says how many are left besides one, also if several go.
    names.try_for_each(|(ino, (parent, name))| may_lose(state, caller, ino, (*parent, name)))
}
