//! Capabilities that sessions present, and what happens when they run out. Not here: what is
//! revoked (`sharing/revoking`).

use std::sync::Arc;

use terral_format::ids::SessionSlot;
use terral_format::wire::capability::{Capability, Operations, Principal};
use terral_format::wire::person::Person;
use terral_format::{Error, ErrorKind, Result};

use crate::authority::audit::{self, Who};
use crate::authority::authn;
use crate::authority::authz::{Good, Presented};
use crate::core::state::State;
use crate::deferred::applying;
use crate::requests::contained::Refused;
use crate::sharing::leasing;

/// What a session has presented.
pub fn presented_by(state: &State, session: SessionSlot) -> Result<&Presented> {
    let gone = || Error::new(ErrorKind::BadHandle, "session");
    state.sessions.presented_by(session).ok_or_else(gone)
}

/// Verifies what a session presents. Gives the handle that stands for it there.
///
/// # Errors
/// As [`leasing::verify`], and [`ErrorKind::Unauthorized`] if its process may not act as `person`.
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
    state.record(good.record(session, handle));
    publish(state, session, handle);
    Ok(handle)
}

/// Verifies a capability, whoever has issued it; what is refused is written down.
///
/// # Errors
/// As [`leasing::verify`].
pub fn verify(
    state: &mut State,
    capability: &Capability,
    who: Who,
    person: Arc<Person>,
) -> Result<Good> {
    let verified = leasing::verify(state, capability, person);
    verified.inspect_err(|error| {
        if error.kind == ErrorKind::Unauthorized {
            state.machine.audit(&audit::refused(state.world.wall_s(), who, capability));
        }
    })
}

/// Sets what a client finds in its page: what this handle allows now.
pub fn publish(state: &State, session: SessionSlot, handle: u32) {
    state.sessions.publish(session, handle, leasing::until_ns(state));
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

/// Containers refuse what somebody asks for: that is written down once for each of them, and what
/// he may not there. Gives what he is told.
pub fn was_kept_out(
    state: &mut State,
    (session, who): (SessionSlot, Who),
    needs: Operations,
    (by, refused): (Principal, Refused),
) -> Error {
    let Refused { error, container } = refused;
    if let Some(container) = container
        && state.sessions.was_kept_out(session, &container, needs)
    {
        let now_s = state.world.wall_s();
        state.machine.audit(&audit::kept_out(now_s, who, needs, (&container, by)));
    }
    error
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
    applying::behind_the_gate(state, |state| state.sessions.end_expired(now_s))
}
