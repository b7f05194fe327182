//! Processes that wait for locks of each other over files of several machines are looked for: while
//! somebody waits here for long, all are asked who waits there.
//!
//! Invariant: nobody waits for the answers; who does not answer has said nothing. Not here: what is
//! a circle, and when it is believed (`locks/circles`).

use std::collections::BTreeSet;

use terral_format::ids::{Ino, Member, Number};
use terral_format::wire::locks::Waiting;
use terral_format::wire::person::Person;
use terral_format::wire::things::{Look, Outcome};
use terral_format::{Error, ErrorKind, Result};

use crate::authority::caller::Caller;
use crate::core::state::State;
use crate::core::world::Tick;
use crate::locks::circles::{Edge, SUSPECT};
use crate::members::role::NOBODY;
use crate::naming::elsewhere;
use crate::sharing::own::{Own, are_wanted, as_own};

/// Something has come: if somebody is waited for, it may be that.
pub fn resume(state: &mut State) {
    if state.locks.search.is_asking() {
        settle(state);
    }
}

/// Begins a search, if that is due, and goes on with it as far as it can be now.
pub fn settle(state: &mut State) {
    let Some(me) = state.members.as_ref().map(|members| members.me()) else { return };
    let now = state.world.now();
    let here = state.locks.waiting(me, now);
    let asks = state.locks.search.asks(now, || here.iter().any(|wait| is_suspect(me, wait, now)));
    let Some((round, is_late)) = asks else { return };
    are_wanted(state, Own::Circles, &[Ino(round)].into());
    let mut said = None;
    as_own(state, (Own::Circles, Ino(round)), |state| {
        said = Some(others(state, is_late)?);
        Ok(())
    });
    let Some(mut edges) = said else { return };
    edges.extend(Edge::all(me, &here));
    let ends = state.locks.search.hears(edges, now);
    for edge in ends.iter().filter(|edge| edge.home == me) {
        state.locks.doom(edge, now);
    }
}

/// Whether a wait may be part of a circle of which others have to say something.
fn is_suspect(me: Member, wait: &Waiting, now: Tick) -> bool {
    let is_old = now.since(Tick(wait.since_ns)) >= SUSPECT;
    is_old && Edge::all(me, std::slice::from_ref(wait)).any(|edge| edge.is_far())
}

/// Who waits elsewhere, as all say who are there.
///
/// # Errors
/// If somebody has not answered yet, and it is not late.
fn others(state: &mut State, is_late: bool) -> Result<BTreeSet<Edge>> {
    let all = state.members.as_ref().map(|members| members.others()).unwrap_or_default();
    let (mut edges, mut late) = (BTreeSet::new(), None);
    for member in all {
        match told(state, member) {
            Ok(waiting) => edges.extend(Edge::all(member, &waiting)),
            // All are asked before any is waited for.
            Err(error) if state.fetches.is_waiting() => late = Some(error),
            Err(_) => {}
        }
    }
    match late {
        Some(error) if !is_late => Err(error),
        _ => Ok(edges),
    }
}

/// Who waits at one of them.
fn told(state: &mut State, member: Member) -> Result<Vec<Waiting>> {
    let members = state.members.as_ref();
    let is_connected = members.is_some_and(|members| members.is_connected(member));
    // It is decided by that member, and nothing has it.
    let Some(its) = Number::new(member, 0).filter(|_| is_connected) else { return Ok(Vec::new()) };
    let caller = Caller { session: NOBODY, person: Person::default().into() };
    match elsewhere::told_of(state, &caller, its, Look::Waits)? {
        Outcome::Waits(waiting) => Ok(waiting),
        _ => Err(Error::new(ErrorKind::Malformed, "who waits for locks at another member")),
    }
}

/// What others are told of this server.
pub fn here(state: &State) -> Outcome {
    let me = state.members.as_ref().map(|members| members.me());
    Outcome::Waits(me.map(|me| state.locks.waiting(me, state.world.now())).unwrap_or_default())
}
