//! The drain's copying: bytes of one file to the backing, read back and compared, without the
//! server's lock. What becomes of the copy is `drain`'s.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use terral_format::frame::checksum;
use terral_format::geometry::CHUNK_BYTES;
use terral_format::ids::{FileSlot, Ino};
use terral_format::message::Attributes;
use terral_format::record::facts::Fact;
use terral_format::record::local::{Local, Publishing};
use terral_format::record::{Fingerprint, NameOperation};
use terral_format::size::SizeWord;
use terral_format::{Error, ErrorKind, Result};
use terral_store::backing::{Backing, Found};
use terral_store::memory::Memory;
use terral_store::ram;
use terral_store::tier::{self, Want};

use crate::debts::{SharedVersion, Version};
use crate::fetching::are_near;
use crate::paths::shown;
use crate::shared::Shared;
use crate::state::State;

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

/// What a lock guards, also after a panic.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Copies what `job` says, without the server's lock.
pub(crate) fn copy(shared: &Shared, backing: &dyn Backing, job: &FileJob) -> Result<Pass> {
    match &job.way {
        Way::Whole { old } => copy_whole(shared, backing, job, old.as_deref()),
        Way::InPlace { path, expect, resumes } => {
            copy_in_place(shared, backing, job, path, *expect, *resumes)
        }
    }
}

/// The new version to copy into, and what to copy.
fn version_of(
    shared: &Shared,
    backing: &dyn Backing,
    job: &FileJob,
    backed: u64,
) -> Result<(SharedVersion, Want)> {
    let known = shared.lock().debts.get(job.ino).and_then(|debt| debt.version.clone());
    let version = match known {
        Some(version) => version,
        None => {
            let instance = shared.lock().began.instance;
            let (version, resumed) = Version::open(backing, job.ino, instance)?;
            if !resumed {
                say_lost(shared, job, backed);
            }
            let version = Arc::new(Mutex::new(version));
            if let Some(debt) = shared.lock().debts.get_mut(job.ino) {
                debt.version = Some(version.clone());
            }
            version
        }
    };
    let mut held = locked(&version);
    let mut want = job.want;
    if held.incomplete {
        // What was evicted is only there, below `backed`, and stays; all else is copied, so that no
        // hole shows what was there before a truncate.
        held.staged.truncate(backed)?;
        held.sums.clear();
        want = Want::Whole;
    }
    drop(held);
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
        state.debts.conflict(format!("{}: {what}", shown(&path)));
    }
}

impl State {
    /// What is about to get a name in the backing: if we die, the next server looks whether it has.
    pub(crate) fn announce(&mut self, ino: Ino, path: &[u8], found: &Found) -> Result<()> {
        let (path, modified_ns) = (path.to_vec(), found.attributes.modified_ns);
        let version = Publishing { path, fingerprint: found.fingerprint, modified_ns };
        self.record(Local::Publishing { ino, version });
        self.commit()
    }

    /// Finds out which versions that were announced have got their names, by what has them: after a
    /// restart, and after a failure. Where the backing cannot say, the file waits, and what is to
    /// happen to its name; see [`State::is_unsure`].
    pub(crate) fn find_published(&mut self) {
        if self.debts.unsure_until().is_some_and(|until| until > self.world.now()) {
            return;
        }
        let announced: Vec<Ino> = self.names.publishing().keys().copied().collect();
        let mut unsure = false;
        for ino in announced {
            if let Err(error) = self.find_published_of(ino) {
                unsure = true;
                self.owe(ino);
                self.debts.failed(ino, error.to_string(), self.world.now());
            }
        }
        self.debts.are_unsure(unsure, self.world.now());
    }

    /// The same for one file.
    ///
    /// # Errors
    /// If the backing cannot say.
    pub(crate) fn find_published_of(&mut self, ino: Ino) -> Result<()> {
        let Some(version) = self.names.publishing().get(&ino).cloned() else { return Ok(()) };
        let Some(backing) = self.backing.clone() else { return Ok(()) };
        let found = match backing.stat(&version.path) {
            Ok(found) if found.fingerprint.inode == version.fingerprint.inode => Some(found),
            Err(error) if is_away(&error) => return Err(error),
            _ => None,
        };
        match found {
            Some(found) => self.was_published(&*backing, ino, &version, &found)?,
            None => self.names.is_unpublished(ino),
        }
        Ok(())
    }

