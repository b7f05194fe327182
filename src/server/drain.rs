//! The drain: brings what changed to the backing, oldest debt first, names in their order.
//!
//! It has turns, in a thread of its own (`serve`). Bytes are copied and verified without the
//! server's lock; name operations and publishing, which must agree with the namespace, are done
//! under it. A failure keeps the data and is tried again after a growing pause.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use terral_format::ids::{Ino, Lsn};
use terral_format::message::{Drain, Kind};
use terral_format::names::flag;
use terral_format::record::facts::Fact;
use terral_format::record::{Fingerprint, NameOperation};
use terral_format::{Error, ErrorKind, Result};
use terral_store::backing::{Backing, Found, Published};
use terral_store::tier::Want;

use crate::copying::{FileJob, Pass, Way, copy, locked};
use crate::debts::SharedVersion;
use crate::names::is_known;
use crate::owed_names;
use crate::paths::shown;
use crate::shared::Shared;
use crate::state::State;
use crate::world::Tick;

/// A file that stays open is looked at this often.
const OPEN_PASS: Duration = Duration::from_millis(500);

/// Name operations are done under the lock for so long at a time.
const SLICE: Duration = Duration::from_millis(1);

/// What to do next.
enum Job {
    File(FileJob),
    Sync,
    /// There is more to do, but requests come first.
    GiveWay,
    Wait(Option<Tick>),
}

/// What the drain has done, or does next.
pub enum Turn {
    /// There may be more to do.
    Again,
    /// There is, but requests come first.
    GiveWay,
    /// Nothing before that, or before it is woken.
    Wait(Option<Tick>),
}

/// Does what is to be done next, if anything is.
pub fn turn<'s>(
    shared: &'s Shared,
    backing: &dyn Backing,
    mut state: MutexGuard<'s, State>,
) -> (MutexGuard<'s, State>, Turn) {
    let turn = match next_job(&mut state, backing) {
        Job::File(job) => {
            let owed = state.storage.owed_bytes(job.slot);
            state.debts.shown.peak_bytes = state.debts.shown.peak_bytes.max(owed);
            drop(state);
            let begin = shared.world.now();
            let pass = copy(shared, backing, &job);
            state = shared.lock();
            let took = shared.world.now().since(begin);
            state.debts.shown.busy_ms += took.as_millis() as u64;
            conclude(&mut state, &job, pass);
            Turn::Again
        }
        Job::Sync => {
            let before = state.names.ordinal();
            drop(state);
            let done = backing.sync();
            state = shared.lock();
            synced(&mut state, before, done);
            Turn::Again
        }
        Job::GiveWay => Turn::GiveWay,
        Job::Wait(until) => Turn::Wait(until),
    };
    (state, turn)
}

/// The backing was asked to keep what it had when the namespace was as of `before`.
fn synced(state: &mut State, before: Lsn, done: Result<()>) {
    let still = state.debts.is_empty() && state.names.ordinal() == before;
    match done {
        Ok(()) => {
            state.debts.shown.settled = still;
            state.debts.unsynced = !still;
            state.debts.sync_wanted &= !still;
        }
        Err(error) => _ = state.debts.names_failed(error.to_string(), state.world.now()),
    }
}

// Choosing.

fn next_job(state: &mut State, backing: &dyn Backing) -> Job {
    let now = state.world.now();
    state.find_published();
    let mut wake = state.debts.unsure_until();
    if let Some(job) = drain_names(state, backing, now, &mut wake) {
        return job;
    }
    let finishing = state.finishing;
    if let Some(ino) = state.debts.next_due(now, &mut wake) {
        return file_job(state, ino).map_or(Job::Wait(Some(now)), Job::File);
    }
    let idle = state.debts.is_empty() && state.names.owed().is_empty();
    let paused = state.debts.names_failure.as_ref().is_some_and(|(_, until, _)| *until > now);
    if idle && !paused && !state.debts.shown.settled {
        let asked = finishing || state.debts.sync_wanted;
        if state.debts.unsynced && asked {
            return Job::Sync;
        }
        state.debts.shown.settled = !state.debts.unsynced;
    }
    Job::Wait(wake)
}

