//! Time that passes in a simulation: the drain, those who copy to the spill and those who fetch
//! have the turns that threads would have, and the server is looked after.

use std::time::Duration;

use terral_store::backing::Source;

use super::{PATIENCE, Sim, TEND};
use crate::core::world::{Tick, World};
use crate::deferred::applying;
use crate::drain::turns::{self, Doing};
use crate::needs::need::Need;
use crate::requests::tending;

/// Most steps of those who copy to the spill, before the drain has its turn again.
const SPILL_STEPS: u64 = 40;

impl Sim {
    /// Fetches what is needed of the permanent store; meanwhile the drain may go on.
    pub(super) fn fetch_needed(&mut self, meanwhile: Duration) {
        if self.is_still() {
            return if meanwhile > Duration::ZERO {
                self.pass(meanwhile)
            };
        }
        let begun = self.world.now();
        let fetched = self.with(|server| {
            let (jobs, backing) = {
                let mut state = server.lock();
                let mut jobs = state.fetches.begin(false);
                jobs.extend(state.fetches.begin(true));
                (jobs, state.backing.clone())
            };
            let store = backing.as_deref().map(|backing| backing as &dyn Source);
            let fetch = |(number, need): (u64, Need)| (number, need.fetch(store));
            jobs.into_iter().map(fetch).collect::<Vec<_>>()
        });
        let killed = self.killed;
        if meanwhile > Duration::ZERO {
            self.pass(meanwhile);
        }
        // Another server knows nothing of it.
        let fetched = fetched.filter(|_| self.killed == killed).unwrap_or_default();
        self.with(|server| {
            let mut state = server.lock();
            for (number, fetched) in fetched {
                let times = (begun, state.world.now());
                applying::was_fetched(&mut state, number, fetched, times);
            }
            tending::try_what_was_fetched(&mut state);
        });
    }

    /// Lets time pass: the drain has the turns that it would have, and the server is looked after.
    pub fn pass(&mut self, time: Duration) {
        let until = self.world.now() + time;
        self.hear();
        loop {
            let next = self.drain();
            self.spill(SPILL_STEPS);
            self.fetch_needed(Duration::ZERO);
            let now = self.world.now();
            if now >= until {
                return;
            }
            let due = next.map_or(until, |next| next.clamp(now, until));
            let step = due.since(now).clamp(Duration::from_micros(10), TEND);
            self.world.pass(step);
            self.tended += step;
            if self.tended >= TEND {
                self.tended = Duration::ZERO;
                self.with(|server| {
                    let mut state = server.lock();
                    tending::must_tend(&mut state);
                    tending::tend(&mut state);
                });
            }
        }
    }

    /// Lets time pass until the drain has begun with what `at` says, and not carried it out.
    pub fn drain_until(&mut self, at: fn(&Doing) -> bool) {
        self.stops_at = Some(at);
        for _ in 0..10_000 {
            self.drain();
            if self.stops_at.is_none() {
                return;
            }
            self.world.pass(Duration::from_millis(10));
        }
        panic!("the drain never comes to that");
    }

    /// The drain carries out what it has begun.
    pub fn drain_carries_out(&mut self) {
        let Some((mut doing, false)) = self.doing.take() else { panic!("it has begun nothing") };
        self.doing = self.with(|server| {
            let backing = server.lock().backing.clone().expect("a store");
            doing.carry_out(server, &*backing);
            (doing, true)
        });
    }

    /// For so long the permanent store answers nothing: neither the drain, between two of its
    /// steps, nor who fetches.
    pub(super) fn store_stands_still(&mut self, time: Duration) {
        self.still_until = self.world.now() + time;
    }

    fn is_still(&self) -> bool {
        self.world.now() < self.still_until
    }

    /// Lets the drain do all that it would do now, or a part of it: its thread may be slow, or the
    /// store. Gives when it would go on.
    fn drain(&mut self) -> Option<Tick> {
        if self.is_still() {
            return Some(self.still_until);
        }
        loop {
            let doing = self.doing.take();
            let step = self.with(|server| {
                let Some((mut doing, carried)) = doing else {
                    let mut state = server.lock();
                    return turns::begin(&mut state).map(|doing| Some((doing, false)));
                };
                if !carried {
                    let backing = server.lock().backing.clone().expect("a store");
                    doing.carry_out(server, &*backing);
                    return Ok(Some((doing, true)));
                }
                Ok(doing.conclude(&mut server.lock()).map(|next| (next, false)))
            });
            match step {
                Some(Ok(doing)) => self.doing = doing,
                Some(Err(until)) => return until,
                None => {}
            }
            let begun = self.doing.as_ref().filter(|(_, carried)| !carried);
            if begun.zip(self.stops_at).is_some_and(|((doing, _), at)| at(doing)) {
                self.stops_at = None;
                return None;
            }
            if self.doing.is_some() && self.world.one_of(8) == 0 {
                return Some(self.world.now() + Duration::from_micros(self.world.one_of(20_000)));
            }
        }
    }

    /// Ends all programs, and lets the server bring all that it owes.
    pub fn finish(&mut self) {
        for client in 0..self.clients.len() {
            self.end(client);
        }
        while self.with(|server| server.lock().finishing = true).is_none() {}
        let begin = self.world.now();
        loop {
            // Another server does not know that it is to finish.
            self.with(|server| server.lock().finishing = true);
            self.pass(Duration::from_secs(1));
            let lost = self.lost.clone();
            let owes = self.with(|server| {
                let state = server.lock();
                let stays = state.sessions.clients().next().is_some();
                let waits = state.waiting.count() > 0 || stays;
                let owes = state.debts.iter().any(|(ino, _)| !lost.contains(&ino));
                let names = !state.names.owed().is_empty() || !state.names.publishing().is_empty();
                owes || names || waits
            });
            if owes == Some(false) {
                return;
            }
            assert!(self.world.now().since(begin) < PATIENCE, "it drains for ever");
        }
    }
}
