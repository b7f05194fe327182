//! How a chunk comes back from the spill, is read there, or is dropped there once the permanent
//! store has it.

use terral_format::ids::{Ino, SpillPlace};
use terral_format::local::entry::MapEntry;
use terral_format::local::geometry::CHUNK_BYTES;
use terral_format::local::names::{Inode, flag};
use terral_format::wire::message::FileRef;
use terral_format::{Error, Result};
use terral_store::spill::Block;

use crate::core::paths::shown;
use crate::core::state::State;
use crate::needs::need::SpilledChunk;
use crate::storage::eviction::{self, has_arrived};

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

/// Reads a spilled chunk, which its file's map has at this place, as it lies there.
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
    let chunk = SpilledChunk { memory, ino: file.ino, index, entry, place };
    let read = state.fetches.spilled(chunk, state.leaving)?;
    read.map_err(|error| {
        let path = shown(&state.names.path(file.ino).unwrap_or_default());
        let error = Error { context: format!("{path}: {}", error.context), ..error };
        state.warn(error.to_string());
        error
    })
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
pub(super) fn drop_one_arrived(state: &mut State, inode: &Inode, index: u64) {
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
