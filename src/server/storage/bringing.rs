//! Brings chunks into memory that are only in the permanent store, or in the spill. A reader for
//! whom memory has no room gets his bytes all the same, in the answer: nobody waits for what he
//! only looks at.
//!
//! Not here: new chunks (`granting`), what the spill has (`spill`), and who fetches what is far
//! (`needs`).

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use terral_format::ids::{FileSlot, Ino};
use terral_format::local::geometry::{CHUNK_BYTES, FILE_BYTES_MAX, PAGE_BYTES};
use terral_format::local::names::flag;
use terral_format::wire::message::{EXTENT_MAX, FileRef, Kind, Reply};
use terral_format::{Error, ErrorKind, Result};
use terral_store::backing::Sink;
use terral_store::ram;
use terral_store::sparse::Sparse;
use terral_store::spill::unpack;

use crate::core::state::State;
use crate::debts::ledger::Debt;
use crate::debts::version::SharedVersion;
use crate::needs::asking;
use crate::needs::need::{Fetched, Need, Piece, Slice, Staging};
use crate::storage::granting::GRANT_MAX;
use crate::storage::spill::{jobs, returning};
use crate::storage::{attaching, eviction, recalling};

/// Chunks that are fetched from the backing for one request at a time: 16 MiB.
const FETCHED_MAX: u32 = 8;

/// Brings chunks `first..first + count` of a file from the backing; one that was opened at rest
/// just gets its record.
pub fn stage(state: &mut State, file: FileRef, first: u64, count: u32) -> Result<()> {
    if file.slot == FileSlot::RESTING {
        return attaching::rouse(state, file.ino);
    }
    state.open_file(file)?;
    if first > FILE_BYTES_MAX / CHUNK_BYTES {
        return Err(Error::new(ErrorKind::TooLarge, "offset"));
    }
    let end = first.saturating_add(u64::from(count.clamp(1, GRANT_MAX)));
    let staged = stage_all(state, file, first..first + 1);
    if staged.is_ok() || state.fetches.is_waiting() {
        let _ = eviction::ahead(state, |state| stage_all(state, file, first + 1..end));
    }
    staged
}

/// What a reader of chunk `first` asks for: the chunks `first..first + count`, or, if memory has no
/// room for that one, `bytes` bytes from byte `within` of it on.
///
/// # Errors
/// As [`stage`]; [`ErrorKind::NoSpace`] if no bytes are asked for, or the chunk is in the spill and
/// room for it is just being made.
pub fn for_reader(
    state: &mut State,
    file: FileRef,
    (first, count): (u64, u32),
    (within, bytes): (u32, u32),
) -> Result<Reply> {
    match stage(state, file, first, count) {
        Err(error) if error.kind == ErrorKind::NoSpace && !state.fetches.is_waiting() => {
            extent(state, file, first, (within, bytes), error)
        }
        staged => staged.map(|()| Reply::Done),
    }
}

/// Bytes of a chunk that is not in memory, as it has no room for that: such is the error.
fn extent(
    state: &mut State,
    file: FileRef,
    index: u64,
    (within, bytes): (u32, u32),
    full: Error,
) -> Result<Reply> {
    let within = u64::from(within);
    let bytes = u64::from(bytes.min(EXTENT_MAX)).min(CHUNK_BYTES.saturating_sub(within)) as usize;
    if bytes == 0 || file.slot == FileSlot::RESTING {
        return Err(full);
    }
    let entry = state.storage.memory().entry(file.slot, index).unrecalled();
    let mut there = Vec::new();
    if let Some(place) = entry.place() {
        if jobs::can_spill(state) || eviction::can_drain(state) {
            return Err(full);
        }
        let (from, mut sparse) = (within as usize, Sparse::default());
        let block = returning::read(state, file, index, (entry, place))?;
        if let Some(record) = state.storage.memory().place(place) {
            unpack(record, &block, (from, from + bytes), &mut sparse)?;
        }
        there = sparse.to_vec();
    } else if entry.is_absent() {
        let at = index * CHUNK_BYTES + within;
        let backed = state.storage.backed_bytes(file.slot).saturating_sub(at);
        if backed > 0 {
            there = read_backing(state, file, at, backed.min(bytes as u64) as usize)?.to_vec();
        }
    } else {
        return Ok(Reply::Done);
    }
    // Beyond what the store has lie zeros.
    there.resize(bytes, 0);
    Ok(Reply::Extent(there))
}

