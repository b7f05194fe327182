//! Capabilities that sessions present, and what happens when they run out, or are revoked.

use std::sync::Arc;

use terral_format::disk::local::{Held, Local};
use terral_format::ids::SessionSlot;
use terral_format::wire::capability::{Capability, Operations, Revocation};
use terral_format::wire::person::Person;
use terral_format::{Error, ErrorKind, Result};

use crate::authority::audit::{self, Who};
use crate::authority::authn;
use crate::authority::authz::{Good, Presented};
use crate::core::state::State;
use crate::deferred::applying;

/// What a session has presented.
pub fn presented_by(state: &State, session: SessionSlot) -> Result<&Presented> {
    let gone = || Error::new(ErrorKind::BadHandle, "session");
    state.sessions.presented_by(session).ok_or_else(gone)
}

/// Verifies what a session presents. Gives the handle that stands for it there.
///
/// # Errors
/// As [`Authz::verify`](crate::authority::authz::Authz::verify), and
/// [`ErrorKind::Unauthorized`] if its process may not act as `person`.
pub fn present(
    state: &mut State,
    session: SessionSlot,
    capability: &Capability,
    person: Person,
) -> Result<u32> {
    let gone = || Error::new(ErrorKind::BadHandle, "session");
    let client = state.sessions.client(session).ok_or_else(gone)?;
    authn::permit_acting(&*state.machine, &*client.process, &person)?;
    let who = Who { pid: client.process.pid(), user: person.user };
    state.log.reserve()?;
    let good = verify(state, capability, who, Arc::new(person))?;
    let presented = presented_by(state, session)?;
    let handle = match presented.find(&good) {
        Some(handle) => handle,
        None => state.authz.handle(presented)?,
    };
    state.record(Local::Held { session, handle, held: Held::from(&good) });
    state.sessions.publish(session, handle);
    Ok(handle)
}

/// As [`Authz::verify`](crate::authority::authz::Authz::verify); what is refused is written down.
pub fn verify(
    state: &State,
    capability: &Capability,
    who: Who,
    person: Arc<Person>,
) -> Result<Good> {
    let now_s = state.world.wall_s();
    state.authz.verify(now_s, capability, person).inspect_err(|_| {
        state.machine.audit(&audit::refused(now_s, who, capability));
    })
}

/// A session asked for what it may not: that is written down once for all that is denied it.
pub fn was_denied(
    state: &mut State,
    (session, handle): (SessionSlot, u32),
    needs: Operations,
    why: ErrorKind,
) {
    let process = state.sessions.process_of(session).filter(|_| needs != Operations(0));
    let Some((pid, _)) = process.filter(|_| state.sessions.was_denied(session, needs)) else {
        return;
    };
    let person = presented_by(state, session).ok().and_then(|presented| presented.person(handle));
    let who = Who { pid, user: person.map_or(state.machine.user(), |person| person.user) };
    state.machine.audit(&audit::denied(state.world.wall_s(), who, needs, why));
}

/// Takes back what was granted under capabilities that have run out: no chunk is used any more
/// by calls that begin, and nothing is deferred. What was committed before is applied.
pub fn recall_expired(state: &mut State, now_s: u64) -> Result<()> {
    if !state.sessions.may_expire(now_s) {
        return Ok(());
    }
    for session in state.sessions.expired(now_s) {
        state.sessions.publish_none(session, now_s);
    }
    behind_the_gate(state, |state| state.sessions.end_expired(now_s))
}

/// Takes back what was granted: when this is over, nobody does what was revoked any more. Gives how
/// many sessions may do less now. What was committed before is applied, and others go on.
///
/// # Errors
/// [`ErrorKind::TooMany`], and those of the log; nothing was revoked then.
pub fn revoke(state: &mut State, who: Who, what: Revocation) -> Result<u32> {
    state.log.reserve()?;
    let record = state.authz.revocation(what)?;
    let mut sessions = 0;
    behind_the_gate(state, |state| {
        let before: Vec<_> = state.sessions.newest().collect();
        state.record(record);
        let after: Vec<_> = state.sessions.newest().collect();
        for ((session, handle, _), _) in after.iter().zip(&before).filter(|(now, then)| now != then)
        {
            state.sessions.publish(*session, *handle);
            sessions += 1;
        }
    })?;
    state.machine.audit(&audit::revoked(state.world.wall_s(), who, what, sessions));
    Ok(sessions as u32)
}

/// Does something while nothing is deferred; all that was before is applied then.
fn behind_the_gate(state: &mut State, act: impl FnOnce(&mut State)) -> Result<()> {
    let done = applying::close_gate(state).and_then(|()| {
        act(state);
        state.commit()
    });
    applying::open_gate(state);
    done
}
