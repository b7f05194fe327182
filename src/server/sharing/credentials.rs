//! Credentials that somebody shows, on whichever machine: the control, where he has logged in,
//! knows whether one is good, and ends it.
//!
//! Not here: logging in (`requests::logging_in`).

use terral_format::Result;
use terral_format::disk::local::{Kept, Local};
use terral_format::ids::Member;
use terral_format::wire::capability::{Capability, Revocation};
use terral_format::wire::login::{Carried, Shown};
use terral_format::wire::things::{Change, Look};

use crate::authority::audit::{self, Who};
use crate::core::state::State;
use crate::sharing::{leasing, revoking};

/// The control, if this server is another, and has not issued that itself.
fn control(state: &State, shown: &Shown<'_>) -> Option<Member> {
    revoking::other_control(state).filter(|_| shown.issuer != state.began.instance)
}

/// The credential that is shown; if it is not good, that is written down.
fn known<'s>(state: &'s State, who: Who, shown: &Shown<'_>) -> Result<&'s Kept> {
    let now_s = state.world.wall_s();
    let known = state.authz.credentials.known(state.began.instance, now_s, shown);
    known.inspect_err(|error| {
        state.machine.audit(&audit::unknown(now_s, who, shown.id, error));
    })
}

/// A capability for whom a credential names; it ends with that. Whether it is to be kept is written
/// down.
///
/// # Errors
/// [`ErrorKind::Unauthorized`] if the credential is not good; or who asks must wait.
pub fn authorize(
    state: &mut State,
    who: Who,
    shown: &Shown<'_>,
    keeps: bool,
) -> Result<Capability> {
    let issued = match control(state, shown) {
        Some(_) => leasing::issue_under(state, Look::Authorize(Carried::of(shown)?))?,
        None => issue(state, who, shown)?,
    };
    if keeps {
        state.machine.audit(&audit::granted(state.world.wall_s(), who, &issued));
    }
    Ok(issued)
}

/// The same, of one that was issued here.
///
/// # Errors
/// [`ErrorKind::Unauthorized`] if it is not good.
pub fn issue(state: &State, who: Who, shown: &Shown<'_>) -> Result<Capability> {
    state.authz.issue_under(&*state.world, known(state, who, shown)?)
}

/// Ends a credential: when this is over, nobody does anything any more by what was got with it, but
/// for what members that are named let their programs do. Gives how many sessions may do less now.
///
/// # Errors
/// [`ErrorKind::Unauthorized`] if the credential is not good, and those of
/// [`revoke`](revoking::revoke).
pub fn logout(state: &mut State, who: Who, shown: &Shown<'_>) -> Result<(u32, Vec<Member>)> {
    match control(state, shown) {
        Some(control) => {
            let what = Change::Logout(Carried::of(shown)?);
            revoking::at_the_control(state, control, who.user, what)
        }
        None => end(state, who, shown),
    }
}

/// The same, of one that was issued here.
///
/// # Errors
/// As [`logout`].
pub fn end(state: &mut State, who: Who, shown: &Shown<'_>) -> Result<(u32, Vec<Member>)> {
    // Who waits until all have heard asks again, when it has ended.
    if !revoking::is_begun(state) {
        known(state, who, shown)?;
    }
    let (sessions, deaf) = match state.members {
        Some(_) => revoking::revoke(state, who, Revocation::Credential(shown.id))?,
        // Nobody need be told: no list grows.
        None => {
            let ended = vec![Local::LoggedOut(shown.id)];
            (revoking::end(state, ended, |_| ())? as u32, Vec::new())
        }
    };
    state.machine.audit(&audit::logged_out(state.world.wall_s(), who, shown.id, sessions as usize));
    Ok((sessions, deaf))
}
