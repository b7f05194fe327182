//! Has chunks here that other members have.
//!
//! Invariant: nobody reads or writes such a chunk here; who wants to waits until its bytes came.
//! Not here: how they come (`far/lent`).

use terral_format::Result;
use terral_format::local::geometry::CHUNK_ORDER;
use terral_format::wire::message::FileRef;

use crate::core::state::State;
use crate::storage::away::Wanted;
use crate::storage::eviction;

/// Has a chunk here that another member has.
///
/// # Errors
/// If who asks must wait; [`terral_format::ErrorKind::NoSpace`] if memory is full; and why it does
/// not come.
pub fn bring(state: &mut State, file: FileRef, index: u64) -> Result<()> {
    let Some(with) = state.storage.with(file.slot, index) else { return Ok(()) };
    // Room first: what there is none for need not travel.
    eviction::with_room(state, |state| state.storage.find_room(CHUNK_ORDER))?;
    let (since, error) = (state.world.now(), None);
    let wanted = Wanted { with, since, needed: true, error };
    state.storage.want((file.ino, index), wanted);
    match state.storage.why_not(file.ino, index) {
        Some(error) => Err(error),
        None => Err(state.fetches.wait()),
    }
}

/// The same of all chunks of a file.
///
/// # Errors
/// As those of [`bring`].
pub fn bring_all(state: &mut State, file: FileRef) -> Result<()> {
    let away = state.storage.away(file.slot);
    let brought = away.into_iter().map(|(index, _)| bring(state, file, index));
    // All of them at once.
    brought.collect::<Vec<_>>().into_iter().collect()
}
