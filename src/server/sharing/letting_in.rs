//! The control hears from root's servers of all machines which users' servers come, go, and speak
//! for whom; and they hear what has come of it.
//!
//! Invariants: only who answers for a server says anything of it; nobody hears that one is in
//! before the pool's registry has it. Not here: what is decided (`members/newcomers`).

use terral_format::disk::partition::Verdict;
use terral_format::ids::Member;
use terral_format::wire::answering::Newcomer;
use terral_format::wire::roster::{Control, Key};
use terral_format::{Error, ErrorKind, Result};

use crate::core::state::State;
use crate::members::{certifying, control, newcomers};

/// Another member says so, to the control or by it.
///
/// # Errors
/// [`ErrorKind::Malformed`] if it is not for that one to say.
pub fn heard(state: &mut State, from: Member, said: Control) -> Result<()> {
    if let Control::Invited { key, answer } = said {
        let members = state.members.iter_mut().filter(|members| members.control() == from);
        members.for_each(|members| members.is_answered(key, answer.clone()));
        return Ok(());
    }
    let handing = state.members.as_ref().is_some_and(|members| members.is_handing_over());
    let members = state.members.as_ref();
    let is_control = members.is_some_and(|members| members.control() == members.me());
    if !is_control || handing {
        // It is said again, to who is the control by then.
        return Ok(());
    }
    match said {
        Control::Invites { key, whom } => wants_in(state, from, (key, &whom)),
        Control::Gone { member, dead } => {
            is_its(state, from, member)?;
            let verdict = if dead { Verdict::Dead } else { Verdict::Fenced };
            match control::remove(state, member, verdict) {
                Err(error) if error.kind != ErrorKind::Exists => return Err(error),
                // It says so until it has heard the roster.
                _ => {}
            }
        }
        Control::Speaks(user) => certifying::speaks_for(state, from, user)?,
        _ => return Err(Error::new(ErrorKind::Malformed, "not of users' servers")),
    }
    Ok(())
}

/// A member asks the control to let in a server for a user.
fn wants_in(state: &mut State, from: Member, (key, whom): (Key, &Newcomer)) {
    let now = state.world.now();
    let unheard = state.members.as_ref().and_then(|members| members.is_unheard(now));
    let answer = match unheard {
        Some((registry, secs)) => {
            let context = format!("{registry}, which keeps it, does not answer since {secs} s");
            Err(Error::new(ErrorKind::Unreachable, context))
        }
        None => newcomers::let_in(state, from, whom, key).map(Box::new),
    };
    let is_in = answer.is_ok();
    let said = (key, Control::Invited { key, answer });
    state.members.iter_mut().for_each(|members| match is_in {
        true => members.has_let_in(from, said.clone()),
        false => members.has_not_let_in(from, said.clone()),
    });
}

fn is_its(state: &State, from: Member, member: Member) -> Result<()> {
    let by = state.members.as_ref().and_then(|members| members.roster().answers_for(member));
    match by == Some(from) {
        true => Ok(()),
        false => {
            let context = format!("{member} is gone, says {from}, which does not answer for it");
            Err(Error::new(ErrorKind::Malformed, context))
        }
    }
}
