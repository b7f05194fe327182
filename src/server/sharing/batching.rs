//! How batches of what is written to other members' files begin, where they are not to be seen by
//! others before they are committed. Not here: how they go (`far/committing`).

use terral_format::Result;
use terral_format::disk::membership::Membership;
use terral_format::ids::Ino;
use terral_format::local::batch::BATCH_BYTES;
use terral_format::local::geometry::PAGE_BYTES;
use terral_format::local::tables::access;
use terral_format::wire::far_files::Handle;
use terral_format::wire::message::{FileRef, Reply};
use terral_format::wire::peers::Failure;

use crate::authority::caller::Caller;
use crate::core::state::State;
use crate::deferred::preallocating;
use crate::far::giving_back::loan_of;
use crate::far::{calls, committing};

/// The part of the memory that may be in use where one begins.
const PART: u64 = 2;
/// The part of the memory that those of a file may have, two at least.
const PART_OF_FILE: u64 = 4;
/// So many of a file may be on their way while another one is filled, at most: a `close` waits for
/// all of them.
const AHEAD_MAX: u64 = 15;

/// So many may be, of so much memory.
fn ahead(arena: u64) -> usize {
    (arena / PART_OF_FILE / BATCH_BYTES).saturating_sub(1).clamp(1, AHEAD_MAX) as usize
}

/// Has a batch for who writes; not `full`, which was one.
///
/// # Errors
/// As those of [`calls::write`], and of [`committing::settle`].
pub fn batch(state: &mut State, caller: &Caller, of: Handle, full: Ino) -> Result<Reply> {
    let file = calls::opened(state, of, access::WRITE)?;
    let commits = calls::opened(state, of, access::COMMIT).is_ok();
    if !commits || loan_of(state, file).is_some() {
        return Ok(Reply::Again);
    }
    if let Some(removed) = state.far.removed_of(file.born()) {
        return Err(Failure::Removed(removed).error());
    }
    let strips = !caller.person.is_root();
    if let Some(batch) = state.far.batches.open(file) {
        let slot = state.names.inode(batch.ino).and_then(|inode| inode.slot);
        if let Some(slot) = slot.filter(|_| batch.ino != full && batch.strips >= strips) {
            return Ok(Reply::Lent(FileRef { ino: batch.ino, slot }));
        }
    }
    state.far.batches.must_go(file);
    let arena = u64::from(state.began.geometry.arena_pages()) * PAGE_BYTES as u64;
    let is_short = |state: &State| state.storage.used_bytes() >= arena / PART;
    // What is on its way gives its memory back.
    let left = if is_short(state) { 0 } else { ahead(arena) };
    committing::await_all_but(state, file, left)?;
    if is_short(state) {
        return Ok(Reply::Again);
    }
    let id = state.world.random()? as u64;
    let log = preallocating::nameless(state)?;
    state.record(Membership::Batch { ino: log.ino, file, id, strips });
    // Who looks at it here asks, and sees what is written here.
    if let Some(ino) = state.members.as_ref().and_then(|members| members.place(file)) {
        state.names.may_look(ino, 0);
    }
    Ok(Reply::Lent(log))
}

#[cfg(test)]
mod tests {
    use super::ahead;

    #[test]
    fn batches_of_a_file_have_a_quarter_of_the_memory_two_at_least_and_sixteen_at_most() {
        let of = |gib: f64| 1 + ahead((gib * f64::from(1 << 30)) as u64);
        assert_eq!([0.125, 0.5, 1.0, 2.0, 4.0, 64.0].map(of), [2, 2, 4, 8, 16, 16]);
    }
}
