//! Chunks in programs' address spaces: makes them fit to be mapped, tells who has them mapped, and
//! counts as written what was stored there.
//!
//! Invariants: a chunk that is mapped keeps its place while its file has it; only a recalled chunk
//! changes its flags (docs/decisions/2026-11-21-memory-maps.md). Not here: the mapping itself.

use terral_format::ids::{Ino, SessionSlot};
use terral_format::local::geometry::{CHUNK_BYTES, CHUNK_ORDER, CHUNK_PAGES, FILE_BYTES_MAX};
use terral_format::wire::message::FileRef;
use terral_format::{Error, ErrorKind, Result};

use crate::core::state::State;
use crate::debts::owing;
use crate::storage::{Fit, barring, charging, eviction, granting};

/// Most chunks of one request: 16 MiB.
const MAP_MAX: u32 = 8;
/// `ENODEV`.
const ENODEV: i32 = 19;

/// Makes chunks `first..first + count` of a file fit to be mapped.
///
/// # Errors
/// If not even the first can be: [`ErrorKind::NoSpace`] if memory is full,
/// [`ErrorKind::WouldBlock`] if somebody has been stopped while writing to it.
pub fn map(
    state: &mut State,
    session: SessionSlot,
    file: FileRef,
    first: u64,
    count: u32,
    stores: bool,
) -> Result<()> {
    let ino = state.open_file(file)?.ino;
    if stores && !state.names.is_written(ino) {
        return Err(Error::new(ErrorKind::BadHandle, format!("file {ino}")));
    }
    if first > FILE_BYTES_MAX / CHUNK_BYTES {
        return Err(Error::new(ErrorKind::TooLarge, "offset"));
    }
    if stores {
        permit_storing(state, ino)?;
        owing::owe(state, ino);
    }
    granting::for_chunks(state, (first, count.clamp(1, MAP_MAX)), |state, index| {
        map_one(state, session, file, index, stores)
    })
}

/// What is stored through a map nobody can look at: a fenced file is not mapped so.
///
/// # Errors
/// `ENODEV`.
pub fn permit_storing(state: &State, ino: Ino) -> Result<()> {
    match state.fences.fence(ino) {
        0 => Ok(()),
        _ => {
            let context = format!("a shared map of file {ino}, which is fenced");
            Err(Error { errno: ENODEV, ..Error::new(ErrorKind::Unsupported, context) })
        }
    }
}

fn map_one(
    state: &mut State,
    session: SessionSlot,
    file: FileRef,
    index: u64,
    stores: bool,
) -> Result<()> {
    let FileRef { slot, .. } = file;
    let found = state.storage.memory().entry(slot, index);
    if !found.is_here() || found.order() < CHUNK_ORDER {
        // Nothing gets longer by being mapped.
        charging::has(state, file.ino, index, CHUNK_ORDER);
        granting::grant_one(state, session, file, index, CHUNK_PAGES)?;
    }
    match state.storage.make_mappable(&state.sessions, (slot, index), stores)? {
        Fit::Done => Ok(()),
        // It may be mapped already, and must stay where it is.
        Fit::Held { mapped: true } => {
            Err(Error::new(ErrorKind::WouldBlock, "a stopped process writes there"))
        }
        Fit::Held { mapped: false } => {
            eviction::with_room(state, |state| {
                barring::move_chunk(state, slot, index, CHUNK_ORDER)
            })?;
            map_one(state, session, file, index, stores)
        }
    }
}