/// Does the name operations that can be done now. A job: what must be copied before the next one.
fn drain_names(
    state: &mut State,
    backing: &dyn Backing,
    now: Tick,
    wake: &mut Option<Tick>,
) -> Option<Job> {
    if let Some((_, until, _)) = &state.debts.names_failure
        && *until > now
    {
        *wake = Some(*until);
        return None;
    }
    // All that are owed now go together; those that come meanwhile wait for their own turn.
    let last = state.names.owed().back().map(|(ordinal, _)| *ordinal);
    if last.is_some() {
        state.debts.names_since.get_or_insert(now);
        let due = state.debts.names_due(now);
        if due > now {
            *wake = Some(due);
            return None;
        }
    }
    while let Some((ordinal, operation)) = state.names.owed().front().cloned() {
        if Some(ordinal) > last {
            break;
        }
        if state.world.now().since(now) > SLICE {
            return Some(Job::GiveWay);
        }
        if let NameOperation::Rename { ino, .. } | NameOperation::Link { ino, .. } = operation
            && let Some(debt) = data_before_rename(state, ino)
        {
            if debt > now {
                *wake = Some(debt);
                return None;
            }
            if let Some(job) = file_job(state, ino) {
                return Some(Job::File(job));
            }
        }
        if state.is_unsure(&operation) {
            *wake = Some(
                state.debts.names_failed("a file of its path cannot be looked at".into(), now),
            );
            return None;
        }
        state.fetches.spoil(&operation.paths());
        match owed_names::bring(state, backing, ordinal, &operation) {
            Ok(()) => owed_names::done(state, ordinal),
            Err(error) if owed_names::is_final(&error) => {
                state.debts.conflict(format!("not done there: {error}"));
                owed_names::done(state, ordinal);
            }
            Err(error) => {
                state.names.may_be_begun();
                *wake = Some(state.debts.names_failed(error.to_string(), now));
                return None;
            }
        }
    }
    state.debts.names_failure = None;
    state.debts.names_since = None;
    None
}

/// What was closed before a rename goes to the backing before it: when that may be tried.
fn data_before_rename(state: &State, ino: Ino) -> Option<Tick> {
    let inode = state.names.inode(ino)?;
    // What was there may have been another file, whose place this one took and has left again.
    let waits = !state.names.is_written(ino) && is_known(&inode);
    // A whole version is published under the new name, which must be the backing's before.
    state.debts.get(ino).filter(|_| waits && !inode.is(flag::CONTESTED))?;
    state.debts.due(ino)
}

fn file_job(state: &mut State, ino: Ino) -> Option<FileJob> {
    let Some(path) = state.names.path(ino).filter(|_| ino != terral_format::ids::ROOT) else {
        // Its name is gone: nothing of it is owed.
        state.debts.paid(ino);
        return None;
    };
    if state.names.publishing().contains_key(&ino) {
        // What the version became must be known before another one is begun.
        state.debts.not_before(ino, state.debts.unsure_until().unwrap_or(state.world.now()));
        return None;
    }
    let slot = match state.attach(ino).and_then(|slot| state.commit().map(|()| slot)) {
        Ok(slot) => slot,
        Err(error) => {
            state.debts.failed(ino, error.to_string(), state.world.now());
            return None;
        }
    };
    let inode = state.names.inode(ino)?;
    let (published, rewritten, resumes) =
        (inode.published, inode.is(flag::REWRITTEN), inode.is(flag::INTENT));
    let contested = inode.is(flag::CONTESTED);
    state.storage.settle_stores(slot);
    state.storage.mend_size(slot);
    let stored = state.is_stored(ino);
    let stays_open = stored || (state.names.is_written(ino) && !state.finishing);
    // Grown, or cut: in the middle of a pass, too, which has not had the file as it is now.
    let size = state.storage.size(slot);
    let backed = state.storage.memory().record(slot).backed_bytes().load(Ordering::SeqCst);
    let in_place = published.filter(|_| !rewritten);
    let grown = in_place.is_some_and(|found| found.size != size || backed < size);
    let version = state.debts.get(ino).and_then(|debt| debt.version.as_ref());
    let new = published.is_none() || rewritten;
    let complete = match version {
        Some(version) => !locked(version).incomplete,
        // A server that died may have copied what is clean now, into a version not looked at yet.
        None => !new || (inode.backed_bytes == 0 && !state.storage.has_any(slot)),
    };
    if stays_open && !grown && complete && !resumes && !state.storage.has_dirty(slot) {
        state.debts.not_before(ino, state.world.now() + OPEN_PASS);
        return None;
    }
    let old = state.names.backing_path(&path);
    let debt = state.debts.get_mut(ino)?;
    debt.draining = true;
    state.storage.drains(Some(slot));
    if let Some(version) = &debt.version {
        locked(version).cut = false;
    }
    let way = match published {
        Some(expect) if !rewritten && !contested => Way::InPlace { path: old, expect, resumes },
        Some(_) if contested => Way::Whole { old: Some(old) },
        _ => Way::Whole { old: None },
    };
    let want = if resumes || contested { Want::Whole } else { Want::Dirty };
    Some(FileJob { ino, slot, way, want })
}

