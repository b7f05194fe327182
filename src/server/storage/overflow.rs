//! What goes from a full memory to the spill, and what comes back: bytes that the permanent store
//! does not have yet, of the files that were used longest ago.
//!
//! Invariants: chunks are copied, and read, without the server's lock; a chunk leaves memory only
//! as it was copied. What is evicted needs no copy, so that goes first. Spilled chunks are dropped
//! once the store has them. Not here: the threads that copy (`spillers`).

use std::sync::atomic::Ordering;
use std::time::Duration;

use terral_format::ids::{FileSlot, Ino, SpillPlace};
use terral_format::local::entry::MapEntry;
use terral_format::local::geometry::{CHUNK_BYTES, PAGE_BYTES};
use terral_format::local::names::{Inode, flag};
use terral_format::wire::message::FileRef;
use terral_format::{Error, ErrorKind, Result};
use terral_store::memory::Memory;
use terral_store::moving::{self, Copied};
use terral_store::spill::Block;

use crate::core::paths::shown;
use crate::core::state::State;
use crate::core::workers::{Next, Trade};
use crate::needs::need::SpilledChunk;
use crate::storage::eviction;
use crate::storage::eviction::has_arrived;
use crate::storage::victims::{SOUGHT, Victim};

/// So much of the memory is kept free, within these bounds, bytes.
const FREE_PART: u64 = 8;
const FREE_BYTES: (u64, u64) = (16 << 20, 1 << 30);
/// Chunks that are chosen at a time.
const CHOSEN_MAX: usize = 64;
/// First and longest pause after a failure.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

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

// Choosing.

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

/// Chooses chunks, of the files that were used longest ago first. If it must be, those that are
/// just being written, too.
fn choose(state: &mut State, must: bool) {
    let files = files(state);
    for hot in [false, true] {
        for (_, ino, slot) in &files {
            of_file(state, *ino, *slot, hot);
            if state.spilling.chosen.len() >= CHOSEN_MAX {
                return;
            }
        }
        if !must || !state.spilling.chosen.is_empty() {
            return;
        }
    }
}

/// Files with bytes in memory, by when they were last used.
fn files(state: &State) -> Vec<(u64, Ino, FileSlot)> {
    let mut found = Vec::new();
    for inode in state.names.inodes() {
        if let Some(slot) = inode.slot.filter(|_| state.keeping != Some(inode.ino)) {
            let header = state.storage.memory().header(slot);
            let used = header.modified_ns().load(Ordering::SeqCst);
            found.push((used.max(header.accessed_ns().load(Ordering::SeqCst)), inode.ino, slot));
        }
    }
    found.sort_unstable();
    found
}

/// Chooses chunks of a file; `hot`: those that are just being written.
fn of_file(state: &mut State, ino: Ino, slot: FileSlot, hot: bool) {
    let Some(inode) = state.names.inode(ino) else { return };
    let (written, size) = (state.is_written(ino), state.storage.size(slot));
    let goes_by_itself = eviction::is_evictable(state, &inode);
    for (index, entry) in state.storage.entries(slot) {
        if state.spilling.chosen.len() >= CHOSEN_MAX {
            return;
        }
        let is_hot = written && (index + 1) * CHUNK_BYTES > size;
        let (storage, spilling) = (&state.storage, &mut state.spilling);
        let there = spilling.copied.contains(&(slot, index));
        let evicts = || goes_by_itself && storage.is_settled(entry);
        if is_hot == hot && !there && storage.may_spill(slot, index, entry) && !evicts() {
            spilling.chosen.push_back(Victim { ino, slot, index, entry });
        }
    }
}

// Copying, and concluding.

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
fn stop(state: &mut State, error: &Error) {
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

// Coming back.

/// Brings a spilled chunk into memory.
///
/// # Errors
/// [`ErrorKind::NoSpace`] if memory is full, [`ErrorKind::Corrupt`] if the disk does not have it
/// any more. If it is being read, as [`crate::needs::fetching::Fetches::get`].
pub fn bring(state: &mut State, file: FileRef, index: u64) -> Result<()> {
    let entry = state.storage.memory().entry(file.slot, index).unrecalled();
    let Some(place) = entry.place() else { return Ok(()) };
    // Room first: who has read it then need not wait any more.
    eviction::with_room(state, |state| state.storage.find_room(entry.order()))?;
    if state.storage.memory().entry(file.slot, index).unrecalled() != entry {
        return Ok(());
    }
    let mut block = read(state, file, index, (entry, place))?;
    state.storage.unspill(file.slot, index, entry, &mut block)
}

/// Reads a spilled chunk, which its file's map has at this place.
///
/// # Errors
/// [`ErrorKind::Corrupt`] if the disk does not have it any more. If it is being read, as
/// [`crate::needs::fetching::Fetches::get`].
pub fn read(
    state: &mut State,
    file: FileRef,
    index: u64,
    (entry, place): (MapEntry, SpillPlace),
) -> Result<Block> {
    let memory = state.storage.memory().clone();
    let chunk = SpilledChunk { memory: memory.clone(), ino: file.ino, index, entry, place };
    let read = state.fetches.spilled(chunk, state.world.now(), state.leaving)?;
    let mut block = read.map_err(|error| {
        let path = shown(&state.names.path(file.ino).unwrap_or_default());
        let error = Error { context: format!("{path}: {}", error.context), ..error };
        state.warn(error.to_string());
        error
    })?;
    if let Some(record) = memory.place(place) {
        // It may have been cut since it was read.
        block[record.kept_bytes() as usize..].fill(0);
    }
    Ok(block)
}

/// Drops what is spilled of a file and the permanent store has.
pub fn drop_arrived(state: &mut State, ino: Ino) {
    let Some(inode) = state.names.inode(ino).filter(|inode| is_there(state, inode)) else { return };
    let entries = inode.slot.map(|slot| state.storage.entries(slot)).unwrap_or_default();
    for (index, _) in entries.iter().filter(|(_, entry)| entry.place().is_some()) {
        drop_one_arrived(state, &inode, *index);
    }
}

/// Drops a spilled chunk if the permanent store has it.
fn drop_one_arrived(state: &mut State, inode: &Inode, index: u64) {
    let Some(slot) = inode.slot.filter(|_| is_there(state, inode)) else { return };
    let (backed, size) = (state.storage.backed_bytes(slot), state.storage.size(slot));
    let entry = state.storage.memory().entry(slot, index);
    if entry.place().is_some() && size.min((index + 1) * CHUNK_BYTES) <= backed {
        state.storage.drop_settled(slot, index, entry);
    }
}

fn is_there(state: &State, inode: &Inode) -> bool {
    let ours = inode.is(flag::NAMED) && !inode.is(flag::CONTESTED);
    ours && has_arrived(inode) && state.debts.may_move(inode.ino)
}
