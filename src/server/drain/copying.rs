//! The drain's copying: bytes of one file to the backing, read back and compared, without the
//! server's lock. What becomes of the copy is in `turns`.

use std::sync::atomic::Ordering;

use terral_format::disk::local::Local;
use terral_format::fingerprint::Fingerprint;
use terral_format::ids::{FileSlot, Ino};
use terral_format::local::geometry::CHUNK_BYTES;
use terral_format::local::size::SizeWord;
use terral_format::wire::message::Attributes;
use terral_format::{Error, ErrorKind, Result};
use terral_store::backing::{RandomAccess, Sink, Source};
use terral_store::memory::Memory;
use terral_store::ram;
use terral_store::sparse::{Piece, Sparse};
use terral_store::tier::{self, Snapshot, Want};

use crate::core::paths::shown;
use crate::core::state::State;
use crate::debts::version::{SharedVersion, Version};
use crate::naming::xattr_requests;
use crate::shared::Shared;

/// Progress is shown at least after this many bytes.
const SHOW_BYTES: u64 = 32 << 20;

/// One pass over one file.
pub(crate) struct FileJob {
    pub(crate) ino: Ino,
    pub(crate) slot: FileSlot,
    pub(crate) way: Way,
    pub(crate) want: Want,
}

/// How a file gets to the backing.
pub(crate) enum Way {
    /// As a whole new version; bytes that are not in memory come from the old one at this path.
    Whole { old: Option<Vec<u8>> },
    /// By changing the published file in place.
    InPlace { path: Vec<u8>, expect: Fingerprint, resumes: bool },
}

/// What a pass did.
#[derive(Default)]
pub(crate) struct Pass {
    pub(crate) bytes: u64,
    pub(crate) verified_bytes: u64,
    /// All of the new version was read back and compared.
    pub(crate) verified: bool,
    pub(crate) version: Option<SharedVersion>,
    /// Of the file's size when the pass began.
    pub(crate) epoch: u16,
    pub(crate) finished: Option<(Fingerprint, u64)>,
    /// Chunks with pages that were marked as being written.
    pub(crate) written: Vec<u64>,
}

/// The epoch of a file's size, and what the backing has of the file then. A truncate, under the
/// same lock, changes both.
fn begin(shared: &Shared, slot: FileSlot) -> (u16, u64) {
    let _state = shared.lock();
    let backed = shared.memory.record(slot).backed_bytes().load(Ordering::SeqCst);
    (shared.memory.size_epoch(slot), backed)
}

/// Copies what `job` says, without the server's lock.
pub(crate) fn copy(
    shared: &Shared,
    source: &dyn Source,
    sink: &dyn Sink,
    job: &FileJob,
) -> Result<Pass> {
    match &job.way {
        Way::Whole { old } => copy_whole(shared, (source, sink), job, old.as_deref()),
        Way::InPlace { path, expect, resumes } => {
            copy_in_place(shared, sink, job, path, *expect, *resumes)
        }
    }
}

/// The new version to copy into, and what to copy.
fn version_of(
    shared: &Shared,
    sink: &dyn Sink,
    job: &FileJob,
    backed: u64,
) -> Result<(SharedVersion, Want)> {
    let known = shared.lock().debts.get(job.ino).and_then(|debt| debt.version().cloned());
    let version = match known {
        Some(version) => version,
        None => {
            let instance = shared.lock().began.instance;
            let (version, resumed) = Version::open(sink, job.ino, instance)?;
            if !resumed {
                say_lost(shared, job, backed);
            }
            shared.lock().debts.begin_version(job.ino, version)
        }
    };
    version.begin_pass()?;
    let mut want = job.want;
    if version.is_incomplete() {
        // What was evicted is only there, below `backed`, and stays; all else is copied, so that no
        // hole shows what was there before a truncate.
        let mut copied = version.copied();
        copied.staged()?.truncate(backed)?;
        copied.sums.clear();
        want = Want::Whole;
    }
    Ok((version, want))
}

