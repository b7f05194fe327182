//! What requests need of things that may be another member's.
//!
//! Invariant: a request that was told to wait has changed nothing, and is carried out anew once
//! what it needs is there; what it is to change stays until it has run. What it has looked at does
//! not: it remembers what it saw, as each step of a path is seen at its own moment. (If two that
//! look at a directory both kept it so while they wait to change it, none ever could.) What it had
//! done elsewhere is done once, however often it runs, also by another process of this server:
//! which wish it is follows from the request. What it has taken it has while it waits for what
//! comes later in the order of all that is taken, and for nothing else that may wait for it: so no
//! two wait for each other.

use std::collections::BTreeSet;

use terral_format::ids::{Asker, Ino, Member, Number, SessionSlot, Thing, Wish};
use terral_format::wire::peers::{Answer, Failure, Work};
use terral_format::wire::things::{By, Change, Look};
use terral_format::{Error, ErrorKind, Result};
use terral_partition::effect::{Access, Input};

use super::moving;
use super::role::wishing::{AHEAD, wish_of, wishes_of};
use super::role::{Members, NOBODY, Stage, Wished, looks};
use super::stepping::tell;
use crate::core::left_out::{Step, does};
use crate::core::state::State;

/// So often a request is carried out anew, as what its path stands for is gone.
const ASTRAY_MAX: u16 = 1000;

/// How a request has what it needs.
pub enum Have {
    /// It is this server's, in its tables.
    Here,
    /// As another member has shown it: there is a copy.
    Shown,
    /// There was one, or it is here, and it did not say: who has it is to find it.
    Missed,
    /// It was carried out elsewhere.
    Done(Answer),
}

/// Has a thing here for what is to be done with it, or has that done elsewhere.
///
/// # Errors
/// If who asks must wait; [`ErrorKind::Busy`] if nobody may.
pub fn need(state: &mut State, thing: Thing, work: &Work) -> Result<Have> {
    let Some(members) = state.members.as_ref() else { return Ok(Have::Here) };
    if members.is_served(thing) {
        return Ok(Have::Here);
    }
    let asker = members.asker();
    let wish = asker.map(|asker| wish_of(asker, thing, work)).transpose()?;
    if let Some((asker, wish)) = asker.zip(wish)
        && !looks(work)
        && members.was_wished_before(wish)
    {
        // It may have been done, by the word of a server before this one.
        return want(state, (asker, wish), thing, work);
    }
    let stage = wish.and_then(|wish| members.wishes.get(&wish)).map(|wished| &wished.stage);
    let waits = !looks(work) && is_going(state, members, thing);
    let finds = matches!(work, Work::Find(_));
    match (stage, members.access(thing, state)) {
        // What was done elsewhere is not done again, also if the thing is here by now.
        (Some(Stage::Over(answer)), _) if !looks(work) => return Ok(Have::Done(answer.clone())),
        // Nor is what may be done elsewhere yet.
        (Some(Stage::Waits), _) if !looks(work) => return Err(state.fetches.wait()),
        (_, Access::Change) if !waits => return Ok(Have::Here),
        (_, Access::Look) if looks(work) => {
            return Ok(members.copy(thing).map_or(Have::Here, |_| Have::Shown));
        }
        // A server that was stopped may not have heard yet that a lease is over.
        (_, Access::Leased) if !finds && looks(work) && members.shown(thing, state).is_some() => {
            return Ok(Have::Shown);
        }
        (Some(Stage::Over(answer)), _) => return Ok(Have::Done(answer.clone())),
        (Some(Stage::Ready), _) => return Ok(Have::Here),
        (Some(Stage::Missed), _) if !finds => return Ok(Have::Missed),
        (Some(Stage::Waits), _) => {
            return Err(released(state));
        }
        (Some(Stage::Missed) | None, _) => {}
    }
    // Of one thing a request wants one thing at a time: what it waits for it would wait for behind
    // others, who wait for what it has.
    if !looks(work) && asker.is_some_and(|asker| members.waits_for(asker, thing)) {
        return Err(state.fetches.wait());
    }
    let (asker, wish) = asker.zip(wish).ok_or_else(late)?;
    if looks(work) {
        release(state);
    }
    want(state, (asker, wish), thing, work)
}

