//! Transactions of which several members have a part: who has decided that one comes to be tells
//! the homes of what was prepared until each has said so; a home that hears nothing asks.
//!
//! Invariants: what was prepared is undone only by the word of who decides it that it never comes
//! to be, which he says of all that he does not know; if he is gone for good, by that of its
//! witness, and if it has none, somebody has to say. A witness says nothing of what a member
//! decides that is in, and hears nothing of one that is not; that one says nothing else than what
//! its witness knows, and has that forget first what never comes to be. Not here: what is prepared,
//! and done then (`naming/preparing`).

use std::time::Duration;

use terral_format::disk::membership::{Membership, Transacts};
use terral_format::ids::{Ino, Member, Number, Thing};
use terral_format::wire::peers::{Answer, Failure, Work};
use terral_format::wire::person::Person;
use terral_format::wire::things::{By, Change, Look, Outcome};
use terral_format::wire::transactions::{
    DOUBT_NAMES_MAX, DOUBTS_MAX, InDoubt, MemberDoubts, TransactionId, Trouble,
};
use terral_format::{Error, ErrorKind, Result};

use crate::authority::audit::{self, Who};
use crate::authority::caller::Caller;
use crate::core::state::State;
use crate::members::requiring::{self, Have};
use crate::members::role::{Doubt, Members};
use crate::naming::{elsewhere, preparing};
use crate::sharing::own::{Own, are_wanted, as_own};
use crate::sharing::{adrift, returning};

/// A home that hears nothing for so long asks.
const ASK_AFTER: Duration = Duration::from_millis(500);

type Part = (TransactionId, Number);

/// What tells one from all others.
fn key((of, file): Part) -> Ino {
    Ino(of.number.wrapping_add(file.word()))
}

fn own<T>(what: T) -> By<T> {
    By { person: Person::default(), what }
}

/// Goes on with all of them.
pub fn settle(state: &mut State) {
    let Some(members) = &state.members else { return };
    if members.is_put_out() {
        return;
    }
    let left: Vec<TransactionId> =
        members.witnessed().filter(|of| members.has_left(of.by)).collect();
    let (untold, released) = (members.untold(), members.releasable());
    if adrift::is_abandoned(state) {
        return is_abandoned(state);
    }
    let mut doubts: Vec<Part> = members.doubts().map(|(file, doubt)| (doubt.of, file)).collect();
    // It has told all before it left.
    left.into_iter().for_each(|of| is_released(state, of));
    for (of, witness) in released {
        as_own(state, (Own::Release, Ino(of.number)), |state| release(state, of, witness));
    }
    for (of, file) in untold {
        as_own(state, (Own::Told, key((of, file))), |state| tell(state, (of, file)));
    }
    doubts.retain(|part| is_to_be_asked(state, *part));
    for part in doubts {
        as_own(state, (Own::Doubt, key(part)), |state| ask(state, part));
    }
}

/// Who knows more has been gone for long: what was delegated is called as before.
fn is_abandoned(state: &mut State) {
    let doubts = state.members.iter().flat_map(|members| members.doubts());
    let delegated = doubts.filter(|(_, doubt)| doubt.delegated.is_some());
    let parts: Vec<Part> = delegated.map(|(file, doubt)| (doubt.of, file)).collect();
    parts.into_iter().for_each(|(of, file)| preparing::takes_back(state, file, of));
}

/// Time has passed: who has heard nothing asks.
pub fn tick(state: &mut State) {
    let now = state.world.now();
    let Some(members) = &mut state.members else { return };
    let doubts: Vec<Part> = members.doubts().map(|(file, doubt)| (doubt.of, file)).collect();
    doubts.iter().for_each(|(_, file)| members.is_doubted(*file, now, ASK_AFTER));
    let (untold, released) = (members.untold(), members.releasable());
    let released = released.iter().map(|(of, _)| Ino(of.number)).collect();
    are_wanted(state, Own::Release, &released);
    are_wanted(state, Own::Told, &untold.iter().map(|part| key(*part)).collect());
    are_wanted(state, Own::Doubt, &doubts.iter().map(|part| key(*part)).collect());
    settle(state);
}

