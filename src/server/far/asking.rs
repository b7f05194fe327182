//! What requests ask of the member where a file was born.
//!
//! Invariant: a request that waits for an answer has changed nothing here, and is carried out anew
//! once that is there; which question is which follows from the request.

use terral_format::ids::{Asker, Ino, Member, Number, SessionSlot, Thing};
use terral_format::local::names::flag;
use terral_format::wire::far::{Act, Done, Id};
use terral_format::wire::locks::{FarLock, FarOwner, LockKind, LockRange};
use terral_format::wire::peers::Failure;
use terral_format::{Error, ErrorKind, Result};

use super::places;
use super::role::{Behind, Outcome};
use crate::core::left_out::{self, does};
use crate::core::state::State;
use crate::members::requiring;

/// The questions that one request may ask, told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// That a file is open.
    Open,
    /// That it is cut.
    Truncate,
    /// For its bytes.
    Read,
    /// To write some.
    Write,
    /// What came of that.
    Recall,
    /// A lock of it.
    Lock,
    /// What is in the way of one.
    TestLock,
    /// Chunks of it.
    Borrow,
    /// That it is longer.
    Grow,
    /// For a chunk to be mapped, whatever is in it.
    Offer,
    /// For the parts of that.
    FirstPart,
    /// The same.
    SecondPart,
    /// That they are here.
    Accept,
    /// For bytes of a chunk that is mapped elsewhere.
    ReadMapped,
    /// To write some there.
    WriteMapped,
    /// Of a named lock, or what it protects.
    Fencing,
    /// To have an object there.
    Place,
    /// For an update id, or to write as long as a file has one.
    Update,
    /// For bytes of a chunk that another member keeps.
    ReadPart,
    /// For bytes, wherever they are now.
    ReadWhole,
}

/// The number of a file whose bytes are on another machine.
pub fn number_of(state: &State, ino: Ino) -> Option<Number> {
    let members = state.members.as_ref()?;
    state.names.inode(ino).filter(|inode| inode.is(flag::FAR))?;
    members.number(ino).filter(|number| !members.is_born_here(*number))
}

/// A file that is open, and whose bytes are on another machine; as its client says.
///
/// # Errors
/// [`ErrorKind::BadHandle`] if that cannot be.
pub fn open_there(state: &State, ino: Ino) -> Result<Ino> {
    let stale = || Error::new(ErrorKind::BadHandle, format!("file {ino}"));
    number_of(state, ino).map(|_| ino).ok_or_else(stale)
}

fn id_of(state: &State, asker: Asker, step: Step) -> Option<Id> {
    let by = state.members.as_ref()?.me();
    let (pid, started_ticks) = state.sessions.process_of(asker.session)?;
    let Asker { session, index, sequence } = asker;
    Some(Id { by, session, pid, started_ticks, index, sequence, step: step as u8 })
}

/// Has something done with a file where its bytes are; `behind` gives what is to be written, once.
///
/// # Errors
/// If who asks must wait; [`ErrorKind::Busy`] if nobody may; and what the other member says.
pub fn ask(
    state: &mut State,
    (file, act): (Number, Act),
    step: Step,
    behind: impl FnOnce(&mut State) -> Behind,
) -> Outcome {
    let late = || Error::new(ErrorKind::Busy, "it is on another machine");
    let asker = state.members.as_ref().and_then(|members| members.asker()).ok_or_else(late)?;
    if let Some(outcome) = state.far.outcome(asker, file, step as u8) {
        return outcome;
    }
    if state.far.is_asked(asker, file, step as u8) {
        return Err(state.fetches.wait());
    }
    if let Some(removed) = state.far.removed_of(file.born()) {
        return Err(match act {
            Act::Open => requiring::is_removed(state, removed),
            _ => Failure::Removed(removed).error(),
        });
    }
    let id = id_of(state, asker, step).ok_or_else(late)?;
    live(state)?;
    let error = state.fetches.wait();
    // Who may not wait asks nothing.
    if state.fetches.is_waiting() {
        let (behind, now) = (behind(state), state.world.now());
        state.far.asks((id, Some(asker)), (file, act), behind, now);
    }
    Err(error)
}

