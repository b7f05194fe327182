//! A directory that this member moves to another path, or two names that it lets change places:
//! the others know of it before, as programs there may be in it. And where others may bring
//! something below it to the permanent directory, which they do by paths, all rest from before it
//! is sure until it is there, and they know.
//!
//! Invariants: one member at a time has others rest, as it has the right to move then. It is sure
//! only when all rest, and until all know that it is done, what it owes of it counts as owed:
//! nobody else has the directories before. Not here: what the others do (`sharing/moving`), and
//! the move itself (`naming/links`).

use std::collections::BTreeSet;
use std::time::Duration;

use terral_format::Result;
use terral_format::disk::facts::Fact;
use terral_format::disk::membership::Membership;
use terral_format::ids::{Asker, Lsn, Member, Number, SessionSlot};
use terral_format::wire::moving::{Back, Moving, Of, Renamed};
use terral_format::wire::peers::Failure;
use terral_format::wire::roster::Control;
use terral_partition::terms::Terms;

use super::role::{Members, Mover};
use crate::core::state::State;
use crate::core::world::Tick;

/// Who need not rest, and does not say that he knows, is waited for this long.
const SOON: Duration = Duration::from_millis(500);

/// Others rest until the store has so many names that it is owed before.
const FEW: usize = 64;

/// A user's server is waited for so long only: its process is his, and may never answer. If it
/// lives and is slow, what it brings goes where what is below the directory was, as far as he may.
const USERS_SOON: Duration = Duration::from_secs(5);

/// What leads to something from the root, and itself, by their names.
pub type Way = Vec<(Number, Vec<u8>)>;

/// Where a directory is, and where it shall be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ways {
    /// From the root, as the permanent directory has it.
    pub from: Vec<u8>,
    /// The same.
    pub to: Vec<u8>,
    /// What leads there.
    pub way: Way,
    /// What leads to where it was, if something from there comes in its place.
    pub back: Option<Way>,
}

/// Who is waited for since then: all others, and users' servers for a while.
fn awaited(members: &Members, since: Tick, now: Tick) -> BTreeSet<Member> {
    let late = now.since(since) > USERS_SOON;
    let mut others = members.others();
    others.retain(|other| !late || members.user_of(*other).is_none());
    others
}

/// Whether this member moves a directory already, for another request than this one.
pub fn is_busy(state: &State) -> bool {
    let Some(members) = &state.members else { return false };
    let its = |mover: &Mover| mover.owed.is_none() && mover.asker == members.asker();
    members.mover.as_ref().is_some_and(|mover| !its(mover))
}

/// All others know of it before a request moves a directory, and rest if they may bring something
/// below it (`brings`). One that does not answer is not waited for long if it cannot. Not while
/// this member [`is_busy`] with another one.
///
/// # Errors
/// If it must wait for that; [`Failure::Silent`] if it does so for too long.
pub fn have_rest(state: &mut State, ways: Ways, brings: bool) -> Result<()> {
    let now = state.world.now();
    let Some(members) = &mut state.members else { return Ok(()) };
    let (asker, others) = (members.asker(), members.others());
    if let Some(mover) = &members.mover {
        let others = awaited(members, mover.since, now);
        let Mover { moving, since, rest, .. } = mover;
        let back = moving.back.as_ref().map(|back| &back.way);
        let same = (&moving.from, &moving.to, &moving.way) == (&ways.from, &ways.to, &ways.way);
        if !same || back != ways.back.as_ref() || moving.brings != brings {
            gives_up(state);
            return have_rest(state, ways, brings);
        }
        let late = now.since(*since);
        return match others.difference(rest).next() {
            Some(_) if !brings && late > SOON => Ok(()),
            Some(silent) if late > Terms::USUAL.patience => {
                let silent = *silent;
                gives_up(state);
                Err(Failure::Silent(silent).error())
            }
            Some(_) => Err(state.fetches.wait()),
            None => Ok(()),
        };
    }
    if others.is_empty() {
        return Ok(());
    }
    if brings && state.names.owed().len() > FEW {
        // They need not rest for all that.
        state.debts.hasten_names();
        return Err(state.fetches.wait());
    }
    let error = state.fetches.wait();
    if state.fetches.is_waiting() {
        let Ways { from, to, way, back } = ways;
        let back = back.map(|way| Box::new(Back { way, seen: None, is_known: false }));
        // Who has not heard that one is over must not take the next one for it.
        let id = now.0.max(members.last_move + 1);
        members.last_move = id;
        let moving = Moving { id, from, to, way, brings, done: false, back };
        members.mover = Some(Mover::of(moving, (asker, now), None));
        tell_all(state);
    }
    Err(error)
}