fn is_to_be_asked(state: &mut State, (of, file): Part) -> bool {
    let now = state.world.now();
    let Some(members) = &mut state.members else { return false };
    let witness = members.prepared(file).and_then(|doubt| doubt.witness);
    let witness = witness.filter(|witness| !members.is_removed(*witness));
    match (members.is_removed(of.by), witness) {
        // It has told all before it left.
        _ if members.has_left(of.by) => {
            preparing::settle(state, file, (of, false));
            false
        }
        (true, Some(witness)) if witness == members.me() => {
            if let Some(is) = members.decision_of(of) {
                preparing::settle(state, file, (of, is));
            }
            false
        }
        // Nobody knows: what is to be brought does not wait for who says.
        (true, None) if members.prepared(file).is_some_and(|doubt| doubt.delegated.is_some()) => {
            preparing::takes_back(state, file, of);
            false
        }
        // Nobody waits for it, and nobody knows: they are counted, be there as many or less.
        (true, None) if members.prepared(file).is_some_and(|doubt| doubt.sets.is_empty()) => {
            preparing::resolve(state, file, (of, true));
            false
        }
        (true, None) => {
            if members.was_heard_of(file, now, Some(Trouble::Lost)) {
                members.go_on();
            }
            false
        }
        _ => members.is_asked_about(file),
    }
}

/// Tells a home that what it has prepared has come to be.
fn tell(state: &mut State, (of, file): Part) -> Result<()> {
    if state.members.as_ref().is_some_and(|members| members.is_born_here(file)) {
        // Of which this server is the witness, too.
        preparing::settle(state, file, (of, true));
        state.record(Membership::Transacts(Transacts::Told { of, file }));
        return Ok(());
    }
    let Some(what) = returning::said(state, (of, file)) else {
        // The permanent store does not have it yet.
        return Ok(());
    };
    let work = Work::Change(own(what).body()?);
    let is_told = match requiring::need(state, Thing::File(file), &work)? {
        Have::Done(Ok(body)) => matches!(Outcome::of(&body), Ok(Outcome::Done(_))),
        Have::Done(Err(failure)) => matches!(failure, Failure::Removed(_)),
        // Its home is no more, and this server has come in its place.
        Have::Here | Have::Shown | Have::Missed => true,
    };
    if is_told {
        if let Some(ino) = returning::is_returned(state, (of, file)) {
            let (fingerprint, rewritten) = (None, false);
            state.record(Membership::InStore { ino, fingerprint, rewritten });
        }
        state.record(Membership::Transacts(Transacts::Told { of, file }));
        state.members.iter_mut().for_each(|members| members.go_on());
    }
    Ok(())
}

/// Asks who decides whether it comes to be, or, if he was removed, its witness.
fn ask(state: &mut State, (of, file): Part) -> Result<()> {
    let strange = || Error::new(ErrorKind::Malformed, "who decides a transaction");
    let whom = state.members.as_ref().and_then(|members| {
        let is_removed = members.is_removed(of.by);
        if is_removed { members.prepared(file)?.witness } else { Some(of.by) }
    });
    let its = whom.and_then(|whom| Number::new(whom, 0)).ok_or_else(strange)?;
    let work = Work::Find(own(Look::Decided(of)).body()?);
    let Have::Done(answer) = requiring::need(state, Thing::File(its), &work)? else {
        return Err(strange());
    };
    heard(state, (of, file), answer);
    Ok(())
}

fn heard(state: &mut State, (of, file): Part, answer: Answer) {
    let now = state.world.now();
    let said = answer.map(|body| Outcome::of(&body));
    let Some(members) = &mut state.members else { return };
    // Names that were delegated come back with what the permanent store has of them.
    let awaits = members.prepared(file).is_some_and(|doubt| doubt.delegated.is_some());
    if let Ok(Ok(Outcome::Decided(Some(is)))) = said
        && !(is && awaits)
    {
        return preparing::settle(state, file, (of, is));
    }
    let trouble = match said {
        Ok(Ok(Outcome::Awaits(_))) => Some(Trouble::Witness),
        Err(_) if members.is_removed(of.by) => Some(Trouble::Witness),
        Err(_) => Some(Trouble::Silent),
        Ok(_) => None,
    };
    if members.was_heard_of(file, now, trouble) {
        members.go_on();
    }
}

/// Whether one comes to be that this member decides, or knows of, too, for who asks.
///
/// # Errors
/// If it is another that is asked, in whose place this one is.
pub fn decision_of(state: &State, thing: Thing, of: TransactionId) -> Result<Outcome> {
    let members = state.members.as_deref().filter(|all| all.is_born_here(thing.number()));
    let others = || Error::new(ErrorKind::Invalid, format!("transaction {of}: another decides it"));
    let members = members.ok_or_else(others)?;
    Ok(match (members.decision_of(of), members.silent_witness(of)) {
        (None, Some(witness)) => Outcome::Awaits(witness),
        (is, _) => Outcome::Decided(is),
    })
}

