//! What this member asks of the control for the users' servers for which it answers, or is to.
//!
//! Invariant: it is asked again until it has answered, or nobody wants to know any more. Of this
//! process only: who asks asks again. Not here: what is asked (`sharing/newcomers`).

use std::collections::BTreeMap;
use std::time::Duration;

use terral_format::ids::Member;
use terral_format::wire::roster::{Control, Invitation, Key};
use terral_format::{Error, ErrorKind, Result};

use super::Members;
use crate::core::world::Tick;
use decided::Decided;
use following::Following;

mod decided;
mod following;

/// It is said again so often.
const AGAIN: Duration = Duration::from_secs(1);
/// What nobody has asked for in so long is asked no more.
const UNASKED: Duration = Duration::from_secs(60);
/// So much is asked at a time.
const MOST: usize = 512;

/// What it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Matter {
    /// A server with this key is to be let in.
    Comes(Key),
    /// This one is gone.
    Gone(Member),
    /// This user is in other groups.
    Speaks(u32),
}

/// Something that is asked.
struct Asked {
    what: Control,
    /// When somebody here has wanted to know last.
    wanted: Tick,
    /// When it was said last.
    said: Option<Tick>,
    /// What was answered last: that it cannot be now is no answer yet.
    answer: Option<Result<Box<Invitation>>>,
}

/// See the module.
#[derive(Default)]
pub(super) struct Answering {
    asked: BTreeMap<Matter, Asked>,
    /// Of the control.
    decided: Decided,
    following: Following,
}

/// Whether it may be otherwise in a moment.
fn is_no_answer(error: &Error) -> bool {
    [ErrorKind::Busy, ErrorKind::Unreachable].contains(&error.kind)
}

impl Members {
    /// Somebody here wants to know what the control says to this, which is asked. What it has said,
    /// if it has: once.
    ///
    /// # Errors
    /// [`ErrorKind::TooMany`] if too much is asked already.
    pub fn asks_of_control(
        &mut self,
        (matter, what): (Matter, Control),
        now: Tick,
    ) -> Result<Option<Result<Box<Invitation>>>> {
        let asked = &mut self.answering.asked;
        if !asked.contains_key(&matter) && asked.len() >= MOST {
            let context = "too much is asked of the control at a time: again in a moment";
            return Err(Error::new(ErrorKind::TooMany, context));
        }
        let one = asked.entry(matter).or_insert_with(|| Asked {
            what: what.clone(),
            wanted: now,
            said: None,
            answer: None,
        });
        one.wanted = now;
        if one.what != what {
            (one.what, one.said, one.answer) = (what, None, None);
        }
        let is_final = |answer: &Result<_>| !answer.as_ref().is_err_and(is_no_answer);
        let answer = one.answer.take_if(|answer| is_final(answer));
        match answer.is_some() {
            true => drop(asked.remove(&matter)),
            false => self.say_again(now),
        }
        Ok(answer)
    }

    /// Why the control has not answered, if it says so.
    pub fn has_no_answer(&self, matter: Matter) -> Option<&Error> {
        self.answering.asked.get(&matter)?.answer.as_ref()?.as_ref().err()
    }

    /// Nobody asks that any more. Whether somebody did.
    pub fn asks_no_more(&mut self, matter: Matter) -> bool {
        self.answering.asked.remove(&matter).is_some()
    }

    /// Time has passed.
    pub fn ask_control_again(&mut self, now: Tick) {
        self.answering.asked.retain(|_, one| now.since(one.wanted) < UNASKED);
        self.say_again(now);
    }

    /// What was not said lately is said to who is the control now.
    fn say_again(&mut self, now: Tick) {
        let control = self.control();
        if control == self.me() {
            // Who wants it asks again, and is answered here.
            return;
        }
        let due = |one: &&mut Asked| one.said.is_none_or(|at| now.since(at) >= AGAIN);
        let mut says = Vec::new();
        for one in self.answering.asked.values_mut().filter(due) {
            one.said = Some(now);
            says.push(one.what.clone());
        }
        says.into_iter().for_each(|what| self.says(control, what));
    }

    /// The control answers who asked for a server with this key to be let in.
    pub fn is_answered(&mut self, key: Key, answer: Result<Box<Invitation>>) {
        if let Some(one) = self.answering.asked.get_mut(&Matter::Comes(key)) {
            one.answer = Some(answer);
            self.go_on();
        }
    }
}