// Concluding, under the lock.

fn conclude(state: &mut State, job: &FileJob, pass: Result<Pass>) {
    let ino = job.ino;
    let closed = !state.is_written(ino);
    state.storage.drains(None);
    if let Some(debt) = state.debts.get_mut(ino) {
        debt.draining = false;
    }
    let pause = if closed { Duration::ZERO } else { OPEN_PASS };
    state.debts.not_before(ino, state.world.now() + pause);
    state.debts.unsynced = true;
    let outcome = pass.and_then(|pass| {
        state.debts.shown.bytes += pass.bytes;
        state.debts.progressed(ino);
        let mut written = pass.written.iter();
        if written.any(|index| state.storage.mend_pages(&state.sessions, job.slot, *index)) {
            again_soon(state, job);
            return Ok(());
        }
        match &job.way {
            Way::Whole { .. } => conclude_whole(state, job, pass),
            Way::InPlace { expect, .. } => conclude_in_place(state, job, &pass, *expect),
        }
    });
    match outcome {
        Ok(()) => {}
        Err(error) if is_theirs(job, &error) => {
            // Somebody else changed the backing's copy, or took it away: bring ours there whole.
            state.record(Fact::Contested { ino });
            state.debts.not_before(ino, state.world.now());
        }
        Err(error) if owed_names::lacks_directory(&error) && restored(state, ino) => {
            state.debts.not_before(ino, state.world.now());
        }
        Err(error) => {
            let path = state.names.path(ino).unwrap_or_default();
            let what = error.to_string();
            let shown = shown(&path);
            // Not only somewhere in it: names of versions have every short name in them.
            let named = what.contains(&format!("{shown}:"));
            let what = if named { what } else { format!("{shown}: {what}") };
            state.debts.failed(ino, what, state.world.now());
        }
    }
    let settled = state.commit().and_then(|()| {
        match state.names.inode(ino) {
            Some(inode) if !state.is_orphan(&inode) => {}
            _ => {
                state.bury(ino);
                state.debts.paid(ino);
                return Ok(());
            }
        }
        state.settle_closed(ino)?;
        state.commit()
    });
    if let Err(error) = settled {
        state.debts.failed(ino, error.to_string(), state.world.now());
    }
}

/// Whether directories above the file were missing in the backing, and are there now.
fn restored(state: &mut State, ino: Ino) -> bool {
    let (path, backing) = (state.names.path(ino), state.backing.clone());
    path.zip(backing).is_some_and(|(path, backing)| owed_names::restore(state, &*backing, &path))
}

/// Whether the backing's copy was found to be not the one that was to be updated.
fn is_theirs(job: &FileJob, error: &Error) -> bool {
    let in_place = matches!(job.way, Way::InPlace { .. });
    error.kind == ErrorKind::Busy || (in_place && owed_names::lacks_directory(error))
}

/// Whether the file can be called done: nobody writes, and nothing is dirty.
fn is_quiet(state: &State, job: &FileJob) -> bool {
    let quiet = state.finishing || !state.is_written(job.ino);
    quiet && state.names.inode(job.ino).is_some() && state.storage.resident(job.slot).1 == 0
}

fn again_soon(state: &mut State, job: &FileJob) {
    let soon = !state.is_stored(job.ino) && (state.finishing || !state.names.is_written(job.ino));
    if soon {
        state.debts.not_before(job.ino, state.world.now());
    }
}

