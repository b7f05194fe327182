//! Users' servers that have died are started again, as the members that they were: what they owe is
//! brought, and who needs what they have does not wait until its user comes.
//!
//! Invariants: nobody asks for it, so nobody has it done to another; one that its user has ended,
//! or that was removed, is not; and one that dies all the time begins less and less (`bounds`). Not
//! here: as whom it is started (`unasked`), and how (`starting`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use terral_client::{Client, Member, Status};
use terral_server::Invitation;

use super::bounds::Came;
use super::for_others::Others;
use super::{Chair, House, Seat, Word, lock};
use crate::door::{has_been_in, has_left, is_known, is_seated};

/// How often it is looked who has died.
const LOOK: Duration = Duration::from_millis(500);

impl Others {
    /// Looks who has died, and whose place is free, until all is over.
    pub(super) fn look(self: &Arc<Self>) {
        while !self.house.is_over() {
            let all: Vec<(u32, Seat)> =
                lock(&self.house.seats).iter().map(|(user, seat)| (*user, seat.clone())).collect();
            for (owner, seat) in all {
                // One that is being started is neither.
                let Ok(mut chair) = seat.try_lock() else { continue };
                let runs = self.house.looks_at(&mut chair);
                let (himself, died) = (chair.himself.is_some(), chair.died);
                let unheard = chair.is_unheard();
                // While it cannot begin.
                let mut desk = lock(&self.desk);
                match runs {
                    true => desk.bounds.lives(owner, Instant::now()),
                    false => desk.bounds.has_ended(owner),
                }
                if himself || !(runs || died) {
                    desk.bounds.is_not_for_others(owner);
                }
                drop((desk, chair));
                if unheard {
                    self.house.was_heard_after_all(owner);
                }
                if died {
                    self.begin_again(owner);
                }
            }
            std::thread::sleep(LOOK);
        }
    }

    fn begin_again(self: &Arc<Self>, owner: u32) {
        let mut desk = lock(&self.desk);
        if !desk.bounds.may_again(owner, Instant::now()) {
            return;
        }
        desk.bounds.begins(owner, None);
        let own = self.clone();
        let begun = std::thread::Builder::new().spawn(move || {
            let begin = Instant::now();
            let came = match own.house.is_seated(owner) {
                Some(true) => own.house.run_his(owner, true).0,
                Some(false) => Came::Refused,
                None => Came::Runs,
            };
            let now = Instant::now();
            lock(&own.desk).bounds.came(owner, came, (now - begin, now));
        });
        if begun.is_err() {
            desk.bounds.came(owner, Came::Runs, (Duration::ZERO, Instant::now()));
        }
    }
}

impl House {
    /// Whether one runs; of one that has died nothing more is waited for.
    pub(super) fn looks_at(&self, chair: &mut Chair) -> bool {
        let runs = chair.machine.as_mut().is_some_and(|machine| machine.hear());
        if chair.machine.is_some() && !runs {
            self.has_gone(chair);
        }
        runs
    }

    /// Whether one that has died is a member still, as far as root's server says anything of it;
    /// else nothing is to go on with what it had. `None`: one is being started.
    fn is_seated(&self, owner: u32) -> Option<bool> {
        let Some(seat) = lock(&self.seats).get(&owner).cloned() else { return Some(false) };
        let Some((word, me)) = invited(&seat)? else { return Some(false) };
        let status = self.says();
        // Of whom it says nothing, nothing is known.
        let says = status.as_ref().filter(|status| is_known(status, me));
        let is = says.is_none_or(|status| is_seated(status, me));
        if !is {
            let mut chair = seat.try_lock().ok()?;
            if chair.word.as_ref() == Some(&word) {
                chair.died = false;
                if status.is_some_and(|status| has_left(&status, me)) {
                    // It has brought all, and the next one is another member.
                    (chair.word, chair.owes) = (None, false);
                }
                let _ = self.keep(&mut chair);
            }
        }
        Some(is)
    }

    /// One that was killed as it started, and of which root's server did not know as it was asked,
    /// was in: what it had said was heard after it. Another one goes on with what it had, for which
    /// others may wait by now.
    fn was_heard_after_all(&self, owner: u32) {
        let Some(seat) = lock(&self.seats).get(&owner).cloned() else { return };
        let Some(Some((word, me))) = invited(&seat) else { return };
        let was_in = |status: Status| has_been_in(&status, me) && is_seated(&status, me);
        if !self.says().is_some_and(was_in) {
            return;
        }
        let Ok(mut chair) = seat.try_lock() else { return };
        if chair.is_unheard() && chair.word.as_ref() == Some(&word) {
            chair.is_gone_on_with(false, true);
            let _ = self.keep(&mut chair);
        }
    }

    /// What root's server says, which is waited for with nothing locked.
    fn says(&self) -> Option<Status> {
        Client::observe(&self.instance).and_then(|client| client.status()).ok()
    }
}

/// By what a user's server is a member, and as which; `None`: one is being started.
fn invited(seat: &Seat) -> Option<Option<(Word, Member)>> {
    let word = seat.try_lock().ok()?.word.clone();
    Some(word.and_then(|word| Some((word.clone(), Invitation::of(&word.0).ok()?.me))))
}
