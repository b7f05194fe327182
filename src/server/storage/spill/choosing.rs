//! Which chunks leave memory for the spill: of the files that were used longest ago. What is
//! evicted needs no copy, so that goes first (`jobs`).

use std::sync::atomic::Ordering;

use terral_format::ids::{FileSlot, Ino};
use terral_format::local::geometry::CHUNK_BYTES;

use super::under_way::Victim;
use crate::core::state::State;
use crate::storage::eviction;

/// Chunks that are chosen at a time.
const CHOSEN_MAX: usize = 64;

/// Chooses chunks, of the files that were used longest ago first. If it must be, those that are
/// just being written, too.
pub(super) fn choose(state: &mut State, must: bool) {
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
        if let Some(slot) = inode.slot.filter(|_| !state.keeping.contains(&inode.ino)) {
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
