//! A user's server is started, who has not come for it just now.
//!
//! Invariant: who he is, and in which groups, is asked each time; he is in none that he came
//! without, or that was taken from his account. Not here: why it is started (`for_others`,
//! `again`), how (`starting`), and what his account says (`account`).

use anyhow::{Result, ensure};

use super::bounds::Came;
use super::{House, Seat, lock};
use crate::account;
use crate::knock::Reply;
use crate::limits::Limits;
use crate::user::{User, is_of_ranges};

/// So many of those who have not come themselves have been let in: each takes a member's number for
/// good.
const INVITED_MAX: usize = 400;

/// As whom one is started, with these limits; and as whom he has come, if he has.
type Who = (User, Limits, Option<User>);

impl House {
    /// Has a user's server run, who has not come for it just now: what came of it, and why not.
    /// Where it is `for_nobody`, none begins with nothing.
    pub(super) fn run_his(&self, owner: u32, for_nobody: bool) -> (Came, String) {
        if self.is_about(owner) {
            return (Came::Runs, String::new());
        }
        let who = match self.who_is(owner) {
            Ok(Some(who)) => who,
            Ok(None) => return (Came::Runs, String::new()),
            Err(error) => return (Came::Refused, format!("{error:#}")),
        };
        self.runs_as(&who, for_nobody).unwrap_or_else(|error| (Came::Failed, format!("{error:#}")))
    }

    /// Whether it runs, or is being started, or was a moment ago: nobody's account is looked at for
    /// that.
    fn is_about(&self, owner: u32) -> bool {
        let Some(seat) = lock(&self.seats).get(&owner).cloned() else { return false };
        let Ok(mut chair) = seat.try_lock() else { return true };
        self.looks_at(&mut chair) || chair.is_just_started()
    }

    /// As whom it is started, and as whom he has come: with the groups that his account has now and
    /// that he had when he came, if he did, and the limits with which he came. None: it is being
    /// started.
    fn who_is(&self, owner: u32) -> Result<Option<Who>> {
        let seat = lock(&self.seats).get(&owner).cloned();
        // Nobody's program is asked about each of thousands of numbers that one user has.
        ensure!(seat.is_some() || !is_of_ranges(owner), "of a range of another user's");
        let now = account::of_number(owner)?;
        let Some(seat) = seat else {
            return Ok(Some((now, Limits::of_a_login()?, None)));
        };
        let Ok(chair) = seat.try_lock() else { return Ok(None) };
        Ok(Some(match &chair.himself {
            None => (now, Limits::of_a_login()?, None),
            Some((came, limits)) => {
                (account::of_both(&came.0, &now.0)?, limits.clone(), Some(came.clone()))
            }
        }))
    }

    fn runs_as(&self, (user, limits, came): &Who, for_nobody: bool) -> Result<(Came, String)> {
        let seat = self.seat_of(user)?;
        let runs = (Came::Runs, String::new());
        let Ok(mut chair) = seat.try_lock() else { return Ok(runs) };
        // He has come meanwhile, as somebody else: it is asked for again.
        if chair.himself.as_ref().map(|(user, _)| user) != came.as_ref() {
            return Ok(runs);
        }
        if chair.word.is_none() {
            self.has_numbers()?;
        }
        let before = chair.started;
        chair.for_nobody = for_nobody;
        let reply = self.has_it_run((user, limits), &mut chair);
        chair.for_nobody = false;
        // What it had is gone, and there is nothing to bring.
        if for_nobody && reply.is_err() && chair.word.is_none() {
            return Ok(runs);
        }
        let reply = reply?;
        let for_others = chair.himself.is_none();
        let is_new = chair.started != before && matches!(reply, Reply::Serves);
        Ok(if is_new { (Came::Begun { for_others }, String::new()) } else { runs })
    }

    /// Refuses a member's number more to those who have not come, if many have one.
    fn has_numbers(&self) -> Result<()> {
        let is_in = |seat: &&Seat| {
            seat.try_lock().is_ok_and(|chair| chair.himself.is_none() && chair.word.is_some())
        };
        let all: Vec<Seat> = lock(&self.seats).values().cloned().collect();
        let full = all.iter().filter(is_in).count() >= INVITED_MAX;
        ensure!(!full, "{INVITED_MAX} users who have not come were let in, and no more are");
        Ok(())
    }
}
