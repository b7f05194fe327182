//! What the server's threads share: the state behind its lock, and how they wake each other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use terral_format::local::tables::Doorbell;
use terral_network::tcp::Waker;
use terral_store::memory::Memory;
use terral_transport::region::Region;
use terral_transport::requests;

use crate::core::machine::Machine;
use crate::core::state::State;
use crate::core::workers::{Next, Trade};
use crate::core::world::{Tick, World};
use crate::debts::owing;

/// What the threads share.
pub struct Shared {
    state: Mutex<State>,
    /// Wake those who work in the background.
    bells: [Condvar; Trade::ALL.len()],
    headers: Arc<Region>,
    /// Requests wait for the state.
    requested: AtomicBool,
    /// So does who has the way to other servers.
    linked: AtomicBool,
    /// The shared memory, readable without the lock.
    pub memory: Arc<Memory>,
    /// Time and chance.
    pub world: Arc<dyn World>,
    /// The machine that it serves.
    pub machine: Arc<dyn Machine>,
    /// The server is about to leave.
    pub over: AtomicBool,
    /// Wakes who has the way to other servers, if there is one.
    links: OnceLock<Waker>,
}

/// Waits, not for long, until somebody has what he waits for.
fn give_way_to(waits: &AtomicBool) {
    for _ in 0..100 {
        if !waits.load(Ordering::SeqCst) {
            return;
        }
        std::thread::sleep(Duration::from_micros(20));
    }
}

impl Shared {
    /// Around `state`; `headers` is the region with the doorbell.
    pub fn new(state: State, headers: Arc<Region>) -> Self {
        Shared {
            memory: state.storage.memory().clone(),
            world: state.world.clone(),
            machine: state.machine.clone(),
            state: Mutex::new(state),
            bells: Default::default(),
            headers,
            requested: AtomicBool::new(false),
            linked: AtomicBool::new(false),
            over: AtomicBool::new(false),
            links: OnceLock::new(),
        }
    }

    /// The state.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, if nobody has it.
    #[cfg(test)]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, State>> {
        self.state.try_lock().ok()
    }

    /// The state, for requests: who works in the background gives way.
    pub fn lock_for_requests(&self) -> MutexGuard<'_, State> {
        self.lock_for(&self.requested)
    }

    /// The state, for who has the way to other servers.
    pub fn lock_for_links(&self) -> MutexGuard<'_, State> {
        self.lock_for(&self.linked)
    }

    /// The state; meanwhile this says that somebody waits for it.
    fn lock_for(&self, waits: &AtomicBool) -> MutexGuard<'_, State> {
        waits.store(true, Ordering::SeqCst);
        let state = self.lock();
        waits.store(false, Ordering::SeqCst);
        state
    }

    /// Lets requests that wait for the state have it first: a mutex may be taken again and again by
    /// the one thread while the other is just waking.
    pub fn give_way(&self) {
        give_way_to(&self.requested);
    }

    /// Lets who has the way to other servers have the state first: requests wait for what he says
    /// or hears, and to look at them again for nothing may take long.
    pub fn give_way_to_links(&self) {
        give_way_to(&self.linked);
    }

    /// Sleeps as long as `next` says, or until roused.
    pub fn sleep<'s>(
        &'s self,
        trade: Trade,
        mut state: MutexGuard<'s, State>,
        next: Next,
    ) -> MutexGuard<'s, State> {
        match next {
            Next::Busy => state,
            Next::Throttled(until) => self.wait(trade, state, Some(until)),
            Next::Idle(until) => {
                state.sleepers.lies_down(trade, until);
                let mut state = self.wait(trade, state, until);
                state.sleepers.gets_up(trade);
                state
            }
        }
    }

    fn wait<'s>(
        &'s self,
        trade: Trade,
        state: MutexGuard<'s, State>,
        until: Option<Tick>,
    ) -> MutexGuard<'s, State> {
        let bell = &self.bells[trade as usize];
        match until {
            None => bell.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(until) => {
                let waited = bell.wait_timeout(state, until.since(self.world.now()));
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        }
    }

    /// Wakes all of a trade.
    pub fn rouse(&self, trade: Trade) {
        self.bells[trade as usize].notify_all();
    }

    /// What clients ring.
    pub fn bell(&self) -> &Doorbell {
        self.headers.view(0)
    }

    /// Something ended, or somebody wished something: wakes those, and only those, who may have
    /// waited for it.
    pub fn wake(&self, state: MutexGuard<'_, State>) {
        let drains = state.finishing || owing::must_wake_drain(&state);
        let lost = requests::seems_awake(self.bell());
        let requests = state.finishing || state.leaving || state.debts.is_pressed() || lost;
        let links = state.members.is_some();
        let keeps = state.members.as_ref().is_some_and(|members| members.needs_keeper());
        drop(state);
        if keeps {
            self.rouse(Trade::Keeping);
        }
        if links {
            self.wake_links();
        }
        if drains {
            self.rouse(Trade::Draining);
        }
        if requests {
            self.nudge();
        }
    }

    /// Who has the way to other servers is woken by this from now on.
    pub fn is_linked_by(&self, waker: Waker) {
        let _ = self.links.set(waker);
    }

    /// Has what is to be said to other servers sent.
    pub fn wake_links(&self) {
        self.links.get().into_iter().for_each(Waker::wake);
    }

    /// Has the requests' thread look again at what waits for memory, or for the end.
    pub fn nudge(&self) {
        requests::nudge(self.bell());
    }
}
