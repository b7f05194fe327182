//! Objects that other members' servers are asked to have. Not here: who does it there (the relay,
//! as a client of that server), and what an object is (the client library).

use terral_format::ids::{Member, Number};
use terral_format::wire::far::{Act, Done};
use terral_format::wire::placed::{Placed, Placing};
use terral_format::{Error, ErrorKind, Result};

use super::asking::{Step, ask};
use super::role::Behind;
use crate::authority::caller::Caller;
use crate::core::state::State;

/// Has another member's server have an object, for who asks. Gives the file, if it is created.
///
/// # Errors
/// As those of [`ask`]; [`ErrorKind::NotFound`] if there is no such member, or it is this one.
pub fn place(
    state: &mut State,
    caller: &Caller,
    (on, what): (Member, Placing),
    (container, id): (&[u8], u128),
) -> Result<Option<Number>> {
    let members = state.members.as_ref();
    let is_other = members.is_some_and(|members| members.others().contains(&on));
    let missing = || Error::new(ErrorKind::NotFound, format!("{on}: no other server of this run"));
    let removed = state.far.removed_of(on).is_some();
    if !is_other && !removed {
        return Err(missing());
    }
    let placed = Placed { container: container.to_vec(), id, person: (*caller.person).clone() };
    let number = Number::new(on, what.counted()).ok_or_else(missing)?;
    let behind = placed.write()?;
    match ask(state, (number, Act::Place(what)), Step::Place, |_| Behind::Bytes(behind))?.0 {
        Done::Placed(file) if file.born() == on => Ok(Some(file)),
        Done::Done => Ok(None),
        _ => Err(Error::new(ErrorKind::Malformed, "what another member says of an object")),
    }
}
