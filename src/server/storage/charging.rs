//! How much a file is counted with where quotas are: with the bytes that it is long, holes and all,
//! or may come to be while somebody writes to it, as there are chunks for them. So who has a chunk
//! writes on without asking, and what a quota lets in is decided where chunks are given.
//!
//! Not here: which quota counts (`authority/quotas`), and which files are counted
//! (`naming/charging`).

use terral_format::Result;
use terral_format::ids::{FileSlot, Ino};
use terral_format::local::geometry::{CHUNK_BYTES, PAGE_BYTES};
use terral_format::local::names::Inode;
use terral_format::wire::containers::Used;
use terral_format::wire::message::FileRef;
use terral_format::{Error, ErrorKind};

use crate::core::state::State;

/// What is given ahead of a writer is no more than this part of what is left.
const AHEAD_PART: u64 = 16;

const PAGE: u64 = PAGE_BYTES as u64;

fn end_of(index: u64, order: u8) -> u64 {
    index.saturating_mul(CHUNK_BYTES).saturating_add(PAGE << order)
}

/// The order of a chunk that is given to who needs so many pages of it now: the one that it would
/// have, or just as much as he needs where there is no room for that. What is written over is no
/// more than it was.
///
/// # Errors
/// [`ErrorKind::Quota`].
pub fn fit(state: &State, file: FileRef, index: u64, (order, pages): (u8, u32)) -> Result<u8> {
    let Some(charge) = state.quotas.charge(file.ino) else { return Ok(order) };
    let Some(room) = state.quotas.room(charge.at) else { return Ok(order) };
    let more = |order| end_of(index, order).saturating_sub(charge.bytes);
    // Who waits for no answer has only said what may be of use.
    let ahead = state.ahead || !(state.fetches.may_wait() || state.leaving);
    if more(order) == 0 || more(order) <= if ahead { room / AHEAD_PART } else { room } {
        return Ok(order);
    }
    let least = (pages.max(1).next_power_of_two().trailing_zeros() as u8).min(order);
    let wanted = index.saturating_mul(CHUNK_BYTES).saturating_add(u64::from(pages) * PAGE);
    let is_within = wanted <= state.storage.size(file.slot).next_multiple_of(PAGE);
    if !ahead && (is_within || more(least) <= room) {
        return Ok(least);
    }
    let name = state.quotas.name_of(charge.at);
    Err(Error::new(ErrorKind::Quota, format!("container {name}: {room} bytes are left")))
}

/// A file has a chunk of this order now.
pub fn has(state: &mut State, ino: Ino, index: u64, order: u8) {
    if let Some(charge) = state.quotas.charge(ino) {
        state.quotas.set(ino, charge.bytes.max(end_of(index, order)));
    }
}

/// A file is about to be so long, or may come to be.
///
/// # Errors
/// [`ErrorKind::Quota`].
pub fn grow(state: &mut State, ino: Ino, to: u64) -> Result<()> {
    let Some(charge) = state.quotas.charge(ino).filter(|charge| charge.bytes < to) else {
        return Ok(());
    };
    let more = Used { bytes: to - charge.bytes, files: 0 };
    state.quotas.permit_more(Some(charge.at), more)?;
    state.quotas.set(ino, to);
    Ok(())
}

/// How much a file is to be counted with.
pub fn measured(state: &State, inode: &Inode) -> u64 {
    let size = state.attributes(inode.ino).map_or(0, |attributes| attributes.size);
    match inode.slot.filter(|_| state.is_written(inode.ino)) {
        Some(slot) => size.max(held(state, slot, size)),
        None => size,
    }
}

/// Where the chunks end that a file has from its end on.
fn held(state: &State, slot: FileSlot, size: u64) -> u64 {
    let memory = state.storage.memory();
    let first = size.saturating_sub(1) / CHUNK_BYTES;
    let entries = (first..).map(|index| (index, memory.entry(slot, index)));
    let here = entries.take_while(|(_, entry)| !entry.is_absent());
    here.last().map_or(0, |(index, entry)| end_of(index, entry.order()))
}

/// A file may need less than it is counted with, or is written by more.
pub fn settle(state: &mut State, ino: Ino) {
    if state.quotas.charge(ino).is_some()
        && let Some(inode) = state.names.inode(ino)
    {
        let bytes = measured(state, &inode);
        state.quotas.set(ino, bytes);
    }
}
