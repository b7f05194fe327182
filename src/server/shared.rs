//! What the server's threads share: the state behind its lock, and how they wake each other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use terral_format::local::tables::Doorbell;
use terral_store::memory::Memory;
use terral_transport::region::Region;
use terral_transport::requests;

use crate::core::machine::Machine;
use crate::core::state::State;
use crate::core::world::{Tick, World};
use crate::debts::owing;

/// What the threads share.
pub struct Shared {
    state: Mutex<State>,
    /// Wakes the drain.
    pub work: Condvar,
    /// Wakes who prepares memory.
    pub prepare: Condvar,
    /// Wakes who copies to the spill.
    pub spill: Condvar,
    headers: Arc<Region>,
    /// Requests wait for the state.
    requested: AtomicBool,
    /// The shared memory, readable without the lock.
    pub memory: Arc<Memory>,
    /// Time and chance.
    pub world: Arc<dyn World>,
    /// The machine that it serves.
    pub machine: Arc<dyn Machine>,
    /// The server is about to leave.
    pub over: AtomicBool,
}

impl Shared {
    /// Around `state`; `headers` is the region with the doorbell.
    pub fn new(state: State, headers: Arc<Region>) -> Self {
        Shared {
            memory: state.storage.memory().clone(),
            world: state.world.clone(),
            machine: state.machine.clone(),
            state: Mutex::new(state),
            work: Condvar::new(),
            prepare: Condvar::new(),
            spill: Condvar::new(),
            headers,
            requested: AtomicBool::new(false),
            over: AtomicBool::new(false),
        }
    }

    /// The state.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, for requests: who works in the background gives way.
    pub fn lock_for_requests(&self) -> MutexGuard<'_, State> {
        self.requested.store(true, Ordering::SeqCst);
        let state = self.lock();
        self.requested.store(false, Ordering::SeqCst);
        state
    }

    /// Lets requests that wait for the state have it first: a mutex may be taken again and again by
    /// the one thread while the other is just waking.
    pub fn give_way(&self) {
        for _ in 0..100 {
            if !self.requested.load(Ordering::SeqCst) {
                return;
            }
            std::thread::sleep(Duration::from_micros(20));
        }
    }

    /// Waits for work for the drain, at most until then.
    pub fn wait_for_work<'s>(
        &'s self,
        state: MutexGuard<'s, State>,
        until: Option<Tick>,
    ) -> MutexGuard<'s, State> {
        match until {
            None => self.work.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(until) => {
                let limit = until.since(self.world.now());
                let waited = self.work.wait_timeout(state, limit);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        }
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
        drop(state);
        if drains {
            self.work.notify_one();
        }
        if requests {
            self.nudge();
        }
    }

    /// Has the requests' thread look again at what waits for memory, or for the end.
    pub fn nudge(&self) {
        requests::nudge(self.bell());
    }
}
