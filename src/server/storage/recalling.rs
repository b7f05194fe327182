//! Has chunks here that other members have.
//!
//! Invariant: nobody reads or writes such a chunk here; who wants to waits until its bytes came.
//! Not here: how they come (`far/lent`).

use terral_format::local::geometry::{CHUNK_BYTES, CHUNK_ORDER};
use terral_format::wire::message::FileRef;
use terral_format::{Error, ErrorKind, Result};

use crate::core::state::State;
use crate::storage::away::Wanted;
use crate::storage::eviction;

/// Has a chunk here that another member has.
///
/// # Errors
/// If who asks must wait; [`ErrorKind::NoSpace`] if memory is full; [`ErrorKind::TextBusy`] if it
/// is mapped there; and why it does not come.
pub fn bring(state: &mut State, file: FileRef, index: u64) -> Result<()> {
    let Some(with) = state.storage.with(file.slot, index) else { return Ok(()) };
    let asker = state.members.as_ref().and_then(|members| members.asker());
    if asker.is_some_and(|asker| state.storage.is_refused(asker, file.ino, index)) {
        return Err(Error::new(ErrorKind::TextBusy, format!("{with} has it mapped")));
    }
    // Room first: what there is none for need not travel.
    eviction::with_room(state, |state| state.storage.find_room(CHUNK_ORDER))?;
    let wanted = Wanted::of(with, state.world.now(), true);
    state.storage.want((file.ino, index), wanted, asker);
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
    bring_within(state, file, u64::MAX)
}

/// The same before it is made so long: what nobody writes to, and is behind that, is not needed.
///
/// # Errors
/// As those of [`bring`].
pub fn bring_within(state: &mut State, file: FileRef, size: u64) -> Result<()> {
    let mut away = state.storage.away(file.slot);
    let is_behind = |index: u64| index.saturating_mul(CHUNK_BYTES) >= size;
    away.retain(|(index, _)| {
        !is_behind(*index) || state.storage.placed(file.slot, *index).is_none()
    });
    let brought = away.into_iter().map(|(index, _)| bring(state, file, index));
    // All of them at once.
    brought.collect::<Vec<_>>().into_iter().collect()
}
