//! Chunks that were born here, and that another member is to have whatever is in them, as programs
//! there map them: they are offered, read there, and handed over once all bytes are there.
//!
//! Invariant: a chunk is handed over only if nobody can have changed it since it was offered: its
//! entry is the very one that the offer left, with the recall flag, which whoever is about to write
//! has taken down by the server; an offer of a process that is no more counts nothing. So the bytes
//! are in the memory of one of both at any time. Not here: what the other member does (`arriving`),
//! and who has what afterwards (`lent`).

use terral_format::ids::{Ino, Member};
use terral_format::local::geometry::CHUNK_BYTES;
use terral_format::wire::far_files::{LentTo, Offered};
use terral_format::wire::message::{FileRef, Reply};
use terral_format::{Error, ErrorKind, Result};

use super::lent;
use super::offered::Offer;
use crate::core::left_out::{Step, does};
use crate::core::state::State;
use crate::debts::owing;
use crate::storage::{bringing, mapping};

fn file_of(state: &State, ino: Ino) -> Option<FileRef> {
    let slot = state.names.inode(ino).and_then(|inode| inode.slot)?;
    (!state.finishing).then_some(FileRef { ino, slot })
}

/// Whether a member has a chunk, and nobody wants it back.
fn is_its(state: &State, file: FileRef, index: u64, to: Member) -> bool {
    let is_wanted = state.storage.is_wanted(file.ino, index);
    let is_kept = state.storage.placed(file.slot, index).is_some();
    state.storage.with(file.slot, index) == Some(to) && !is_wanted && !is_kept
}

/// A chunk is a member's, as it was: what was to be taken from it before may change from now on.
fn is_lent(state: &mut State, file: FileRef, index: u64) -> Reply {
    lent::is_lent(state, file.ino, index);
    state.storage.maps_there(file.ino, index, true);
    let (count, size) = (1, state.storage.size(file.slot));
    let stamp = state.far.lent.next_stamp(state.starts);
    Reply::LentTo(LentTo { count, size, stamp })
}

/// A member wants a chunk of what was born here, to be mapped there.
///
/// # Errors
/// If who asks must wait for what is not here; [`ErrorKind::TextBusy`] if somebody has it mapped;
/// and as bringing it does.
pub fn offer(state: &mut State, (ino, to): (Ino, Member), index: u64) -> Result<Reply> {
    let me = state.members.as_ref().map(|members| members.me());
    let Some((file, from)) = file_of(state, ino).zip(me) else { return Ok(Reply::Again) };
    if is_its(state, file, index, to) {
        return Ok(is_lent(state, file, index));
    }
    mapping::permit_storing(state, ino)?;
    if !state.far.lent.is_told(ino, index) {
        return Ok(Reply::Again);
    }
    let found = state.storage.memory().entry(file.slot, index).unrecalled();
    if !found.is_here() && (!found.is_absent() || state.storage.is_backed(file, index)) {
        bringing::bring(state, file, index)?;
    }
    let mut entry = state.storage.memory().entry(file.slot, index).unrecalled();
    if entry.is_here() {
        let offered = state.storage.offer(&state.sessions, file.slot, index);
        let mapped = || Error::new(ErrorKind::TextBusy, format!("file {ino} is mapped"));
        entry = offered.ok_or_else(mapped)?;
    }
    let stamp = state.far.lent.next_stamp(state.starts);
    let offer = Offer { to, from, stamp, entry, since: state.world.now(), takes: None };
    state.far.offers.begin((ino, index), offer);
    let size = state.storage.size(file.slot);
    let inside = size.saturating_sub(index * CHUNK_BYTES).min(CHUNK_BYTES) as u32;
    let bytes = if entry.is_absent() { 0 } else { inside };
    Ok(Reply::Offered(Offered { size, bytes, stamp }))
}

/// A member has all that was offered to it by this stamp.
///
/// # Errors
/// If the log is full, or the map cannot have it.
pub fn accepted(
    state: &mut State,
    (ino, to): (Ino, Member),
    (index, stamp): (u64, u64),
) -> Result<Reply> {
    let Some(file) = file_of(state, ino) else { return Ok(Reply::Again) };
    if is_its(state, file, index, to) {
        return Ok(is_lent(state, file, index));
    }
    let offer = state.far.offers.accepted((ino, index), (to, stamp));
    let Some(Offer { entry, .. }) = offer else { return Ok(Reply::Again) };
    let now = state.storage.memory().entry(file.slot, index);
    let same = now == entry || (!does(Step::CompareOffers) && now.is_chunk_of(entry));
    let backed = entry.is_absent() && state.storage.is_backed(file, index);
    if !same || backed || state.far.removed_of(to).is_some() {
        return Ok(Reply::Again);
    }
    state.storage.hand_over(file.slot, index, entry, to)?;
    owing::owe(state, ino);
    Ok(is_lent(state, file, index))
}
