//! What was prepared of something that was born here, for a transaction that another member
//! decides: until it is known whether that comes to be, nobody sets extended attributes of it, or
//! sees any, if it sets some, and nothing else is prepared of it. Names that it gives are counted
//! meanwhile, and nobody waits.
//!
//! Not here: what is prepared (`preparing`), and how it comes to be known (`sharing/transacting`).

use terral_format::ids::{Ino, Member};
use terral_format::wire::peers::Failure;
use terral_format::wire::transactions::{TransactionId, Trouble};
use terral_format::{Error, ErrorKind, Result};

use crate::core::state::State;
use crate::members::requiring;
use crate::members::role::Doubt;

/// No extended attributes of this are in doubt.
///
/// # Errors
/// If it must wait until that is known; `EIO` if it cannot be known now, and why.
pub(super) fn must_be_none(state: &mut State, ino: Ino) -> Result<()> {
    known(state, ino, |doubt| doubt.sets.is_empty())
}

/// Its names are not delegated to who decides a transaction.
///
/// # Errors
/// As [`must_be_none`]'s.
pub fn must_have_its_names(state: &mut State, ino: Ino) -> Result<()> {
    known(state, ino, |doubt| doubt.delegated.is_none())
}

/// Nothing is prepared of this.
///
/// # Errors
/// As [`must_be_none`]'s.
pub(super) fn must_be_free(state: &mut State, ino: Ino) -> Result<()> {
    known(state, ino, |_| false)
}

/// What is prepared of it does not matter, or nothing is.
fn known(state: &mut State, ino: Ino, matters_not: impl Fn(&Doubt) -> bool) -> Result<()> {
    let Some(members) = &state.members else { return Ok(()) };
    let doubt = members.number(ino).and_then(|number| members.prepared(number));
    let doubt = doubt.filter(|doubt| !matters_not(doubt));
    let Some(&Doubt { of, trouble, witness, .. }) = doubt else { return Ok(()) };
    match trouble {
        // Who decides it may wait for what this request has.
        None => Err(requiring::released(state)),
        Some(Trouble::Silent) => Err(Failure::Silent(of.by).error()),
        Some(Trouble::Witness) => Err(Failure::Silent(witness.unwrap_or(of.by)).error()),
        Some(Trouble::Lost) => Err(is_lost(of, witness)),
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
