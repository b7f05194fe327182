//! How chunks of other members' files go back to them: see `loans`. Not here: how they come
//! (`sharing/borrowing`).

use std::sync::atomic::Ordering;

use terral_format::disk::membership::Membership;
use terral_format::ids::{FileSlot, Number};
use terral_format::local::entry::MapEntry;
use terral_format::local::geometry::PAGE_BYTES;
use terral_format::local::pages::{self, PageState};
use terral_format::local::tables::access;
use terral_format::wire::far::{Act, Done};
use terral_format::wire::far_files::{Handle, Stored};
use terral_format::wire::message::{FileRef, Reply};
use terral_format::{Error, ErrorKind, Result};

use super::asking::{self, Step, ask};
use super::calls;
use super::lent::RETURNED_MAX;
use super::role::Behind;
use crate::core::left_out::{self, does};
use crate::core::state::State;
use crate::storage::{bringing, eviction};

/// Where the chunks of another member's file are, if some are here.
pub fn loan_of(state: &State, file: Number) -> Option<FileRef> {
    let ino = state.far.loans.get(file)?.ino;
    let slot = state.names.inode(ino)?.slot?;
    Some(FileRef { ino, slot })
}

/// A file is so long at least, in a chunk that is this machine's alone.
///
/// # Errors
/// As those of [`calls::write`].
pub fn grow(state: &mut State, of: Handle, to: u64, epoch: u16) -> Result<Reply> {
    let file = calls::opened(state, of, access::WRITE)?;
    let by = state.members.as_ref().map(|members| members.me());
    let Some((loan, by)) = loan_of(state, file).zip(by) else { return Ok(Reply::Again) };
    match ask(state, (file, Act::Grow { by, to }), Step::Grow, |_| Behind::Nothing)?.0 {
        Done::Done => {
            state.storage.memory().raise_size(loan.slot, to, epoch);
            // What is not known here does not count when a chunk stays here.
            Ok(if state.storage.size(loan.slot) < to { Reply::Again } else { Reply::Done })
        }
        _ => Ok(Reply::Again),
    }
}

/// A chunk is asked back by its home: where its bytes are, which stay as they are.
///
/// # Errors
/// If the spill does not give it back; [`ErrorKind::NoSpace`] if somebody who was stopped writes to
/// it, and memory is full; [`ErrorKind::TextBusy`] if somebody has it mapped.
pub fn give_back(state: &mut State, file: Number, index: u64, stamp: u64) -> Result<Reply> {
    let loan = loan_of(state, file);
    let entry = |state: &State, loan: FileRef| state.storage.memory().entry(loan.slot, index);
    let Some(loan) = loan.filter(|loan| !entry(state, *loan).is_absent()) else {
        state.far.loans.fence(file, index, stamp);
        return Ok(Reply::Again);
    };
    let since = state.far.loans.get(file).and_then(|known| known.since.get(&index));
    if since.is_some_and(|since| *since > stamp) {
        return Ok(Reply::Again);
    }
    if state.far.is_unkept(file, index, stamp) {
        // It may be what came before this one was lent.
        return Err(Error::new(ErrorKind::Busy, "whether it is kept is not known yet"));
    }
    state.far.loans.fence_arriving(file, index, stamp);
    if !entry(state, loan).is_here() {
        bringing::bring(state, loan, index)?;
    }
    if does(left_out::Step::Freeze) {
        let frozen = eviction::with_room(state, |state| {
            state.storage.freeze(&state.sessions, loan.slot, index)
        });
        if frozen.as_ref().is_err_and(|error| error.kind == ErrorKind::TextBusy) {
            // Its home does not ask for it again.
            state.far.loans.is_unsaid(file);
        }
        frozen?;
    }
    let places = places(state, entry(state, loan));
    Ok(if places.is_empty() { Reply::Again } else { Reply::Stored { places, ends: true } })
}

/// Whether a chunk may be mapped by programs here.
fn is_mapped(entry: MapEntry) -> bool {
    entry.is_mappable() && !entry.is_borrowed()
}

/// Where a chunk is that is asked back no more than it is unmapped.
pub fn mapped(state: &State, file: Number, index: u64) -> Reply {
    let loan = loan_of(state, file);
    let entry = loan.map(|loan| state.storage.memory().entry(loan.slot, index));
    match loan.filter(|_| entry.is_some_and(is_mapped)) {
        Some(loan) => Reply::Lent(loan),
        None => Reply::Again,
    }
}