/// Waits where a directory is about to be that another member moves, or is still.
///
/// # Errors
/// If so; [`Failure::Silent`] if that takes too long.
pub fn await_moves(state: &mut State, path: &[u8]) -> Result<()> {
    let near = |moving: &Moving| is_in(path, &moving.from) || is_in(path, &moving.to);
    let mut moves = state.names.resting().iter();
    let Some(by) = moves.find(|(_, moving)| near(moving)).map(|(by, _)| *by) else { return Ok(()) };
    let now = state.world.now();
    let since = state.members.as_mut().map(|members| members.awaits(by, now));
    match since.is_some_and(|since| now.since(since) > Terms::USUAL.patience) {
        true => Err(Failure::Silent(by).error()),
        false => Err(state.fetches.wait()),
    }
}

/// Whether a path is another, or below it.
fn is_in(path: &[u8], other: &[u8]) -> bool {
    path.strip_prefix(other).is_some_and(|rest| rest.first().is_none_or(|byte| *byte == b'/'))
}

/// Time passes for who waits for others, of whom one may have been removed.
pub fn tick(state: &mut State) {
    let now = state.world.now();
    let mover = state.members.as_mut().and_then(|members| members.mover.as_mut());
    // What a server before this one was at.
    let before = mover.filter(|mover| mover.since == Tick(0));
    before.into_iter().for_each(|mover| mover.since = now);
    if let Some(owed) = state.members.as_ref().and_then(|members| known_by_all(members, now)) {
        is_over(state, owed);
        state.members.iter_mut().for_each(|members| members.go_on());
    }
    let waits = |mover: &Mover| mover.owed.is_none();
    if let Some(members) = &mut state.members
        && members.mover.as_ref().is_some_and(waits)
    {
        members.go_on();
    }
}

/// What the store was owed of a directory that all know to have moved.
fn known_by_all(members: &Members, now: Tick) -> Option<Lsn> {
    let mover = members.mover.as_ref().filter(|mover| mover.moving.done)?;
    let others = awaited(members, mover.done.unwrap_or(now), now);
    mover.owed.filter(|_| others.is_subset(&mover.know))
}

/// The move was recorded, of which all know: if they rest for it, until the store has it.
pub fn is_sure(state: &mut State) {
    let lsn = state.names.ordinal();
    let Some(members) = &mut state.members else { return };
    let asker = members.asker();
    let its = |mover: &&mut Mover| mover.owed.is_none() && mover.asker == asker;
    let Some(mover) = members.mover.as_mut().filter(its) else { return };
    if mover.moving.brings {
        let (moving, by) = (mover.moving.clone(), members.me());
        let back = moving.back.clone();
        state.record(Membership::Moves(Some((moving, lsn))));
        let exchanges = back.map(|back| Membership::Exchanges { by, back: *back });
        exchanges.into_iter().for_each(|exchanges| state.record(exchanges));
        state.debts.hasten_names();
        return;
    }
    mover.moving.done = true;
    tell_all(state);
    if let Some(members) = &mut state.members {
        members.mover = None;
        members.go_on();
    }
}

/// A request has run, or nobody waits for it: if nothing was moved, nobody need rest for it.
pub fn has_run(state: &mut State, its: impl Fn(&Asker) -> bool) {
    let Some(members) = &state.members else { return };
    let is_its = |mover: &Mover| mover.owed.is_none() && mover.asker.as_ref().is_some_and(&its);
    if members.mover.as_ref().is_some_and(is_its) {
        gives_up(state);
    }
}