/// Has something done by a member that has a chunk of a file that was born here.
///
/// # Errors
/// As those of [`ask`].
pub(super) fn ask_user(
    state: &mut State,
    (with, ino, act): (Member, Ino, Act),
    step: Step,
    behind: Behind,
) -> Outcome {
    let late = || Error::new(ErrorKind::Busy, "it is on another machine");
    let file = state.members.as_ref().and_then(|members| members.number(ino)).ok_or_else(late)?;
    ask_member(state, with, (file, act), step, behind)
}

/// Has something done by a member that has a chunk of a file, whosever that is.
///
/// # Errors
/// As those of [`ask`].
pub(super) fn ask_member(
    state: &mut State,
    with: Member,
    (file, act): (Number, Act),
    step: Step,
    behind: Behind,
) -> Outcome {
    let late = || Error::new(ErrorKind::Busy, "it is on another machine");
    let asker = state.members.as_ref().and_then(|members| members.asker()).ok_or_else(late)?;
    if let Some(outcome) = state.far.outcome(asker, file, step as u8) {
        return outcome;
    }
    if state.far.is_asked(asker, file, step as u8) {
        return Err(state.fetches.wait());
    }
    if let Some(removed) = state.far.removed_of(with) {
        return Err(Failure::Removed(removed).error());
    }
    let id = id_of(state, asker, step).ok_or_else(late)?;
    live(state)?;
    let error = state.fetches.wait();
    if state.fetches.is_waiting() {
        let now = state.world.now();
        state.far.asks_with((id, asker), with, (file, act), behind, now);
    }
    Err(error)
}

/// Before anything is asked: which process this is.
pub(super) fn live(state: &mut State) -> Result<()> {
    if !state.far.has_life() {
        let life = state.world.random()? as u64;
        state.far.lives(life);
    }
    Ok(())
}

fn done(outcome: Outcome) -> Result<()> {
    match outcome? {
        (Done::Done, _) => Ok(()),
        _ => Err(Error::new(ErrorKind::Malformed, "what another member answers")),
    }
}

/// Has a file open where its bytes are, as long as somebody here has.
///
/// # Errors
/// As those of [`ask`].
pub fn open(state: &mut State, file: Number) -> Result<()> {
    let opened = ask(state, (file, Act::Open), Step::Open, |state| {
        state.far.opens(file);
        Behind::Nothing
    });
    done(opened)
}

/// Whether the request that is carried out has asked this of a file already.
pub fn is_asked(state: &State, file: Number, step: Step) -> bool {
    let asker = state.members.as_ref().and_then(|members| members.asker());
    asker.is_some_and(|asker| state.far.is_asked(asker, file, step as u8))
}

/// The file that a request has had opened: it stays that one, also if the name that led there
/// stands for another one by now.
pub fn has_opened(state: &State) -> Option<Number> {
    state.far.opened_by(state.members.as_ref()?.asker()?)
}

/// Has a file cut where its bytes are; `strips` if by somebody who takes set-id bits off.
///
/// # Errors
/// As those of [`ask`].
pub fn truncate(
    state: &mut State,
    file: Number,
    (size, token): (u64, u64),
    strips: bool,
) -> Result<()> {
    let act = Act::Truncate { size, strips, token };
    done(ask(state, (file, act), Step::Truncate, |_| Behind::Nothing))
}

/// A request has its answer.
pub fn has_run(state: &mut State, asker: Asker) {
    state.far.batches.has_run(asker);
    state.storage.forget_refused(|of| of == asker);
    state.storage.forget_askers(|of| of == asker);
    if state.far.is_unused() {
        return;
    }
    if state.far.loans.are_over(|of| of == asker) {
        state.far.has_news();
    }
    let opened = state.far.are_over(|of| of == asker);
    opened.into_iter().for_each(|file| settle(state, file));
}

