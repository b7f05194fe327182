//! Capabilities that another member has issued: the control is asked once whether one is good, and
//! from then on, by and by, whether something was revoked that is not known here.
//!
//! Invariants: a capability is believed if the control has said so, or it was made of such a one;
//! what it allows counts as long as the lease is good, and who acts by it waits for that. Not here:
//! how what was revoked comes here (`sharing/revoking`).

use std::sync::Arc;

use terral_format::ids::{Ino, Number};
use terral_format::local::clock;
use terral_format::wire::capability::{Capability, Operations, Principal, Scope};
use terral_format::wire::person::Person;
use terral_format::wire::things::{Look, Outcome};
use terral_format::{Error, ErrorKind, Result};

use crate::authority::authn::Most;
use crate::authority::authz::Good;
use crate::authority::caller::Caller;
use crate::core::state::State;
use crate::members::requiring;
use crate::members::role::NOBODY;
use crate::naming::elsewhere;
use crate::sharing::own::{Own, are_wanted, as_own};

const NANOS: u64 = 1_000_000_000;
/// `EIO`.
const EIO: i32 = 5;

fn strange() -> Error {
    Error::new(ErrorKind::Malformed, "what the control says of capabilities")
}

/// What the control says of what it has issued.
///
/// # Errors
/// If who asks must wait; [`ErrorKind::Unauthorized`] if this server is alone, or is the control.
fn told(state: &mut State, look: Look) -> Result<Outcome> {
    let others = state.members.as_ref().filter(|members| members.control() != members.me());
    let control = others.and_then(|members| Number::new(members.control(), 0));
    let nobody = || Error::new(ErrorKind::Unauthorized, "capability: not issued here");
    let caller = Caller { session: NOBODY, person: Person::default().into() };
    elsewhere::told_of(state, &caller, control.ok_or_else(nobody)?, look)
}

/// Verifies a capability, whoever has issued it.
///
/// # Errors
/// [`ErrorKind::Unauthorized`] if it is not good; or who presents it must wait.
pub fn verify(state: &mut State, capability: &Capability, person: Arc<Person>) -> Result<Good> {
    let now_s = state.world.wall_s();
    let alone = state.members.as_ref().is_none_or(|members| members.control() == members.me());
    if alone || state.authz.has_issued(&capability.grant) {
        return state.authz.verify(now_s, capability, person);
    }
    if !state.authz.vouched.covers(capability) {
        asked_once(state, capability)?;
    }
    let scope = by_own_clock(state, capability.scope());
    state.authz.verify_leased(now_s, (capability, scope), person)
}

/// The control says that this is good. Of those who present the same, or what was made of it, one
/// asks, and the others wait for what he hears.
///
/// # Errors
/// As those of [`verify`].
fn asked_once(state: &mut State, capability: &Capability) -> Result<()> {
    let members = state.members.as_ref();
    if members.is_some_and(|members| {
        requiring::looks_for_another(
            members,
            |look| matches!(look, Look::Verify(other) if other.is_parent_of(capability)),
        )
    }) {
        return Err(state.fetches.wait());
    }
    let said = told(state, Look::Verify(Box::new(capability.clone())));
    if !state.fetches.is_waiting() {
        state.members.iter_mut().for_each(|members| members.go_on());
    }
    match said? {
        Outcome::Good(scope) if scope == capability.scope() => {
            state.authz.vouched.learns(capability.clone());
            Ok(())
        }
        _ => Err(strange()),
    }
}

/// The time that it says is the partition's.
fn by_own_clock(state: &State, mut scope: Scope) -> Scope {
    let until_ns = scope.rights.expires_s.saturating_mul(NANOS);
    let own_ns = clock::wall_ns(state.storage.memory().clock_offset(), until_ns);
    scope.rights.expires_s = own_ns / NANOS;
    scope
}