/// The same, of all of a session.
pub fn has_ended(state: &mut State, session: SessionSlot) {
    has_run(state, |asker| asker.session == session);
}

fn gives_up(state: &mut State) {
    if let Some(members) = &mut state.members {
        members.mover = None;
        members.go_on();
    }
    tell_all(state);
}

fn tell_all(state: &mut State) {
    let others = state.members.as_ref().map(|members| members.others());
    others.into_iter().flatten().for_each(|other| tell(state, other));
}

/// Another member is told what this one is at: it has no session with it, or asks.
pub fn tell(state: &mut State, other: Member) {
    let Some(members) = &mut state.members else { return };
    let moving = members.mover.as_ref().map(|mover| mover.moving.clone());
    let said = moving.map_or(Of::Moves(None), Moving::said);
    members.says(other, Control::Moving(said));
}

/// Another member rests, or goes on.
pub fn heard(state: &mut State, from: Member, id: u64, rests: bool) {
    let Some(members) = &mut state.members else { return };
    let Some(mover) = members.mover.as_mut().filter(|mover| mover.moving.id == id) else {
        // It waits for what is over.
        return if rests {
            tell(state, from)
        };
    };
    if rests {
        mover.rest.insert(from);
        if mover.moving.done {
            return tell(state, from);
        }
    } else if mover.moving.done {
        mover.know.insert(from);
    }
    let now = state.world.now();
    let rest = members.mover.as_ref().is_some_and(|mover| {
        !mover.moving.done && awaited(members, mover.since, now).is_subset(&mover.rest)
    });
    let owed = known_by_all(members, now);
    owed.into_iter().for_each(|owed| is_over(state, owed));
    if rest || owed.is_some() {
        state.members.iter_mut().for_each(|members| members.go_on());
    }
}

/// All know where it is.
fn is_over(state: &mut State, owed: Lsn) {
    state.record(Membership::Moves(None));
    state.record(Fact::NamesDrained(owed));
    state.debts.name_brought();
}

/// All others are gone: nobody is waited for any more.
pub fn is_abandoned(state: &mut State) {
    let Some(members) = &mut state.members else { return };
    members.is_abandoned();
    let done = members.mover.as_ref().filter(|mover| mover.moving.done);
    let owed = done.and_then(|mover| mover.owed);
    owed.into_iter().for_each(|owed| is_over(state, owed));
}

/// Whether this name operation must wait for others: until they rest, or until they know.
pub fn waits(state: &State, owed: Lsn) -> bool {
    let Some(members) = &state.members else { return false };
    let now = state.world.now();
    let waits = |mover: &Mover| {
        let rest = || awaited(members, mover.since, now).is_subset(&mover.rest);
        mover.owed == Some(owed) && (mover.moving.done || !rest())
    };
    members.mover.as_ref().is_some_and(waits)
}

/// This is about to be said to be done: so it has changed how what comes back looks there.
pub fn has_seen(state: &mut State, owed: Lsn, seen: Option<Renamed>) {
    let mover = state.members.as_mut().and_then(|members| members.mover.as_mut());
    let back = mover.filter(|mover| mover.owed == Some(owed)).map(|mover| &mut mover.moving.back);
    back.into_iter().flatten().for_each(|back| back.seen = seen);
}

/// The permanent directory has this. Whether others are to know it before it counts as brought.
pub fn must_be_known(state: &mut State, owed: Lsn) -> bool {
    let now = state.world.now();
    let Some(members) = &mut state.members else { return false };
    let alone = members.others().is_empty();
    let Some(mover) = members.mover.as_mut().filter(|mover| mover.owed == Some(owed)) else {
        return false;
    };
    (mover.moving.done, mover.done) = (true, Some(now));
    if alone {
        state.record(Membership::Moves(None));
        return false;
    }
    tell_all(state);
    true
}
