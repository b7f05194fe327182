//! What the protocol wants done, carried out: each in its order, in the transaction of the step
//! that wants it.

use std::sync::atomic::Ordering;

use terral_format::disk::membership::Membership;
use terral_format::ids::{Thing, Wish};
use terral_format::wire::peers::Answer;
use terral_format::wire::things::Outcome;
use terral_format::{ErrorKind, Result};
use terral_partition::effect::{Access, Effect, Giving, Input};

use crate::core::left_out::{Step, does};
use crate::core::state::State;
use crate::deferred::applying;
use crate::far::{holders, linking, places};
use crate::members::moving as moves;
use crate::members::role::Served;
use crate::members::stepping::tell;
use crate::members::{control, places as seats};
use crate::naming::{creating, elsewhere};
use crate::sharing::{
    adrift, bodies, circles, departing, guiding, large, leasing, leaving, letting_go, moving,
    removal, restoring, revoking, serving, transacting, unnamed, users,
};

/// Does all that is to be done, and what that leads to. What cannot be done just now, as clients
/// cannot leave a thing, is tried with the next step, and what follows of the same thing waits for
/// it. All else is done: what has come is in the tables when the log says that it is here.
///
/// # Errors
/// [`ErrorKind::Malformed`] for what no member sends.
pub fn carry_out(state: &mut State) -> Result<()> {
    let mut left: Vec<Effect> = Vec::new();
    let mut done = Ok(());
    while done.is_ok()
        && let Some(effect) = state.members.as_mut().and_then(|members| members.next_effect())
    {
        if left.iter().any(|before| is_after(state, before, &effect)) {
            left.push(effect);
            continue;
        }
        match one(state, &effect) {
            Err(error) if error.kind == ErrorKind::Busy => left.push(effect),
            other => done = other,
        }
        if state.members.as_mut().is_some_and(|members| members.may_go_on()) {
            serving::serve_again(state);
        }
    }
    state.members.iter_mut().for_each(|members| members.put_back(std::mem::take(&mut left)));
    done
}

/// Whether an effect waits for one that could not be done: it is of the same thing, or says what
/// time it is for all that were done.
fn is_after(state: &State, before: &Effect, effect: &Effect) -> bool {
    let before = things_of(state, before);
    let is_of = |thing: &Thing| before.contains(thing);
    matches!(effect, Effect::Deadline(_)) || things_of(state, effect).iter().any(is_of)
}

/// What an effect is about.
fn things_of(state: &State, effect: &Effect) -> Vec<Thing> {
    match effect {
        Effect::Recall(things) => things.clone(),
        Effect::Install { thing, .. }
        | Effect::Publish { thing, .. }
        | Effect::Fetch { thing, .. }
        | Effect::Restore { thing, .. }
        | Effect::Serve { thing, .. } => vec![*thing],
        Effect::Go(wish) => {
            state.members.iter().filter_map(|members| members.wished(*wish)).collect()
        }
        Effect::Send { .. }
        | Effect::Deadline(_)
        | Effect::Answer { .. }
        | Effect::NeedTable(_)
        | Effect::Expelled => Vec::new(),
    }
}

/// Something has happened between servers, or time has passed: a transaction of its own.
///
/// # Errors
/// If the log cannot be written; all is as if it had not happened, but for this process.
pub fn hear(state: &mut State, input: Input) -> Result<()> {
    let ticks = input == Input::Tick;
    if matches!(input, Input::Frame(_)) && state.storage.memory().deferred().is_any_committed() {
        // What programs here have been told is so, though it waits to be applied.
        applying::apply_rung(state);
    }
    if let Input::Connected(with) = input {
        moving::connected(state, with);
    }
    let input = match input {
        Input::Frame(frame) => Input::Frame(users::admit(state, frame)?),
        input => input,
    };
    tell(state, input);
    if ticks {
        state.members.iter_mut().for_each(|members| members.count_wants());
        let now = state.world.now();
        state.members.iter_mut().for_each(|members| members.await_no_longer(now));
        moves::tick(state);
        serving::forget_unwanted(state);
        if adrift::is_abandoned(state) {
            moving::settle_alone(state)?;
            creating::settle_alone(state);
            if adrift::has_met_nobody(state) {
                linking::abandoned(state);
            }
        }
        creating::tick(state);
        removal::settle_moves(state)?;
        restoring::tick(state)?;
        adrift::settle(state);
        letting_go::tick(state);
        transacting::tick(state);
        large::give_back(state);
        departing::tick(state)?;
        guiding::tick(state);
        circles::settle(state);
        leasing::tick(state);
        revoking::tick(state);
        control::expire(state);
        seats::tick(state);
        state.members.iter_mut().for_each(|members| members.ask_control_again(now));
    }
    departing::leave_if_quiet(state);
    resume(state)
}

