//! What was prepared of something that was born here, for a transaction that another member
//! decides: until it is known whether that comes to be, nobody sets extended attributes of it, or
//! sees any, if it sets some; and nobody gives it names or takes any, if it does. How many names it
//! has is seen a moment later, unless that cannot be known now: then as it was.
//!
//! Not here: what is prepared (`preparing`), and how it comes to be known (`sharing/transacting`).

use terral_format::ids::{Ino, Member, Thing};
use terral_format::wire::peers::Failure;
use terral_format::wire::transactions::{TransactionId, Trouble};
use terral_format::{Error, ErrorKind, Result};

use crate::core::state::State;
use crate::members::requiring;
use crate::members::role::Doubt;

/// Nothing is in doubt of this.
///
/// # Errors
/// If it must wait until that is known; `EIO` if it cannot be known now, and why.
pub(super) fn must_be_none(state: &mut State, ino: Ino) -> Result<()> {
    must_end(state, ino, |_| true)
}

/// No extended attribute of it is.
///
/// # Errors
/// As those of [`must_be_none`].
pub(super) fn must_be_none_of_attributes(state: &mut State, ino: Ino) -> Result<()> {
    must_end(state, ino, |doubt| !doubt.sets.is_empty())
}

/// No name of it is.
///
/// # Errors
/// As those of [`must_be_none`].
pub(super) fn must_be_none_of_names(state: &mut State, ino: Ino) -> Result<()> {
    must_end(state, ino, |doubt| doubt.counts.is_some())
}

fn doubt_of(state: &State, ino: Ino) -> Option<&Doubt> {
    let members = state.members.as_ref().filter(|members| members.doubts().next().is_some())?;
    members.number(ino).and_then(|number| members.prepared(number))
}

fn must_end(state: &mut State, ino: Ino, counts: impl Fn(&Doubt) -> bool) -> Result<()> {
    let doubt = doubt_of(state, ino).filter(|doubt| counts(doubt));
    let Some(&Doubt { of, trouble, witness, .. }) = doubt else { return Ok(()) };
    match trouble {
        // Who decides it may wait for what this request has.
        None => Err(requiring::released(state)),
        Some(Trouble::Silent) => Err(Failure::Silent(of.by).error()),
        Some(Trouble::Witness) => Err(Failure::Silent(witness.unwrap_or(of.by)).error()),
        Some(Trouble::Lost) => Err(is_lost(of, witness)),
    }
}

/// Whether names of a file that was born here are in doubt: nobody sees their count without asking.
pub fn is_of_names(state: &State, ino: Ino) -> bool {
    doubt_of(state, ino).is_some_and(|doubt| doubt.counts.is_some())
}

/// How many names a file has that was born here may be seen.
///
/// # Errors
/// If that must wait for what is just being decided.
pub fn count_is_known(state: &mut State, ino: Ino) -> Result<()> {
    let is_new = |doubt: &Doubt| doubt.counts.is_some() && doubt.trouble.is_none();
    match doubt_of(state, ino).is_some_and(is_new) {
        true => Err(requiring::released(state)),
        false => Ok(()),
    }
}

/// The same of what others look at.
///
/// # Errors
/// As those of [`count_is_known`].
pub fn count_is_known_of(state: &mut State, thing: Thing) -> Result<()> {
    let place = state.members.as_ref().and_then(|members| members.place(thing.number()));
    match (thing, place) {
        (Thing::File(_), Some(ino)) => count_is_known(state, ino),
        _ => Ok(()),
    }
}

/// What is said of one that nobody decides any more.
fn is_lost(of: TransactionId, witness: Option<Member>) -> Error {
    let by = of.by;
    let too = witness.map_or(String::new(), |witness| format!(", and {witness}, which knew of it"));
    let context = format!(
        "transaction {of} is in doubt, as {by} was removed, which decided it{too} (terral txn \
         resolve {of})"
    );
    let error = Failure::Removed(by).error();
    Error { context, errno: error.errno, ..Error::new(ErrorKind::Backing, "") }
}
