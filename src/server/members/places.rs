//! Where users' servers are: others connect to what a user says of that, so it is on the machine of
//! who answers for his server, and nowhere else.
//!
//! Invariants: nobody is sent to another machine, nor to a port of the system's. However often one
//! moves, the roster, which goes to all, changes for it with a tick, and once in 10 s. Not here:
//! how often it may say so (`sharing/users`).

use std::net::SocketAddr;

use terral_format::ids::Member;
use terral_format::wire::roster::Roster;
use terral_format::{Error, ErrorKind, Result};

use super::control;
use crate::core::state::State;

/// Lower ones are the system's.
const PORT_MIN: u16 = 1024;

/// Of these addresses those on the machine of who answers for a member, or of the control; `None`
/// as long as it is not known where that is.
fn on_his_machine(
    roster: &Roster,
    (member, control): (Member, Member),
    at: &[SocketAddr],
) -> Option<Vec<SocketAddr>> {
    let by = roster.answers_for(member).unwrap_or(control);
    let its = &roster.seat(by)?.addresses;
    let is_its =
        |at: &&SocketAddr| its.iter().any(|its| its.ip().to_canonical() == at.ip().to_canonical());
    (!its.is_empty()).then(|| at.iter().filter(is_its).copied().collect())
}

/// Whether a user's server may be there, as the control knows.
///
/// # Errors
/// [`ErrorKind::Malformed`] if not.
pub fn may_be_at(state: &State, member: Member, at: &[SocketAddr]) -> Result<()> {
    let Some(members) = &state.members else { return Ok(()) };
    let is_control = members.control() == members.me();
    let found = on_his_machine(members.roster(), (member, members.control()), at);
    let is_elsewhere = is_control && found.is_some_and(|found| found.is_empty());
    if at.is_empty() || at.iter().any(|at| at.port() < PORT_MIN) || is_elsewhere {
        let context = "a user's server at a place that is not on its machine";
        return Err(Error::new(ErrorKind::Malformed, context));
    }
    Ok(())
}

/// Time has passed: the control takes down where those are that have moved.
pub fn tick(state: &mut State) {
    let now = state.world.now();
    let Some(members) = &mut state.members else { return };
    if members.is_handing_over() {
        // Or takes it down if it is the control after all.
        return;
    }
    let control = members.control();
    if control != members.me() {
        members.are_anywhere();
        return;
    }
    for (member, at) in members.moved(now) {
        let Some(members) = &mut state.members else { return };
        let Some(found) = on_his_machine(members.roster(), (member, control), &at) else {
            continue;
        };
        members.has_moved(member, now);
        if found.is_empty() {
            state.warn(format!(
                "{member}, a user's server, is not on the machine it was let in for"
            ));
            continue;
        }
        // This is the control.
        let _ = control::is_at(state, member, found);
    }
}
