//! Taking back: chunks from writers, tickets from the dead, memory from files that are gone or
//! safe. Every chunk goes the way `docs/decisions/2026-11-21-grant-protocol.md` prescribes.

use std::sync::atomic::Ordering;

use terral_format::disk::facts::Fact;
use terral_format::ids::{Ino, Owner};
use terral_format::local::geometry::{CHUNK_BYTES, FILE_BYTES_MAX};
use terral_format::local::names::Inode;
use terral_format::local::pages;
use terral_format::local::size::SizeWord;
use terral_format::wire::message::FileRef;
use terral_format::{Error, ErrorKind, Result};

use crate::core::left_out::{Step, does};
use crate::core::state::State;
use crate::debts::owing;
use crate::sessions::clients::session_of;
use crate::storage::{attaching, barring, bringing, charging, eviction, recalling};

/// Takes the append ticket of a file from who has it. What he had appended may have been copied to
/// where nothing of the file is: the new version gets all of it anew.
pub fn revoke_ticket(state: &mut State, file: FileRef, holder: Owner) -> Result<()> {
    let revoked = state.storage.revoke_ticket(&state.sessions, file.slot, holder);
    let version = state.debts.get(file.ino).and_then(|debt| debt.version());
    if let (Some(version), Ok(true) | Err(_)) = (version, &revoked) {
        version.set_incomplete(does(Step::CopyAnew) || version.is_incomplete());
    }
    revoked.map(drop)
}

/// Makes a file `size` bytes long.
pub fn truncate(state: &mut State, ino: Ino, size: u64) -> Result<()> {
    if size > FILE_BYTES_MAX {
        return Err(Error::new(ErrorKind::TooLarge, "size"));
    }
    state.log.reserve()?;
    let slot = attaching::attach(state, ino)?;
    let file = FileRef { ino, slot };
    recalling::bring_within(state, file, size)?;
    state.storage.mend_size(slot);
    if size > state.storage.size(slot) {
        charging::grow(state, ino, size)?;
    }
    let memory = state.storage.memory().clone();
    let header = memory.header(slot);
    let kept = size.min(SizeWord::load(header.size()).size());
    let last = kept / CHUNK_BYTES;
    let absent = memory.entry(slot, last).is_absent();
    if absent && !kept.is_multiple_of(CHUNK_BYTES) && state.storage.is_backed(file, last) {
        bringing::stage(state, file, last, 1)?;
    }
    // Nothing is changed before there is memory for all of it.
    let recall = |state: &mut State| state.storage.recall_to_cut(&state.sessions, slot, kept);
    let held = eviction::with_room(state, recall)?;
    // What is recorded cannot be taken back: it is cut, whatever the log says.
    shorten_backed(state, file, kept);
    let recorded = state.commit();
    // Until here writers may have made it longer: what they wrote counts, unless it is cut off.
    let before = memory.reset_size(slot, size);
    state.storage.drop_placed(slot, size);
    if size == 0 || size > before {
        header.holes().store(size.min(1), Ordering::SeqCst);
    }
    let kept = size.min(before);
    memory.record(slot).backed_bytes().fetch_min(kept, Ordering::SeqCst);
    header.wrote(state.storage.time_ns());
    owing::owe(state, ino);
    let dropped = state.storage.drop_beyond(slot, kept, held);
    charging::settle(state, ino);
    dropped.and(recorded)
}

/// What the backing has beyond `size` does not count any more.
fn shorten_backed(state: &mut State, file: FileRef, size: u64) {
    let FileRef { ino, slot } = file;
    // One with other names keeps them, and is truncated there.
    let alone = |inode: &Inode| inode.published.is_some() && inode.links < 2;
    if size == 0 && state.names.inode(ino).as_ref().is_some_and(alone) {
        state.record(Fact::Rewritten { ino });
    }
    if let Some((version, draining)) =
        state.debts.get(ino).and_then(|debt| Some((debt.version()?, debt.is_draining())))
    {
        version.cut(size);
        if draining {
            // The pass may yet bring what it took before.
            version.set_incomplete(true);
        }
    }
    // Readers are told by who sets the size: until then they find there what it still counts.
    if state.storage.memory().record(slot).backed_bytes().load(Ordering::SeqCst) > size {
        state.record(Fact::BackedTo { ino, size });
    }
}

/// A page being written or an append ticket has not moved for long: takes it from `in_the_way`
/// if that is dead, or sleeps.
pub fn unblock(state: &mut State, file: FileRef, index: u64, in_the_way: Owner) -> Result<()> {
    state.open_file(file)?;
    // Of what is sealed nobody has the ticket.
    if !(state.far.batches.has(file.ino) && state.storage.memory().is_sealed(file.slot)) {
        state.storage.mend_ticket(file.slot);
    }
    state.storage.mend_pages(&state.sessions, file.slot, index);
    let alive = session_of(in_the_way)
        .and_then(|(session, _)| state.sessions.client(session))
        .is_some_and(|client| client.process.is_alive());
    let entry = state.storage.memory().entry(file.slot, index).unrecalled();
    if entry.is_here() {
        let (first, last) = (entry.page().0, entry.page().0 + entry.pages());
        let lanes = state.storage.memory().lanes();
        if !alive {
            state.storage.abandon(first, last, in_the_way);
        } else if pages::holds_some(lanes, first, last, in_the_way) {
            eviction::with_room(state, |state| {
                barring::move_chunk(state, file.slot, index, entry.order())
            })?;
        }
    }
    revoke_ticket(state, file, in_the_way)
}
