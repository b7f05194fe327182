//! Logging in and out, and what somebody gets for his credential. Not here: how somebody proves who
//! he is (`authority`), and where the list of principals is read (`shell::listed`).

use terral_format::disk::local::{Kept, Local};
use terral_format::wire::capability::Capability;
use terral_format::wire::credential::{Credential, CredentialId, Secret};
use terral_format::wire::login::{Proof, Shown, Whom, Wish};
use terral_format::{Error, ErrorKind, Result};

use crate::authority::audit::{self, Who};
use crate::authority::authn::Most;
use crate::authority::authz::Good;
use crate::authority::mechanism::Scene;
use crate::authority::principals::Principals;
use crate::core::paths::components;
use crate::core::state::State;
use crate::sharing::revoking;

/// Gives a credential to who proves who he is.
///
/// # Errors
/// [`ErrorKind::Unauthorized`] if he does not, and those of
/// [`most`](crate::authority::mechanism::Identity::most); [`ErrorKind::Busy`] and
/// [`ErrorKind::TooMany`] beyond the bounds.
pub fn login(
    state: &mut State,
    who: Who,
    listed: Result<Principals>,
    (proof, wish): (Proof<'_>, Wish<'_>),
) -> Result<Credential> {
    let now_s = state.world.wall_s();
    let admitted = |state: &State, most: Most| {
        state.authz.credentials.admit(now_s, most.principal)?;
        Ok(most)
    };
    let most = identify(state, listed?, proof, wish).and_then(|most| admitted(state, most));
    let most = most.inspect_err(|error| {
        // Who is not even looked at any more makes no more lines.
        if error.kind != ErrorKind::Busy {
            state.machine.audit(&audit::failed(now_s, who, proof, error));
        }
    })?;
    state.log.reserve()?;
    for over in state.authz.credentials.over(now_s) {
        state.record(Local::LoggedOut(over));
    }
    let (kept, secret) = made(state, most, now_s)?;
    state.record(Local::LoggedIn(kept.clone()));
    state.commit()?;
    state.machine.audit(&audit::logged_in(now_s, who, &kept));
    let Kept { id, principal, issued_s, lifetime_s, .. } = kept;
    let issuer = state.began.instance;
    Ok(Credential { id, secret, issuer, principal, issued_s, lifetime_s })
}

fn identify(
    state: &mut State,
    principals: Principals,
    proof: Proof<'_>,
    wish: Wish<'_>,
) -> Result<Most> {
    if let Some(below) = wish.below {
        components(below)?;
    }
    let world = state.world.clone();
    let (instance, principals) = (state.began.instance, &principals);
    let identity = state.authn.identify(&Scene { world: &*world, instance, principals }, proof)?;
    identity.most(world.wall_s(), &wish)
}

fn made(state: &State, most: Most, issued_s: u64) -> Result<(Kept, Secret)> {
    let (id, secret) = (CredentialId(state.world.random()? as u64), Secret(state.world.secret()?));
    let check = secret.check(id)?;
    let lifetime_s = most.until_s.saturating_sub(issued_s);
    let Most { principal, operations, below, .. } = most;
    Ok((Kept { id, check, principal, operations, below, issued_s, lifetime_s }, secret))
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
/// [`ErrorKind::Unauthorized`] if the credential is not good.
pub fn authorize(state: &State, who: Who, shown: &Shown<'_>, keeps: bool) -> Result<Capability> {
    let kept = known(state, who, shown)?;
    let issued = state.authz.issue_under(&*state.world, kept)?;
    if keeps {
        state.machine.audit(&audit::granted(state.world.wall_s(), who, &issued));
    }
    Ok(issued)
}

/// Ends a credential: when this is over, nobody does anything any more by what was got with it.
/// Gives how many sessions may do less now.
///
/// # Errors
/// [`ErrorKind::Unauthorized`] if the credential is not good, and those of the log.
pub fn logout(state: &mut State, who: Who, shown: &Shown<'_>) -> Result<u32> {
    state.log.reserve()?;
    let id = known(state, who, shown)?.id;
    let sessions = revoking::end(state, vec![Local::LoggedOut(id)], |_| ())?;
    state.machine.audit(&audit::logged_out(state.world.wall_s(), who, id, sessions));
    Ok(sessions as u32)
}

/// As whom the holder of what was verified acts, and what is left of it.
pub fn whom(state: &State, good: &Good) -> Whom {
    Whom {
        principal: good.principal,
        operations: state.authz.left(good),
        below: good.below.as_deref().map(<[u8]>::to_vec),
        expires_s: good.rights.expires_s,
        credential: good.credential,
    }
}

/// What a server says to who logs in where nobody is listed.
pub fn nobody_listed() -> Error {
    let what = "this server has no list of principals (terral serve --principals FILE)";
    Error::new(ErrorKind::Unsupported, what)
}