/// A session is over.
pub fn has_ended(state: &mut State, session: SessionSlot) {
    state.far.batches.has_ended(session);
    state.storage.forget_refused(|of| of.session == session);
    state.storage.forget_askers(|of| of.session == session);
    if state.far.is_unused() {
        return;
    }
    state.far.forget_calls(session);
    if state.far.loans.are_over(|of| of.session == session) {
        state.far.has_news();
    }
    let opened = state.far.are_over(|of| of.session == session);
    opened.into_iter().for_each(|file| settle(state, file));
}

/// A description of a file whose bytes are on another machine has ended.
///
/// # Errors
/// [`ErrorKind::System`] if the system has no random bits.
pub fn closed(state: &mut State, file: Number) -> Result<()> {
    live(state)?;
    settle(state, file);
    Ok(())
}

/// Tells a file's home, if it does not know, that somebody here has it open.
pub fn has_open(state: &mut State, file: Number) {
    if !state.far.has_open(file) && live(state).is_ok() {
        state.far.opens(file);
        say(state, file, Act::Open);
    }
}

/// Tells a file's home if nobody here has it open any more, and it knows that somebody had.
fn settle(state: &mut State, file: Number) {
    let place = state.members.as_ref().and_then(|members| members.place(file));
    let open = state.descriptions.iter().any(|(_, open)| Some(open.ino) == place);
    if open || state.far.is_opening(file) {
        return;
    }
    let (returns, goes) = (state.far.loans.must_return(file), state.far.batches.must_go(file));
    if returns || goes {
        return;
    }
    state.far.loans.closed(file);
    state.far.batches.closed(file);
    if state.far.closes(file) {
        // Before that: who has the same number and opens it next has locks of his own.
        say_unlocked(state);
        say(state, file, Act::Close);
    }
    place.into_iter().for_each(|ino| places::forget_unused(state, ino, Thing::File(file)));
}

/// Homes are told of those who have ended here.
pub(super) fn say_unlocked(state: &mut State) {
    let Some(me) = state.members.as_ref().map(|members| members.me()) else { return };
    let mut over = state.far.batches.take_unlocked();
    if (over.is_empty() && !state.locks.has_left()) || live(state).is_err() {
        return;
    }
    for (ino, owner) in state.locks.take_left() {
        let Some((file, owner)) = number_of(state, ino).zip(FarOwner::of(me, owner)) else {
            continue;
        };
        // What he has written is there before anybody else has his locks.
        if !(does(left_out::Step::KeepLocks) && state.far.batches.locked(file, owner)) {
            over.push((file, owner));
        }
    }
    for (file, owner) in over {
        let (range, kind, wait) = (LockRange::ALL, LockKind::Unlock, 0);
        say(state, file, Act::Lock(FarLock { owner, range, kind, wait }));
    }
}

/// Says something that nobody waits for. It is said until it was heard.
pub(super) fn say(state: &mut State, file: Number, act: Act) {
    let Some(by) = state.members.as_ref().map(|members| members.me()) else { return };
    if state.far.removed_of(file.born()).is_some() {
        return;
    }
    let (id, now) = (state.far.own_id(by), state.world.now());
    state.far.asks((id, None), (file, act), Behind::Nothing, now);
}

/// The same, unless just that was said and is not heard yet: a new session says it once more.
pub(super) fn say_once(state: &mut State, file: Number, act: Act) {
    if !state.far.says(file, act) {
        say(state, file, act);
    }
}

/// A file has lost its last name here. Its place tells this time from those at which it had, and
/// lost, another one.
///
/// # Errors
/// As those of [`closed`].
pub fn gone(state: &mut State, file: Number) -> Result<()> {
    live(state)?;
    let members = state.members.as_ref();
    let of = members.and_then(|members| Some((members.me(), members.place(file)?)));
    let Some((by, place)) = of else { return Ok(()) };
    say_once(state, file, Act::Lost { by, token: place.0 });
    Ok(())
}
