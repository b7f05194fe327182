//! What the control of a pool decides is answered once the pool's registry has it. As long as that
//! does not answer, nothing new is decided, but what takes something away; who asks waits, and is
//! told so.
//!
//! Invariant: what was answered is in the registry. A server of no pool waits for nobody. Not here:
//! how it comes there (`shell/keeping`).

use std::time::Duration;

use terral_format::{Error, ErrorKind, Result};

use crate::authority::hearing::Begun;
use crate::core::state::State;

/// Nobody waits longer for the registry: who asks takes a server for dead after 10 s.
const BOUND: Duration = Duration::from_secs(6);

/// Whether something new may be decided now.
///
/// # Errors
/// If who asks must wait; [`ErrorKind::Unreachable`] if he has waited for long: nothing was done.
pub fn may_begin(state: &mut State) -> Result<()> {
    let now = state.world.now();
    let Some(members) = &state.members else { return Ok(()) };
    if members.me() != members.control() {
        return Ok(());
    }
    let Some((registry, secs)) = members.is_unheard(now) else {
        waits_no_more(state);
        return Ok(());
    };
    if let Some(waits) = waits(state, BOUND) {
        return Err(waits);
    }
    let context = format!(
        "nothing was changed: {registry} does not answer since {secs} s, and keeps what is decided \
         in this pool (see `terral status`): again once it does"
    );
    Err(Error::new(ErrorKind::Unreachable, context))
}

/// Who asks must wait, unless he has waited for so long.
pub fn waits(state: &mut State, bound: Duration) -> Option<Error> {
    let now = state.world.now();
    let asker = state.members.as_ref().and_then(|members| members.asker())?;
    if now.since(state.authz.hearing.waits(asker, now)) < bound {
        return Some(state.fetches.wait());
    }
    waits_no_more(state);
    None
}

/// He does not any more.
pub fn waits_no_more(state: &mut State) {
    let asker = state.members.as_ref().and_then(|members| members.asker());
    asker.into_iter().for_each(|asker| state.authz.hearing.waits_no_more(asker));
}

/// Whether this control decides anything: not while it hands over.
///
/// # Errors
/// If who asks must wait until another one is the control, or this one after all.
pub fn decides(state: &mut State) -> Result<()> {
    match state.members.as_ref().is_some_and(|members| members.is_handing_over()) {
        true => Err(state.fetches.wait()),
        false => Ok(()),
    }
}

/// Whether the registry has this version, which came then.
///
/// # Errors
/// If who asks must wait; [`ErrorKind::Unanswered`] if he has waited for long: it counts, but is
/// not there yet.
pub fn is_kept(state: &mut State, begun: &Begun) -> Result<()> {
    let now = state.world.now();
    let Some(members) = &state.members else { return Ok(()) };
    if members.is_kept(begun.version) {
        return Ok(());
    }
    if members.control() != members.me() {
        let context = "the control of this pool is another server by now: whether it counts is \
                       seen there";
        return Err(Error::new(ErrorKind::Unanswered, context));
    }
    if now.since(begun.since) < BOUND {
        return Err(state.fetches.wait());
    }
    let registry = members.pool(now).map(|pool| pool.registry).unwrap_or_default();
    let (there, whom) = match members.may_tell() {
        true => ("on all machines", ""),
        false => ("here", ", and the others told,"),
    };
    let context = format!(
        "it counts {there}, but {registry} does not answer, and does not have it yet: it is \
         written there{whom} as soon as it does (see `terral status`)"
    );
    Err(Error::new(ErrorKind::Unanswered, context))
}

/// Does something that the control decides, once, and waits until the registry has it.
///
/// # Errors
/// If who asks must wait, those of [`is_kept`], and what it fails with.
pub fn once_kept(state: &mut State, begin: impl FnOnce(&mut State) -> Result<()>) -> Result<()> {
    let asker = state.members.as_ref().and_then(|members| members.asker());
    let of_pool = state.members.as_ref().is_some_and(|members| members.is_of_any_pool());
    let Some(asker) = asker.filter(|_| of_pool) else { return begin(state) };
    let begun = match state.authz.hearing.of(asker) {
        Some(begun) => begun,
        None => {
            decides(state)?;
            begin(state)?;
            let version = state.members.as_ref().map_or(0, |members| members.roster().version);
            let begun = Begun { version, sessions: 0, since: state.world.now() };
            state.authz.hearing.begins(asker, begun);
            begun
        }
    };
    let kept = is_kept(state, &begun);
    if kept.as_ref().err().is_none_or(|error| error.kind == ErrorKind::Unanswered) {
        state.authz.hearing.ends(asker);
    }
    kept
}

/// The same for something new, which is decided only if the registry answers.
///
/// # Errors
/// Those of [`may_begin`] and [`once_kept`].
pub fn decide(state: &mut State, begin: impl FnOnce(&mut State) -> Result<()>) -> Result<()> {
    let asker = state.members.as_ref().and_then(|members| members.asker());
    if asker.is_none_or(|asker| state.authz.hearing.of(asker).is_none()) {
        may_begin(state)?;
    }
    once_kept(state, begin)
}

/// Whether others come in by invitations that a person carries to them: servers of one `user` do.
///
/// # Errors
/// [`ErrorKind::Invalid`] for a pool, with how they come into that.
pub fn admits(state: &State, user: &[u8]) -> Result<()> {
    let members = state.members.as_ref().filter(|_| user.is_empty());
    let pool = members.and_then(|members| members.pool(state.world.now()));
    let Some(pool) = pool else { return Ok(()) };
    let context = format!(
        "servers come into a pool by themselves: `terral serve --to DIR --control {} --pool {}` \
         there",
        pool.registry, pool.name
    );
    Err(Error::new(ErrorKind::Invalid, context))
}
