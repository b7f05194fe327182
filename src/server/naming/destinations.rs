//! Where files of other members are to have names by a transaction: the directories of these as
//! homes know them, and those that the same transaction makes.
//!
//! Not here: which files, and when (`delegations`).

use terral_format::ids::{Ino, Number};
use terral_format::wire::transactions::{Destination, Way};
use terral_format::{Error, ErrorKind, Result};

use crate::core::state::State;
use crate::naming::names::Name;
use crate::naming::planning::Plan;

/// Names, by the numbers of their directories.
pub(super) fn by_number(state: &State, names: Vec<Name>) -> Result<Way> {
    names.into_iter().map(|(at, name)| Ok((number_of(state, at)?, name))).collect()
}

/// The directory that is there before in which, or below, this one is made, if it is; and those
/// that lead on from there, with their names.
pub(super) fn made_in(plan: &Plan<'_>, mut at: Ino) -> (Ino, Vec<Name>) {
    let mut made = Vec::new();
    while let Some((parent, name)) = plan.name_of(at).filter(|_| plan.makes(at)) {
        made.push((at, name));
        at = parent;
    }
    made.reverse();
    (at, made)
}

/// The number of a directory.
pub(super) fn number_of(state: &State, ino: Ino) -> Result<Number> {
    let gone = || Error::new(ErrorKind::NotFound, format!("directory {ino}"));
    state.members.as_ref().and_then(|members| members.number(ino)).ok_or_else(gone)
}

/// Where a file has got a name.
pub(super) fn destination(state: &State, plan: &Plan<'_>, (at, name): Name) -> Result<Destination> {
    let (above, made) = made_in(plan, at);
    let directory = number_of(state, above)?;
    let made = made.into_iter().map(|(at, name)| Ok((number_of(state, at)?, name)));
    Ok(Destination { directory, made: made.collect::<Result<Way>>()?, name })
}

/// Whether a name is in this directory.
pub(super) fn is_in(state: &State, to: &Destination, at: Ino) -> bool {
    let last = to.made.last().map_or(to.directory, |(number, _)| *number);
    number_of(state, at).is_ok_and(|number| number == last)
}