/// Has a thing shown that no request waits for.
///
/// # Errors
/// If the log cannot take it.
pub fn ask_ahead(state: &mut State, thing: Thing, work: Work) -> Result<()> {
    let wish = wish_of(AHEAD, thing, &work)?;
    if state.members.as_ref().is_some_and(|members| members.work_of(wish).is_none()) {
        tell(state, Input::Wish { wish, thing, work });
    }
    Ok(())
}

/// Whether a thing is to go back, and who asks waits for that before he changes it: it never would
/// if all changed it.
fn is_going(state: &State, members: &Members, thing: Thing) -> bool {
    let is = state.fetches.may_wait() && members.is_recalled(thing);
    is && members.asker().is_some_and(|asker| !members.stays_for(asker, thing))
}

/// Whether a thing is here for who asks to change it.
pub fn may_change(state: &State, thing: Thing) -> bool {
    state.members.as_ref().is_none_or(|members| {
        members.access(thing, state) == Access::Change && !is_going(state, members, thing)
    })
}

/// Whether the present request has wished for this.
pub fn has_wished(state: &State, thing: Thing, work: &Work) -> Result<bool> {
    // Most have wished for nothing, at each step of each path.
    let Some(members) = state.members.as_ref().filter(|members| !members.wishes.is_empty()) else {
        return Ok(false);
    };
    let wish = members.asker().map(|asker| wish_of(asker, thing, work)).transpose()?;
    Ok(wish.is_some_and(|wish| members.is_wished(wish)))
}

/// The wish of the present request that something be done, as [`need`] has it.
///
/// # Errors
/// [`ErrorKind::Busy`] if nobody waits for it.
pub fn wish(state: &mut State, thing: Thing, work: &Work) -> Result<Wish> {
    if !state.fetches.may_wait() {
        return Err(state.fetches.wait());
    }
    let asker = state.members.as_ref().and_then(|members| members.asker());
    wish_of(asker.ok_or_else(late)?, thing, work)
}

fn late() -> Error {
    Error::new(ErrorKind::Busy, "another member has it")
}

/// Whether somebody else than who asks now has asked the control for such a thing, and has not gone
/// on with its answer yet.
pub fn looks_for_another(members: &Members, is: impl Fn(&Look) -> bool) -> bool {
    let (own, control) = (members.asker(), Number::new(members.control(), 0).map(Thing::File));
    let mut others = members
        .wishes
        .values()
        .filter(|wished| Some(wished.asker) != own && Some(wished.thing) == control);
    others.any(|wished| {
        let look = wished.look.as_ref().and_then(|body| By::<Look>::of(body).ok());
        look.is_some_and(|by| is(&by.what))
    })
}

/// A request is about to wait for something that may be waiting for what it has taken: that need
/// not stay, nor others rest for it, but for the right to move directories, which nobody waits for
/// who has anything.
pub fn release(state: &mut State) {
    let Some(members) = &state.members else { return };
    let Some(asker) = members.asker().filter(|_| does(Step::Release)) else { return };
    moving::has_run(state, |its| *its == asker);
    let taken: Vec<Wish> = taken_by(state, asker).map(|(wish, _)| wish).collect();
    if !taken.is_empty() {
        forget_let_go(state, asker);
    }
    taken.into_iter().for_each(|wish| forget(state, wish));
}

/// What a request has had let go, to take its name away, may be found to have stayed while the
/// directory is not here; what was to change places may have lost its name.
fn forget_let_go(state: &mut State, asker: Asker) {
    state.members.iter_mut().for_each(|members| members.gives_transaction_up(asker));
    let mut its = wishes_by(state, asker);
    its.retain(|wish| {
        let work = state.members.as_ref().and_then(|members| members.work_of(*wish));
        work.is_some_and(|(_, work)| change_in(&work).as_ref().is_some_and(is_of_directories))
    });
    its.into_iter().for_each(|wish| forget(state, wish));
}