fn conclude_whole(state: &mut State, job: &FileJob, pass: Pass) -> Result<()> {
    let ino = job.ino;
    let Some(version) = pass.version else { return Ok(()) };
    let named = state.names.inode(ino).is_some_and(|inode| inode.is(flag::NAMED));
    if !named {
        if let Some(debt) = state.debts.get_mut(ino) {
            debt.version = None;
        }
        discard(version);
        state.debts.paid(ino);
        return Ok(());
    }
    // Names go first: the directory must exist, and our name must be the one the backing will have.
    if !state.names.owed().is_empty() {
        state.debts.not_before(ino, state.world.now() + OPEN_PASS);
        return Ok(());
    }
    // A pass that ended while names were owed has not read its copy back.
    let later = locked(&version).incomplete || !pass.verified;
    let ripe = state.replaces_open(ino) || is_quiet(state, job);
    if later || !ripe || state.storage.memory().size_epoch(job.slot) != pass.epoch {
        again_soon(state, job);
        return Ok(());
    }
    let (Some(attributes), Some(path)) = (state.sound_attributes(ino), state.names.path(ino))
    else {
        return Ok(());
    };
    let expect = expected(state, ino)?;
    if let Some(debt) = state.debts.get_mut(ino) {
        debt.version = None;
    }
    let staged = Arc::into_inner(version)
        .map(|version| version.into_inner().unwrap_or_else(PoisonError::into_inner).staged);
    let Some(staged) = staged else { return Ok(()) };
    let size = attributes.size;
    state.fetches.spoil(&[&path]);
    let mut announce = |found: &Found| state.announce(ino, &path, found);
    let published_as = staged.publish(&path, &attributes, size, expect, &mut announce)?;
    let Published { fingerprint, conflict } = published_as;
    if let Some(theirs) = conflict {
        let (ours, theirs) = (shown(&path), shown(&theirs));
        state.debts.conflict(format!("{ours}: changed there meanwhile; theirs is {theirs}"));
    }
    state.debts.shown.files += 1;
    state.debts.shown.verified_bytes += pass.verified_bytes;
    published(state, job, fingerprint, size);
    Ok(())
}

/// How the copy looks that ours is to replace.
fn expected(state: &State, ino: Ino) -> Result<Option<Fingerprint>> {
    let (Some(inode), Some(backing)) = (state.names.inode(ino), state.backing.as_ref()) else {
        return Ok(None);
    };
    let (Some(known), true) = (inode.published, inode.is(flag::INTENT)) else {
        return Ok(inode.published);
    };
    // A server that died was changing it in place, for the file that had this name before or for
    // this one: how far it came nobody knows.
    let Some(path) = state.names.path(ino) else { return Ok(Some(known)) };
    let found = owed_names::done_before(backing.stat(&state.names.backing_path(&path)))?;
    let found = found.map(|found| found.fingerprint);
    Ok(found.filter(|found| found.inode == known.inode).or(Some(known)))
}

fn conclude_in_place(
    state: &mut State,
    job: &FileJob,
    pass: &Pass,
    expect: Fingerprint,
) -> Result<()> {
    let Some((fingerprint, size)) = pass.finished else { return Ok(()) };
    state.debts.shown.verified_bytes += pass.verified_bytes;
    if let Some(heir) = state.names.heir(job.ino) {
        state.record(Fact::Settled { ino: heir, fingerprint });
    }
    let Some(inode) = state.names.inode(job.ino) else { return Ok(()) };
    if inode.published.is_none_or(|known| known.inode != expect.inode) {
        // Renamed away from what we updated, which is not this file's any more.
        again_soon(state, job);
        return Ok(());
    }
    if inode.is(flag::REWRITTEN) {
        // Truncated to nothing while we copied: that is what the backing is owed now.
        state.record(Fact::Published { ino: job.ino, fingerprint });
        state.record(Fact::Rewritten { ino: job.ino });
        again_soon(state, job);
        return Ok(());
    }
    state.record(Fact::Published { ino: job.ino, fingerprint });
    let now = state.attributes(job.ino).map(|attributes| attributes.size);
    let steady = state.storage.memory().size_epoch(job.slot) == pass.epoch;
    if is_quiet(state, job) && steady && now == Some(size) {
        state.debts.shown.files += 1;
        published(state, job, fingerprint, size);
        return Ok(());
    }
    if steady {
        // What was copied can leave memory while the file goes on growing.
        backed(state, job, size);
    }
    again_soon(state, job);
    Ok(())
}

