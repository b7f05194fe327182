//! Those who copy chunks from a full memory to the spill. Not here: what they copy, and when
//! (`storage::spill`).

use std::sync::MutexGuard;

use terral_store::spill::Block;
use terral_transport::process;

use crate::core::state::State;
use crate::core::workers::{Next, Trade};
use crate::shared::Shared;
use crate::shell::workers::{Worker, work};
use crate::storage::spill::jobs::{self, Job};
use crate::storage::spill::leaving;

/// So many chunks are on their way at a time.
pub const THREADS: usize = 3;

/// One of them, with what he copies through.
#[derive(Default)]
struct Spiller(Block);

impl Worker for Spiller {
    const TRADE: Trade = Trade::Spilling;

    fn turn<'s>(
        &mut self,
        shared: &'s Shared,
        mut state: MutexGuard<'s, State>,
    ) -> (MutexGuard<'s, State>, Next) {
        match jobs::next_job(&mut state) {
            Job::Copy(victim, place) => {
                drop(state);
                let copied = leaving::copy(&shared.memory, &victim, place, &mut self.0);
                state = shared.lock();
                leaving::conclude(&mut state, &victim, place, copied);
                if state.debts.is_pressed() {
                    shared.nudge();
                }
            }
            Job::Clear(places) => {
                drop(state);
                let spill = shared.memory.spill();
                spill.into_iter().for_each(|spill| places.iter().for_each(|at| spill.free(*at)));
                state = shared.lock();
                state.storage.cleared(places);
            }
            Job::Rest(next) => return (state, next),
        }
        (state, Next::Busy)
    }
}

/// Spills until the server leaves.
pub fn spill(shared: &Shared) {
    process::be_prompt();
    work(shared, &mut Spiller::default());
}