/// Whether it is so only as long as who asked has directories.
fn is_of_directories(change: &Change) -> bool {
    matches!(
        change,
        Change::LetGoOf(..) | Change::Swap(..) | Change::Prepare(..) | Change::Witness(..)
    )
}

fn change_in(work: &Work) -> Option<Change> {
    let Work::Change(body) = work else { return None };
    By::<Change>::of(body).ok().map(|by| by.what)
}

/// The same; and it waits.
pub fn released(state: &mut State) -> Error {
    release(state);
    state.fetches.wait()
}

/// What a request has taken, or will have, but for the right to move directories; and its wishes
/// for that.
fn taken_by(state: &State, asker: Asker) -> impl Iterator<Item = (Wish, Thing)> {
    let wishes = wishes_by(state, asker).into_iter();
    let taken = |members: &Members, wish| members.taken(wish).map(|thing| (wish, thing));
    let right = state.members.as_ref().and_then(|members| members.moves());
    let all = wishes.filter_map(move |wish| taken(state.members.as_ref()?, wish));
    all.filter(move |(_, thing)| Some(*thing) != right)
}

/// A request lets go of what it has taken, as it has found that it needs more, and of what it has
/// seen, which is older: else it would not find that again.
fn find_anew(state: &mut State, asker: Asker) -> Error {
    release(state);
    for wish in wishes_by(state, asker) {
        if state.members.as_ref().is_some_and(|members| members.look_of(wish).is_some()) {
            forget(state, wish);
        }
    }
    state.members.iter_mut().for_each(|members| members.go_on());
    state.fetches.wait()
}

/// Has several things here, and stay until the request has run. All ask for them in their order, so
/// nobody waits for whom who waits for him: who finds that he needs one more lets go of those that
/// come after it.
///
/// # Errors
/// As those of [`need`].
pub fn hold_all(state: &mut State, things: &BTreeSet<Thing>) -> Result<()> {
    let Some(asker) = state.members.as_ref().and_then(|members| members.asker()) else {
        return Ok(());
    };
    let missing =
        |members: &Members| things.iter().copied().find(|thing| !members.stays_for(asker, *thing));
    if let Some(members) = &state.members
        && let Some(next) = missing(members)
        && taken_by(state, asker).any(|(_, thing)| thing > next)
    {
        return Err(find_anew(state, asker));
    }
    things.iter().try_for_each(|thing| hold(state, *thing))
}

/// Has a thing here, and stay until the request has run, as it will need another one, too.
fn hold(state: &mut State, thing: Thing) -> Result<()> {
    let Some(asker) = state.members.as_ref().and_then(|members| members.asker()) else {
        return Ok(());
    };
    let Some(members) = state.members.as_ref().filter(|members| !members.stays_for(asker, thing))
    else {
        return Ok(());
    };
    let wish = wish_of(asker, thing, &Work::Take)?;
    match members.wishes.get(&wish).map(|wished| &wished.stage) {
        Some(Stage::Over(answer)) => answer.clone().map(drop).map_err(|failure| failure.error()),
        Some(_) => Err(state.fetches.wait()),
        None => want(state, (asker, wish), thing, &Work::Take).map(drop),
    }
}

/// The same before a request looks at anything, as what it sees must not change.
/// With `again`, only if it has begun to take it.
///
/// # Errors
/// If it must wait for that, or be carried out anew with it.
pub fn hold_first(state: &mut State, thing: Thing, again: bool) -> Result<()> {
    let asks = state.members.as_ref().is_some_and(|members| members.asker().is_some());
    let begun = is_held(state, thing);
    match (asks && begun, again) {
        (true, _) => hold(state, thing),
        (false, true) => Ok(()),
        (false, false) => {
            let_go(state);
            hold(state, thing)?;
            // It is here; what was looked at before may be older.
            state.members.iter_mut().for_each(|members| members.go_on());
            Err(state.fetches.wait())
        }
    }
}

/// Whether a request has a thing here to stay, or waits for it.
fn is_held(state: &State, thing: Thing) -> bool {
    let Some(members) = &state.members else { return true };
    // Who was refused it does not ask again.
    let held = |asker| {
        let has_it = members.stays_for(asker, thing) || members.waits_for(asker, thing);
        has_it || members.was_answered(asker, thing)
    };
    members.asker().is_none_or(held)
}