/// Bytes below `size` that are not in memory are the backing's from now on.
fn backed(state: &mut State, job: &FileJob, size: u64) {
    state.record(Fact::BackedTo { ino: job.ino, size });
    state.storage.memory().record(job.slot).backed_bytes().store(size, Ordering::SeqCst);
}

fn published(state: &mut State, job: &FileJob, fingerprint: Fingerprint, size: u64) {
    let ino = job.ino;
    state.record(Fact::Published { ino, fingerprint });
    backed(state, job, size);
    state.debts.paid(ino);
    let open = state.is_written(ino);
    if open && !state.finishing {
        state.debts.owe(ino, state.world.now());
        state.debts.not_before(ino, state.world.now() + OPEN_PASS);
    }
}

fn discard(version: SharedVersion) {
    if let Some(version) = Arc::into_inner(version) {
        version.into_inner().unwrap_or_else(PoisonError::into_inner).staged.discard();
    }
}

impl State {
    /// The backing is owed something of this file from now on, if it has a name.
    pub fn owe(&mut self, ino: Ino) {
        let named = || self.names.inode(ino).is_some_and(|inode| inode.is(flag::NAMED));
        if self.backing.is_some() && named() {
            self.debts.owe(ino, self.world.now());
        }
    }

    /// Whether a file goes to the backing whole though somebody writes to it: it cannot be changed
    /// in place there, where somebody else has changed it. What is written later can.
    pub(crate) fn replaces_open(&self, ino: Ino) -> bool {
        let written = self.names.is_written(ino) && !self.is_stored(ino);
        self.names.is_contested(ino) && written && !self.finishing
    }

    /// Whether the drain must be woken: it would look again too late.
    pub fn must_wake_drain(&self) -> bool {
        let asked = self.finishing || self.debts.sync_wanted;
        let now = self.world.now();
        let names = (!self.names.owed().is_empty()).then(|| self.debts.names_due(now));
        let sync = (asked && !self.debts.shown.settled).then_some(now);
        let due = [names, sync, self.debts.first_due()].into_iter().flatten().min();
        due.is_some_and(|due| self.drain_looks.is_none_or(|looks| due < looks))
    }

    /// Everything written so far shall go, also of files that stay open.
    pub fn hurry(&mut self) {
        self.debts.sync_wanted = true;
        self.debts.hasten(self.world.now());
    }

    /// After a restart: what is owed follows from inodes, headers and page states.
    pub fn find_debts(&mut self) {
        self.owe_those(|state, ino| state.names.is_written(ino) || state.differs(ino));
    }

    /// Before the end: what clients that are still there have written without asking.
    pub fn find_changes(&mut self) {
        if self.sessions.clients().next().is_some() {
            self.owe_those(State::differs);
        }
    }

    fn owe_those(&mut self, owed: impl Fn(&Self, Ino) -> bool) {
        let files = self.names.inodes().filter(|inode| inode.kind == Kind::File);
        let files: Vec<Ino> = files.map(|inode| inode.ino).filter(|ino| owed(self, *ino)).collect();
        files.into_iter().for_each(|ino| self.owe(ino));
    }

    /// What the backing is owed, and what it got.
    pub fn drain_status(&mut self) -> Drain {
        let mut drain = self.debts.status(self.world.now());
        drain.owed_names = (self.names.owed().len() + self.waiting.count()) as u64;
        drain.failures.extend(self.waiting.why().map(|why| why.to_string()));
        // A name that came since the last look is not settled.
        drain.settled &= drain.owed_names == 0;
        if self.backing.is_none() {
            return drain;
        }
        for (ino, _) in self.debts.iter() {
            if let Some(slot) = self.names.inode(ino).and_then(|inode| inode.slot) {
                drain.owed_bytes += self.storage.owed_bytes(slot);
            }
        }
        drain.peak_bytes = drain.peak_bytes.max(drain.owed_bytes);
        self.debts.shown.peak_bytes = drain.peak_bytes;
        drain
    }
}
