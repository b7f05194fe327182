//! What the process that starts users' servers says of those that are needed, and what it is told.
//!
//! Invariant: what came of each is written down, refusals of one asker once a minute. Not here:
//! who needs them (`naming/adopting`), how many at a time (`members/role/coming`), and for whom
//! they are started, which that process decides.

use terral_format::ids::Member;
use terral_format::wire::message::Reply;
use terral_format::wire::starting::{AT_ONCE, Needed, Started};
use terral_format::{Error, ErrorKind, Result, frame};

use crate::authority::audit::{self, Who};
use crate::core::state::State;

/// What came of some; those that are needed now.
///
/// # Errors
/// [`ErrorKind::Malformed`]; [`ErrorKind::Invalid`] where no user has a server of his own.
pub fn hear(state: &mut State, who: Who, encoded: &[u8]) -> Result<Reply> {
    let said: Vec<(Needed, Started)> = frame::decode(encoded)?;
    let alone = || Error::new(ErrorKind::Invalid, "no user has a server of his own here");
    let now = state.world.now();
    let of_users = state.is_among_users() && state.owner() == Some(0);
    let members = state.members.as_mut().filter(|_| of_users).ok_or_else(alone)?;
    members.are_started(now);
    for (needed, started) in said.into_iter().take(AT_ONCE) {
        came(state, who, needed, started);
    }
    let awaited = state.members.as_ref().map(|members| members.awaited_servers());
    Ok(Reply::Needed(awaited.unwrap_or_default()))
}

/// Somebody needs something of a user's server, with which there is no session: it is started
/// again, if it was killed, or has ended as nobody needed it. Who
/// asks for what does not come hears after a minute that it is not answered.
pub fn is_needed(state: &mut State, by: Member, member: Member) {
    let now = state.world.now();
    let Some(members) = state.members.as_mut().filter(|it| it.is_in(member)) else { return };
    let Some(owner) = members.user_of(member).map(|person| person.user) else { return };
    // Of root's server nobody asks as somebody else.
    let asker = members.user_of(by).map_or(0, |person| person.user);
    if !members.is_connected(member) && members.server_of(owner) == Some(member) {
        // Who has too many under way asks again.
        let _ = members.awaits_server(Needed { owner, asker }, now);
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
