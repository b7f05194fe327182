//! Logging in. Not here: how somebody proves who he is (`authority`), where the list of principals
//! is read (`shell::listed`), and what somebody gets for his credential (`sharing::credentials`).

use terral_format::disk::local::{Kept, Local};
use terral_format::wire::credential::{Credential, CredentialId, Secret};
use terral_format::wire::login::{CHALLENGE_BYTES, Hidden, Proof, Whom, Wish};
use terral_format::{Error, ErrorKind, Result};

use crate::authority::audit::{self, Who};
use crate::authority::authn::Most;
use crate::authority::authz::Good;
use crate::authority::by_gss::Answered;
use crate::authority::mechanism::Scene;
use crate::authority::principals::Principals;
use crate::core::paths::components;
use crate::core::state::State;
use crate::sharing::containers;

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
    let principals = listed?;
    containers::group(state, principals.groups())?;
    let admitted = |state: &State, most: Most| {
        state.authz.credentials.admit(now_s, most.principal)?;
        Ok(most)
    };
    let most = identify(state, principals, proof, wish).and_then(|most| admitted(state, most));
    let most = most.inspect_err(|error| {
        // Who is not even looked at any more makes no more lines.
        if error.kind != ErrorKind::Busy {
            state.machine.audit(&audit::failed(now_s, who, proof.by(), error));
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

/// Answers who has shown a ticket, with a challenge: he may log in by it.
///
/// # Errors
/// [`ErrorKind::Unauthorized`] if it is not good.
pub fn negotiate(
    state: &mut State,
    who: Who,
    (challenge, token): ([u8; CHALLENGE_BYTES], Hidden<'_>),
    answered: Result<Answered>,
) -> Result<Vec<u8>> {
    let world = state.world.clone();
    let answered = answered.inspect_err(|error| {
        if error.kind == ErrorKind::Unauthorized {
            state.authn.ticket_failed(&*world, token.0);
            state.machine.audit(&audit::failed(world.wall_s(), who, "gss", error));
        }
    })?;
    Ok(state.authn.tickets.begin(&*world, (challenge, token.0), answered))
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

/// What a server says to who shows a ticket where none can be looked at.
pub fn no_keytab() -> Error {
    let what = "no keys for Kerberos here (terral serve --principals FILE --keytab FILE; of \
                several machines, log in on the first)";
    Error::new(ErrorKind::Unsupported, what)
}

/// What a server says to who logs in where nobody is listed.
pub fn nobody_listed() -> Error {
    let what = "no list of principals here (terral serve --principals FILE; of several machines, \
                log in on the first)";
    Error::new(ErrorKind::Unsupported, what)
}