/// What is to be done, and could not be, or nobody has seen to, is done now.
///
/// # Errors
/// As those of [`hear`].
pub fn resume(state: &mut State) -> Result<()> {
    leaving::go_on(state);
    departing::are_gone(state);
    unnamed::settle(state);
    circles::resume(state);
    leasing::resume(state);
    transacting::settle(state);
    // What has come is in the tables before anybody goes on with it.
    carry_out(state)?;
    serving::serve_again(state);
    carry_out(state)?;
    state.commit()?;
    if state.storage.memory().gate().load(Ordering::SeqCst) != 0 {
        applying::open_gate(state);
    }
    Ok(())
}

fn one(state: &mut State, effect: &Effect) -> Result<()> {
    if leaving::must_wait(state, effect) {
        return Ok(());
    }
    match effect.clone() {
        Effect::Send { to, frame } => {
            state.members.iter_mut().for_each(|members| members.sends(to, frame.clone()));
        }
        Effect::Install { thing, body } => bodies::install(state, thing, &body)?,
        Effect::Publish { thing, access } => publish(state, thing, access),
        Effect::Recall(things) => leaving::leave(state, things)?,
        Effect::Fetch { thing, to } => {
            let given = large::may_be_given(state, thing, to);
            let body = match given.then(|| bodies::body_if_any(state, thing)) {
                Some(Err(error)) if error.kind == ErrorKind::NameTooLong => None,
                body => body.transpose()?,
            };
            match to {
                Giving::Show => holders::was_shown(state, thing),
                _ => leaving::has_left(state, thing),
            }
            tell(state, Input::Fetched { thing, to, body });
        }
        Effect::Serve { operation, thing, work } => {
            serving::serve(state, Served { operation, thing, work });
        }
        Effect::Go(wish) => {
            if creating::goes(state, wish) {
                return Ok(());
            }
            // Who is asked again wants it again.
            if !state.members.as_ref().is_some_and(|members| members.is_wished(wish)) {
                tell(state, Input::Forget(wish));
                return Ok(());
            }
            let look = state.members.as_ref().and_then(|members| members.look_of(wish));
            let Some((thing, look)) = look else {
                state.members.iter_mut().for_each(|members| members.is_ready(wish));
                return Ok(());
            };
            let seen = serving::seen(state, thing, &look);
            state.members.iter_mut().for_each(|members| match seen.clone() {
                Some(seen) => members.is_over(wish, Ok(seen)),
                None => members.misses(wish),
            });
            tell(state, Input::Ran(wish));
        }
        Effect::Answer { wish, answer } => {
            if creating::is_answered(state, wish, &answer) {
                return Ok(());
            }
            learn(state, wish, &answer);
            if !state.members.as_ref().is_some_and(|members| members.may_be_wished(wish)) {
                tell(state, Input::Forget(wish));
            }
            state.members.iter_mut().for_each(|members| members.is_over(wish, answer.clone()));
        }
        Effect::Deadline(until) => {
            state.storage.memory().deadline().fetch_max(until.0, Ordering::SeqCst);
        }
        Effect::NeedTable(_) => {
            state.members.iter_mut().for_each(|members| members.needs_roster());
        }
        Effect::Restore { thing, of } => restoring::begin(state, thing, of)?,
        Effect::Expelled => removal::is_put_out(state)?,
    }
    Ok(())
}

/// Who has shown a directory has found a name that it did not have: so has the copy from now on. If
/// that was changed since, it is no copy any more, as its member says both in order.
fn learn(state: &mut State, wish: Wish, answer: &Answer) {
    let found = state.members.as_ref().and_then(|members| members.look_of(wish));
    let (Some((thing, _)), Ok(body)) = (found, answer) else { return };
    let is_shown = state.members.as_ref().is_some_and(|m| m.shown(thing, state).is_some());
    let Ok(outcome) = Outcome::of(body) else { return };
    let is_old = match &outcome {
        Outcome::Name(Some(child)) | Outcome::Step(_, Some(child)) => {
            elsewhere::is_in_store(state, child)
        }
        _ => false,
    };
    if let Some(members) = state.members.as_mut().filter(|_| is_shown && !is_old) {
        members.learns(thing, outcome);
    }
}

/// What clients may do with a thing.
fn publish(state: &mut State, thing: Thing, access: Access) {
    if access == Access::Nothing {
        bodies::drop_copy(state, thing);
    }
    let Ok(inode) = bodies::inode_of(state, thing) else { return };
    let is = access != Access::Change;
    if !is {
        state.members.iter_mut().for_each(|members| members.is_unsettled(thing));
    }
    if state.names.is_elsewhere(inode.ino) != is {
        state.record(Membership::Elsewhere { ino: inode.ino, is });
    }
    let looks = elsewhere::looks(state, thing, (inode.ino, access));
    if looks != 0 || does(Step::EndLooks) {
        state.names.may_look(inode.ino, looks);
    }
    if matches!(thing, Thing::File(_)) && access == Access::Nothing {
        places::forget_unused(state, inode.ino, thing);
    }
}