/// What a request has taken.
///
/// # Errors
/// If it has not: then it lets go of all that it has, and is carried out anew.
pub fn must_stay(state: &mut State, thing: Thing) -> Result<()> {
    let asker = state.members.as_ref().and_then(|members| members.asker());
    let members = state.members.as_ref();
    let stays = |asker| members.is_some_and(|members| members.stays_for(asker, thing));
    match asker.is_none_or(stays) {
        true => Ok(()),
        false => Err(anew(state)),
    }
}

/// A request lets go of all that it has, and is carried out anew.
pub fn anew(state: &mut State) -> Error {
    let_go(state);
    // Nothing comes that it waits for: it may go on at once.
    state.members.iter_mut().for_each(|members| members.go_on());
    state.fetches.wait()
}

/// What homes have said of names is not so any more: a request is carried out anew, and asks them.
/// Not for ever.
pub fn asks_again(state: &mut State) -> Error {
    if !may_try_anew(state) {
        return Error::new(ErrorKind::Busy, "names change all the time");
    }
    if let Some(asker) = state.members.as_ref().and_then(|members| members.asker()) {
        forget_let_go(state, asker);
    }
    anew(state)
}

/// A request lets go of all that it has taken, and of what it has seen: who does something for it
/// may need that.
pub fn let_go(state: &mut State) {
    if let Some(asker) = state.members.as_ref().and_then(|members| members.asker()) {
        has_run(state, asker);
    }
}

/// What a path stood for is gone where it was born: something else may have taken its name since
/// that was looked up, so all is to be done anew. Not for ever.
pub fn is_astray(state: &mut State) -> bool {
    state.members.as_mut().is_some_and(|members| members.take_gone()) && may_try_anew(state)
}

/// Whether a request may be carried out anew, as what it has found is gone. Not for ever.
fn may_try_anew(state: &mut State) -> bool {
    let may_wait = state.fetches.may_wait();
    let Some(members) = &mut state.members else { return false };
    let Some(asker) = members.asker() else { return false };
    let times = members.astray.entry(asker).or_default();
    *times = times.saturating_add(1);
    may_wait && *times <= ASTRAY_MAX
}

/// A request has found that it needs this directory here, too: it is carried out anew, and asks for
/// all at once. Not for ever, if it has it and that is of no use.
pub fn needs_too(state: &mut State, directory: Ino) -> Error {
    let asker = state.members.as_ref().and_then(|members| members.asker());
    let Some((members, asker)) = state.members.as_mut().zip(asker) else {
        return Error::new(ErrorKind::NotFound, format!("directory {directory}"));
    };
    let is_new = members.further.entry(asker).or_default().insert(directory);
    match is_new || may_try_anew(state) {
        true => find_anew(state, asker),
        false => Error::new(ErrorKind::Busy, "names change all the time"),
    }
}

/// The same of several, which it asks for at once.
pub fn needs_all(state: &mut State, directories: &BTreeSet<Ino>) {
    let asker = state.members.as_ref().and_then(|members| members.asker());
    if let Some((members, asker)) = state.members.as_mut().zip(asker) {
        members.further.entry(asker).or_default().extend(directories);
    }
}

/// What the present request has found that it needs, too.
pub fn further(state: &State) -> BTreeSet<Ino> {
    let Some(members) = &state.members else { return BTreeSet::new() };
    let found = members.asker().and_then(|asker| members.further.get(&asker));
    found.cloned().unwrap_or_default()
}

/// Who was asked is in no more. What was of one that has left in order is in the permanent store:
/// the request is carried out anew, and finds it there.
pub fn is_removed(state: &mut State, member: Member) -> Error {
    let brings = state.backing.is_some();
    match &mut state.members {
        Some(members) if brings && members.has_left(member) => {
            members.meets_gone();
            Error::new(ErrorKind::NotFound, format!("{member} has left"))
        }
        _ => Failure::Removed(member).error(),
    }
}

