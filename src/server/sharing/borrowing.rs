//! How chunks of other members' files come to this one, for its clients alone. Not here: how they
//! go back (`far/giving_back`), and who may have which (`far/lent`).

use terral_format::disk::membership::Membership;
use terral_format::ids::{Number, SessionSlot};
use terral_format::local::entry::MapEntry;
use terral_format::local::geometry::{CHUNK_ORDER, PAGE_BYTES};
use terral_format::local::tables::access;
use terral_format::wire::far::{Act, Done};
use terral_format::wire::far_files::Handle;
use terral_format::wire::message::{FileRef, Reply};
use terral_format::{Error, ErrorKind, Result};

use crate::authority::caller::Caller;
use crate::core::left_out::{Step, does};
use crate::core::state::State;
use crate::deferred::preallocating;
use crate::far::asking::{self, ask, is_asked};
use crate::far::calls;
use crate::far::giving_back::loan_of;
use crate::far::role::Behind;
use crate::storage::granting;

/// The part of the memory that may be borrowed from others.
const PART: u64 = 2;

fn is_usable(entry: MapEntry) -> bool {
    !entry.is_absent() && !entry.is_borrowed()
}

/// Whether any chunk is this machine's alone.
fn has_usable(state: &State, loan: FileRef) -> bool {
    state.storage.entries(loan.slot).iter().any(|(_, entry)| is_usable(*entry))
}

/// Has chunks of a file for this machine alone.
///
/// # Errors
/// As those of [`calls::write`].
pub fn borrow(
    state: &mut State,
    caller: &Caller,
    of: Handle,
    (first, count): (u64, u32),
) -> Result<Reply> {
    let file = calls::opened(state, of, access::WRITE)?;
    if state.far.batches.has_some(file) {
        return Ok(Reply::Again);
    }
    let entry = |state: &State, index| match loan_of(state, file) {
        Some(loan) => state.storage.memory().entry(loan.slot, index),
        None => MapEntry::ABSENT,
    };
    let had = entry(state, first);
    if !had.is_absent() {
        return has_already(state, caller.session, file, first);
    }
    let arena = u64::from(state.began.geometry.arena_pages()) * PAGE_BYTES as u64;
    if !is_asked(state, file, asking::Step::Borrow) && state.storage.used_bytes() >= arena / PART {
        return Ok(Reply::Again);
    }
    let run = (first..first.saturating_add(count.into()).max(first + 1))
        .take_while(|index| entry(state, *index).is_absent())
        .count();
    let strips = !caller.person.is_root();
    let Some(by) = state.members.as_ref().map(|members| members.me()) else {
        return Ok(Reply::Again);
    };
    let act = Act::Borrow { by, first, count: run as u32, strips };
    match ask(state, (file, act), asking::Step::Borrow, |_| Behind::Nothing)?.0 {
        Done::Lent { count, size, stamp } => {
            was_lent(state, caller.session, (file, first, count), (size, stamp))
        }
        _ => Ok(Reply::Again),
    }
}

/// The same of what is here.
fn has_already(state: &mut State, session: SessionSlot, file: Number, index: u64) -> Result<Reply> {
    let Some(loan) = loan_of(state, file) else { return Ok(Reply::Again) };
    if state.storage.memory().entry(loan.slot, index).is_borrowed() {
        return Ok(Reply::Again);
    }
    granting::grant_one(state, session, loan, index, 1 << CHUNK_ORDER)?;
    Ok(Reply::Lent(loan))
}

/// What was lent is put where clients find it.
pub(super) fn was_lent(
    state: &mut State,
    session: SessionSlot,
    (file, first, count): (Number, u64, u32),
    (size, stamp): (u64, u64),
) -> Result<Reply> {
    let loan = match loan_of(state, file) {
        Some(loan) => loan,
        None => begin(state, file)?,
    };
    knows_size(state, loan, size);
    let had = granting::for_chunks(state, (first, count), |state, index| {
        let void = state.far.loans.is_void(file, index, stamp) && does(Step::Fence);
        // What came before, and is not kept: its home has none of it.
        if !void && state.far.is_unkept(file, index, stamp) {
            state.storage.release_chunk(&state.sessions, loan.slot, index);
        }
        if void || !state.storage.memory().entry(loan.slot, index).is_absent() {
            return Err(Error::new(ErrorKind::Busy, "it is asked back"));
        }
        granting::grant_one(state, session, loan, index, 1 << CHUNK_ORDER)?;
        state.far.loans.was_lent(file, index, stamp);
        Ok(())
    });
    // Without memory for it, its home has it written.
    Ok(if had.is_ok() { Reply::Lent(loan) } else { Reply::Again })
}

/// Before a chunk can be used: so long the file is while one of them is here.
pub(super) fn knows_size(state: &State, loan: FileRef, size: u64) {
    let memory = state.storage.memory();
    match has_usable(state, loan) {
        true => memory.raise_size(loan.slot, size, memory.size_epoch(loan.slot)),
        false => drop(memory.reset_size(loan.slot, size)),
    }
}

/// The first chunks of a file come.
pub(super) fn begin(state: &mut State, file: Number) -> Result<FileRef> {
    let loan = preallocating::nameless(state)?;
    state.record(Membership::Borrows { ino: loan.ino, file });
    Ok(loan)
}