    /// Whether a name operation must wait until it is known what became of a version: that, or what
    /// is above it or below, would change its name.
    pub(crate) fn is_unsure(&self, operation: &NameOperation) -> bool {
        let paths = operation.paths();
        self.names.publishing().iter().any(|(ino, version)| {
            let named = self.names.path(*ino).unwrap_or_default();
            paths
                .iter()
                .any(|path| [&version.path, &named].into_iter().any(|at| are_near(at, path)))
        })
    }

    /// A version was put under its name, and that was not said any more.
    fn was_published(
        &mut self,
        backing: &dyn Backing,
        ino: Ino,
        version: &Publishing,
        found: &Found,
    ) -> Result<()> {
        let size = version.fingerprint.size;
        let same =
            (found.attributes.modified_ns, found.attributes.size) == (version.modified_ns, size);
        let path = self.names.path(ino);
        if path.as_ref() != Some(&version.path) {
            // It has another name by now, or none.
            if same {
                self.fetches.spoil(&[&version.path]);
                backing.take_back(&version.path, ino, self.began.instance)?;
            }
            self.names.is_unpublished(ino);
            return Ok(());
        }
        // If somebody has changed it since, it does not look as we know it.
        let fingerprint = if same { found.fingerprint } else { version.fingerprint };
        self.record(Fact::Published { ino, fingerprint });
        self.record(Fact::BackedTo { ino, size });
        if let Some(slot) = self.names.inode(ino).and_then(|inode| inode.slot) {
            self.storage.memory().record(slot).backed_bytes().store(size, Ordering::SeqCst);
        }
        self.commit()
    }
}

/// Whether the store itself failed, and not what was asked for.
fn is_away(error: &Error) -> bool {
    matches!(error.kind, ErrorKind::Backing | ErrorKind::Denied | ErrorKind::System)
}

