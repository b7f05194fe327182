//! How clients leave a thing that is to be given to another member.

use terral_format::disk::membership::Membership;
use terral_format::ids::Thing;
use terral_format::wire::body::Body;
use terral_format::{Error, ErrorKind, Result};
use terral_partition::effect::Input;

use crate::core::state::State;
use crate::deferred::applying;
use crate::members::stepping::tell;
use crate::sharing::bodies;

/// Clients are to leave these: those that none uses any more are given back.
pub fn leave(state: &mut State, things: Vec<Thing>) -> Result<()> {
    for thing in things {
        if state.members.as_mut().is_some_and(|members| members.drop_copy(thing)) {
            tell(state, Input::Recalled { thing, body: Body::default() });
        } else {
            leave_one(state, thing)?;
        }
    }
    Ok(())
}

fn leave_one(state: &mut State, thing: Thing) -> Result<()> {
    let body = match bodies::inode_of(state, thing) {
        Ok(inode) => {
            state.record(Membership::Elsewhere { ino: inode.ino, is: true });
            // What was deferred in it before that is applied; what is after asks.
            applying::close_gate(state)?;
            bodies::body_of(state, thing)?
        }
        Err(error) if error.kind == ErrorKind::NotFound => Body::default(),
        Err(error) => return Err(error),
    };
    if state.waiting.count() > 0 {
        return Err(Error::new(ErrorKind::Busy, "what was deferred is not applied yet"));
    }
    tell(state, Input::Recalled { thing, body });
    Ok(())
}
