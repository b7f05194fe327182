//! A machine of a pool ends: its users' servers leave the pool in order, and root's after them. The
//! others go on with all that there is.
//!
//! Invariants: what one owes that does not leave stays in its memory, and it is a member no more,
//! so that nobody waits for it (`staying`), or it is said that it is one. Not here: how root's
//! leaves (`roots`), how one machine ends that is alone (`users`), what a server does that leaves.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use terral_client::Member;
use terral_server::Invitation;

use super::last::Last;
use super::roots::Left;
use super::staying::Stayed;
use super::waited::Waited;
use super::{Chair, DEAF, House, host_of_number, lock};
use crate::gathering::owed;
use crate::hosts::end;
use crate::instances;
use crate::remote::Machine;
use crate::report::{code, failure, say};
use crate::server::Server;
use crate::words::Order;

/// How often it is looked how far they are.
const LOOK: Duration = Duration::from_millis(20);
/// One that has left is gone within this time.
const SOON: Duration = Duration::from_secs(2);

/// A user's server that leaves.
struct Leaving {
    machine: Machine,
    waited: Waited,
    /// That it has brought all, and what it waits for, was said.
    said: bool,
}

/// What there is of one still, as far as is known.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Has {
    Gone,
    /// It has brought all, and could not leave.
    Memory,
    Debt,
}

/// One that has ended, or whose process was gone before.
pub(super) struct Went {
    host: String,
    /// As far as is known.
    pub member: Option<Member>,
    pub has: Has,
    /// Why, if it says so.
    why: Option<String>,
}

/// These end, if they have not, all at the same time.
fn ended(some: impl Iterator<Item = Leaving>) -> impl Iterator<Item = Went> {
    let mut all: Vec<Machine> = some.map(|one| one.machine).collect();
    if !all.is_empty() {
        end(&mut all, Order::Keep);
    }
    all.into_iter().map(Went::now)
}

impl Went {
    /// One whose process is gone, if it is a member, or owes something.
    fn before(chair: &Chair) -> Option<Went> {
        let member = chair.word.as_ref().and_then(|(word, _)| Invitation::of(word).ok());
        let member = member.map(|invitation| invitation.me);
        let has = if chair.owes { Has::Debt } else { Has::Gone };
        let host = host_of_number(chair.user);
        (chair.owes || member.is_some()).then_some(Went { host, member, has, why: None })
    }

    fn now(machine: Machine) -> Went {
        // One that could not leave keeps its log, whatever it has brought.
        let rests = machine.status.as_deref().is_some_and(|status| owed(status) == 0);
        let has = match &machine.end {
            Some(end) if !end.owes => Has::Gone,
            Some(_) if rests => Has::Memory,
            _ => Has::Debt,
        };
        let why = machine.failed.clone();
        Went { host: machine.host, member: Some(machine.invited.me), has, why }
    }
}

impl Leaving {
    fn tell(mut machine: Machine) -> Leaving {
        machine.tell(Order::Leave);
        Leaving { machine, waited: Waited::since(Instant::now()), said: false }
    }

    /// Whether it has gone, or is not waited for any longer.
    fn goes(&mut self, last: &mut Last<'_>) -> bool {
        let (there, now) = (self.machine.hear(), Instant::now());
        let answered = std::mem::take(&mut self.machine.answered);
        if let Some(status) = self.machine.status.as_deref().filter(|_| answered) {
            self.waited.says(owed(status), now, DEAF);
            if !self.waited.has_rested(now, SOON) {
                last.progress.update(status, status.sessions);
            } else if !std::mem::replace(&mut self.said, true) {
                let host = &self.machine.host;
                last.progress.clear();
                say(format_args!(
                    "{host}: all brought; waiting for others to go on with what it had"
                ));
            }
        }
        !there || self.waited.is_over(now, DEAF)
    }
}

impl House {
    /// All leave.
    ///
    /// # Errors
    /// If something is owed in the end, or root's server had ended before.
    pub(super) fn leave(self: &Arc<Self>, server: Server, last: &mut Last<'_>) -> Result<u8> {
        server.removed().iter().for_each(say);
        let was_removed = server.removed().is_some();
        say("bringing everything to the permanent directory; twice more to end at once");
        let went = self.users_leave(last);
        for one in &went {
            match one.has {
                Has::Gone => {}
                Has::Memory => say(format_args!(
                    "{}: all brought, but it could not leave: its memory stays, until its user \
                     comes",
                    one.host
                )),
                Has::Debt => {
                    let why = one.why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
                    let host = &one.host;
                    say(format_args!("{host}: did not bring all{why}: it stays in its memory"));
                }
            }
        }
        let (mut owes, mut left) = (went.iter().any(|one| one.has == Has::Debt), Ok(Left::Has));
        if !server.has_ended() {
            let stayed = self.remove_who_stayed(&server, &went, last);
            owes |= stayed != Stayed::Nobody;
            left = match stayed {
                // They are members, for whom this one answers.
                Stayed::Some => Ok(Left::Stays(None)),
                _ => self.roots_leaves(&server, last),
            };
        }
        last.progress.clear();
        let removed = server.removed();
        removed.iter().filter(|_| !was_removed).for_each(say);
        match &left {
            Ok(Left::Has) => instances::tidy(&self.instance),
            _ => server.abandon(),
        }
        self.concludes(left?, owes, removed.is_some())
    }

    fn concludes(&self, left: Left, owes: bool, removed: bool) -> Result<u8> {
        let (name, target) = (&self.name, self.target.display());
        if let (Left::Stays(Some(others)), false) = (left, owes) {
            let what = format!(
                "all is in {target}, but {name} is a member of the pool still, as others do not \
                 answer it ({others}): the next `terral serve --users` here goes on as that, or \
                 `terral fence` on the control's machine removes it"
            );
            return Err(failure(code::FAILED, what));
        }
        if owes || self.instance.join("log").exists() {
            let what = format!(
                "not all is in {target}: it is in memory: `terral recover {name}`, by each whose \
                 it is, brings it"
            );
            return Err(failure(code::OWED, what));
        }
        if removed {
            let what = "root's server was removed from its pool, and users' have ended: start \
                        `terral serve --users` again";
            return Err(failure(code::NOT_STARTED, what));
        }
        Ok(0)
    }

    /// All that were members, once none of their processes is there.
    fn users_leave(&self, last: &mut Last<'_>) -> Vec<Went> {
        let seats = std::mem::take(&mut *lock(&self.seats));
        let (mut all, mut went) = (Vec::new(), Vec::new());
        for seat in seats.into_values() {
            let Some(mut chair) = last.sits(&seat) else { continue };
            // Whoever still knocks gets none.
            chair.died = false;
            match chair.machine.take() {
                Some(machine) => all.push(Leaving::tell(machine)),
                None => went.extend(Went::before(&chair)),
            }
        }
        while !all.is_empty() && !last.is_over() {
            went.extend(ended(all.extract_if(.., |one| one.goes(last))));
            std::thread::sleep(LOOK);
        }
        went.extend(ended(all.into_iter()));
        went
    }
}
