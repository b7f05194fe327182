//! Gives chunks to writers. Not here: the bytes that are in them already (`bringing`), and taking
//! back (`reclaim`).

use terral_format::ids::SessionSlot;
use terral_format::local::entry::MapEntry;
use terral_format::local::geometry::{
    CHUNK_BYTES, CHUNK_ORDER, CHUNK_PAGES, FILE_BYTES_MAX, PAGE_BYTES,
};
use terral_format::wire::message::FileRef;
use terral_format::{Error, ErrorKind, Result};

use crate::core::state::State;
use crate::debts::owing;
use crate::debts::policy::Event;
use crate::storage::{barring, bringing, charging, eviction};

/// Most chunks of one grant: 64 MiB.
pub(super) const GRANT_MAX: u32 = 32;
/// log2 of the pages of a new file's first chunk, until it outgrows it, and of its next one.
pub(crate) const SMALL_ORDERS: [u8; 2] = [2, 4];

/// The order of a chunk for a file that needs so many pages of it now.
pub(super) fn order_for(pages: u32) -> u8 {
    SMALL_ORDERS.into_iter().find(|order| pages <= 1 << order).unwrap_or(CHUNK_ORDER)
}

/// Gives chunks `first..first + count` of a file to a writer who needs `pages` pages of the
/// first one now.
///
/// # Errors
/// [`ErrorKind::NoSpace`] if not even the first can be had now.
pub fn grant(
    state: &mut State,
    session: SessionSlot,
    file: FileRef,
    (first, count): (u64, u32),
    pages: u32,
) -> Result<()> {
    let ino = state.open_file(file)?.ino;
    if !state.takes_writes(ino) {
        // Asked ahead by a writer that has closed since.
        return Err(Error::new(ErrorKind::BadHandle, format!("file {}", file.ino)));
    }
    if first.checked_mul(CHUNK_BYTES).is_none_or(|at| at > FILE_BYTES_MAX) {
        return Err(Error::new(ErrorKind::TooLarge, "offset"));
    }
    owing::owe(state, file.ino);
    state.debts.happened(file.ino, Event::Grown(first * CHUNK_BYTES), state.world.now());
    for_chunks(state, (first, count.clamp(1, GRANT_MAX)), |state, index| {
        let pages = if index == first { pages } else { CHUNK_PAGES };
        grant_one(state, session, file, index, pages)
    })
}

/// Does this with so many chunks from `first` on, as far as it can be done now. Who asks needs the
/// first of them: he waits for that, and not for those after it.
pub fn for_chunks(
    state: &mut State,
    (first, count): (u64, u32),
    act: impl Fn(&mut State, u64) -> Result<()>,
) -> Result<()> {
    act(state, first)?;
    let mut rest = first + 1..first + u64::from(count);
    if eviction::ahead(state, |state| rest.any(|index| act(state, index).is_err())) {
        state.fetches.need_not_wait();
    }
    Ok(())
}

pub fn grant_one(
    state: &mut State,
    session: SessionSlot,
    file: FileRef,
    index: u64,
    pages: u32,
) -> Result<()> {
    let mut entry = state.storage.memory().entry(file.slot, index).unrecalled();
    if state.ahead && entry.with().is_some() {
        // Who writes on this machine may never come there.
        return Err(Error::new(ErrorKind::Busy, "another machine has it"));
    }
    let is_elsewhere = entry.is_absent() && state.storage.is_backed(file, index);
    if is_elsewhere || !(entry.is_here() || entry.is_absent()) {
        bringing::bring(state, file, index)?;
        entry = state.storage.memory().entry(file.slot, index).unrecalled();
    }
    if !(entry.is_here() || entry.is_absent()) {
        return Err(Error::new(ErrorKind::NoSpace, "memory tier"));
    }
    if entry.is_absent() {
        let new = index == 0 && state.storage.size(file.slot) == 0;
        let order = if new { order_for(pages) } else { CHUNK_ORDER };
        let order = charging::fit(state, file, index, (order, pages))?;
        if let Some(client) = state.sessions.client_mut(session) {
            client.writes_small |= order < CHUNK_ORDER;
        }
        let entry = chunk_for(state, session, order)?;
        state.storage.install(file.slot, index, entry)?;
        charging::has(state, file.ino, index, order);
    } else if pages > entry.pages() {
        let order = charging::fit(state, file, index, (order_for(pages), pages))?;
        eviction::with_room(state, |state| barring::move_chunk(state, file.slot, index, order))?;
        charging::has(state, file.ino, index, order);
        // To make room, the chunk itself may have gone, if it was just brought.
        let moved = state.storage.memory().entry(file.slot, index);
        if !moved.is_here() || moved.pages() < pages {
            return Err(Error::new(ErrorKind::NoSpace, "memory tier"));
        }
    } else {
        state.storage.unrecall(file.slot, index, entry);
    }
    Ok(())
}

pub(super) fn chunk_for(state: &mut State, session: SessionSlot, order: u8) -> Result<MapEntry> {
    let near = state.sessions.near(session);
    let (entry, segment) =
        eviction::with_room(state, |state| state.storage.take_chunk(order, near))?;
    if let Some(client) = state.sessions.client_mut(session) {
        client.near = Some(segment);
    }
    Ok(entry)
}

/// A chunk that is marked as borrowed is this machine's own from now on. Gives its entry.
pub fn own(state: &mut State, file: FileRef, index: u64) -> Result<MapEntry> {
    state.open_file(file)?;
    Ok(state.storage.own(file.slot, index))
}

/// Gives an empty file that is open for writing its first chunk.
pub fn install_first(state: &mut State, session: SessionSlot, file: FileRef) {
    if state.storage.size(file.slot) == 0 && !state.storage.is_backed(file, 0) {
        // Without it, the first write asks.
        let _ = install_small(state, session, file);
    }
}

/// Gives a file of which nothing is there its first chunk, for little.
pub fn install_small(state: &mut State, session: SessionSlot, file: FileRef) -> Result<()> {
    if !state.storage.memory().entry(file.slot, 0).is_absent() {
        return Ok(());
    }
    charging::grow(state, file.ino, (PAGE_BYTES as u64) << SMALL_ORDERS[0])?;
    let entry = state.storage.take_first(SMALL_ORDERS[0], state.sessions.near(session))?;
    state.storage.install(file.slot, 0, entry)
}
