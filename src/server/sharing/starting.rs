//! What the process that starts users' servers says of those that are needed, and what it is told.
//!
//! Invariant: what came of each is written down, that one was refused another's once a minute. Not
//! here: who needs them (`naming/adopting`), how many at a time (`members/role/coming`), and for
//! whom they are started, which that process decides.

use terral_format::wire::message::Reply;
use terral_format::wire::starting::{AT_ONCE, Needed, Started};
use terral_format::{Error, ErrorKind, Result, frame};

use crate::authority::audit::{self, Who};
use crate::core::state::State;
use crate::sharing::newcomers;

/// What came of some; those that are needed now.
///
/// # Errors
/// [`ErrorKind::Malformed`]; [`ErrorKind::Invalid`] where no user has a server of his own.
pub fn hear(state: &mut State, who: Who, encoded: &[u8]) -> Result<Reply> {
    let said: Vec<(Needed, Started)> = frame::decode(encoded)?;
    is_of_users(state)?;
    let now = state.world.now();
    state.members.iter_mut().for_each(|members| members.are_started(now));
    for (needed, started) in said.into_iter().take(AT_ONCE) {
        came(state, who, needed, started);
    }
    let awaited = state.members.as_ref().map(|members| members.awaited_servers());
    Ok(Reply::Needed(awaited.unwrap_or_default()))
}

/// A user, as he is now: his server, if one is in, speaks for him so from now on.
///
/// # Errors
/// [`ErrorKind::Malformed`]; [`ErrorKind::Invalid`] where no user has a server of his own.
pub fn speaks(state: &mut State, encoded: &[u8]) -> Result<Reply> {
    is_of_users(state)?;
    newcomers::speaks(state, frame::decode(encoded)?)?;
    Ok(Reply::Done)
}

/// Whether this is root's server of a machine where each user has a server of his own.
///
/// # Errors
/// [`ErrorKind::Invalid`] if it is not.
pub fn is_of_users(state: &State) -> Result<()> {
    match state.is_among_users() && state.owner() == Some(0) && state.members.is_some() {
        true => Ok(()),
        false => Err(Error::new(ErrorKind::Invalid, "no user has a server of his own here")),
    }
}

fn came(state: &mut State, who: Who, needed: Needed, started: Started) {
    let (now, now_s) = (state.world.now(), state.world.wall_s());
    let failed = match started {
        Started::Runs => return,
        Started::Begun => {
            return state.machine.audit(&audit::started_for(now_s, who, needed, None));
        }
        Started::Refused(why) => (why, false),
        Started::TooMany(why) => (why, true),
    };
    let members = state.members.as_mut();
    if members.is_some_and(|members| members.comes_not(needed, failed.clone(), now)) {
        state.machine.audit(&audit::started_for(now_s, who, needed, Some(&failed.0)));
    }
}