fn copy_whole(
    shared: &Shared,
    backing: &dyn Backing,
    job: &FileJob,
    old: Option<&[u8]>,
) -> Result<Pass> {
    let memory = &shared.memory;
    let (epoch, backed) = begin(shared, job.slot);
    let (version, want) = version_of(shared, backing, job, backed)?;
    if let Some(old) = old {
        copy_absent(shared, backing, job, (old, backed), &version)?;
    }
    let mut pass = Pass::default();
    let mut buffer = Vec::new();
    for (index, _) in ram::entries(memory, job.slot) {
        if tier::is_written(memory, job.slot, index) {
            pass.written.push(index);
        }
        let taken = tier::take(memory, job.slot, index, want, &mut buffer)?;
        let Some(snapshot) = taken else { continue };
        let mut version = locked(&version);
        for (offset, piece) in snapshot.pieces(index) {
            if let Err(error) = version.staged.write(offset, piece) {
                tier::give_back(memory, job.slot, index);
                return Err(error);
            }
            pass.bytes += counted(memory, job.slot, offset, piece.len());
        }
        version.sums.insert(index, snapshot.sum());
        drop(version);
        show(shared, &mut pass);
    }
    // A truncate in between may have been overtaken by what we copied: all over again.
    let steady = {
        let mut version = locked(&version);
        let steady = memory.size_epoch(job.slot) == epoch && !version.cut;
        version.incomplete = !steady;
        steady
    };
    if steady && may_publish(shared, job.ino) {
        pass.verified_bytes = verify(memory, job.slot, &version)?;
        pass.verified = true;
    }
    pass.epoch = epoch;
    pass.version = Some(version);
    Ok(pass)
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
    backing: &dyn Backing,
    job: &FileJob,
    (old, backed): (&[u8], u64),
    version: &Mutex<Version>,
) -> Result<()> {
    let absent = |index: &u64| shared.memory.entry(job.slot, *index).is_absent();
    let mut bytes = vec![0; CHUNK_BYTES as usize];
    for index in (0..backed.div_ceil(CHUNK_BYTES)).filter(absent) {
        let at = index * CHUNK_BYTES;
        let into = &mut bytes[..(backed - at).min(CHUNK_BYTES) as usize];
        match backing.read(old, at, into) {
            Ok(count) => locked(version).staged.write(at, &into[..count])?,
            Err(error) if error.kind == ErrorKind::NotFound => {
                // Nobody can bring them back; what is here is not to wait for that.
                let what = "removed there meanwhile, with bytes that were only there: zeros now";
                shared.lock().debts.conflict(format!("{}: {what}", shown(old)));
                return Ok(());
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads the new version back and compares. A chunk that differs is owed again.
fn verify(memory: &Memory, slot: FileSlot, version: &Mutex<Version>) -> Result<u64> {
    let sums: Vec<_> = locked(version).sums.iter().map(|(index, sum)| (*index, *sum)).collect();
    let (mut buffer, mut bytes) = (Vec::new(), 0);
    for (index, (sum, length)) in sums {
        buffer.resize(length as usize, 0);
        // Not for longer than a chunk takes: a truncate may be waiting for it.
        let mut held = locked(version);
        if held.sums.get(&index) != Some(&(sum, length)) {
            continue;
        }
        let count = held.staged.read(index * CHUNK_BYTES, &mut buffer)?;
        drop(held);
        // Beyond its end a version has zeros, until it gets its length.
        buffer[count..].fill(0);
        if checksum(&buffer) != sum {
            tier::give_back(memory, slot, index);
            // What is in memory is copied anew, holes too; what is only there stays in doubt.
            let backed = memory.record(slot).backed_bytes().load(Ordering::SeqCst);
            let is_here = !memory.entry(slot, index).is_absent();
            if is_here || index * CHUNK_BYTES >= backed {
                locked(version).incomplete = true;
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
    backing: &dyn Backing,
    job: &FileJob,
    path: &[u8],
    expect: Fingerprint,
    resumes: bool,
) -> Result<Pass> {
    let memory = &shared.memory;
    // A truncate since the last pass has taken bytes away that must not come back when it grows.
    let (epoch, backed) = begin(shared, job.slot);
    let kept = backed.min(expect.size);
    owe_beyond(memory, job.slot, kept);
    let mut update =
        if resumes { backing.resume_update(path, expect) } else { backing.update(path, expect) }?;
    {
        let mut state = shared.lock();
        // Bytes of the backing's copy change under the one that is to replace it, too.
        let heir = state.names.heir(job.ino);
        for ino in [Some(job.ino), heir].into_iter().flatten() {
            state.record(Local::Intent { ino });
        }
        state.commit()?;
    }
    if kept < expect.size || resumes {
        // A pass that did not come to its end may have been further already.
        update.truncate(kept)?;
    }
    let mut pass = Pass { epoch, ..Pass::default() };
    let (mut buffer, mut check) = (Vec::new(), Vec::new());
    for (index, _) in ram::entries(memory, job.slot) {
        if tier::is_written(memory, job.slot, index) {
            pass.written.push(index);
        }
        let taken = tier::take(memory, job.slot, index, job.want, &mut buffer)?;
        let Some(snapshot) = taken else { continue };
        for (offset, piece) in snapshot.pieces(index) {
            check.resize(piece.len(), 0);
            let written = update.write(offset, piece);
            let read = written.and_then(|()| update.read(offset, &mut check));
            if let Err(error) = read {
                tier::give_back(memory, job.slot, index);
                return Err(error);
            }
            if check != piece {
                tier::give_back(memory, job.slot, index);
                return Err(Error::new(ErrorKind::Corrupt, shown(path)));
            }
            let bytes = counted(memory, job.slot, offset, piece.len());
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

/// Whether a file can be published if all of it was copied.
fn may_publish(shared: &Shared, ino: Ino) -> bool {
    let state = shared.lock();
    if !state.names.owed().is_empty() {
        return false;
    }
    state.finishing || !state.is_written(ino) || state.replaces_open(ino)
}

/// Moves what a pass has copied so far into the display, now and then, and lets waiting writers
/// try.
fn show(shared: &Shared, pass: &mut Pass) {
    if pass.bytes >= SHOW_BYTES {
        shared.lock().debts.shown.bytes += std::mem::take(&mut pass.bytes);
        shared.nudge();
    }
}