/// Says so if bytes that were only in a version which somebody has removed are zeros now.
fn say_lost(shared: &Shared, job: &FileJob, backed: u64) {
    let absent = |index| shared.memory.entry(job.slot, index).is_absent();
    let lost = (0..backed.div_ceil(CHUNK_BYTES)).any(absent);
    if matches!(job.way, Way::Whole { old: None }) && lost {
        let mut state = shared.lock();
        let path = state.names.path(job.ino).unwrap_or_default();
        let what = "its bytes that were only in .terral were removed there: zeros now";
        state.debts.progress().conflict(format!("{}: {what}", shown(&path)));
    }
}

/// What is to be replaced has attributes that nobody has asked for yet: they go along.
fn keep_attributes(shared: &Shared, source: &dyn Source, ino: Ino, old: &[u8]) -> Result<()> {
    if shared.lock().xattrs.of(ino).is_some() {
        return Ok(());
    }
    let found = match source.xattrs(old) {
        Err(error) if [ErrorKind::Unsupported, ErrorKind::NotFound].contains(&error.kind) => {
            return Ok(());
        }
        found => found?,
    };
    let mut state = shared.lock();
    if state.xattrs.of(ino).is_some() || state.names.inode(ino).is_none() {
        return Ok(());
    }
    xattr_requests::note_xattrs(&mut state, ino, found)?;
    state.commit()
}

fn copy_whole(
    shared: &Shared,
    (source, sink): (&dyn Source, &dyn Sink),
    job: &FileJob,
    old: Option<&[u8]>,
) -> Result<Pass> {
    let memory = &shared.memory;
    let (epoch, backed) = begin(shared, job.slot);
    let (version, want) = version_of(shared, sink, job, backed)?;
    if let Some(old) = old {
        keep_attributes(shared, source, job.ino, old)?;
        copy_absent(shared, source, job, (old, backed), &version)?;
    }
    let mut pass = Pass::default();
    let mut buffer = Sparse::default();
    for (index, _) in ram::entries(memory, job.slot) {
        if tier::is_written(memory, job.slot, index) {
            pass.written.push(index);
        }
        let taken = tier::take(memory, job.slot, index, want, &mut buffer)?;
        let Some(snapshot) = taken else { continue };
        let mut copied = version.copied();
        let sum = snapshot.sum();
        let put = copied.staged().and_then(|staged| {
            put_chunk(&mut **staged, &snapshot, index)?;
            // No hole shows what was staged before.
            let (end, next) = (index * CHUNK_BYTES + sum.1, (index + 1) * CHUNK_BYTES);
            let old_end = if want == Want::Whole { backed.min(next) } else { 0 };
            if end < old_end { staged.clear(end, old_end - end) } else { Ok(()) }
        });
        if let Err(error) = put {
            tier::give_back(memory, job.slot, index);
            return Err(error);
        }
        pass.bytes += copied_bytes(memory, job.slot, snapshot.pieces(index));
        copied.sums.insert(index, sum);
        drop(copied);
        show(shared, &mut pass);
    }
    // A truncate in between may have been overtaken by what we copied: all over again.
    let steady = memory.size_epoch(job.slot) == epoch;
    version.set_incomplete(!steady);
    if steady && may_publish(shared, job.ino) {
        pass.verified_bytes = verify(memory, job.slot, &version)?;
        pass.verified = true;
    }
    pass.epoch = epoch;
    pass.version = Some(version);
    Ok(pass)
}

fn put(file: &mut (impl RandomAccess + ?Sized), offset: u64, piece: Piece<'_>) -> Result<()> {
    match piece {
        Piece::Bytes(bytes) => file.write(offset, bytes),
        Piece::Zeros(bytes) => file.clear(offset, bytes as u64),
    }
}

