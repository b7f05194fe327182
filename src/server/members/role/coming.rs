//! Users whose servers somebody needs, and who have not come: who starts them is told.
//!
//! Invariant: nobody waits for one for longer than [`PATIENCE`]; no asker for more than [`EACH`] at
//! a time, so that he keeps none from others; and all for [`MOST`]. What came of it for one is not
//! said to another. Not here: who starts them, and for whom he does (`cli`), and what is needed of
//! them (`naming/adopting`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use terral_format::ids::Member;
use terral_format::wire::starting::{NEEDED_MAX, Needed, WHY_MAX};
use terral_format::{Error, ErrorKind, Result};

use super::{Members, Part};
use crate::core::world::Tick;

/// A server has so long to come.
const PATIENCE: Duration = Duration::from_secs(60);
/// One that could not be started is not tried again for the same asker before.
const APART: Duration = Duration::from_secs(1);
/// What nobody who waits has asked for again in so long is waited for no more: who waits asks at
/// each tick, but the store may take long to say what is there.
const UNASKED: Duration = Duration::from_secs(5);
/// Who starts them, and has not asked for so long, is gone.
const STARTER: Duration = Duration::from_secs(5);
/// So many may be awaited at a time.
const MOST: usize = NEEDED_MAX;
/// So many by one asker; root's count for no one.
const EACH: usize = 16;
/// That one was refused another's server is written down so often, and of so many others' of one
/// asker in that time.
const SAID: (Duration, usize) = (Duration::from_secs(60), 16);
/// `EUSERS` of Linux: too many users.
const EUSERS: i32 = 87;

/// Why there is none.
#[derive(Clone)]
struct Failed {
    why: String,
    /// It is the asker who has had too many started.
    too_many: bool,
}

/// One of them.
struct Awaited {
    /// Since when somebody needs it, or it is known that it cannot be started.
    since: Tick,
    /// When who needs it has asked last.
    asked: Tick,
    failed: Option<Failed>,
}

/// All of them.
#[derive(Default)]
pub(super) struct Coming {
    all: BTreeMap<Needed, Awaited>,
    /// When who starts them has asked last.
    starter: Option<Tick>,
    /// When it was written down last that one was refused.
    said: BTreeMap<Needed, Tick>,
}

impl Coming {
    /// Those that are waited for, of those that are not there.
    fn under_way(&self, there: &BTreeSet<u32>) -> impl Iterator<Item = &Needed> {
        let is_away = |(needed, one): &(&Needed, &Awaited)| {
            one.failed.is_none() && !there.contains(&needed.owner)
        };
        self.all.iter().filter(is_away).map(|(needed, _)| needed)
    }

    fn may_more(&self, needed: Needed, there: &BTreeSet<u32>) -> Result<()> {
        let under_way = || self.under_way(there);
        let of_asker = under_way().filter(|is| is.asker == needed.asker).count();
        if (needed.asker != 0 && of_asker >= EACH) || under_way().count() >= MOST {
            return Err(too_many("too many users' servers are being started"));
        }
        Ok(())
    }

    /// Of those that do not come in time that is known, and of others nothing after a while.
    fn grow_older(&mut self, now: Tick) {
        for one in self.all.values_mut() {
            if one.failed.is_none() && now.since(one.since) > PATIENCE {
                let failed = Failed { why: "it does not come".into(), too_many: false };
                (one.since, one.failed) = (now, Some(failed));
            }
        }
        self.all.retain(|_, one| match one.failed {
            Some(_) => now.since(one.since) < APART,
            None => now.since(one.asked) < UNASKED,
        });
    }

    /// Whether a refusal is to be written down, which it is then.
    fn is_said(&mut self, needed: Needed, now: Tick) -> bool {
        let said = &mut self.said;
        said.retain(|_, at| now.since(*at) < SAID.0);
        let of_asker = said.keys().filter(|before| before.asker == needed.asker).count();
        let is = !said.contains_key(&needed) && of_asker < SAID.1 && said.len() < MOST;
        if is {
            said.insert(needed, now);
        }
        is
    }
}

fn too_many(why: &str) -> Error {
    Error { errno: EUSERS, ..Error::new(ErrorKind::TooMany, why) }
}

