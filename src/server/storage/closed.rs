//! When closed files lose their memory: some time after the last close, and never while somebody is
//! just opening them without the server's knowing yet.

use terral_format::Result;
use terral_format::disk::facts::Fact;
use terral_format::disk::local::Local;
use terral_format::ids::{FileSlot, Ino};
use terral_format::local::geometry::{CHUNK_BYTES, CHUNK_ORDER, PAGE_BYTES};
use terral_format::local::names::Inode;
use terral_format::wire::message::Attributes;
use terral_store::small::SMALL_BYTES;

use crate::core::state::State;
use crate::core::world::Tick;
use crate::storage::lingering::LINGER;
use crate::storage::{barring, packing};

/// A closed file whose last chunk needs no more pages than this is moved into a small chunk.
const COMPACT_PAGES: u32 = 64;

/// What those that were closed just now may keep: this part of the memory, and no more than so many
/// bytes.
const MEMORY_MAX: (u64, u64) = (64, 32 << 20);

/// The last description of a file that could write is closed: what it does not need goes back.
pub fn settle_closed(state: &mut State, ino: Ino) -> Result<()> {
    let Some(inode) = state.names.inode(ino) else { return Ok(()) };
    let openers = state.names.openers(ino);
    let (Some(slot), 0, true) = (inode.slot, openers.writers, state.debts.may_move(ino)) else {
        return Ok(());
    };
    if state.storage.has_away(slot) {
        return Ok(());
    }
    state.storage.mend_size(slot);
    let idle = openers.all == 0 && state.debts.get(ino).is_none();
    if idle && state.storage.size(slot) <= SMALL_BYTES && state.storage.entries(slot).len() < 2 {
        return linger(state, ino);
    }
    // Who opens it without our knowing yet may have written beyond the size that we would see.
    if barring::bar(state, ino) {
        shrink(state, ino, slot);
        barring::unbar(state);
    }
    if idle && state.storage.entries(slot).is_empty() { linger(state, ino) } else { Ok(()) }
}

/// What a file that nobody writes does not need of its chunks goes back.
pub fn shrink(state: &mut State, ino: Ino, slot: FileSlot) {
    let owed = state.debts.get(ino).is_some();
    let size = state.storage.size(slot);
    let past = size.div_ceil(CHUNK_BYTES);
    for (index, entry) in state.storage.entries(slot) {
        if index >= past {
            let spilled = entry.place().is_some();
            if spilled || state.storage.recall_unmapped(slot, index).is_some() {
                state.storage.release_chunk(&state.sessions, slot, index);
            }
        } else if index + 1 == past {
            let needed = (size - index * CHUNK_BYTES).div_ceil(PAGE_BYTES as u64) as u32;
            let order = needed.next_power_of_two().trailing_zeros() as u8;
            // What is small already waits until the drain has had it.
            let worth = entry.order() == CHUNK_ORDER || !owed;
            if needed <= COMPACT_PAGES && order < entry.order() && worth {
                // A full memory tier only means that the file keeps its larger chunk.
                let _ = barring::move_chunk(state, slot, index, order);
            }
        }
    }
}

/// A file that nobody has open any more, and that could do without its memory.
pub fn linger(state: &mut State, ino: Ino) -> Result<()> {
    let slot = state.names.inode(ino).and_then(|inode| inode.slot);
    slot.into_iter().for_each(|slot| empty(state, ino, slot));
    let entries = slot.map(|slot| state.storage.entries(slot)).unwrap_or_default();
    let pages = entries.iter().map(|(_, entry)| entry.pages()).sum();
    state.lingering.closed(ino, pages, state.world.now());
    settle_lingering(state)
}

/// Takes the memory of files that have been closed for long enough.
pub fn settle_lingering(state: &mut State) -> Result<()> {
    let all = u64::from(state.began.geometry.arena_pages());
    let most = (all / MEMORY_MAX.0).min(MEMORY_MAX.1 / PAGE_BYTES as u64);
    settle_beyond(state, most, state.world.now())
}

/// Takes the memory of all of them.
pub fn settle_all_lingering(state: &mut State) -> Result<()> {
    settle_beyond(state, u64::MAX, state.world.now() + LINGER)
}

pub fn settle_beyond(state: &mut State, most_pages: u64, now: Tick) -> Result<()> {
    while let Some(ino) = state.lingering.next(most_pages, now) {
        take_memory(state, ino)?;
    }
    Ok(())
}

/// Has a file packed, or its record taken back, if that is still right.
pub fn take_memory(state: &mut State, ino: Ino) -> Result<()> {
    let Some(slot) = state.names.inode(ino).and_then(|inode| inode.slot) else { return Ok(()) };
    let wanted = state.names.openers(ino).all > 0 || state.debts.get(ino).is_some();
    if wanted || !state.debts.may_move(ino) {
        return Ok(());
    }
    empty(state, ino, slot);
    if !packing::pack(state, ino, slot)? && state.storage.entries(slot).is_empty() {
        detach(state, ino);
    }
    Ok(())
}

/// Takes the first chunk of a file that was opened for writing, if nothing was written.
pub fn empty(state: &mut State, ino: Ino, slot: FileSlot) {
    let unused = state.storage.size(slot) == 0 && !state.storage.entries(slot).is_empty();
    if unused && barring::bar(state, ino) {
        shrink(state, ino, slot);
        barring::unbar(state);
    }
}

/// Takes the record of a closed file without chunks back, once the log says so; not if somebody
/// just opens it.
pub fn detach(state: &mut State, ino: Ino) {
    if !barring::bar(state, ino) {
        return;
    }
    let slot = state.names.inode(ino).and_then(|inode| inode.slot);
    if let (Some(attributes), Some(slot)) = (state.attributes(ino), slot) {
        let Attributes { size, modified_ns, accessed_ns, changed_ns, .. } = attributes;
        state.record(Fact::Rested { ino, size, modified_ns, accessed_ns, changed_ns });
        state.record(Local::Detached { ino });
        state.storage.detach_logged(slot);
    }
    barring::unbar(state);
}

/// A file is no more: its chunks go, and its record, unless somebody is just copying from it. True:
/// all of it has gone.
pub fn free(state: &mut State, inode: &Inode) -> bool {
    if let Some(slot) = inode.slot {
        for (index, _) in state.storage.entries(slot) {
            state.storage.release_chunk(&state.sessions, slot, index);
        }
    }
    if !state.debts.may_move(inode.ino) {
        return false;
    }
    state.storage.unpacked(inode);
    if let Some(slot) = inode.slot {
        state.storage.detach(slot);
    }
    true
}
