//! Revoking what capabilities allow: the control writes it down and tells all members, and who
//! revokes is answered when all go by it.
//!
//! Invariant: once he is answered, nobody begins anything that was revoked, but for what members
//! that are named let their own programs do: those have not said that they have heard. What was
//! handed out is good there no more, as its lease is over.

use terral_format::disk::local::Local;
use terral_format::disk::partition::Standing;
use terral_format::ids::{Member, Number};
use terral_format::wire::capability::{Revocation, Revoked};
use terral_format::wire::peers::Work;
use terral_format::wire::person::Person;
use terral_format::wire::roster::Seat;
use terral_format::wire::things::{By, Change, Outcome};
use terral_format::{Error, ErrorKind, Result};

use crate::authority::audit::{self, Who};
use crate::authority::hearing::Begun;
use crate::core::state::State;
use crate::deferred::applying;
use crate::members::control;
use crate::naming::elsewhere;
use crate::sharing::{keeping, leasing};

/// Revokes something, everywhere. Gives how many sessions where that is done may do less now, and
/// who has not heard of it.
///
/// # Errors
/// If who asks must wait; [`ErrorKind::TooMany`], and those of the log: nothing was revoked then.
pub fn revoke(state: &mut State, who: Who, what: Revocation) -> Result<(u32, Vec<Member>)> {
    match other_control(state) {
        Some(control) => at_the_control(state, control, who.user, Change::Revoke(what)),
        None => for_all(state, |state| here(state, who, what)),
    }
}

/// The control, if this server is another.
pub fn other_control(state: &State) -> Option<Member> {
    let members = state.members.as_ref()?;
    Some(members.control()).filter(|control| *control != members.me())
}

/// Does something that the control tells all members, once, and waits until they go by it. Gives
/// what it gives, and who has not heard of it.
///
/// # Errors
/// If who asks must wait, and what that fails with.
pub fn for_all(
    state: &mut State,
    begin: impl FnOnce(&mut State) -> Result<u32>,
) -> Result<(u32, Vec<Member>)> {
    let Some(members) = &state.members else { return Ok((begin(state)?, Vec::new())) };
    let late = || Error::new(ErrorKind::Busy, "nobody waits for it");
    let asker = members.asker().ok_or_else(late)?;
    let begun = match state.authz.hearing.of(asker) {
        Some(begun) => begun,
        None => {
            keeping::decides(state)?;
            let sessions = begin(state)?;
            let version = state.members.as_ref().map_or(0, |members| members.roster().version);
            let begun = Begun { version, sessions, since: state.world.now() };
            state.authz.hearing.begins(asker, begun);
            begun
        }
    };
    match keeping::is_kept(state, &begun) {
        Err(error) if error.kind == ErrorKind::Unanswered => {
            state.authz.hearing.ends(asker);
            return Err(error);
        }
        kept => kept?,
    }
    let deaf = deaf(state, begun.version);
    if !deaf.is_empty() && !begun.is_over(state.world.now()) {
        return Err(state.fetches.wait());
    }
    state.authz.hearing.ends(asker);
    Ok((begun.sessions, deaf))
}

/// Whether who asks has begun that before, and waits until all have heard.
pub fn is_begun(state: &State) -> bool {
    let asker = state.members.as_ref().and_then(|members| members.asker());
    asker.is_some_and(|asker| state.authz.hearing.of(asker).is_some())
}

/// The same, by asking the control for it in a user's name.
///
/// # Errors
/// If who asks must wait, and what the control says.
pub fn at_the_control(
    state: &mut State,
    control: Member,
    user: u32,
    what: Change,
) -> Result<(u32, Vec<Member>)> {
    let person = Person { user, ..Person::default() };
    let work = Work::Change(By { person, what }.body()?);
    let strange = || Error::new(ErrorKind::Malformed, "what the control says of what was ended");
    let its = Number::new(control, 0).ok_or_else(strange)?;
    match elsewhere::ask_home(state, its, &work)? {
        Outcome::Ended(sessions, deaf) => Ok((sessions, deaf)),
        _ => Err(strange()),
    }
}

/// Those that are in, and go by an older roster.
fn deaf(state: &State, version: u64) -> Vec<Member> {
    let Some(members) = &state.members else { return Vec::new() };
    let is_in =
        |seat: &&Seat| matches!(seat.standing, Standing::In(_)) && !seat.addresses.is_empty();
    let others = members.roster().seats.iter().filter(is_in).map(|seat| seat.member);
    others.filter(|member| !members.goes_by(*member, version)).collect()
}

/// Takes back what was granted here: when this is over, nobody does what was revoked any more.
/// Gives how many sessions may do less now. What was committed before is applied, and others go on.
fn here(state: &mut State, who: Who, what: Revocation) -> Result<u32> {
    let revoked = state.authz.revocation(what)?;
    take_back(state, who, &[revoked])
}

/// The control says that all this was revoked.
///
/// # Errors
/// Those of the log.
pub fn heard(state: &mut State, mut revoked: Vec<Revoked>) -> Result<()> {
    revoked.retain(|one| !state.authz.knows(*one));
    if revoked.is_empty() {
        return Ok(());
    }
    let who = Who { pid: state.machine.pid(), user: state.machine.user() };
    take_back(state, who, &revoked).map(drop)
}

fn take_back(state: &mut State, who: Who, revoked: &[Revoked]) -> Result<u32> {
    let record = |one: &Revoked| Local::Revoked { what: one.what, epoch: one.epoch };
    // A member that is none does not tell.
    let tells = |state: &mut State| drop(control::tell_all(state));
    let sessions = end(state, revoked.iter().map(record).collect(), tells)?;
    for Revoked { what, .. } in revoked {
        state.machine.audit(&audit::revoked(state.world.wall_s(), who, *what, sessions));
    }
    Ok(sessions as u32)
}

/// Ends what capabilities allow, as records say it: when this is over, nobody does it any more.
/// Gives how many sessions may do less now.
///
/// # Errors
/// Those of the log.
pub fn end(state: &mut State, records: Vec<Local>, then: impl FnOnce(&mut State)) -> Result<usize> {
    state.log.reserve()?;
    let until_ns = leasing::until_ns(state);
    let mut sessions = 0;
    applying::behind_the_gate(state, |state| {
        let before: Vec<_> = state.sessions.newest().collect();
        records.into_iter().for_each(|record| state.record(record));
        let after: Vec<_> = state.sessions.newest().collect();
        for ((session, handle, _), _) in after.iter().zip(&before).filter(|(now, then)| now != then)
        {
            state.sessions.publish(*session, *handle, until_ns);
            sessions += 1;
        }
        then(state);
    })?;
    Ok(sessions)
}

/// Time has passed: who waits looks again.
pub fn tick(state: &mut State) {
    if state.authz.hearing.tick(state.world.now()) {
        state.members.iter_mut().for_each(|members| members.go_on());
    }
}
