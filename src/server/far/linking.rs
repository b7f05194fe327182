//! What the network says and is told about files whose bytes are on another machine. To be called
//! under the state's lock; questions are taken once the log has what they follow from.

use terral_format::Result;
use terral_format::ids::Member;
use terral_format::wire::far::{Answer, Done, Written};

use super::role::Heard;
use super::{
    asking, committing, giving_back, holders, lent, locking, parts, places, shown, stripes,
};
use crate::core::state::State;

/// What a server keeps at most of what others want written, before it is written, bytes.
pub(super) const QUEUED_BYTES: usize = 64 << 20;

/// A server's part of that at each of so many others: all have as much.
pub(super) fn window_of(others: usize) -> usize {
    QUEUED_BYTES / others.max(1)
}

/// What is to be said now, and to whom: once in each session. `spare` gives memory for what is
/// long.
pub fn take_questions(
    state: &mut State,
    mut spare: impl FnMut() -> Vec<u8>,
) -> Vec<(Member, Written)> {
    let Some(me) = state.members.as_ref().map(|members| members.me()) else { return Vec::new() };
    // What it needs random bits for is tried again.
    let _ = committing::go_on(state);
    asking::say_unlocked(state);
    stripes::go_on(state);
    lent::ask_back(state);
    giving_back::go_on(state);
    let others = state.members.as_ref().map_or(0, |members| members.others().len());
    let State { far, storage, .. } = state;
    far.bounds(window_of(others));
    far.take_questions(me, |slot, at, bytes| storage.take_from(slot, (at, bytes), spare()))
}

/// A member has answered. Requests that wait are to be tried again then.
///
/// # Errors
/// As those of [`Answer::read`]: the session is to be cut then; and if the log cannot be written.
pub fn answered(state: &mut State, from: Member, frame: &[u8]) -> Result<()> {
    let (mut answer, bytes) = Answer::read(frame)?;
    let is_users = state.members.as_ref().is_some_and(|members| members.stranger(from).is_some());
    if is_users {
        answer.result = answer.result.map_err(super::users::failed);
    }
    let gone = match state.far.answered(from, &answer, bytes) {
        None => return Ok(()),
        Some(Heard::Read(ahead)) => {
            match answer.result {
                // A user's server says of nobody that he keeps something.
                Ok(Done::With { member, .. }) if !is_users => {
                    shown::is_with(state, &ahead, member);
                }
                Ok(Done::With { .. }) => shown::came(state, &ahead, None),
                result => shown::came(state, &ahead, result.ok().map(|_| bytes)),
            }
            return Ok(());
        }
        Some(Heard::Part(file, which, outcome)) => return parts::came(state, file, which, outcome),
        Some(Heard::Kept(file, which, is)) => {
            parts::heard(state, file, which, is);
            return state.commit();
        }
        Some(Heard::Refused(file, which)) => {
            stripes::refused(state, from, file, which);
            return Ok(());
        }
        Some(Heard::Stays(file)) => {
            giving_back::may_stay(state, file);
            return state.commit();
        }
        Some(Heard::Unlocked(file, owner)) => {
            locking::was_unlocked(state, file, owner);
            return Ok(());
        }
        Some(Heard::IsOpen(file, is)) => {
            holders::heard(state, from, file, is);
            return state.commit();
        }
        Some(Heard::GaveBack(file, part, outcome)) => {
            return lent::came(state, file, part, outcome);
        }
        Some(Heard::Merged(batch, outcome)) => return committing::came(state, batch, outcome),
        Some(Heard::Told(file, which)) => {
            lent::is_told(state, from, file, which);
            return Ok(());
        }
        Some(Heard::Gone(gone)) => gone,
    };
    let place = state.members.as_ref().and_then(|members| members.place(gone));
    let unused = place.filter(|ino| !state.descriptions.iter().any(|(_, open)| open.ino == *ino));
    if let Some(ino) = unused.filter(|ino| state.names.is_gone_elsewhere(*ino)) {
        places::forget(state, ino);
        state.commit()?;
    }
    Ok(())
}

/// There is a new session with a member: what was asked in the one before, and not answered, is
/// asked again.
///
/// # Errors
/// [`terral_format::ErrorKind::System`] if the system has no random bits.
pub fn connected(state: &mut State, with: Member) -> Result<()> {
    resume(state)?;
    state.far.connected(with);
    state.far.loans.connected(with);
    stripes::connected(state, with);
    holders::connected(state, with);
    Ok(())
}

/// A member is none any more: what waits for it fails.
pub fn removed(state: &mut State, member: Member) {
    let left = state.members.as_ref().is_some_and(|members| members.has_left(member));
    state.far.removed(member, left);
    lent::removed(state, member);
    parts::removed(state, member);
    stripes::removed(state, member);
    committing::removed(state, member);
    holders::removed(state, member);
}

/// This server, `me`, is none any more: what waits for others fails.
pub fn put_out(state: &mut State, me: Member) {
    state.far.put_out(me);
}

/// All others are gone for good: what waits for them here is lost.
pub fn abandoned(state: &mut State) {
    committing::abandoned(state);
}

/// Time has passed. Requests that wait are to be tried again then.
pub fn tick(state: &mut State) {
    locking::drop_superseded(state);
    let now = state.world.now();
    let failed = state.far.tick(now);
    failed.iter().for_each(|ahead| shown::came(state, ahead, None));
    stripes::tick(state);
    lent::tick(state);
    giving_back::tick(state);
    parts::tick(state);
    committing::tick(state);
}

/// What was open, and what was gone, when this process began.
fn resume(state: &mut State) -> Result<()> {
    asking::live(state)?;
    if !state.far.must_resume() {
        return Ok(());
    }
    locking::resume(state);
    let open = state.descriptions.iter();
    let open = open.filter_map(|(_, open)| asking::number_of(state, open.ino));
    let open: Vec<_> = open.collect();
    open.into_iter().for_each(|file| state.far.opens(file));
    giving_back::resume(state)?;
    committing::resume(state)?;
    let foreign = state.members.iter().flat_map(|members| members.foreign());
    let gone = foreign.filter(|(ino, _)| state.names.is_gone_elsewhere(*ino));
    let gone: Vec<_> = gone.map(|(_, number)| number).collect();
    gone.into_iter().try_for_each(|file| asking::gone(state, file))
}
