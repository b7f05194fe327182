//! Users' servers come in, change their groups and go at the word of root's server of their
//! machine, which answers for them: it is the control, or asks that. Who asks this server waits.
//!
//! Invariants: what was answered is in the pool's registry; only who answers for a server says
//! anything of it, and no user's server does. What is asked may be heard again, and later: it comes
//! to the same. Not here: how the control hears it (`letting_in`), and who starts a server.

use std::time::Duration;

use terral_format::disk::partition::{Standing, Verdict};
use terral_format::ids::Member;
use terral_format::wire::answering::Newcomer;
use terral_format::wire::message::Reply;
use terral_format::wire::person::Person;
use terral_format::wire::roster::{Control, Invitation, Key};
use terral_format::{Error, ErrorKind, Result, frame};

use super::{keeping, succeeding};
use crate::core::state::State;
use crate::members::role::{Matter, Members};
use crate::members::{certifying, newcomers};

/// Who asks is told so long that the control has not answered: he takes a server for dead after
/// 10 s, and asks again.
const BOUND: Duration = Duration::from_secs(6);

/// Lets in a user's server: `encoded` says whose, and by which key.
///
/// # Errors
/// If who asks must wait; [`ErrorKind::Malformed`]; those of [`newcomers::let_in`];
/// [`ErrorKind::Unanswered`] if the control has said nothing for long: asked again by the same key,
/// it comes to the same.
pub fn invite(state: &mut State, encoded: &[u8]) -> Result<Reply> {
    let (whom, key): (Newcomer, Key) = frame::decode(encoded)?;
    let Some(me) = own(state, |members| members.me()) else {
        return Err(Error::new(ErrorKind::Invalid, "this server is alone: serve with --listen"));
    };
    newcomers::must_be_sound(&whom)?;
    let invitation = if is_control(state) {
        keeping::decide(state, |state| newcomers::let_in(state, me, &whom, key).map(drop))?;
        // Else it was not by this request.
        newcomers::known(state, me, &whom, key)?.ok_or_else(again)?
    } else {
        let what = Control::Invites { key, whom: Box::new(whom) };
        match asks(state, (Matter::Comes(key), what))? {
            Some(answer) => newcomers::by_this(state, *answer?)?,
            None => return Err(waits(state, Matter::Comes(key))),
        }
    };
    invitation.text().map(Reply::Invitation)
}

/// Removes a member: the control does, or whoever takes over from it; or, at the word of this
/// server, if that answers for it.
///
/// # Errors
/// If who asks must wait; those of [`succeeding::remove`]; as [`invite`].
pub fn remove(state: &mut State, member: Member, verdict: Verdict) -> Result<()> {
    if is_control(state) || !answers_for(state, member) {
        return succeeding::remove(state, member, verdict);
    }
    let (matter, dead) = (Matter::Gone(member), verdict == Verdict::Dead);
    if is_gone(state, member, dead) {
        let asked = state.members.as_mut().is_some_and(|members| members.asks_no_more(matter));
        return match asked {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::Exists, format!("{member} was removed before"))),
        };
    }
    asks(state, (matter, Control::Gone { member, dead }))?;
    Err(waits(state, matter))
}

/// The servers of a user for which this one answers speak for him as he is.
///
/// # Errors
/// If who asks must wait; those of [`certifying::speaks_for`]; as [`invite`].
pub fn speaks(state: &mut State, user: Person) -> Result<()> {
    let Some(me) = own(state, |members| members.me()) else { return Ok(()) };
    if is_control(state) {
        return keeping::decide(state, |state| certifying::speaks_for(state, me, user));
    }
    certifying::may_speak(&user)?;
    let matter = Matter::Speaks(user.user);
    let speaks = own(state, |members| certifying::as_he_is(members.roster(), me, &user).is_none());
    if speaks == Some(true) {
        let _ = state.members.as_mut().map(|members| members.asks_no_more(matter));
        return Ok(());
    }
    asks(state, (matter, Control::Speaks(user)))?;
    Err(waits(state, matter))
}

fn again() -> Error {
    Error::new(ErrorKind::Busy, "nobody has this key: again")
}

fn own<T>(state: &State, of: impl FnOnce(&Members) -> T) -> Option<T> {
    state.members.as_deref().map(of)
}

fn is_control(state: &State) -> bool {
    own(state, |members| members.control() == members.me()).unwrap_or(true)
}

/// Whether this server answers for a member.
fn answers_for(state: &State, member: Member) -> bool {
    own(state, |members| members.roster().answers_for(member) == Some(members.me())) == Some(true)
}

/// Whether the roster that counts here says so.
fn is_gone(state: &State, member: Member, dead: bool) -> bool {
    let standing = own(state, |members| members.roster().seat(member).map(|seat| seat.standing));
    match standing.flatten() {
        Some(Standing::Removed { verdict, .. }) => !dead || verdict != Verdict::Fenced,
        _ => false,
    }
}

fn asks(state: &mut State, what: (Matter, Control)) -> Result<Option<Result<Box<Invitation>>>> {
    let now = state.world.now();
    let asked = state.members.as_mut().map(|members| members.asks_of_control(what, now));
    let asked = asked.unwrap_or(Ok(None))?;
    if asked.is_some() {
        keeping::waits_no_more(state);
    }
    Ok(asked)
}

/// What is said to who waits for the control: that he must, or for what he has waited in vain.
fn waits(state: &mut State, matter: Matter) -> Error {
    if let Some(waits) = keeping::waits(state, BOUND) {
        return waits;
    }
    let why = own(state, |members| {
        let control = members.control();
        match members.has_no_answer(matter) {
            Some(error) => format!("{control}, the control of this pool: {}", error.context),
            None if members.is_connected(control) => {
                format!("{control}, the control of this pool, does not answer")
            }
            None => format!("{control}, the control of this pool, is not there"),
        }
    });
    Error::new(ErrorKind::Unanswered, why.unwrap_or_default())
}