/// Chunks that nobody has mapped any more are like all others that are here.
pub(super) fn tick(state: &mut State) {
    for file in state.far.loans.files() {
        if let Some(loan) = loan_of(state, file) {
            state.storage.leave_maps(loan.slot);
        }
    }
}

/// The pages of a chunk that were written.
pub(super) fn places(state: &State, entry: MapEntry) -> Vec<Stored> {
    let (lanes, first) = (state.storage.memory().lanes(), entry.page().0);
    let is_valid =
        |page: &u32| matches!(pages::state(lanes, first + page), PageState::Valid { .. });
    let valid: Vec<u32> = (0..entry.pages()).filter(is_valid).collect();
    let runs = valid.chunk_by(|one, next| one + 1 == *next);
    let bytes = |pages: u32| pages * PAGE_BYTES as u32;
    let place = |run: &[u32]| Stored {
        page: entry.page(),
        within: bytes(run[0]),
        bytes: bytes(run.len() as u32),
    };
    runs.map(place).collect()
}

/// The home of a file has a chunk.
///
/// # Errors
/// If the log cannot be written.
pub fn took(state: &mut State, file: Number, index: u64, stamp: u64) -> Result<()> {
    let Some(loan) = loan_of(state, file) else { return Ok(()) };
    let since = state.far.loans.get(file).and_then(|known| known.since.get(&index));
    let old = since.is_some_and(|since| *since > stamp);
    if !old && state.storage.memory().entry(loan.slot, index).is_borrowed() {
        state.storage.release_chunk(&state.sessions, loan.slot, index);
        if let Some(known) = state.far.loans.get_mut(file) {
            known.since.remove(&index);
        }
    }
    Ok(())
}

/// What is to go back is said to its home; what is back is forgotten.
pub(super) fn go_on(state: &mut State) {
    if state.departs {
        state.far.loans.all_leave();
    }
    for file in state.far.loans.files() {
        let Some(known) = state.far.loans.get(file).filter(|known| known.returning) else {
            continue;
        };
        let (ino, said) = (known.ino, known.said);
        let slot = state.names.inode(ino).and_then(|inode| inode.slot);
        let entries = slot.map(|slot| state.storage.entries(slot)).unwrap_or_default();
        let is_mapped = entries.iter().any(|(_, entry)| is_mapped(*entry));
        if is_mapped && !state.far.is_removed(file.born()) {
            continue;
        }
        if (entries.is_empty() && !state.far.parts.has(file)) || state.far.is_removed(file.born()) {
            is_over(state, file);
        } else if !said {
            say_return(state, file, &entries, slot);
        }
    }
}

fn say_return(
    state: &mut State,
    file: Number,
    entries: &[(u64, MapEntry)],
    slot: Option<FileSlot>,
) {
    let Some(by) = state.members.as_ref().map(|members| members.me()) else { return };
    if asking::live(state).is_err() {
        return;
    }
    let memory = state.storage.memory();
    let modified_ns = slot.map(|slot| memory.header(slot).modified_ns().load(Ordering::SeqCst));
    if let Some(at_ns) = modified_ns.filter(|at_ns| *at_ns > 0) {
        asking::say_once(state, file, Act::Wrote { at_ns });
    }
    let indices: Vec<u64> = entries.iter().map(|(index, _)| *index).collect();
    let runs = indices.chunk_by(|one, next| one + 1 == *next);
    for run in runs.flat_map(|run| run.chunks(RETURNED_MAX as usize)) {
        let leaves = state.departs;
        let act = Act::Return { by, first: run[0], count: run.len() as u32, leaves };
        asking::say_once(state, file, act);
    }
    if let Some(known) = state.far.loans.get_mut(file) {
        known.said = true;
    }
}

/// The home of a file says that what is here of it may stay, as nobody has it open.
pub(super) fn may_stay(state: &mut State, file: Number) {
    if !state.departs && state.far.loans.may_stay(file) {
        // What its home is told then is told; what is not, the next process tells.
        let _ = asking::closed(state, file);
    }
}

/// Nothing of a file is here any more.
fn is_over(state: &mut State, file: Number) {
    let Some(ino) = state.far.loans.get(file).map(|known| known.ino) else { return };
    state.record(Membership::Returned { ino });
    state.far.loans.closed(file);
    state.look_again_at(ino);
    // What its home is told then is told; what is not, the next process tells.
    let _ = asking::closed(state, file);
}

/// Those that are to go back as nobody had their files open when this process began.
pub(super) fn resume(state: &mut State) -> Result<()> {
    for file in state.far.loans.files() {
        state.far.opens(file);
        asking::closed(state, file)?;
    }
    Ok(())
}
