//! The storage role: gives files their records, chunks to writers, and bytes of the backing to
//! readers, or those of the spill. Taking back is `reclaim`'s.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use terral_format::disk::local::Local;
use terral_format::ids::{FileSlot, Ino, SessionSlot};
use terral_format::local::entry::MapEntry;
use terral_format::local::geometry::{
    CHUNK_BYTES, CHUNK_ORDER, CHUNK_PAGES, FILE_BYTES_MAX, PAGE_BYTES,
};
use terral_format::local::names::{Inode, flag};
use terral_format::wire::message::{FileRef, Kind};
use terral_format::{Error, ErrorKind, Result};
use terral_store::backing::Sink;
use terral_store::ram::Start;

use crate::core::state::State;
use crate::debts::ledger::Debt;
use crate::debts::owing;
use crate::debts::policy::Event;
use crate::debts::version::SharedVersion;
use crate::needs::asking;
use crate::needs::fetching::{Fetched, Need, Piece, Slice, Staging};
use crate::storage::eviction::has_arrived;
use crate::storage::{barring, closed, eviction, overflow};

/// Most chunks of one grant: 64 MiB.
const GRANT_MAX: u32 = 32;
/// log2 of the pages of a new file's first chunk, until it outgrows it, and of its next one.
pub(crate) const SMALL_ORDERS: [u8; 2] = [2, 4];
/// Chunks that are fetched from the backing for one request at a time: 16 MiB.
const FETCHED_MAX: u32 = 8;
/// Records taken back at a time when they run out.
const RECYCLED: usize = 4096;

/// The order of a chunk for a file that needs so many pages of it now.
fn order_for(pages: u32) -> u8 {
    SMALL_ORDERS.into_iter().find(|order| pages <= 1 << order).unwrap_or(CHUNK_ORDER)
}

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
    if let Err(error) = unpack(state, &inode, slot) {
        state.storage.detach(slot);
        return Err(error);
    }
    state.record(Local::Attached { ino, slot });
    Ok(slot)
}

/// Brings the bytes of a packed file into its new record.
pub fn unpack(state: &mut State, inode: &Inode, slot: FileSlot) -> Result<()> {
    let Some(bytes) = state.storage.packed_bytes(inode)? else { return Ok(()) };
    eviction::with_room(state, |state| state.storage.fill(slot, 0, &bytes))?;
    state.storage.unpacked(inode);
    Ok(())
}

