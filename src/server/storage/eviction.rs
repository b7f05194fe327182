//! Eviction: what the backing has leaves memory when memory is full.
//!
//! Invariants: a chunk goes only if nothing of it is owed, nobody writes to it or has it mapped, no
//! append is under way in it, and the backing has all of it that the file's size counts. Not here:
//! taking chunks back for other reasons (`reclaim`), what the backing does not have (`spill`),
//! bringing them in again (`bringing`), and who waits for room (`requests`).

use std::sync::atomic::Ordering;

use terral_format::disk::facts::Fact;
use terral_format::ids::{FileSlot, Ino};
use terral_format::local::geometry::{CHUNK_BYTES, PAGE_BYTES};
use terral_format::local::names::{Inode, flag};
use terral_format::{Error, ErrorKind, Result};
use terral_store::ram::order_of;
use terral_store::tier;

use crate::core::left_out::{Step, does};
use crate::core::state::State;
use crate::debts::ledger::Debt;
use crate::storage::closed;

/// Evicted at a time.
const EVICT_BYTES: u64 = 64 << 20;
/// Times as long as it took to find too little, nobody seeks again: the drain goes on.
const PAUSES: u32 = 4;

/// Whether the backing has under its name what is clean of a file. While it is changed there in
/// place, it may not: a server that died has taken it and not written it.
pub(crate) fn has_arrived(inode: &Inode) -> bool {
    let changing = inode.is(flag::REWRITTEN) || inode.is(flag::INTENT);
    inode.published.is_some() && !changing
}

/// What `take` gives; when memory is full for that, once more with some chunks evicted.
///
/// # Errors
/// Those of `take`; [`ErrorKind::NoSpace`] if nothing can be evicted now.
pub fn with_room<T>(state: &mut State, take: impl Fn(&mut State) -> Result<T>) -> Result<T> {
    state.storage.grow_again();
    match take(state) {
        Err(error) if error.kind == ErrorKind::NoSpace && !state.ahead => {
            make_room(state)?;
            take(state)
        }
        taken => taken,
    }
}

/// Whether memory has room for so many bytes of one chunk, or some was made.
pub fn has_room(state: &mut State, bytes: usize) -> bool {
    with_room(state, |state| state.storage.find_room(order_of(bytes))).is_ok()
}

/// Does what is only of use: it takes what room there is, and drives nothing out, as that might be
/// what the same request has just got.
pub fn ahead<T>(state: &mut State, act: impl FnOnce(&mut State) -> T) -> T {
    state.ahead = true;
    let done = act(state);
    state.ahead = false;
    done
}

/// Frees chunks whose bytes are safe in the backing, least recently used files first.
///
/// # Errors
/// [`ErrorKind::NoSpace`] if there are none, or were none just now.
pub fn make_room(state: &mut State) -> Result<()> {
    // What other machines have goes first.
    if state.storage.shed(EVICT_BYTES) > 0 {
        return Ok(());
    }
    let none = || Error::new(ErrorKind::NoSpace, "memory tier");
    if state.sought.is_some_and(|(at, took)| state.world.now().since(at) < took * PAUSES)
        && can_drain(state)
    {
        return Err(none());
    }
    let (begin, before) = (state.world.now(), state.storage.used_bytes());
    closed::settle_all_lingering(state)?;
    state.storage.leave_quarantine(&state.sessions);
    let mut freed = before - state.storage.used_bytes();
    for (_, ino, slot) in evictable(state) {
        for (index, _) in state.storage.entries(slot) {
            freed += evict(state, ino, slot, index);
        }
        if freed >= EVICT_BYTES {
            break;
        }
    }
    let now = state.world.now();
    state.sought = (freed < EVICT_BYTES).then(|| (now, now.since(begin)));
    if freed > 0 { Ok(()) } else { Err(none()) }
}

