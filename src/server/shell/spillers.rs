//! The threads that copy chunks from a full memory to the spill. They sleep while there is nothing
//! to do. Not here: what they copy (`spilling`).

use std::sync::PoisonError;

use terral_store::spill::Block;
use terral_transport::process;

use crate::shared::Shared;
use crate::storage::overflow::{self, Job};

/// So many chunks are on their way at a time.
pub const THREADS: usize = 3;

/// Works until the server leaves.
pub fn work(shared: &Shared) {
    process::be_prompt();
    let Some(spill) = shared.memory.spill() else { return };
    let mut block = Block::default();
    let mut state = shared.lock();
    while !state.leaving {
        match overflow::next_job(&mut state) {
            Job::Copy(victim, place) => {
                drop(state);
                let copied = overflow::copy(&shared.memory, &victim, place, &mut block);
                state = shared.lock();
                overflow::conclude(&mut state, &victim, place, copied);
                if state.debts.is_pressed() {
                    shared.nudge();
                }
            }
            Job::Clear(places) => {
                drop(state);
                places.iter().for_each(|place| spill.free(*place));
                state = shared.lock();
                state.storage.cleared(places);
            }
            Job::Wait(until) => {
                state.spilling.idle += 1;
                state = match until {
                    None => shared.spill.wait(state).unwrap_or_else(PoisonError::into_inner),
                    Some(until) => {
                        let limit = until.since(shared.world.now());
                        let waited = shared.spill.wait_timeout(state, limit);
                        waited.unwrap_or_else(PoisonError::into_inner).0
                    }
                };
                state.spilling.idle -= 1;
            }
        }
    }
}