/// This member is to know of one, too, that another decides.
///
/// # Errors
/// If it is another that is asked, or who decides it is in no more.
pub fn witness(
    state: &mut State,
    thing: Thing,
    (of, files): (TransactionId, Vec<Number>),
) -> Result<Outcome> {
    let members = must_be_witness(state, thing, of)?;
    if members.is_removed(of.by) {
        let context = format!("transaction {of}: {} was removed", of.by);
        return Err(Error::new(ErrorKind::Denied, context));
    }
    state.record(Membership::Transacts(Transacts::Witnessed { of, files }));
    Ok(Outcome::Done(None))
}

/// Who decides it says that this member need not know of it any more.
///
/// # Errors
/// As those of [`witness`].
pub fn release_here(state: &mut State, thing: Thing, of: TransactionId) -> Result<Outcome> {
    let members = must_be_witness(state, thing, of)?;
    let knows = members.witnessed().any(|one| one == of);
    if knows && members.is_removed(of.by) {
        let context = format!("transaction {of}: {} was removed", of.by);
        return Err(Error::new(ErrorKind::Denied, context));
    }
    if knows {
        is_released(state, of);
    }
    Ok(Outcome::Done(None))
}

fn must_be_witness(state: &State, thing: Thing, of: TransactionId) -> Result<&Members> {
    let others = || Error::new(ErrorKind::Invalid, format!("transaction {of}: another witness"));
    let members = state.members.as_deref().filter(|all| all.is_born_here(thing.number()));
    members.ok_or_else(others)
}

/// Has the witness of one forget it.
fn release(state: &mut State, of: TransactionId, witness: Member) -> Result<()> {
    if state.members.as_ref().is_some_and(|members| members.is_removed(witness)) {
        is_released(state, of);
        return Ok(());
    }
    let strange = || Error::new(ErrorKind::Malformed, "the witness of a transaction");
    let its = Number::new(witness, 0).ok_or_else(strange)?;
    let work = Work::Change(own(Change::Release(of)).body()?);
    let Have::Done(answer) = requiring::need(state, Thing::File(its), &work)? else {
        return Err(strange());
    };
    match answer {
        Ok(body) if matches!(Outcome::of(&body), Ok(Outcome::Done(_))) => is_released(state, of),
        Ok(_) => {}
        Err(Failure::Removed(_)) => is_released(state, of),
        Err(_) => state.members.iter_mut().for_each(|members| {
            members.witness_is_silent(of);
            members.go_on();
        }),
    }
    Ok(())
}

fn is_released(state: &mut State, of: TransactionId) {
    state.record(Membership::Transacts(Transacts::Released { of }));
    // Its request may wait for that.
    state.members.iter_mut().for_each(|members| members.go_on());
}

/// Whether a member may say that one comes to be which was prepared here: who decides it, and its
/// witness, if he was removed; who repeats it, too.
pub fn may_say(state: &State, from: Member, (of, file): Part) -> bool {
    let Some(members) = &state.members else { return false };
    let doubt = members.prepared(file).filter(|doubt| doubt.of == of);
    let knows = |doubt: &Doubt| doubt.witness == Some(from) && members.is_removed(of.by);
    of.by == from || doubt.is_none_or(knows)
}

/// What is in doubt here, as far as it is told.
pub fn here(state: &State) -> Vec<InDoubt> {
    in_doubt(state, |_| true).into_iter().take(DOUBTS_MAX).collect()
}

fn in_doubt(state: &State, is: impl Fn(&Doubt) -> bool) -> Vec<InDoubt> {
    let Some(members) = &state.members else { return Vec::new() };
    let shown = |(file, doubt): (Number, &Doubt)| {
        let path = members.place(file).and_then(|ino| state.names.path(ino));
        let names = doubt.sets.iter().map(|set| set.name.clone()).take(DOUBT_NAMES_MAX);
        let (path, names) = (path.unwrap_or_default(), names.collect());
        let Doubt { of, gets, since_s, trouble, witness, .. } = *doubt;
        InDoubt { of, file, path, names, gets, since_s, trouble, witness }
    };
    members.doubts().filter(|(_, doubt)| is(doubt)).map(shown).collect()
}

