//! Capabilities that sessions present, and what happens when they run out.

use std::sync::Arc;

use terral_format::disk::local::Local;
use terral_format::ids::SessionSlot;
use terral_format::wire::capability::{Capability, Operations, Rights};
use terral_format::wire::person::Person;
use terral_format::{Error, ErrorKind, Result};

use crate::authority::authn;
use crate::authority::authz::Presented;
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
    state.log.reserve()?;
    let good = state.authz.verify(state.world.wall_s(), capability, Arc::new(person))?;
    let presented = presented_by(state, session)?;
    let handle = match presented.find(&good) {
        Some(handle) => handle,
        None => state.authz.handle(presented)?,
    };
    let (rights, epoch, person) = (good.rights, good.epoch, Person::clone(&good.person));
    state.record(Local::Presented { session, handle, rights, epoch, person });
    state.sessions.publish(session, rights);
    Ok(handle)
}

/// Takes back what was granted under capabilities that have run out: no chunk is used any more
/// by calls that begin, and nothing is deferred. What was committed before is applied.
pub fn recall_expired(state: &mut State, now_s: u64) -> Result<()> {
    if !state.sessions.may_expire(now_s) {
        return Ok(());
    }
    for session in state.sessions.expired(now_s) {
        let rights = Rights { operations: Operations(0), expires_s: now_s };
        state.sessions.publish(session, rights);
    }
    let closed = applying::close_gate(state);
    if closed.is_ok() {
        state.sessions.end_expired(now_s);
    }
    applying::open_gate(state);
    closed.and_then(|()| state.commit())
}
