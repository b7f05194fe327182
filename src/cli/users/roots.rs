//! Root's server of a machine leaves its pool, last of all that are there.
//!
//! Invariants: it is told again as long as that may help; where another member does not answer it
//! is not waited for without a bound, as what that is to hear is in this one's memory, which stays.
//! A staging directory stays as long as a server of its user is in. Not here: users' servers
//! (`leaving`), and what a server does that leaves.

use std::time::{Duration, Instant};

use anyhow::Result;
use terral_client::{Client, ErrorKind, Status};

use super::last::Last;
use super::waited::Waited;
use super::{House, host_of_number, lock};
use crate::gathering::owed;
use crate::members::is_in;
use crate::report::say;
use crate::server::Server;

/// How often it is looked how far it is.
const LOOK: Duration = Duration::from_millis(20);
/// What keeps it from leaving is asked about again so often.
const AGAIN: Duration = Duration::from_secs(1);
/// It leaves within this time once it has brought all, if all others hear it.
const LEAVES: Duration = Duration::from_secs(30);

/// What has come of that.
pub(super) enum Left {
    /// It has ended.
    Has,
    /// It has not; who does not answer it, if it owes nothing and that is why.
    Stays(Option<String>),
}

/// How far it is with that.
#[derive(Default)]
struct Leaving {
    /// Which of its processes was told to leave, and how it is since.
    told: Option<(u64, Waited)>,
    asked: Option<Instant>,
    /// The last that was said of it.
    said: String,
}

/// Whether a server has brought all, nobody uses it, and no other one is in.
fn is_alone(status: &Status) -> bool {
    let Some(partition) = &status.partition else { return true };
    let mut others = partition.members.iter().filter(|one| one.seat.member != partition.me);
    let are_out = !others.any(|one| is_in(one.seat.member, partition));
    are_out && status.drain.settled && status.sessions == 0
}

/// Others that are in, and to which it has no connection.
fn who_is_away(status: &Status) -> Vec<String> {
    let Some(partition) = &status.partition else { return Vec::new() };
    let members = partition.members.iter().filter(|one| !one.connected);
    let away = members.map(|one| one.seat.member);
    let away = away.filter(|one| *one != partition.me && is_in(*one, partition));
    let named = away.map(|one| match partition.users.iter().find(|(of, _)| *of == one) {
        Some((_, user)) => format!("{}, {one}", host_of_number(*user)),
        None => one.to_string(),
    });
    named.collect()
}

/// What it waits for that has brought all.
fn what_for(status: &Status) -> String {
    let pool = status.partition.as_ref().and_then(|partition| partition.pool.as_ref());
    match pool.and_then(|pool| pool.why.as_ref()) {
        Some(why) => format!("all brought; waiting to leave the pool: {why}"),
        None => "all brought; waiting to leave the pool".into(),
    }
}

impl Leaving {
    fn says(&mut self, why: String, last: &mut Last<'_>) {
        if self.said != why {
            last.progress.clear();
            say(&why);
            self.said = why;
        }
    }

    /// Whether this process of it is to be told now.
    fn is_due(&self, status: &Status) -> bool {
        let is_told = self.told.as_ref().is_some_and(|(starts, _)| *starts == status.starts);
        !is_told && self.asked.is_none_or(|at| at.elapsed() > AGAIN)
    }

    /// Tells it.
    fn tell(&mut self, client: &Client, status: &Status, last: &mut Last<'_>) -> Result<()> {
        let now = Instant::now();
        self.asked = Some(now);
        match client.stop(false) {
            Ok(()) => self.told = Some((status.starts, Waited::since(now))),
            Err(error) if error.kind == ErrorKind::Busy => self.says(error.to_string(), last),
            Err(error) if error.may_retry() => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Who does not answer it, if it does not leave for that.
    fn stays_for(&mut self, status: &Status, last: &mut Last<'_>) -> Option<String> {
        let (_, waited) = self.told.as_mut()?;
        let now = Instant::now();
        waited.says(owed(status), now, LEAVES);
        if !waited.has_rested(now, LEAVES) {
            last.progress.update(status, status.sessions);
            return None;
        }
        let away = who_is_away(status);
        self.says(what_for(status), last);
        (!away.is_empty()).then(|| away.join("; "))
    }
}

impl House {
    /// Root's own server leaves.
    ///
    /// # Errors
    /// If it is refused.
    pub(super) fn roots_leaves(&self, server: &Server, last: &mut Last<'_>) -> Result<Left> {
        let mut leaving = Leaving::default();
        while !server.has_ended() {
            if last.is_over() {
                return Ok(Left::Stays(None));
            }
            // One that has left, or is being started again, says nothing.
            let client = Client::observe(&self.instance).ok();
            let status = client.as_ref().and_then(|client| client.status().ok());
            if let Some((client, status)) = client.zip(status) {
                if leaving.told.is_some() && is_alone(&status) {
                    // The last of all goes as one that is alone; one that is gone is asked again.
                    let _ = client.leave();
                } else if leaving.is_due(&status) {
                    self.unstage(&status);
                    leaving.tell(&client, &status, last)?;
                } else if let Some(who) = leaving.stays_for(&status, last) {
                    return Ok(Left::Stays(Some(who)));
                }
            }
            std::thread::sleep(LOOK);
        }
        Ok(Left::Has)
    }

    /// Takes away the staging directories of those who have no server any more.
    fn unstage(&self, status: &Status) {
        let Some(partition) = &status.partition else { return };
        let number = *lock(&self.partition);
        let users: Vec<u32> = lock(&self.lives).keys().copied().collect();
        let is_there = |user: &u32| {
            let mut his = partition.users.iter().filter(|(_, of)| of == user);
            his.any(|(member, _)| is_in(*member, partition))
        };
        for user in users.into_iter().filter(|user| !is_there(user)) {
            // What else is in one is its user's, who says so.
            let _ = terral_server::unstage_for(&self.target, user, number);
        }
    }
}
