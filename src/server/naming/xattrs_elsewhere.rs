//! Extended attributes of what was born on another machine. They stay there, also those of a
//! directory that goes to others: each is asked for, and nothing of it is kept.
//!
//! Not here: who may, and what others ask here (`xattr_requests`).

use terral_format::ids::{Ino, Number};
use terral_format::wire::message::XattrHow;
use terral_format::wire::peers::Work;
use terral_format::wire::things::{By, Change, Look, Outcome};
use terral_format::{Error, ErrorKind, Result};

use crate::authority::caller::Caller;
use crate::core::state::State;
use crate::naming::elsewhere;

/// The number of what was born on another machine.
pub fn home_of(state: &State, ino: Ino) -> Option<Number> {
    let members = state.members.as_ref()?;
    members.number(ino).filter(|number| !members.is_born_here(*number))
}

fn malformed() -> Error {
    Error::new(ErrorKind::Malformed, "what another member says of extended attributes")
}

/// The value of one.
///
/// # Errors
/// If who asks must wait, and what the other member says.
pub fn value(state: &mut State, caller: &Caller, home: Number, name: &[u8]) -> Result<Vec<u8>> {
    match elsewhere::told_of(state, caller, home, Look::Xattr(name.into()))? {
        Outcome::Xattr(value) => Ok(value),
        _ => Err(malformed()),
    }
}

/// Names after this one, and whether they are the last.
///
/// # Errors
/// As those of [`value`].
pub fn names(
    state: &mut State,
    caller: &Caller,
    home: Number,
    after: &[u8],
) -> Result<(Vec<Vec<u8>>, bool)> {
    match elsewhere::told_of(state, caller, home, Look::XattrNames(after.into()))? {
        Outcome::XattrNames(names, last) => Ok((names, last)),
        _ => Err(malformed()),
    }
}

/// Has one set, or removed.
///
/// # Errors
/// As those of [`value`].
pub fn set(
    state: &mut State,
    caller: &Caller,
    home: Number,
    (name, value, how): (&[u8], Option<&[u8]>, XattrHow),
) -> Result<()> {
    let what = Change::Xattr { name: name.into(), value: value.map(<[u8]>::to_vec), how };
    let by = By { person: (*caller.person).clone(), what };
    let work = Work::Change(by.body()?);
    elsewhere::ask_home(state, home, &work).map(drop)
}
