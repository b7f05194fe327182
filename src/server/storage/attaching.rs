//! Gives files their records, and a packed file's bytes their chunk. Not here: chunks for writers
//! (`granting`), and when a record is given up (`closed`).

use std::sync::atomic::Ordering;

use terral_format::disk::local::Local;
use terral_format::ids::{FileSlot, Ino};
use terral_format::local::names::{Inode, flag};
use terral_format::wire::message::Kind;
use terral_format::{Error, ErrorKind, Result};
use terral_store::ram::Start;

use crate::core::state::State;
use crate::storage::eviction::has_arrived;
use crate::storage::{closed, eviction};

/// Records taken back at a time when they run out.
const RECYCLED: usize = 4096;

/// Gives a file its record, if it has none.
pub fn attach(state: &mut State, ino: Ino) -> Result<FileSlot> {
    let missing = || Error::new(ErrorKind::NotFound, format!("file {ino}"));
    let inode = state.names.inode(ino).ok_or_else(missing)?;
    if let Some(slot) = inode.slot {
        return Ok(slot);
    }
    let start = Start {
        size: inode.size,
        modified_ns: inode.modified_ns,
        accessed_ns: inode.accessed_ns,
        backed_bytes: inode.backed_bytes,
    };
    let slot = match state.storage.attach(ino, start) {
        Err(error) if error.kind == ErrorKind::TooMany => {
            recycle_records(state)?;
            state.storage.attach(ino, start)?
        }
        attached => attached?,
    };
    // Nobody else knows of the record yet.
    state.storage.memory().header(slot).fence().store(state.fences.fence(ino), Ordering::SeqCst);
    if let Err(error) = unpack(state, &inode, slot) {
        state.storage.detach(slot);
        return Err(error);
    }
    state.record(Local::Attached { ino, slot });
    Ok(slot)
}

/// Brings the bytes of a packed file into its new record.
fn unpack(state: &mut State, inode: &Inode, slot: FileSlot) -> Result<()> {
    let Some(bytes) = state.storage.packed_bytes(inode)? else { return Ok(()) };
    let bytes = bytes.into();
    eviction::with_room(state, |state| state.storage.fill(slot, 0, &bytes))?;
    state.storage.unpacked(inode);
    Ok(())
}

/// Gives a file that somebody has opened at rest its record. His open may wait, as all that is
/// about a file whose name cannot go just now does.
pub(super) fn rouse(state: &mut State, ino: Ino) -> Result<()> {
    let missing = || Error::new(ErrorKind::BadHandle, format!("file {ino}"));
    state.names.inode(ino).filter(|inode| inode.kind == Kind::File).ok_or_else(missing)?;
    state.log.reserve()?;
    attach(state, ino)?;
    if state.names.openers(ino).all == 0 { closed::linger(state, ino) } else { Ok(()) }
}

/// Takes the records of some closed files that the backing has as they are.
fn recycle_records(state: &mut State) -> Result<()> {
    let idle = |inode: &Inode| {
        let closed = state.names.openers(inode.ino).all == 0;
        let named = inode.is(flag::NAMED) && state.debts.get(inode.ino).is_none();
        inode.slot.is_some() && closed && named && has_arrived(inode)
    };
    let files = state.names.inodes().filter(idle);
    let files: Vec<Ino> = files.map(|inode| inode.ino).take(RECYCLED).collect();
    for ino in files {
        let Some(slot) = state.names.inode(ino).and_then(|inode| inode.slot) else { continue };
        for (index, _) in state.storage.entries(slot) {
            eviction::evict(state, ino, slot, index);
        }
        if state.storage.entries(slot).is_empty() {
            closed::detach(state, ino);
        }
    }
    state.commit()
}
