//! Users whose servers somebody needs, and who have not come: who starts them is told.
//!
//! Invariant: nobody waits for one for longer than [`PATIENCE`], nor for more than [`MOST`] of them
//! at a time; one that could not be started is an error for [`APART`], and then tried again. Not
//! here: who starts them, and what is needed of them (`naming/adopting`).

use std::collections::BTreeMap;
use std::time::Duration;

use terral_format::ids::Member;
use terral_format::{Error, ErrorKind, Result};

use super::{Members, Part};
use crate::core::world::Tick;

/// A server has so long to come.
const PATIENCE: Duration = Duration::from_secs(60);
/// One that could not be started is not tried again before.
const APART: Duration = Duration::from_secs(1);
/// So many may be awaited at a time.
const MOST: usize = 200;

/// One of them.
struct Awaited {
    /// Since when somebody needs it, or it is known that it cannot be started.
    since: Tick,
    /// Why it cannot.
    failed: Option<String>,
}

/// All of them, by their users.
#[derive(Default)]
pub(super) struct Coming(BTreeMap<u32, Awaited>);

impl Members {
    /// The member that speaks for this user alone, if one is in.
    pub fn server_of(&self, user: u32) -> Option<Member> {
        let Part::Runs(machine) = &self.part else { return None };
        let is_his = |member: &Member| self.user_of(*member).is_some_and(|his| his.user == user);
        // The last one, if one before it has begun with nothing.
        machine.durable().members().filter(is_his).max()
    }

    /// Somebody needs this user's server, which has not come.
    ///
    /// # Errors
    /// If it is waited for no more: [`ErrorKind::Unauthorized`] if it could not be started,
    /// [`ErrorKind::TooMany`].
    pub fn awaits_server(&mut self, user: u32, now: Tick) -> Result<()> {
        self.coming.0.retain(|_, one| one.failed.is_none() || now.since(one.since) < APART);
        let count = self.coming.0.len();
        let Some(one) = self.coming.0.get_mut(&user) else {
            if count >= MOST {
                let context = format!("user {user}: too many users' servers are being started");
                return Err(Error::new(ErrorKind::TooMany, context));
            }
            self.coming.0.insert(user, Awaited { since: now, failed: None });
            self.news = true;
            return Ok(());
        };
        if one.failed.is_none() && now.since(one.since) > PATIENCE {
            (one.since, one.failed) = (now, Some("it does not come".into()));
        }
        match &one.failed {
            None => Ok(()),
            Some(why) => {
                let context = format!("the server of user {user}: {why}");
                Err(Error::new(ErrorKind::Unauthorized, context))
            }
        }
    }

    /// Users whose servers are to be started.
    pub fn awaited_servers(&self) -> Vec<u32> {
        let awaited = self.coming.0.iter().filter(|(_, one)| one.failed.is_none());
        awaited.map(|(user, _)| *user).collect()
    }

    /// The server of a user could not be started.
    pub fn comes_not(&mut self, user: u32, why: String, now: Tick) {
        if let Some(one) = self.coming.0.get_mut(&user) {
            (one.since, one.failed) = (now, Some(why));
            (self.woken, self.news) = (true, true);
        }
    }

    /// Those that are needed are started by nobody.
    pub fn nobody_starts_them(&mut self, now: Tick) {
        for user in self.awaited_servers() {
            self.comes_not(user, "it is not there, and nobody starts it".into(), now);
        }
    }

    /// The roster says who speaks for whom, or time has passed: who waits looks again.
    pub fn look_who_comes(&mut self) {
        if self.coming.0.is_empty() {
            return;
        }
        let has_come: Vec<u32> = self.users.values().map(|person| person.user).collect();
        self.coming.0.retain(|user, _| !has_come.contains(user));
        (self.woken, self.news) = (true, true);
    }
}
