//! Update ids: whether anybody has changed a file since somebody looked, and writes that are done
//! only if nobody has.
//!
//! Who writes plainly pays nothing: as long as nobody asks for an id nothing is different. Who asks
//! takes chunks away from writers, as if they were to move, and leaves it at that: so who writes
//! next asks for them, and takes the recall flag down. Invariant: as long as the entries of all
//! chunks are those that were left, flags and all, and the size's word is the same, nobody has
//! written a byte. What is written is recorded first, whole, and then put in place: whoever is
//! killed, all of it comes to be, or nothing, and who asks again is told the same.
//!
//! Not here: what was told (`updates`), the pages (`written`), other members (`requests`).

use std::sync::atomic::Ordering;

use terral_format::disk::local::Local;
use terral_format::ids::{FileSlot, Ino, SessionSlot};
use terral_format::local::batch;
use terral_format::local::geometry::{CHUNK_BYTES, CHUNK_ORDER};
use terral_format::local::size::{self, SizeWord};
use terral_format::wire::message::FileRef;
use terral_format::wire::updates::{Attempt, RECORDS_MAX};
use terral_format::{Error, ErrorKind, Result};

use super::updates::{Seen, Unwritten};
use super::written::{Piece, pieces};
use crate::core::left_out::{Step, does};
use crate::core::state::State;
use crate::debts::owing;
use crate::debts::policy::Event;
use crate::storage::{bringing, eviction, granting};

/// A write: the id that the file is to have, and by whom it is.
#[derive(Clone, Copy, Debug)]
pub struct Condition {
    pub seen: u64,
    pub attempt: Attempt,
}

fn stored_to(ino: Ino) -> Error {
    Error::new(ErrorKind::Busy, format!("somebody has file {ino} mapped to store there"))
}

/// The update id of a file whose chunks are all here, or nowhere.
///
/// # Errors
/// [`ErrorKind::Busy`] if somebody has it mapped to store there; [`ErrorKind::NoSpace`] if a writer
/// is stopped in the middle, and memory is full.
pub fn look(state: &mut State, file: FileRef) -> Result<u64> {
    let FileRef { ino, slot } = file;
    if let Some(id) = state.updates.still(ino, &state.storage.seen(slot)) {
        return Ok(id);
    }
    state.log.reserve()?;
    if state.storage.is_stored_to_by_maps(slot) {
        return Err(stored_to(ino));
    }
    // If this fails in the middle, flags are up that a writer has taken down since.
    state.updates.has_changed(ino);
    eviction::with_room(state, |state| state.storage.close_to_writers(&state.sessions, slot))?;
    let id = state.updates.next(ino, state.storage.time_ns());
    state.record(Local::Updated { ino, id });
    let seen = state.storage.seen(slot);
    state.updates.was_seen(ino, seen);
    Ok(id)
}

/// What the records of a write say, cut where chunks end.
fn read(records: &[u8]) -> Result<Vec<Piece<'_>>> {
    if records.len() > RECORDS_MAX {
        return Err(Error::new(ErrorKind::TooBig, "what is written on condition"));
    }
    let mut all = Vec::new();
    for write in batch::writes(records) {
        let (at, bytes) = write?;
        all.extend(pieces(at, bytes));
    }
    Ok(all)
}

