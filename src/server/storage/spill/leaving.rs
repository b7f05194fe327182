//! How a chunk leaves memory for the spill: copied without the server's lock, and concluded under
//! it if it still is as it was copied. A disk that fails, or is full, is left alone for a while.

use std::time::Duration;

use terral_format::ids::SpillPlace;
use terral_format::{Error, ErrorKind, Result};
use terral_store::memory::Memory;
use terral_store::moving::{self, Copied};
use terral_store::spill::Block;

use super::returning::drop_one_arrived;
use super::under_way::Victim;
use crate::core::state::State;

/// First and longest pause after a failure.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// Copies a chunk to its place, without the lock.
///
/// # Errors
/// What the disk says.
pub fn copy(
    memory: &Memory,
    victim: &Victim,
    place: SpillPlace,
    block: &mut Block,
) -> Result<Option<Copied>> {
    let Some(spill) = memory.spill() else { return Ok(None) };
    if memory.entry(victim.slot, victim.index) != victim.entry {
        return Ok(None);
    }
    moving::copy(memory, spill, (victim.ino, victim.index), (victim.entry, place), block)
}

/// A chunk was copied: if it still is as it was, its memory is free.
pub fn conclude(
    state: &mut State,
    victim: &Victim,
    place: SpillPlace,
    copied: Result<Option<Copied>>,
) {
    let chunk = (victim.slot, victim.index);
    state.spilling.copied.retain(|other| *other != chunk);
    let spilled = match copied {
        Ok(Some(copied)) => {
            state.spilling.stopped = None;
            let way = (victim.entry, place);
            let spilled = state.storage.spill_chunk(&state.sessions, chunk, way, &copied);
            if spilled && let Some(inode) = state.names.inode(victim.ino) {
                // The store may have got it meanwhile.
                drop_one_arrived(state, &inode, victim.index);
            }
            spilled
        }
        Ok(None) => false,
        Err(error) => {
            stop(state, &error);
            false
        }
    };
    if !spilled {
        state.storage.free_place(place);
    }
}

/// Nothing is spilled for a while. That is said, once.
pub(super) fn stop(state: &mut State, error: &Error) {
    let pause = state.spilling.stopped.map_or(PAUSE.0, |(_, pause)| pause);
    let until = state.world.now() + pause;
    state.spilling.stopped = Some((until, (pause * 2).min(PAUSE.1)));
    state.spilling.chosen.clear();
    let place = state.storage.memory().spill().map(|spill| spill.describe()).unwrap_or_default();
    let what = match error.kind {
        ErrorKind::NoSpace => "is full".to_owned(),
        _ => format!("failed ({error})"),
    };
    let waits = match state.backing {
        Some(_) => "where memory is full, programs wait for the permanent directory",
        None => "where memory is full, programs get ENOSPC",
    };
    state.warn(format!("the spill {place} {what}: {waits}"));
}