/// A capability to be kept and handed on, for what a principal may at most: the control's, which
/// all members know.
///
/// # Errors
/// If who asks must wait, or the control cannot be reached.
pub fn issue(state: &mut State, most: &Most) -> Result<Capability> {
    if state.members.as_ref().is_none_or(|members| members.control() == members.me()) {
        return state.authz.issue(&*state.world, most);
    }
    let left_s = most.until_s.saturating_sub(state.world.wall_s());
    issue_under(state, Look::Issue(most.principal, left_s))
}

/// The same, of what the control is asked for in so many words.
///
/// # Errors
/// If who asks must wait, or the control cannot be reached.
pub fn issue_under(state: &mut State, look: Look) -> Result<Capability> {
    match told(state, look)? {
        Outcome::Issued(capability) => Ok(*capability),
        _ => Err(strange()),
    }
}

/// What another member asks the control for: as [`issue`].
///
/// # Errors
/// If there is no chance.
pub fn issue_for(state: &State, principal: Principal, lifetime_s: u64) -> Result<Outcome> {
    let until_s = state.world.wall_s().saturating_add(lifetime_s);
    let (operations, below) = (Operations::ALL, Vec::new());
    let most = Most { principal, operations, below, until_s };
    let issued = state.authz.issue(&*state.world, &most)?;
    Ok(Outcome::Issued(Box::new(issued)))
}

/// What this server has issued is good, another member is told.
///
/// # Errors
/// [`ErrorKind::Unauthorized`] if it is not.
pub fn is_good(state: &State, capability: &Capability) -> Result<Outcome> {
    let now_s = state.world.wall_s();
    state.authz.verify(now_s, capability, Arc::default())?;
    Ok(Outcome::Good(capability.scope()))
}

/// What another member has issued counts now.
///
/// # Errors
/// If who asks must wait for that; `EIO` if the control has said nothing for long.
pub fn counts(state: &mut State) -> Result<()> {
    let now = state.world.now();
    if state.authz.lease.is_good(now) {
        return Ok(());
    }
    ask(state);
    if state.authz.lease.is_good(now) {
        return Ok(());
    }
    if state.authz.lease.is_awaited(now) {
        return Err(state.fetches.wait());
    }
    let control = state.members.as_ref().map(|members| members.control().to_string());
    let control = control.unwrap_or_default();
    let context = format!("{control} does not answer whether the capability still is good");
    Err(Error { errno: EIO, ..Error::new(ErrorKind::Backing, context) })
}

/// Until when the lease is good, by the machine's clock, nanoseconds since 1970.
pub fn until_ns(state: &State) -> u64 {
    let left = state.authz.lease.until().since(state.world.now());
    state.world.wall_ns().saturating_add(left.as_nanos() as u64)
}

/// Something has come: it may be what the control was asked for.
pub fn resume(state: &mut State) {
    if state.authz.lease.is_asking() {
        ask(state);
    }
}

/// Time has passed: the lease is asked for in good time, as long as anybody acts by one.
pub fn tick(state: &mut State) {
    if state.sessions.leased().next().is_some() {
        ask(state);
    }
}

/// Asks the control, or sees what it has answered.
fn ask(state: &mut State) {
    let now = state.world.now();
    let Some(question) = state.authz.lease.asks(now) else { return };
    are_wanted(state, Own::Lease, &[Ino(question)].into());
    let mut said = None;
    as_own(state, (Own::Lease, Ino(question)), |state| {
        said = Some(told(state, Look::Revoked)?);
        Ok(())
    });
    let Some(Outcome::Revoked(epoch)) = said else { return };
    let is_known = epoch <= state.authz.epoch();
    state.authz.lease.hears(question, is_known);
    if !is_known {
        state.members.iter_mut().for_each(|members| members.needs_roster());
    }
    if state.authz.lease.is_good(now) {
        let until_ns = until_ns(state);
        let leased: Vec<_> = state.sessions.leased().collect();
        for (session, handle) in leased {
            state.sessions.publish(session, handle, until_ns);
        }
        state.members.iter_mut().for_each(|members| members.go_on());
    }
}
