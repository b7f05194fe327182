//! The drain: brings what changed to the backing, oldest debt first, names in their order.
//!
//! It runs in a thread of its own. Bytes are copied and verified without the server's lock; name
//! operations and publishing, which must agree with the namespace, are done under it. A failure
//! keeps the data and is tried again after a growing pause.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use terral_format::ids::{Ino, Lsn};
use terral_format::message::Drain;
use terral_format::record::{Fingerprint, NameOperation, Record};
use terral_format::{Error, ErrorKind, Result};
use terral_store::backing::{Backing, Published};
use terral_store::tier::Want;

use crate::copying::{FileJob, Pass, Way, copy, epoch_of, locked};
use crate::debts::SharedVersion;
use crate::lookup::shown;
use crate::shared::Shared;
use crate::state::State;

/// A file that stays open is looked at this often.
const OPEN_PASS: Duration = Duration::from_millis(500);

/// `EPERM`.
const NOT_PERMITTED: i32 = 1;

/// What to do next.
enum Job {
    File(FileJob),
    Sync,
    Wait(Option<Instant>),
}

/// The drain's thread.
pub fn run(shared: &Shared, backing: &dyn Backing) {
    terral_transport::process::be_nice(5);
    let mut state = shared.lock();
    loop {
        if state.leaving {
            return;
        }
        match next_job(&mut state, backing) {
            Job::File(job) => {
                let owed = state.owed_bytes(job.slot);
                state.debts.shown.peak_bytes = state.debts.shown.peak_bytes.max(owed);
                drop(state);
                let (begin, pass) = (Instant::now(), copy(shared, backing, &job));
                state = shared.lock();
                state.debts.shown.busy_ms += begin.elapsed().as_millis() as u64;
                conclude(&mut state, &job, pass);
                shared.nudge();
            }
            Job::Sync => {
                let before = state.names.ordinal();
                drop(state);
                let done = backing.sync();
                state = shared.lock();
                let still = state.debts.is_empty() && state.names.ordinal() == before;
                match done {
                    Ok(()) => {
                        state.debts.shown.settled = still;
                        state.debts.unsynced = !still;
                        state.debts.sync_wanted &= !still;
                    }
                    Err(error) => state.debts.names_failed(error.to_string()),
                }
                shared.nudge();
            }
            Job::Wait(until) => state = shared.wait_for_work(state, until),
        }
    }
}

// Choosing.

fn next_job(state: &mut State, backing: &dyn Backing) -> Job {
    let now = Instant::now();
    let mut wake = None;
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
    now: Instant,
    wake: &mut Option<Instant>,
) -> Option<Job> {
    if let Some((_, until, _)) = &state.debts.names_failure
        && *until > now
    {
        *wake = Some(*until);
        return None;
    }
    while let Some((ordinal, operation)) = state.names.owed().front().cloned() {
        state.debts.names_since.get_or_insert(now);
        if let NameOperation::Rename { ino, .. } = operation
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
        match do_name(state, backing, &operation) {
            Ok(()) => name_done(state, ordinal),
            Err(error) if is_final(&error) => {
                state.debts.conflict(format!("not done there: {error}"));
                name_done(state, ordinal);
            }
            Err(error) => {
                state.debts.names_failed(error.to_string());
                return None;
            }
        }
    }
    state.debts.names_failure = None;
    state.debts.names_since = None;
    None
}

fn name_done(state: &mut State, ordinal: Lsn) {
    state.record(Record::NamesDrained(ordinal));
    if let Err(error) = state.commit() {
        state.debts.names_failed(error.to_string());
    }
    state.debts.names_failure = None;
    state.debts.unsynced = true;
    state.debts.shown.settled = false;
}

/// What was closed before a rename goes to the backing before it: when that may be tried.
fn data_before_rename(state: &State, ino: Ino) -> Option<Instant> {
    let inode = state.names.inode(ino)?;
    let waits = inode.writers == 0 && !inode.rewritten;
    waits.then(|| state.debts.get(ino).map(|debt| debt.next_pass))?
}