/// Writes what records say to a file whose chunks are all here, or nowhere, if it has an update id
/// still. Gives the one that it has from then on.
///
/// # Errors
/// [`ErrorKind::Changed`] if it has another one; [`ErrorKind::NoSpace`] if there is no memory for
/// all of it, [`ErrorKind::Malformed`] if they are no records: nothing is written then.
pub fn write(
    state: &mut State,
    session: SessionSlot,
    (file, condition): (FileRef, Condition),
    records: &[u8],
) -> Result<u64> {
    let FileRef { ino, slot } = file;
    let Condition { seen, attempt } = condition;
    if let Some(id) = state.updates.led_to(attempt) {
        return Ok(id);
    }
    let pieces = read(records)?;
    state.log.reserve()?;
    for piece in &pieces {
        bring(state, file, piece.index)?;
    }
    let now = state.storage.seen(slot);
    if state.updates.still(ino, &now) != Some(seen) {
        return Err(Error::new(ErrorKind::Changed, format!("file {ino}")));
    }
    for piece in &pieces {
        make_room(state, session, file, piece)?;
    }
    let held = eviction::with_room(state, |state| state.storage.hold(slot, &pieces))?;
    owing::owe(state, ino);
    let last = pieces.iter().map(|piece| piece.index).max();
    let grown = Event::Grown(last.unwrap_or(0) * CHUNK_BYTES);
    state.debts.happened(ino, grown, state.world.now());
    let id = state.updates.next(ino, state.storage.time_ns());
    state.record(Local::Update { ino, id, attempt, records: records.to_vec() });
    // What is recorded cannot be taken back: it is done, whatever the log says.
    let recorded = if does(Step::RecordFirst) { state.commit() } else { Ok(()) };
    let put = state.storage.put(slot, &pieces, held);
    state.storage.memory().header(slot).wrote(state.storage.time_ns());
    let size = end(state, slot, now.size, &pieces);
    is_written(state, file, id);
    let entries = state.storage.entries(slot);
    state.updates.was_seen(ino, Seen { size, entries });
    recorded.and(put).map(|()| id)
}

/// A chunk that is written to, and that memory does not have, is brought: it counts as changed
/// then.
fn bring(state: &mut State, file: FileRef, index: u64) -> Result<()> {
    let entry = state.storage.memory().entry(file.slot, index).unrecalled();
    let is_elsewhere = entry.is_absent() && state.storage.is_backed(file, index);
    match is_elsewhere || !(entry.is_here() || entry.is_absent()) {
        true => bringing::bring(state, file, index),
        false => Ok(()),
    }
}

/// Has a chunk that a piece fits; nobody writes there without asking.
fn make_room(
    state: &mut State,
    session: SessionSlot,
    file: FileRef,
    piece: &Piece<'_>,
) -> Result<()> {
    let FileRef { slot, .. } = file;
    let (index, needed) = (piece.index, piece.pages().end);
    let entry = state.storage.memory().entry(slot, index);
    if entry.is_absent() {
        let new = index == 0 && state.storage.size(slot) == 0;
        let order = if new { granting::order_for(needed) } else { CHUNK_ORDER };
        let entry = granting::chunk_for(state, session, order)?;
        return state.storage.install(slot, index, entry.recalled());
    }
    if entry.is_here() && entry.pages() < needed {
        let order = granting::order_for(needed);
        return eviction::with_room(state, |state| state.storage.enlarge(slot, index, order));
    }
    Ok(())
}

/// The file is as long as what was written to it. Gives its size's word, unless somebody else has
/// made it longer meanwhile.
fn end(state: &State, slot: FileSlot, before: SizeWord, pieces: &[Piece<'_>]) -> SizeWord {
    let end = |piece: &Piece<'_>| {
        piece.index * CHUNK_BYTES + piece.within as u64 + piece.bytes.len() as u64
    };
    let end = pieces.iter().map(end).max().unwrap_or(0);
    let header = state.storage.memory().header(slot);
    if end > before.size() {
        header.holes().store(1, Ordering::SeqCst);
    }
    let _ = size::raise(header.size(), end, before.epoch());
    SizeWord::new(before.size().max(end), before.epoch())
}

fn is_written(state: &mut State, file: FileRef, id: u64) {
    state.storage.memory().record(file.slot).applied().store(id, Ordering::SeqCst);
    state.updates.is_written(file.ino);
}

/// After a restart, before anybody can write: puts in place what was recorded and is not there.
pub fn take_over(state: &mut State) {
    for (ino, Unwritten { id, records, .. }) in state.updates.take_unwritten() {
        let slot = state.names.inode(ino).and_then(|inode| inode.slot);
        let Some(slot) = slot else { continue };
        state.storage.take_over_held(slot);
        let memory = state.storage.memory().clone();
        if memory.record(slot).applied().load(Ordering::SeqCst) >= id {
            continue;
        }
        let Ok(pieces) = read(&records) else { continue };
        let word = SizeWord::load(memory.header(slot).size());
        // All that it needs is there: it was held when it was recorded.
        if let Ok(held) = state.storage.hold(slot, &pieces) {
            let _ = state.storage.put(slot, &pieces, held);
            memory.header(slot).wrote(state.storage.time_ns());
            end(state, slot, word, &pieces);
            is_written(state, FileRef { ino, slot }, id);
        }
    }
}