/// Gives a file that somebody has opened at rest its record. His open may wait, as all that is
/// about a file whose name cannot go just now does.
fn rouse(state: &mut State, ino: Ino) -> Result<()> {
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
    if !state.names.is_written(state.open_file(file)?.ino) {
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
    if (first + 1..first + u64::from(count)).any(|index| act(state, index).is_err()) {
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
    let is_elsewhere = entry.is_absent() && state.storage.is_backed(file, index);
    if is_elsewhere || entry.place().is_some() {
        stage_one(state, file, index)?;
        entry = state.storage.memory().entry(file.slot, index).unrecalled();
    }
    if entry.place().is_some() {
        return Err(Error::new(ErrorKind::NoSpace, "memory tier"));
    }
    if entry.is_absent() {
        let new = index == 0 && state.storage.size(file.slot) == 0;
        let order = if new { order_for(pages) } else { CHUNK_ORDER };
        if let Some(client) = state.sessions.client_mut(session) {
            client.writes_small |= order < CHUNK_ORDER;
        }
        let entry = chunk_for(state, session, order)?;
        state.storage.install(file.slot, index, entry)?;
    } else if pages > entry.pages() {
        eviction::with_room(state, |state| {
            barring::move_chunk(state, file.slot, index, order_for(pages))
        })?;
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

fn chunk_for(state: &mut State, session: SessionSlot, order: u8) -> Result<MapEntry> {
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

/// Brings chunks `first..first + count` of a file from the backing; one that was opened at rest
/// just gets its record.
pub fn stage(state: &mut State, file: FileRef, first: u64, count: u32) -> Result<()> {
    if file.slot == FileSlot::RESTING {
        return rouse(state, file.ino);
    }
    state.open_file(file)?;
    if first > FILE_BYTES_MAX / CHUNK_BYTES {
        return Err(Error::new(ErrorKind::TooLarge, "offset"));
    }
    let end = first.saturating_add(u64::from(count.clamp(1, GRANT_MAX)));
    stage_all(state, file, first..end).or_else(|(index, error)| match index == first {
        true => Err(error),
        false => Ok(()),
    })
}

/// Brings those of these chunks that are only in the backing, or the spill. Fails with the
/// first that cannot be brought; of those that must be fetched first, so many at a time.
fn stage_all(
    state: &mut State,
    file: FileRef,
    chunks: Range<u64>,
) -> std::result::Result<(), (u64, Error)> {
    let (mut fetched, mut late) = (0, None);
    for index in chunks {
        let entry = state.storage.memory().entry(file.slot, index);
        // What is spilled stays the file's when it loses its name.
        let here = entry.is_here() || (entry.place().is_some() && state.keeping.is_some());
        if here || (entry.is_absent() && !state.storage.is_backed(file, index)) {
            continue;
        }
        match stage_one(state, file, index) {
            Ok(()) => {}
            Err(error) if state.fetches.is_waiting() => {
                fetched += 1;
                late = late.or(Some((index, error)));
                if fetched == FETCHED_MAX {
                    break;
                }
            }
            Err(error) => return Err(late.unwrap_or((index, error))),
        }
    }
    late.map_or(Ok(()), Err)
}

/// A file that is about to lose its name while it is open: what only the backing has of it
/// comes into memory, where its openers go on reading it.
pub fn keep_for_openers(state: &mut State, ino: Ino) -> Result<()> {
    let Some(inode) = state.names.inode(ino) else { return Ok(()) };
    let open = state.names.openers(ino).all > 0 && inode.links < 2;
    let slot = match inode.slot {
        // What else it has does not go with its name.
        None if open && inode.kind == Kind::File && inode.backed_bytes > 0 => {
            Some(attach(state, ino)?)
        }
        slot => slot,
    };
    let (Some(slot), true) = (slot, open) else { return Ok(()) };
    let file = FileRef { ino, slot };
    let backed = state.storage.memory().record(slot).backed_bytes().load(Ordering::SeqCst);
    let bound = u64::from(state.began.geometry.arena_pages()) * PAGE_BYTES as u64;
    if backed.next_multiple_of(CHUNK_BYTES) > bound {
        // Of no kind that waits for the drain: there will never be room.
        let mut error = Error::new(ErrorKind::System, "an open file larger than memory");
        error.errno = ErrorKind::NoSpace.to_errno();
        return Err(error);
    }
    state.keeping = Some(ino);
    // If that fails, this file's own debts are no reason to wait.
    let chunks = 0..backed.div_ceil(CHUNK_BYTES);
    stage_all(state, file, chunks).map_err(|(_, error)| error)?;
    state.keeping = None;
    Ok(())
}

fn stage_one(state: &mut State, file: FileRef, index: u64) -> Result<()> {
    if state.storage.memory().entry(file.slot, index).place().is_some() {
        return overflow::bring(state, file, index);
    }
    let at = index * CHUNK_BYTES;
    let bytes = (state.storage.backed_bytes(file.slot) - at).min(CHUNK_BYTES) as usize;
    let bytes = read_backing(state, file, at, bytes)?;
    eviction::with_room(state, |state| state.storage.fill(file.slot, index, &bytes))
}

/// Bytes of a file as the drain left them: in its new version, or under its name. A file that
/// has become shorter there reads as zeros beyond its end.
fn read_backing(state: &mut State, file: FileRef, at: u64, bytes: usize) -> Result<Vec<u8>> {
    let ino = file.ino;
    let gone = || Error::new(ErrorKind::Backing, format!("bytes of file {ino}"));
    let inode = state.names.inode(ino).filter(|_| state.backing.is_some()).ok_or_else(gone)?;
    let new = inode.published.is_none() || inode.is(flag::REWRITTEN);
    // A version for a conflict begins with bytes of the file under its name: read them there.
    if new {
        let version = version_to_read(state, ino)?;
        let epoch = state.storage.memory().size_epoch(file.slot);
        let need = Need::Version(Slice { version, at, bytes, epoch });
        return match asking::fetch(state, need)? {
            Fetched::Bytes(bytes) => bytes,
            _ => Err(gone()),
        };
    }
    let path = state.names.backing_path(&state.names.path(ino).ok_or_else(gone)?);
    let (published, epoch) = (inode.published, state.storage.memory().size_epoch(file.slot));
    let piece = Piece { path, ino, at, bytes, published, epoch };
    match asking::fetch(state, Need::Bytes(piece))? {
        Fetched::Bytes(bytes) => bytes,
        _ => Err(gone()),
    }
}

/// A file's new version, which has what was evicted of it.
fn version_to_read(state: &mut State, ino: Ino) -> Result<SharedVersion> {
    let debt = state.debts.get(ino);
    let publishing = debt.is_some_and(Debt::is_publishing);
    if publishing || state.names.publishing().contains_key(&ino) {
        return Err(asking::wait_until_settled(state));
    }
    if let Some(version) = debt.and_then(|debt| debt.version().cloned()) {
        return Ok(version);
    }
    // Staged by a server process before us.
    let gone = || Error::new(ErrorKind::Backing, format!("bytes of file {ino}"));
    let sink: Arc<dyn Sink> = state.backing.clone().ok_or_else(gone)?;
    let staging = Staging { sink, ino, instance: state.began.instance };
    let Fetched::Opened(opened) = asking::fetch(state, Need::Open(staging))? else {
        return Err(gone());
    };
    let (version, resumed) = opened?;
    state.debts.owe(ino, state.world.now());
    let version = state.debts.begin_version(ino, version);
    if resumed { Ok(version) } else { Err(gone()) }
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
    let entry = state.storage.take_first(SMALL_ORDERS[0], state.sessions.near(session))?;
    state.storage.install(file.slot, 0, entry)
}