/// Files that chunks may be taken from, by when they were last used, nanoseconds since 1970.
fn evictable(state: &State) -> Vec<(u64, Ino, FileSlot)> {
    let mut found = Vec::new();
    for inode in state.names.inodes() {
        if let Some(slot) = inode.slot.filter(|_| is_evictable(state, &inode)) {
            let header = state.storage.memory().header(slot);
            let used = header.modified_ns().load(Ordering::SeqCst);
            let used = used.max(header.accessed_ns().load(Ordering::SeqCst));
            found.push((used, inode.ino, slot));
        }
    }
    found.sort_unstable();
    found
}

/// Whether clean chunks of a file may go: the backing has it, or a complete new version of it.
pub fn is_evictable(state: &State, inode: &Inode) -> bool {
    let there = match state.debts.get(inode.ino) {
        Some(debt) if debt.is_draining() => false,
        debt => match debt.and_then(Debt::version) {
            Some(version) => version.is_whole(),
            None => has_arrived(inode),
        },
    };
    let ours = inode.is(flag::NAMED) && !inode.is(flag::CONTESTED);
    there && ours && !state.keeping.contains(&inode.ino)
}

/// Whether the drain can free memory: whether any file it owes has bytes that are not mapped
/// and that it has not had as they are, or it is at a file that has lost some.
pub fn can_drain(state: &State) -> bool {
    let frees = |ino| {
        let named = |inode: &Inode| inode.is(flag::NAMED) && !state.keeping.contains(&ino);
        let Some(inode) = state.names.inode(ino).filter(named) else { return false };
        let entries = inode.slot.map_or_else(Vec::new, |slot| state.storage.entries(slot));
        let behind = !is_evictable(state, &inode)
            || inode.slot.is_some_and(|slot| state.backed_bytes(&inode) < state.storage.size(slot));
        entries.into_iter().filter(|(_, entry)| entry.is_here()).any(|(_, entry)| {
            let owed = tier::owed_bytes(state.storage.memory(), entry) > 0;
            (owed || (behind && state.storage.has_bytes(entry))) && !state.storage.is_mapped(entry)
        })
    };
    let lost = state.storage.has_lost();
    state.backing.is_some() && (lost || state.debts.iter().any(|(ino, _)| frees(ino)))
}

/// Frees one chunk if nobody writes to it and nothing of it is owed. Gives its bytes.
pub fn evict(state: &mut State, ino: Ino, slot: FileSlot, index: u64) -> u64 {
    // Look before asking writers out: most chunks that cannot go are being written.
    let entry = state.storage.memory().entry(slot, index).unrecalled();
    let free = |state: &mut State| state.storage.recall_unmapped(slot, index).is_some();
    let settled = |state: &State| state.storage.is_settled(entry) || !does(Step::KeepDirty);
    if !entry.is_here() || !settled(state) || !free(state) {
        return 0;
    }
    let memory = state.storage.memory().clone();
    // From now on nobody begins to write there. Who is at it is not waited for: he may be stopped,
    // and what he writes stays anyway.
    if !state.storage.owners_in(&state.sessions, entry).is_empty() || !settled(state) {
        state.storage.unrecall(slot, index, entry);
        return 0;
    }
    // What is being appended lies beyond the size, and nobody need be pinned for it.
    state.storage.mend_size(slot);
    let appending = memory.header(slot).ticket().load(Ordering::SeqCst) != 0;
    let (size, end) = (state.storage.size(slot), (index + 1) * CHUNK_BYTES);
    let needed = size.min(end);
    let backed = memory.record(slot).backed_bytes();
    let staged = state.debts.get(ino).is_some_and(|debt| debt.version().is_some());
    // Grown, or cut and grown, since the last pass: only the drain can make that good.
    let behind = backed.load(Ordering::SeqCst) < needed && !staged;
    if behind || (appending && end > size) {
        state.storage.unrecall(slot, index, entry);
        return 0;
    }
    if backed.load(Ordering::SeqCst) < needed {
        backed.store(size, Ordering::SeqCst);
        state.record(Fact::BackedTo { ino, size });
        if state.commit().is_err() {
            state.storage.unrecall(slot, index, entry);
            return 0;
        }
    }
    state.storage.release(slot, index, entry, false);
    u64::from(entry.pages()) * PAGE_BYTES as u64
}