/// What must be copied of a chunk.
fn put_chunk(
    file: &mut (impl RandomAccess + ?Sized),
    snapshot: &Snapshot<'_>,
    index: u64,
) -> Result<()> {
    snapshot.pieces(index).try_for_each(|(offset, piece)| put(file, offset, piece))
}

/// Whether that is read back.
fn is_there(
    file: &mut (impl RandomAccess + ?Sized),
    offset: u64,
    piece: Piece<'_>,
    check: &mut Sparse,
) -> Result<bool> {
    file.read_sparse(offset, piece.bytes(), check)?;
    Ok(check.is(piece))
}

/// How many bytes of the file that was. Zeros that nobody wrote are made, not copied.
fn copied_bytes<'b>(
    memory: &Memory,
    slot: FileSlot,
    pieces: impl Iterator<Item = (u64, Piece<'b>)>,
) -> u64 {
    let bytes = |(offset, piece)| match piece {
        Piece::Bytes(bytes) => counted(memory, slot, offset, bytes.len()),
        Piece::Zeros(_) => 0,
    };
    pieces.map(bytes).sum()
}

/// How many of `length` bytes at `offset` are the file's: whole pages are copied.
fn counted(memory: &Memory, slot: FileSlot, offset: u64, length: usize) -> u64 {
    let size = SizeWord::load(memory.header(slot).size()).size();
    size.saturating_sub(offset).min(length as u64)
}

