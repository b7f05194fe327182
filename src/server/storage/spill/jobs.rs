//! What those who copy to the spill do next, and when they are needed. Not here: which chunks go
//! (`choosing`), how (`leaving`), and the threads (`crate::shell::spillers`).

use terral_format::ids::SpillPlace;
use terral_format::local::geometry::PAGE_BYTES;

use super::choosing::choose;
use super::leaving::stop;
use super::under_way::{SOUGHT, Victim};
use crate::core::state::State;
use crate::core::workers::{Next, Trade};
use crate::storage::eviction;

/// So much of the memory is kept free, within these bounds, bytes.
const FREE_PART: u64 = 8;
const FREE_BYTES: (u64, u64) = (16 << 20, 1 << 30);

/// What a thread is to do without the lock.
pub enum Job {
    /// Copy this chunk to that place.
    Copy(Victim, SpillPlace),
    /// Give the disk back the room of these.
    Clear(Vec<SpillPlace>),
    /// None of it now.
    Rest(Next),
}

fn is_short(state: &State) -> bool {
    let bound = u64::from(state.began.geometry.arena_pages()) * PAGE_BYTES as u64;
    let free = bound.saturating_sub(state.storage.used_bytes());
    free < (bound / FREE_PART).clamp(FREE_BYTES.0, FREE_BYTES.1).min(bound / 2)
}

/// Whether chunks are to leave memory.
fn is_wanted(state: &State) -> bool {
    state.debts.is_pressed() || (is_short(state) && !state.finishing)
}

/// Whether there is something to do now.
pub fn is_due(state: &State) -> bool {
    let now = state.world.now();
    let spills = is_wanted(state) && !state.spilling.is_stopped(now);
    state.storage.memory().spill().is_some()
        && ((spills && !state.spilling.has_nothing(now)) || state.storage.has_stale())
}

/// Whether those who spill must be woken for it.
pub fn must_wake_spillers(state: &State) -> bool {
    state.sleepers.oversleeps(Trade::Spilling, Some(state.world.now())) && is_due(state)
}

/// Whether the spill can free memory for who waits for it.
pub fn can_spill(state: &mut State) -> bool {
    let now = state.world.now();
    if state.storage.memory().spill().is_none() || state.spilling.is_stopped(now) {
        return false;
    }
    let under_way =
        |state: &State| !state.spilling.chosen.is_empty() || !state.spilling.copied.is_empty();
    if !under_way(state) {
        choose(state, true);
    }
    under_way(state)
}

/// What a thread does next.
pub fn next_job(state: &mut State) -> Job {
    let now = state.world.now();
    if let Some((until, _)) = state.spilling.stopped.filter(|(until, _)| *until > now) {
        // A disk that is full has more room then.
        return clear_or(state, Next::Throttled(until));
    }
    if is_wanted(state) {
        if state.spilling.chosen.is_empty() && !state.spilling.has_nothing(now) {
            let pressed = state.debts.is_pressed();
            // What is evicted need not be copied.
            let evicted = !pressed && eviction::make_room(state).is_ok();
            if !evicted {
                choose(state, pressed);
            }
            if state.spilling.chosen.is_empty() && state.spilling.copied.is_empty() {
                state.spilling.sought = Some(now);
            }
        }
        if let Some(victim) = state.spilling.chosen.pop_front() {
            return match state.storage.take_place() {
                Ok(place) => {
                    state.spilling.copied.push((victim.slot, victim.index));
                    Job::Copy(victim, place)
                }
                Err(error) => {
                    stop(state, &error);
                    let stopped = state.spilling.stopped.map(|(until, _)| until);
                    Job::Rest(stopped.map_or(Next::Busy, Next::Throttled))
                }
            };
        }
        let until = now + SOUGHT;
        let nothing = state.spilling.has_nothing(now);
        return Job::Rest(if nothing { Next::Throttled(until) } else { Next::Idle(Some(until)) });
    }
    state.spilling.chosen.clear();
    clear_or(state, Next::Idle(None))
}

fn clear_or(state: &mut State, next: Next) -> Job {
    match state.storage.take_stale() {
        stale if stale.is_empty() => Job::Rest(next),
        stale => Job::Clear(stale),
    }
}