/// Somebody says whether one comes to be whose decider was removed. What was in doubt here.
///
/// # Errors
/// [`ErrorKind::Invalid`] if who decides it is in, and says so himself.
pub fn resolve_here(state: &mut State, who: Who, of: TransactionId, is: bool) -> Result<Outcome> {
    let mut doubts = in_doubt(state, |doubt| doubt.of == of);
    if let Some(doubt) = doubts.first() {
        must_be_removed(state, of)?;
        must_be_gone(state, of, doubt.witness)?;
    }
    for InDoubt { file, path, .. } in &doubts {
        preparing::resolve(state, *file, (of, is));
        let line = audit::resolved(state.world.wall_s(), who, (of, is), path);
        state.machine.audit(&line);
    }
    doubts.truncate(DOUBTS_MAX);
    Ok(Outcome::Doubts(doubts))
}

/// Nobody says for a member that is in whether what it decides comes to be.
fn must_be_removed(state: &State, of: TransactionId) -> Result<()> {
    let Some(members) = &state.members else { return Ok(()) };
    if members.is_removed(of.by) {
        return Ok(());
    }
    let (by, number) = (of.by, of.by.number());
    let context = format!(
        "transaction {of}: {by} is in, and says itself whether it comes to be (if its machine \
         is lost: terral fence {number})"
    );
    Err(Error::new(ErrorKind::Invalid, context))
}

/// Nor where a witness knows that.
fn must_be_gone(state: &State, of: TransactionId, witness: Option<Member>) -> Result<()> {
    let members = state.members.as_ref();
    let is_in = |witness: &Member| members.is_some_and(|members| !members.is_removed(*witness));
    let Some(witness) = witness.filter(is_in) else { return Ok(()) };
    let number = witness.number();
    let context = format!(
        "transaction {of}: {witness} is in, and knows whether it came to be (if its machine is \
         lost: terral fence {number})"
    );
    Err(Error::new(ErrorKind::Invalid, context))
}

/// What is in doubt on all members that are in; with `resolved`, what that has settled.
///
/// # Errors
/// If who asks must wait; as [`resolve_here`]'s.
pub fn everywhere(
    state: &mut State,
    (caller, who): (&Caller, Who),
    resolved: Option<(TransactionId, bool)>,
) -> Result<Vec<MemberDoubts>> {
    let Some(members) = &state.members else { return Ok(Vec::new()) };
    let (me, others) = (members.me(), members.others());
    if let Some((of, _)) = resolved.filter(|(of, _)| of.by == me || others.contains(&of.by)) {
        must_be_removed(state, of)?;
    }
    let (mut all, mut late) = (Vec::new(), None);
    for member in others {
        match asked(state, caller, member, resolved) {
            // All are asked before any is waited for.
            Err(error) if state.fetches.is_waiting() => late = Some(error),
            Err(error) if error.kind == ErrorKind::Invalid => return Err(error),
            doubts => all.push(MemberDoubts { member, doubts: doubts.ok().flatten() }),
        }
    }
    if let Some(late) = late {
        return Err(late);
    }
    let own = match resolved {
        Some((of, is)) => doubts_of(resolve_here(state, who, of, is)?)?,
        None => here(state),
    };
    all.push(MemberDoubts { member: me, doubts: Some(own) });
    all.sort_unstable_by_key(|one| one.member);
    Ok(all)
}

/// The same on another member; `None` if there is no connection.
fn asked(
    state: &mut State,
    caller: &Caller,
    member: Member,
    resolved: Option<(TransactionId, bool)>,
) -> Result<Option<Vec<InDoubt>>> {
    let members = state.members.as_ref();
    let is_connected = members.is_some_and(|members| members.is_connected(member));
    let Some(its) = Number::new(member, 0).filter(|_| is_connected) else { return Ok(None) };
    let said = match resolved {
        Some((of, is)) => {
            let person = (*caller.person).clone();
            let by = By { person, what: Change::Resolve(of, is) };
            elsewhere::ask_home(state, its, &Work::Change(by.body()?))?
        }
        None => elsewhere::told_of(state, caller, its, Look::Doubts)?,
    };
    doubts_of(said).map(Some)
}

fn doubts_of(said: Outcome) -> Result<Vec<InDoubt>> {
    match said {
        Outcome::Doubts(doubts) => Ok(doubts),
        _ => Err(Error::new(ErrorKind::Malformed, "what another member says is in doubt")),
    }
}