impl Members {
    /// The last member that speaks for this user alone, if one is in.
    pub fn server_of(&self, user: u32) -> Option<Member> {
        let Part::Runs(machine) = &self.part else { return None };
        let is_his = |member: &Member| self.user_of(*member).is_some_and(|his| his.user == user);
        // The same for all who ask, so that nothing of his has two homes. One before it may have
        // begun with nothing, though that is not said of it yet.
        machine.durable().members().filter(is_his).max()
    }

    /// Users with whose servers there are sessions.
    fn users_there(&self) -> BTreeSet<u32> {
        let there = self.connected.iter().filter(|member| self.is_in(**member));
        there.filter_map(|member| Some(self.user_of(*member)?.user)).collect()
    }

    /// Somebody needs a user's server, which has not come.
    ///
    /// # Errors
    /// If it is waited for no more: [`ErrorKind::Unauthorized`] if it could not be started,
    /// [`ErrorKind::TooMany`] (`EUSERS`) if who asks has had too many started.
    pub fn awaits_server(&mut self, needed: Needed, now: Tick) -> Result<()> {
        self.coming.grow_older(now);
        let Some(one) = self.coming.all.get_mut(&needed) else {
            self.coming.may_more(needed, &self.users_there())?;
            self.coming.all.insert(needed, Awaited { since: now, asked: now, failed: None });
            self.news = true;
            return Ok(());
        };
        one.asked = now;
        match &one.failed {
            None => Ok(()),
            Some(Failed { why, too_many: true }) => Err(too_many(why)),
            Some(Failed { why, .. }) => {
                let context = format!("the server of user {}: {why}", needed.owner);
                Err(Error::new(ErrorKind::Unauthorized, context))
            }
        }
    }

    /// Servers of users that are to be started, as they are said at a time.
    pub fn awaited_servers(&self) -> Vec<Needed> {
        self.coming.under_way(&self.users_there()).copied().take(NEEDED_MAX).collect()
    }

    /// Who starts them asks which.
    pub fn are_started(&mut self, now: Tick) {
        self.coming.starter = Some(now);
    }

    /// A server could not be started, for who needs it. Whether that is to be written down.
    pub fn comes_not(
        &mut self,
        needed: Needed,
        (mut why, too_many): (String, bool),
        now: Tick,
    ) -> bool {
        why.truncate(why.floor_char_boundary(WHY_MAX));
        let Some(one) = self.coming.all.get_mut(&needed) else { return false };
        (one.since, one.failed) = (now, Some(Failed { why, too_many }));
        (self.woken, self.news) = (true, true);
        self.coming.is_said(needed, now)
    }

    /// If nobody starts them, who needs one is told. Who starts them has time to ask who has not
    /// asked since this process began.
    pub fn does_nobody_start_them(&mut self, now: Tick) {
        let is_long = |since: Tick| now.since(since) >= STARTER;
        if self.coming.starter.is_some_and(|at| !is_long(at)) {
            return;
        }
        for needed in self.awaited_servers() {
            if self.coming.all.get(&needed).is_some_and(|one| is_long(one.since)) {
                let why = "it is not there, and nobody starts it".into();
                self.comes_not(needed, (why, false), now);
            }
        }
    }

    /// Time has passed.
    pub fn await_no_longer(&mut self, now: Tick) {
        // Who waits for one that is forgotten now looks again, too.
        self.look_who_comes();
        self.coming.grow_older(now);
    }

    /// There is a session with a member from now on, or none.
    pub fn connects(&mut self, member: Member, is: bool, now: Tick) {
        if is {
            self.connected.insert(member);
        } else if self.connected.remove(&member) {
            if self.connected.is_empty() {
                self.cut_off = Some(now);
            }
            if self.users.contains_key(&member) {
                // Who waits for it needs that another one is started.
                (self.woken, self.news) = (true, true);
            }
        }
    }

    /// The roster says who speaks for whom, or somebody has come: who waits looks again. One that
    /// has come may go again: since when it is waited for is known until nobody waits.
    pub fn look_who_comes(&mut self) {
        if !self.coming.all.is_empty() {
            (self.woken, self.news) = (true, true);
        }
    }
}