fn do_name(state: &mut State, backing: &dyn Backing, operation: &NameOperation) -> Result<()> {
    match operation {
        NameOperation::MakeDirectory { path, mode } => backing.make_directory(path, *mode),
        NameOperation::RemoveDirectory { path } => backing.remove_directory(path),
        NameOperation::Unlink { path } => backing.unlink(path),
        NameOperation::Rename { from, to, ino } => match backing.rename(from, to) {
            Ok(touched) => {
                touch(state, *ino, touched.before, touched.after);
                Ok(())
            }
            // Done before a restart, or somebody else took it away: nothing is left to move.
            Err(error) if error.kind == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        },
        NameOperation::Change { path, change } => match backing.change(path, *change) {
            Ok(touched) => {
                if let Ok(ino) = state.resolve(path) {
                    touch(state, ino, touched.before, touched.after);
                }
                Ok(())
            }
            Err(error) if error.kind == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        },
    }
}

/// Whether a name operation failed because of what somebody else has there, or because this user
/// may not do it: trying again will not help, and the rest must not wait for it.
fn is_final(error: &Error) -> bool {
    let theirs = [
        ErrorKind::NotEmpty,
        ErrorKind::IsDirectory,
        ErrorKind::NotDirectory,
        ErrorKind::Exists,
        ErrorKind::CrossDevice,
        ErrorKind::Unsupported,
    ];
    theirs.contains(&error.kind) || error.errno == NOT_PERMITTED
}

/// Our own change of a file's look is not somebody else's.
fn touch(state: &mut State, ino: Ino, before: Fingerprint, after: Fingerprint) {
    let Some(inode) = state.names.inode_mut(ino) else { return };
    if inode.published == Some(before) && !inode.is_directory() {
        inode.published = Some(after);
        let (rewritten, intent) = (inode.rewritten, inode.intent);
        state.record(Record::Published { ino, fingerprint: after });
        if rewritten {
            let backed_bytes = state.names.inode(ino).map_or(0, |inode| inode.backed_bytes);
            state.record(Record::Rewritten { ino });
            state.record(Record::BackedTo { ino, size: backed_bytes });
        }
        if intent {
            state.record(Record::Intent { ino });
        }
    }
}

fn file_job(state: &mut State, ino: Ino) -> Option<FileJob> {
    let Some(path) = state.names.path(ino).filter(|_| ino != terral_format::ids::ROOT) else {
        // Its name is gone: nothing of it is owed.
        state.debts.paid(ino);
        return None;
    };
    let slot = match state.attach(ino).and_then(|slot| state.commit().map(|()| slot)) {
        Ok(slot) => slot,
        Err(error) => {
            state.debts.failed(ino, error.to_string());
            return None;
        }
    };
    let inode = state.names.inode(ino)?;
    let (published, rewritten, resumes) = (inode.published, inode.rewritten, inode.intent);
    let stays_open = inode.writers > 0 && !state.finishing;
    let grown = published.is_some_and(|found| found.size != state.ram.size(slot));
    let version = state.debts.get(ino).and_then(|debt| debt.version.as_ref());
    let new = published.is_none() || rewritten;
    let complete = match version {
        Some(version) => !locked(version).incomplete,
        None => !new || inode.backed_bytes == 0,
    };
    if stays_open && !grown && complete && state.resident(slot).1 == 0 {
        state.debts.get_mut(ino)?.next_pass = Instant::now() + OPEN_PASS;
        return None;
    }
    let old = state.names.backing_path(&path);
    let debt = state.debts.get_mut(ino)?;
    debt.draining = true;
    let way = match published {
        Some(expect) if !rewritten && !debt.whole => Way::InPlace { path: old, expect, resumes },
        Some(_) if debt.whole => Way::Whole { old: Some(old) },
        _ => Way::Whole { old: None },
    };
    let want = if resumes || debt.whole { Want::Whole } else { Want::Dirty };
    Some(FileJob { ino, slot, way, want })
}