/// Bytes of the old version, of which `backed` count, that are not in memory become part of the new
/// one.
fn copy_absent(
    shared: &Shared,
    source: &dyn Source,
    job: &FileJob,
    (old, backed): (&[u8], u64),
    version: &Version,
) -> Result<()> {
    let absent = |index: &u64| shared.memory.entry(job.slot, *index).is_absent();
    let mut bytes = Sparse::default();
    for index in (0..backed.div_ceil(CHUNK_BYTES)).filter(absent) {
        let at = index * CHUNK_BYTES;
        let count = (backed - at).min(CHUNK_BYTES) as usize;
        match source.read_sparse(old, at, count, &mut bytes) {
            Ok(()) => {
                let mut copied = version.copied();
                for (offset, piece) in bytes.pieces(0, bytes.bytes()) {
                    put(&mut **copied.staged()?, at + offset as u64, piece)?;
                }
            }
            Err(error) if error.kind == ErrorKind::NotFound => {
                // Nobody can bring them back; what is here is not to wait for that.
                let what = "removed there meanwhile, with bytes that were only there: zeros now";
                shared.lock().debts.progress().conflict(format!("{}: {what}", shown(old)));
                return Ok(());
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads the new version back and compares. A chunk that differs is owed again.
fn verify(memory: &Memory, slot: FileSlot, version: &Version) -> Result<u64> {
    let sums: Vec<_> = version.copied().sums.iter().map(|(index, sum)| (*index, *sum)).collect();
    let (mut read, mut bytes) = (Sparse::default(), 0);
    for (index, (sum, length)) in sums {
        // Not for longer than a chunk takes: readers may be waiting for it.
        let mut copied = version.copied();
        if copied.sums.get(&index) != Some(&(sum, length)) {
            continue;
        }
        // Beyond its end a version has zeros, until it gets its length.
        copied.staged()?.read_sparse(index * CHUNK_BYTES, length as usize, &mut read)?;
        drop(copied);
        if read.sum() != sum {
            tier::give_back(memory, slot, index);
            // What is in memory is copied anew, holes too; what is only there stays in doubt.
            let backed = memory.record(slot).backed_bytes().load(Ordering::SeqCst);
            let is_here = !memory.entry(slot, index).is_absent();
            if is_here || index * CHUNK_BYTES >= backed {
                version.set_incomplete(true);
            }
            let context = format!("chunk {index} read back from the permanent store");
            return Err(Error::new(ErrorKind::Corrupt, context));
        }
        bytes += counted(memory, slot, index * CHUNK_BYTES, length as usize);
    }
    Ok(bytes)
}

fn copy_in_place(
    shared: &Shared,
    sink: &dyn Sink,
    job: &FileJob,
    path: &[u8],
    expect: Fingerprint,
    resumes: bool,
) -> Result<Pass> {
    let memory = &shared.memory;
    // A truncate since the last pass has taken bytes away that must not come back when it grows.
    let (epoch, backed) = begin(shared, job.slot);
    let kept = backed.min(expect.size());
    owe_beyond(memory, job.slot, kept);
    let mut update =
        if resumes { sink.resume_update(path, expect) } else { sink.update(path, expect) }?;
    {
        let mut state = shared.lock();
        // Bytes of the backing's copy change under the one that is to replace it, too.
        let replacement = state.names.replacement(job.ino);
        for ino in [Some(job.ino), replacement].into_iter().flatten() {
            state.record(Local::Intent { ino });
        }
        state.commit()?;
    }
    if kept < expect.size() || resumes {
        // A pass that did not come to its end may have been further already.
        update.truncate(kept)?;
    }
    let mut pass = Pass { epoch, ..Pass::default() };
    let (mut buffer, mut check) = (Sparse::default(), Sparse::default());
    for (index, _) in ram::entries(memory, job.slot) {
        if tier::is_written(memory, job.slot, index) {
            pass.written.push(index);
        }
        let taken = tier::take(memory, job.slot, index, job.want, &mut buffer)?;
        let Some(snapshot) = taken else { continue };
        for (offset, piece) in snapshot.pieces(index) {
            let written = put(&mut *update, offset, piece);
            let same = written.and_then(|()| is_there(&mut *update, offset, piece, &mut check));
            if !matches!(same, Ok(true)) {
                tier::give_back(memory, job.slot, index);
                return same.and(Err(Error::new(ErrorKind::Corrupt, shown(path))));
            }
            let bytes = counted(memory, job.slot, offset, piece.bytes());
            pass.bytes += bytes;
            pass.verified_bytes += bytes;
        }
        show(shared, &mut pass);
    }
    let (size, attributes) = size_and_attributes(shared, job.ino)?;
    update.truncate(size)?;
    pass.finished = Some((update.finish(&attributes)?, size));
    Ok(pass)
}

/// Bytes beyond what the backing has are owed, whatever their marks say: a writer publishes its
/// pages before it raises the size, and a pass in between cuts them off.
fn owe_beyond(memory: &Memory, slot: FileSlot, backing_bytes: u64) {
    for (index, _) in ram::entries(memory, slot) {
        if (index + 1) * CHUNK_BYTES > backing_bytes {
            tier::give_back(memory, slot, index);
        }
    }
}

fn size_and_attributes(shared: &Shared, ino: Ino) -> Result<(u64, Attributes)> {
    let attributes = shared.lock().sound_attributes(ino);
    let attributes =
        attributes.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("file {ino}")))?;
    Ok((attributes.size, attributes))
}

/// Whether a file goes to the backing whole though somebody writes to it: it cannot be changed
/// in place there, where somebody else has changed it. What is written later can.
pub(crate) fn replaces_open(state: &State, ino: Ino) -> bool {
    let written = state.names.is_written(ino) && !state.is_stored(ino);
    state.names.is_contested(ino) && written && !state.finishing
}

/// Whether a file can be published if all of it was copied.
fn may_publish(shared: &Shared, ino: Ino) -> bool {
    let state = shared.lock();
    if !state.names.owed().is_empty() {
        return false;
    }
    let is_whole = !state.has_away(ino);
    is_whole && (state.finishing || !state.is_written(ino) || replaces_open(&state, ino))
}

/// Moves what a pass has copied so far into the display, now and then, and lets waiting writers
/// try.
fn show(shared: &Shared, pass: &mut Pass) {
    if pass.bytes >= SHOW_BYTES {
        shared.lock().debts.progress().copied(std::mem::take(&mut pass.bytes));
        shared.nudge();
    }
}
