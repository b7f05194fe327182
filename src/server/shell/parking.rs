//! Requests that wait: who they are, and how they go on. The thread of requests has them go on, and
//! so does who has just learnt what they wait for: to wake the other one takes longer than to
//! answer.
//!
//! Invariant: they are looked at with the state locked only, so each is carried out by one at a
//! time. Not here: who takes new ones (`serve`).

use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

use terral_format::frame;
use terral_format::ids::SessionSlot;
use terral_format::wire::message::Reply;
use terral_transport::requests::Taken;

use crate::core::state::State;
use crate::core::workers::Trade;
use crate::debts::owing;
use crate::requests::handling::{self, Outcome};
use crate::shared::Shared;
use crate::shell::ready::Ready;
use crate::storage::spill::jobs;

/// Requests that wait.
#[derive(Default)]
pub struct Parked(Vec<(SessionSlot, Taken, Why)>);

/// What for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Memory that the spill, or the drain, frees.
    Room,
    /// Something that is being fetched, or that another member is to say.
    Fetch,
}

/// Where they are.
pub struct Parking<'r> {
    parked: Mutex<Parked>,
    ready: &'r Ready,
}

impl Parked {
    /// How many.
    pub fn count(&self, why: Why) -> usize {
        self.0.iter().filter(|(.., is)| *is == why).count()
    }

    /// Whether a session's request waits already.
    pub fn has(&self, session: SessionSlot, index: u8, sequence: u64) -> bool {
        let is = |taken: &Taken| (taken.index, taken.sequence) == (index, sequence);
        self.0.iter().any(|(of, taken, _)| *of == session && is(taken))
    }

    /// A request that has just come.
    pub fn answer(&mut self, state: &mut State, session: SessionSlot, taken: Taken) {
        let outcome = handling::handle(state, session, &taken);
        self.conclude(state, (session, taken), outcome);
    }

    /// Those that wait are carried out anew: all, or those that wait for what is fetched.
    pub fn go_on(&mut self, state: &mut State, all: bool) {
        let goes = |(.., why): &mut (SessionSlot, Taken, Why)| all || *why == Why::Fetch;
        let those: Vec<_> = self.0.extract_if(.., goes).collect();
        for (session, taken, why) in those {
            let client = state.sessions.client(session);
            if !client.is_some_and(|client| client.session.waits_for(&taken)) {
                continue;
            }
            let outcome = match why {
                Why::Room => handling::handle_again(state, session, &taken),
                Why::Fetch => handling::handle(state, session, &taken),
            };
            self.conclude(state, (session, taken), outcome);
        }
    }

    fn conclude(
        &mut self,
        state: &mut State,
        (session, taken): (SessionSlot, Taken),
        outcome: Outcome,
    ) {
        match outcome {
            Outcome::Park => self.0.push((session, taken, Why::Room)),
            Outcome::Fetch => self.0.push((session, taken, Why::Fetch)),
            Outcome::Answer(reply) => {
                if let Some(client) = state.sessions.client(session)
                    && let Err(error) = client.session.answer(&taken, &reply)
                {
                    let reply = frame::encode(&Reply::Failed(error)).unwrap_or_default();
                    let _ = client.session.answer(&taken, &reply);
                }
            }
        }
    }

    /// Says to all others who waits, and for what.
    pub fn is_known(&self, state: &mut State) {
        let room = self.count(Why::Room);
        state.debts.press(room > 0);
        let waiting = state.storage.memory().waiting();
        // Clients read what lies beside it.
        if waiting.load(Ordering::Relaxed) != room as u64 {
            waiting.store(room as u64, Ordering::Relaxed);
        }
        state.fetches.are_awaited(self.count(Why::Fetch) > 0 || state.waits_between());
        if self.count(Why::Fetch) == 0 {
            let others = state.waiting.count() > 0 || state.waits_between();
            state.fetches.forget(others);
        }
    }
}

impl<'r> Parking<'r> {
    /// None yet.
    pub fn new(ready: &'r Ready) -> Self {
        Parking { parked: Mutex::default(), ready }
    }

    /// Those that wait; by who has the state only.
    pub fn parked(&self) -> MutexGuard<'_, Parked> {
        self.parked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something that is waited for may be known by now. What that does not suffice for is left to
    /// the thread of requests.
    pub fn go_on(&self, shared: &Shared) {
        let mut state = shared.lock_for_links();
        let mut parked = self.parked();
        // Others may wait, too: for what programs have deferred, or that all is over.
        let others = state.waiting.count() > 0 || state.finishing || state.leaving;
        if others || parked.count(Why::Fetch) == 0 {
            drop((parked, state));
            return shared.nudge();
        }
        parked.go_on(&mut state, false);
        parked.is_known(&mut state);
        let left = state.fetches.is_new() || parked.count(Why::Room) > 0;
        drop(parked);
        let woken = self.oversleep(&state);
        drop(state);
        rouse(shared, woken);
        if left {
            shared.nudge();
        }
    }

    /// Whether somebody must be woken, at each trade.
    pub fn oversleep(&self, state: &State) -> [bool; Trade::ALL.len()] {
        let now = || Some(state.world.now());
        Trade::ALL.map(|trade| {
            state.sleepers.sleeps(trade)
                && match trade {
                    Trade::Draining => owing::must_wake_drain(state),
                    Trade::Preparing => {
                        state.sleepers.oversleeps(trade, now()) && self.ready.is_due(state)
                    }
                    Trade::Spilling => jobs::must_wake_spillers(state),
                    Trade::Keeping => {
                        state.members.as_ref().is_some_and(|members| members.needs_keeper())
                    }
                }
        })
    }
}

/// Wakes those who must be.
pub fn rouse(shared: &Shared, oversleep: [bool; Trade::ALL.len()]) {
    let wake = Trade::ALL.into_iter().zip(oversleep).filter(|(_, oversleep)| *oversleep);
    wake.for_each(|(trade, _)| shared.rouse(trade));
}