// Concluding, under the lock.

fn conclude(state: &mut State, job: &FileJob, pass: Result<Pass>) {
    let ino = job.ino;
    let closed = state.names.inode(ino).is_some_and(|inode| inode.writers == 0);
    if let Some(debt) = state.debts.get_mut(ino) {
        debt.draining = false;
        debt.next_pass = Instant::now() + if closed { Duration::ZERO } else { OPEN_PASS };
    }
    state.debts.unsynced = true;
    let outcome = pass.and_then(|pass| {
        state.debts.shown.bytes += pass.bytes;
        state.debts.progressed(ino);
        match &job.way {
            Way::Whole { .. } => conclude_whole(state, job, pass),
            Way::InPlace { .. } => conclude_in_place(state, job, &pass),
        }
    });
    match outcome {
        Ok(()) => {}
        Err(error) if error.kind == ErrorKind::Busy => {
            // Somebody else changed the backing's copy meanwhile: bring ours there whole.
            if let Some(debt) = state.debts.get_mut(ino) {
                debt.whole = true;
                debt.next_pass = Instant::now();
            }
        }
        Err(error) => {
            let path = state.names.path(ino).unwrap_or_default();
            let what = error.to_string();
            let shown = shown(&path);
            let what = if what.contains(&shown[1..]) { what } else { format!("{shown}: {what}") };
            state.debts.failed(ino, what);
        }
    }
    if let Err(error) = state.commit() {
        state.debts.failed(ino, error.to_string());
    }
    if state.names.inode(ino).is_none() {
        state.bury(ino);
        state.debts.paid(ino);
    } else if let Err(error) = state.settle_closed(ino) {
        state.debts.failed(ino, error.to_string());
    }
}

/// Whether the file can be called done: nobody writes, and nothing is dirty.
fn is_quiet(state: &State, job: &FileJob) -> bool {
    let Some(inode) = state.names.inode(job.ino) else { return false };
    let quiet = state.finishing || inode.writers == 0;
    quiet && state.resident(job.slot).1 == 0
}

fn again_soon(state: &mut State, job: &FileJob) {
    let closed = state.names.inode(job.ino).is_some_and(|inode| inode.writers == 0);
    if let (Some(debt), true) = (state.debts.get_mut(job.ino), closed || state.finishing) {
        debt.next_pass = Instant::now();
    }
}

fn conclude_whole(state: &mut State, job: &FileJob, pass: Pass) -> Result<()> {
    let ino = job.ino;
    let Some(version) = pass.version else { return Ok(()) };
    let named = state.names.inode(ino).is_some_and(|inode| inode.name.is_some());
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
        if let Some(debt) = state.debts.get_mut(ino) {
            debt.next_pass = Instant::now() + OPEN_PASS;
        }
        return Ok(());
    }
    // A pass that ended while names were owed has not read its copy back.
    let later = locked(&version).incomplete || !pass.verified;
    if later || !is_quiet(state, job) || epoch_of(state.ram.memory(), job.slot) != pass.epoch {
        again_soon(state, job);
        return Ok(());
    }
    let (Some(attributes), Some(path)) = (state.attributes(ino), state.names.path(ino)) else {
        return Ok(());
    };
    let expect = state.names.inode(ino).and_then(|inode| inode.published);
    if let Some(debt) = state.debts.get_mut(ino) {
        debt.version = None;
    }
    let staged = Arc::into_inner(version)
        .map(|version| version.into_inner().unwrap_or_else(PoisonError::into_inner).staged);
    let Some(staged) = staged else { return Ok(()) };
    let size = attributes.size;
    // If we die between the rename and its record, the next server knows that it may have happened.
    state.record(Record::Intent { ino });
    state.commit()?;
    let Published { fingerprint, conflict } = staged.publish(&path, &attributes, size, expect)?;
    if let Some(theirs) = conflict {
        let (ours, theirs) = (shown(&path), shown(&theirs));
        state.debts.conflict(format!("{ours}: changed there meanwhile; theirs is {theirs}"));
    }
    state.debts.shown.files += 1;
    state.debts.shown.verified_bytes += pass.verified_bytes;
    published(state, job, fingerprint, size);
    Ok(())
}