/// Brings those of these chunks that are only in the backing, or the spill. Fails as the first
/// that cannot be brought does; of those that must be fetched first, so many at a time.
fn stage_all(state: &mut State, file: FileRef, chunks: Range<u64>) -> Result<()> {
    let (mut fetched, mut late) = (0, None);
    for index in chunks {
        let entry = state.storage.memory().entry(file.slot, index);
        // What is spilled stays the file's when it loses its name.
        let here = entry.is_here() || (entry.place().is_some() && !state.keeping.is_empty());
        if here || (entry.is_absent() && !state.storage.is_backed(file, index)) {
            continue;
        }
        match bring(state, file, index) {
            Ok(()) => {}
            Err(error) if state.fetches.is_waiting() => {
                fetched += 1;
                late = late.or(Some(error));
                if fetched == FETCHED_MAX {
                    break;
                }
            }
            Err(error) => return Err(late.unwrap_or(error)),
        }
    }
    late.map_or(Ok(()), Err)
}

/// A file that is about to lose its name while it is open: what only the backing has of it
/// comes into memory, where its openers go on reading it.
pub fn keep_for_openers(state: &mut State, ino: Ino) -> Result<()> {
    keep_losing(state, ino, 1)?;
    state.keeping.clear();
    Ok(())
}

/// The same for one that loses several at once; it stays there until the request has run.
///
/// # Errors
/// As [`stage`]'s.
pub fn keep_losing(state: &mut State, ino: Ino, names: u32) -> Result<()> {
    let Some(inode) = state.names.inode(ino) else { return Ok(()) };
    let open = state.names.openers(ino).all > 0 && inode.links <= names;
    let slot = match inode.slot {
        // What else it has does not go with its name.
        None if open && inode.kind == Kind::File && inode.backed_bytes > 0 => {
            Some(attaching::attach(state, ino)?)
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
    state.keeping.push(ino);
    // If that fails, this file's own debts are no reason to wait.
    let chunks = 0..backed.div_ceil(CHUNK_BYTES);
    stage_all(state, file, chunks)
}

/// Brings one chunk.
///
/// # Errors
/// [`ErrorKind::NoSpace`] if memory is full; else as the store, or the spill, says.
pub fn bring(state: &mut State, file: FileRef, index: u64) -> Result<()> {
    let entry = state.storage.memory().entry(file.slot, index);
    if entry.place().is_some() {
        return returning::bring(state, file, index);
    }
    if entry.with().is_some() {
        return recalling::bring(state, file, index);
    }
    let at = index * CHUNK_BYTES;
    let bytes = (state.storage.backed_bytes(file.slot) - at).min(CHUNK_BYTES) as usize;
    // Room first: what there is none for is not read.
    eviction::with_room(state, |state| state.storage.find_room(ram::order_of(bytes)))?;
    let bytes = read_backing(state, file, at, bytes)?;
    eviction::with_room(state, |state| state.storage.fill(file.slot, index, &bytes))?;
    state.fetches.brought(file.ino, index);
    Ok(())
}

/// Bytes of a file as the drain left them: in its new version, or under its name. A file that
/// has become shorter there reads as zeros beyond its end.
fn read_backing(state: &mut State, file: FileRef, at: u64, bytes: usize) -> Result<Sparse> {
    let ino = file.ino;
    let gone = || Error::new(ErrorKind::Backing, format!("bytes of file {ino}"));
    let inode = state.names.inode(ino).filter(|_| state.backing.is_some()).ok_or_else(gone)?;
    let new = inode.published.is_none() || inode.is(flag::REWRITTEN);
    // A version for a conflict begins with bytes of the file under its name: read them there.
    if new {
        let version = version_to_read(state, ino)?;
        let epoch = state.storage.memory().size_epoch(file.slot);
        let need = Need::Version(Slice { version, ino, at, bytes, epoch });
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