/// The change of a file's name that a request has asked the file's home for, also if it has asked a
/// server before this one.
pub fn change_of(state: &State) -> Option<(Thing, Work)> {
    let members = state.members.as_ref()?;
    let asker = members.asker()?;
    let its = members.wanted(wishes_of(asker.session, Some(asker.index)));
    its.into_iter().find_map(|wish| {
        let (thing, work) = members.work_of(wish)?;
        let is_it = renames(&work) && wish_of(asker, thing, &work).ok() == Some(wish);
        is_it.then_some((thing, work))
    })
}

fn renames(work: &Work) -> bool {
    let change = change_in(work);
    matches!(change, Some(Change::Unname(_) | Change::Move(..) | Change::Link { .. }))
}

/// A request wants a thing from now on. One that may not wait has nothing done elsewhere, where it
/// might be done when nobody is there any more who wanted it.
fn want(
    state: &mut State,
    (asker, wish): (Asker, Wish),
    thing: Thing,
    work: &Work,
) -> Result<Have> {
    let access = state.members.as_ref().map(|members| members.access(thing, state));
    if !state.fetches.may_wait() && access != Some(Access::Change) {
        return Err(state.fetches.wait());
    }
    if matches!(thing, Thing::Directory(_)) && !looks(work) {
        forget_let_go(state, asker);
    }
    if let Some(members) = &mut state.members {
        let look = match work {
            Work::Look(look) | Work::Find(look) => Some(look.clone()),
            Work::Change(_) | Work::Take => None,
        };
        members.wishes.insert(wish, Wished { asker, thing, look, stage: Stage::Waits });
    }
    tell(state, Input::Wish { wish, thing, work: work.clone() });
    // What is here need not be waited for.
    if !looks(work) && state.members.as_mut().is_some_and(|members| members.may_go((wish, thing))) {
        return Ok(Have::Here);
    }
    let error = state.fetches.wait();
    if !state.fetches.is_waiting() {
        forget(state, wish);
    }
    Err(error)
}

/// A request has its answer.
pub fn is_answered(state: &mut State, asker: Asker) {
    has_run(state, asker);
    moving::has_run(state, |its| *its == asker);
    if let Some(members) = &mut state.members {
        members.astray.remove(&asker);
        members.further.remove(&asker);
    }
}

/// A request has run, which is in the same transaction: what it needed need not stay.
pub fn has_run(state: &mut State, asker: Asker) {
    state.members.iter_mut().for_each(|members| members.gives_transaction_up(asker));
    let its = wishes_by(state, asker);
    forget_all(state, its);
}

/// Nobody waits for these; what the names of new files depend on is heard nevertheless.
fn forget_all(state: &mut State, wishes: Vec<Wish>) {
    for wish in wishes {
        if !state.members.as_ref().is_some_and(|members| members.is_naming(wish)) {
            forget(state, wish);
        }
    }
}

/// The wishes of a request, also those of which a server before this one knew what they are for.
fn wishes_by(state: &State, asker: Asker) -> Vec<Wish> {
    let Some(members) = &state.members else { return Vec::new() };
    if asker.session == NOBODY {
        let its = members.wishes.iter().filter(|(_, wished)| wished.asker == asker);
        return its.map(|(wish, _)| *wish).collect();
    }
    members.wanted(wishes_of(asker.session, Some(asker.index)))
}

/// A session is over: nobody waits for what it wanted.
pub fn has_ended(state: &mut State, session: SessionSlot) {
    moving::has_ended(state, session);
    let Some(members) = &mut state.members else { return };
    members.gives_transactions_up(session);
    members.astray.retain(|asker, _| asker.session != session);
    members.further.retain(|asker, _| asker.session != session);
    let its = members.wanted(wishes_of(session, None));
    if !its.is_empty() {
        // Others may wait for what it has asked.
        members.go_on();
    }
    forget_all(state, its);
}

/// No request waits for what is wished; it is heard of nevertheless.
pub fn is_left(state: &mut State, wish: Wish) {
    state.members.iter_mut().for_each(|members| members.forgets(wish));
}

/// Nobody waits for what is wished.
pub fn forget(state: &mut State, wish: Wish) {
    if let Some(members) = &mut state.members {
        members.forgets(wish);
    }
    tell(state, Input::Forget(wish));
}