fn conclude_in_place(state: &mut State, job: &FileJob, pass: &Pass) -> Result<()> {
    let Some((fingerprint, size)) = pass.finished else { return Ok(()) };
    state.debts.shown.verified_bytes += pass.verified_bytes;
    if state.names.inode(job.ino).is_some_and(|inode| inode.rewritten) {
        // Truncated to nothing while we copied: that is what the backing is owed now.
        state.record(Record::Published { ino: job.ino, fingerprint });
        state.record(Record::Rewritten { ino: job.ino });
        again_soon(state, job);
        return Ok(());
    }
    state.record(Record::Published { ino: job.ino, fingerprint });
    let now = state.attributes(job.ino).map(|attributes| attributes.size);
    let steady = epoch_of(state.ram.memory(), job.slot) == pass.epoch;
    if is_quiet(state, job) && steady && now == Some(size) {
        state.debts.shown.files += 1;
        published(state, job, fingerprint, size);
    } else {
        again_soon(state, job);
    }
    Ok(())
}

fn published(state: &mut State, job: &FileJob, fingerprint: Fingerprint, size: u64) {
    let ino = job.ino;
    state.record(Record::Published { ino, fingerprint });
    state.record(Record::BackedTo { ino, size });
    state.ram.memory().record(job.slot).backed_bytes().store(size, Ordering::SeqCst);
    state.debts.paid(ino);
    let open = state.names.inode(ino).is_some_and(|inode| inode.writers > 0);
    if open && !state.finishing {
        state.debts.owe(ino).next_pass = Instant::now() + OPEN_PASS;
    }
}

fn discard(version: SharedVersion) {
    if let Some(version) = Arc::into_inner(version) {
        version.into_inner().unwrap_or_else(PoisonError::into_inner).staged.discard();
    }
}

impl State {
    /// The backing is owed something of this file from now on.
    pub fn owe(&mut self, ino: Ino) {
        if self.backing.is_some() {
            self.debts.owe(ino);
        }
    }

    /// Everything written so far shall go, also of files that stay open.
    pub fn hurry(&mut self) {
        self.debts.sync_wanted = true;
        let inos: Vec<Ino> = self.debts.iter().map(|(ino, _)| ino).collect();
        for ino in inos {
            if let Some(debt) = self.debts.get_mut(ino) {
                debt.next_pass = Instant::now();
            }
        }
    }

    /// After a restart: what is owed follows from inodes, headers and page states.
    pub fn find_debts(&mut self) {
        let written = |ino: &Ino, inode: &crate::names::Inode| {
            !inode.is_directory() && (inode.writers > 0 || self.differs(*ino))
        };
        let inodes = self.names.inodes().filter(|(ino, inode)| written(ino, inode));
        let owed: Vec<Ino> = inodes.map(|(ino, _)| *ino).collect();
        owed.into_iter().for_each(|ino| self.owe(ino));
    }

    /// What the backing is owed, and what it got.
    pub fn drain_status(&mut self) -> Drain {
        let mut drain = self.debts.status();
        drain.owed_names = self.names.owed().len() as u64;
        if self.backing.is_none() {
            return drain;
        }
        for (ino, _) in self.debts.iter() {
            if let Some(slot) = self.names.inode(ino).and_then(|inode| inode.slot) {
                drain.owed_bytes += self.owed_bytes(slot);
            }
        }
        drain.peak_bytes = drain.peak_bytes.max(drain.owed_bytes);
        self.debts.shown.peak_bytes = drain.peak_bytes;
        drain
    }
}
