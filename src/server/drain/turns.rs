//! The drain: brings what changed to the backing, oldest debt first, names in their order.
//!
//! It has turns, in a thread of its own (`shell/draining`): what is to be done is chosen under the
//! server's lock, carried out without it, one thing after the other, and concluded under it, as
//! clients may have changed the namespace meanwhile. A failure keeps the data and is tried again
//! after a pause that grows. Nothing is done that the log does not have.

use std::sync::MutexGuard;
use std::sync::atomic::Ordering;
use std::time::Duration;

use terral_format::disk::NameOperation;
use terral_format::disk::facts::Fact;
use terral_format::fingerprint::Fingerprint;
use terral_format::ids::{Ino, Lsn};
use terral_format::local::names::flag;
use terral_format::{Error, ErrorKind, Result};
use terral_store::backing::{Backing, Sink};
use terral_store::tier::Want;

use crate::core::left_out::{Step, does};
use crate::core::state::State;
use crate::core::workers::Next;
use crate::core::world::Tick;
use crate::debts::failures::Work;
use crate::debts::owing;
use crate::debts::policy::Event;
use crate::debts::version::Unneeded;
use crate::drain::copying::{FileJob, Pass, Way, copy};
use crate::drain::owed_names::{self, Brought, NameJob};
use crate::drain::parts;
use crate::drain::passes::{self, again_soon, contested, failed, is_quiet};
use crate::drain::publishing::{Publication, PublishJob, ResolveJob};
use crate::members::moving;
use crate::naming::exchanging;
use crate::naming::names::is_known;
use crate::naming::orphans;
use crate::shared::Shared;
use crate::storage::spill::returning;
use crate::storage::{attaching, closed};

/// So long a directory's move waits for others, unless they say something.
const MOVES: Duration = Duration::from_secs(1);
/// So long a file waits of which it is not known whether it keeps its name.
const ADRIFT: Duration = Duration::from_millis(250);

/// What is done next, without the lock.
enum Job {
    /// A pass over a file.
    File(FileJob),
    /// A file gets its name.
    Publish(PublishJob),
    /// It is found out what became of some versions.
    Resolve(ResolveJob),
    /// A name operation.
    Names(NameJob),
    /// Versions of files that are gone are thrown away.
    Discard(Vec<Unneeded>),
    /// The backing keeps what it has, of the namespace as of this operation.
    Sync(Lsn),
}

/// How it went.
enum Done {
    File(Result<Pass>, Duration),
    Publish(Publication),
    Resolve(Vec<(Ino, Error)>),
    Names(Result<Brought>),
    /// Those that could not be, and why.
    Discard(Option<(Vec<Unneeded>, Error)>),
    Sync(Result<()>),
}

/// What is chosen.
enum Choice {
    Do(Job),
    Wait(Option<Tick>),
}

/// Something that is being done.
pub struct Doing(Job, Option<Done>);

/// What is to be done now: what is begun must be carried out, without the lock, and concluded.
pub fn begin(state: &mut State) -> std::result::Result<Doing, Option<Tick>> {
    match choose(state) {
        Choice::Do(job) => Ok(Doing(job, None)),
        Choice::Wait(until) => Err(until),
    }
}

impl Doing {
    /// Does it.
    pub fn carry_out(&mut self, shared: &Shared, backing: &dyn Backing) {
        self.1 = Some(match &mut self.0 {
            Job::File(job) => {
                let begin = shared.world.now();
                let pass = copy(shared, backing, backing, job);
                Done::File(pass, shared.world.now().since(begin))
            }
            Job::Publish(job) => Done::Publish(job.carry_out(shared, backing)),
            Job::Resolve(job) => Done::Resolve(job.carry_out(shared, backing, backing)),
            Job::Names(job) => Done::Names(job.carry_out(shared, backing)),
            Job::Discard(versions) => Done::Discard(discard(shared, backing, versions)),
            Job::Sync(_) => Done::Sync(backing.sync()),
        });
    }

    /// Notes how it went. What is to follow at once, if anything is.
    pub fn conclude(self, state: &mut State) -> Option<Doing> {
        let mut follows = None;
        let may_help = may_help(state, &self);
        match (self.0, self.1) {
            (Job::File(job), Some(Done::File(pass, took))) => {
                state.debts.progress().took(took);
                follows = conclude(state, job, pass).map(Job::Publish);
            }
            (Job::Publish(job), Some(Done::Publish(done))) => published(state, &job, done),
            (Job::Resolve(_), Some(Done::Resolve(failed))) => resolved(state, failed),
            (Job::Names(job), Some(Done::Names(brought))) => {
                if let Err(error) = job.conclude(state, brought) {
                    state.debts.work_failed(Work::Names, error.to_string(), state.world.now());
                }
            }
            (Job::Discard(_), Some(Done::Discard(kept))) => discarded(state, kept),
            (Job::Sync(before), Some(Done::Sync(done))) => synced(state, before, done),
            _ => {}
        }
        if may_help && state.waiting.count() > 0 {
            state.waiting.hasten(state.world.now());
        }
        follows.map(|job| Doing(job, None))
    }
}

#[cfg(test)]
impl Doing {
    /// Whether a file is to be copied.
    pub fn copies(&self) -> bool {
        matches!(self.0, Job::File(_))
    }

    /// Whether a file is to get its name.
    pub fn publishes(&self) -> bool {
        matches!(self.0, Job::Publish(_))
    }

    /// Whether a name is to be moved.
    pub fn moves_a_name(&self) -> bool {
        matches!(&self.0, Job::Names(job) if job.moves())
    }
}

/// Does what is to be done next, if anything is; requests that wait may find what they need then.
pub fn turn<'s>(
    shared: &'s Shared,
    backing: &dyn Backing,
    mut state: MutexGuard<'s, State>,
) -> (MutexGuard<'s, State>, Next) {
    let mut doing = match begin(&mut state) {
        Ok(doing) => doing,
        Err(until) => return (state, Next::Idle(until)),
    };
    loop {
        drop(state);
        doing.carry_out(shared, backing);
        shared.give_way();
        state = shared.lock();
        match doing.conclude(&mut state) {
            Some(next) => doing = next,
            None => return (state, Next::Busy),
        }
    }
}

/// Whether deferred changes that wait may be applied after this: where the backing has something is
/// known, or bytes that came there may leave memory.
fn may_help(state: &State, Doing(job, done): &Doing) -> bool {
    let lacks_room = || state.waiting.why().is_some_and(|why| why.kind == ErrorKind::NoSpace);
    match (job, done) {
        (Job::Publish(_) | Job::Resolve(_) | Job::Names(_), _) => true,
        (Job::File(_), Some(Done::File(Ok(_), _))) => lacks_room(),
        _ => false,
    }
}

/// The backing was asked to keep what it had when the namespace was as of `before`.
fn synced(state: &mut State, before: Lsn, done: Result<()>) {
    let still = !owing::owes(state) && state.names.ordinal() == before;
    match done {
        Ok(()) => {
            state.debts.work_went_well(Work::Sync);
            state.debts.synced(!still);
        }
        Err(error) => {
            state.debts.work_failed(Work::Sync, error.to_string(), state.world.now());
        }
    }
}

/// Throws versions away, up to one that cannot be: then the rest waits, too.
fn discard(
    shared: &Shared,
    sink: &dyn Sink,
    versions: &mut Vec<Unneeded>,
) -> Option<(Vec<Unneeded>, Error)> {
    let instance = shared.lock().began.instance;
    while let Some(version) = versions.pop() {
        if let Err(error) = version.discard(sink, instance) {
            versions.push(version);
            return Some((std::mem::take(versions), error));
        }
    }
    None
}

fn discarded(state: &mut State, kept: Option<(Vec<Unneeded>, Error)>) {
    let Some((versions, error)) = kept else {
        state.debts.work_went_well(Work::Discards);
        return;
    };
    state.debts.keep_unneeded(versions);
    state.debts.work_failed(Work::Discards, error.to_string(), state.world.now());
}

/// It is known what became of the versions that were announced, but for these.
fn resolved(state: &mut State, failed: Vec<(Ino, Error)>) {
    let now = state.world.now();
    match failed.first() {
        Some((_, error)) => {
            state.debts.work_failed(Work::Versions, error.to_string(), now);
        }
        None => state.debts.work_went_well(Work::Versions),
    }
    for (ino, error) in failed {
        owing::owe(state, ino);
        state.debts.failed(ino, error.to_string(), now);
    }
}

// Choosing.

fn choose(state: &mut State) -> Choice {
    let now = state.world.now();
    if let Some(until) = log_first(state, now) {
        return Choice::Wait(Some(until));
    }
    let mut wake = state.debts.paused(Work::Versions, now);
    if let Some(job) = ResolveJob::prepare(state) {
        return Choice::Do(Job::Resolve(job));
    }
    if must_rest(state) {
        return Choice::Wait(wake);
    }
    if state.debts.has_unneeded() && may(state, Work::Discards, &mut wake) {
        return Choice::Do(Job::Discard(state.debts.take_unneeded()));
    }
    if let Some(job) = next_name(state, now, &mut wake) {
        return Choice::Do(job);
    }
    if let Some(ino) = state.debts.next_due(now, &mut wake) {
        let job = file_job(state, ino).ok().flatten().map(Job::File);
        return job.map_or(Choice::Wait(Some(now)), Choice::Do);
    }
    let idle = !owing::owes(state) && !state.debts.is_settled();
    let unsafe_yet = idle && !state.debts.progress().settle();
    if unsafe_yet && owing::is_sync_due(state) && may(state, Work::Sync, &mut wake) {
        return Choice::Do(Job::Sync(state.names.ordinal()));
    }
    Choice::Wait(wake)
}

/// Whether nothing is begun, as another member moves a directory there: it is told so. What was
/// begun is brought to its end before.
fn must_rest(state: &mut State) -> bool {
    if state.members.as_ref().is_some_and(|members| members.rests_for_good()) {
        return true;
    }
    let names = &state.names;
    // What a server before this one has begun is done again, as well by its new name: that one may
    // have said that it rests.
    let begun = if names.may_rest() { names.is_begun() } else { names.is_resumed() };
    let begun = begun && !names.owed().is_empty();
    let movers = names.resting().iter().filter(|(_, moving)| moving.brings);
    let movers: Vec<_> = movers.map(|(by, moving)| (*by, moving.id)).collect();
    if movers.is_empty() || begun || !names.publishing().is_empty() {
        return false;
    }
    if movers.len() > 1 {
        // One has the right to: the others have given it up, and are about to say so.
        return does(Step::Rest);
    }
    if exchanging::are_known(state).is_err() {
        // It is tried again; meanwhile others wait, and nothing is brought.
        return does(Step::Rest);
    }
    if let Some(members) = &mut state.members {
        movers.into_iter().for_each(|(by, id)| members.rests(by, Some(id)));
    }
    does(Step::Rest)
}

/// Nothing is done in the store before the log has what was done here: another server would know
/// nothing of it. Gives when that is tried again, if it fails.
fn log_first(state: &mut State, now: Tick) -> Option<Tick> {
    if !state.is_logged() {
        if let Some(until) = state.debts.paused(Work::Log, now) {
            return Some(until);
        }
        if let Err(error) = state.commit() {
            return Some(state.debts.work_failed(Work::Log, error.to_string(), now));
        }
    }
    state.debts.work_went_well(Work::Log);
    None
}

/// Whether some work may be tried now; else `wake` becomes no later than when it may.
fn may(state: &State, work: Work, wake: &mut Option<Tick>) -> bool {
    let paused = state.debts.paused(work, state.world.now());
    paused.inspect(|until| sooner(wake, *until)).is_none()
}

fn sooner(wake: &mut Option<Tick>, at: Tick) {
    *wake = Some(wake.map_or(at, |wake| wake.min(at)));
}

/// The name operation that can be done now, or what must be copied before.
fn next_name(state: &mut State, now: Tick, wake: &mut Option<Tick>) -> Option<Job> {
    if !may(state, Work::Names, wake) {
        return None;
    }
    let Some((ordinal, operation)) = state.names.owed().front().cloned() else {
        state.debts.names_paid();
        return None;
    };
    if moving::waits(state, ordinal) {
        sooner(wake, now + MOVES);
        return None;
    }
    if state.names.is_unsure(&operation) {
        let why = "a file of its path cannot be looked at".into();
        sooner(wake, state.debts.work_failed(Work::Names, why, now));
        return None;
    }
    // Whatever waits for it, it is found out first whether it was done.
    if state.names.is_next_unsure() {
        return NameJob::begin(state).map(Job::Names);
    }
    // All that are owed now go together; those that come meanwhile wait for their own turn.
    let last = state.names.owed().back().map(|(last, _)| *last);
    if let Some(due) = state.debts.names_wait(ordinal, last, now) {
        sooner(wake, due);
        return None;
    }
    if let NameOperation::Rename { ino, .. } | NameOperation::Link { ino, .. } = operation
        && let Some(debt) = data_before_rename(state, ino)
    {
        if debt > now {
            sooner(wake, debt);
            return None;
        }
        match file_job(state, ino) {
            Ok(Some(job)) => return Some(Job::File(job)),
            Ok(None) => {}
            Err(Later) => {
                sooner(wake, state.debts.due(ino).unwrap_or(now));
                return None;
            }
        }
    }
    NameJob::begin(state).map(Job::Names)
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

/// A file cannot be copied now: the ledger says when.
struct Later;

fn later(state: &mut State, ino: Ino, at: Tick) -> Later {
    state.debts.not_before(ino, at);
    Later
}

/// The pass that a file needs, if any.
fn file_job(state: &mut State, ino: Ino) -> std::result::Result<Option<FileJob>, Later> {
    let now = state.world.now();
    if state.names.is_delegated(ino) {
        // It is not known what it is called there.
        return Err(later(state, ino, now + ADRIFT));
    }
    let Some(path) = state.names.path(ino).filter(|_| ino != terral_format::ids::ROOT) else {
        // Its name is gone: nothing of it is owed.
        state.debts.lost(ino, None);
        return Ok(None);
    };
    if state.names.publishing().contains_key(&ino) {
        // What the version became must be known before another one is begun.
        return Err(later(state, ino, state.debts.paused(Work::Versions, now).unwrap_or(now)));
    }
    if state.members.as_ref().is_some_and(|members| members.is_adrift(ino)) {
        // Another file may just be taking its name.
        return Err(later(state, ino, now + ADRIFT));
    }
    let old = state.names.backing_path(&path);
    if state.names.is_unsettled(&old) || state.names.is_unsettled(&path) {
        // Where the backing has it must be known before.
        return Err(later(state, ino, owing::settles_at(state, now).unwrap_or(now).max(now)));
    }
    let slot = match attaching::attach(state, ino).and_then(|slot| state.commit().map(|()| slot)) {
        Ok(slot) => slot,
        Err(error) => {
            state.debts.failed(ino, error.to_string(), state.world.now());
            return Err(Later);
        }
    };
    let Some(inode) = state.names.inode(ino) else { return Ok(None) };
    if !parts::are_ready(state, ino, slot).ok_or(Later)? {
        return Ok(None);
    }
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
    let grown = in_place.is_some_and(|found| found.size() != size || backed < size);
    let version = state.debts.get(ino).and_then(|debt| debt.version());
    let new = published.is_none() || rewritten;
    let complete = match version {
        Some(version) => version.is_whole(),
        // A server that died may have copied what is clean now, into a version not looked at yet.
        None => !new || (inode.backed_bytes == 0 && !state.storage.has_any(slot)),
    };
    if stays_open && !grown && complete && !resumes && !state.storage.has_dirty(slot) {
        state.debts.happened(ino, Event::Passed { open: true }, state.world.now());
        return Ok(None);
    }
    let way = match published {
        Some(expect) if !rewritten && !contested => Way::InPlace { path: old, expect, resumes },
        Some(_) if contested => Way::Whole { old: Some(old) },
        _ => Way::Whole { old: None },
    };
    let want = if resumes || contested { Want::Whole } else { Want::Dirty };
    let job = FileJob { ino, slot, way, want };
    passes::begin(state, &job);
    let owed = state.storage.owed_bytes(slot);
    state.debts.progress().owes(owed);
    Ok(Some(job))
}

// Concluding, under the lock.

/// A pass over a file ended. Gives what is to be published then.
fn conclude(state: &mut State, job: FileJob, pass: Result<Pass>) -> Option<PublishJob> {
    passes::end(state, &job);
    let (ino, whole) = (job.ino, matches!(job.way, Way::Whole { .. }));
    let outcome = match pass {
        Err(error) => Err(error),
        Ok(pass) => {
            state.debts.progress().copied(pass.bytes);
            state.debts.progressed(ino);
            let mut written = pass.written.iter();
            if written.any(|index| state.storage.mend_pages(&state.sessions, job.slot, *index)) {
                again_soon(state, &job);
                Ok(())
            } else {
                match job.way {
                    Way::InPlace { expect, .. } => conclude_in_place(state, &job, &pass, expect),
                    Way::Whole { .. } => match conclude_whole(state, job, pass) {
                        Ok(Some(job)) => return Some(job),
                        done => done.map(drop),
                    },
                }
            }
        }
    };
    match outcome {
        Err(error) if is_theirs(whole, &error) => contested(state, ino),
        Err(error) => failed(state, ino, &error),
        Ok(()) => {}
    }
    settle(state, ino);
    None
}

/// A version got its name, or did not.
fn published(state: &mut State, job: &PublishJob, publication: Publication) {
    let ino = job.file.ino;
    passes::end(state, &job.file);
    let restored = publication.restored;
    match job.conclude(state, publication) {
        Ok(()) => {}
        Err(error) if error.kind == ErrorKind::Busy => contested(state, ino),
        Err(_) if restored => state.debts.not_before(ino, state.world.now()),
        Err(error) => failed(state, ino, &error),
    }
    settle(state, ino);
}

/// The drain is through with a file for now.
fn settle(state: &mut State, ino: Ino) {
    let settled = state.commit().and_then(|()| {
        match state.names.inode(ino) {
            Some(inode) if !state.is_orphan(&inode) => {}
            _ => {
                orphans::remove(state, ino);
                state.debts.lost(ino, None);
                return Ok(());
            }
        }
        returning::drop_arrived(state, ino);
        closed::settle_closed(state, ino)?;
        state.commit()
    });
    if let Err(error) = settled {
        // What the log does not have yet is written before anything else is done.
        let (why, now) = (error.to_string(), state.world.now());
        match state.debts.get(ino) {
            Some(_) => state.debts.failed(ino, why, now),
            None => _ = state.debts.work_failed(Work::Tending, why, now),
        }
    }
}

/// Whether the backing's copy was found to be not the one that was to be updated.
fn is_theirs(whole: bool, error: &Error) -> bool {
    error.kind == ErrorKind::Busy || (!whole && owed_names::lacks_directory(error))
}

fn conclude_whole(state: &mut State, job: FileJob, pass: Pass) -> Result<Option<PublishJob>> {
    let ino = job.ino;
    if state.names.inode(ino).is_some_and(|inode| inode.is(flag::NAMED)) {
        return PublishJob::prepare(state, job, pass);
    }
    // It lost its name: nothing of it is owed.
    state.debts.lost(ino, pass.version);
    Ok(None)
}

fn conclude_in_place(
    state: &mut State,
    job: &FileJob,
    pass: &Pass,
    expect: Fingerprint,
) -> Result<()> {
    let Some((fingerprint, size)) = pass.finished else { return Ok(()) };
    state.debts.progress().verified(pass.verified_bytes);
    if let Some(replacement) = state.names.replacement(job.ino) {
        state.record(Fact::Settled { ino: replacement, fingerprint });
    }
    let Some(inode) = state.names.inode(job.ino) else { return Ok(()) };
    if !inode.published.is_some_and(|known| known.is_same_object(expect)) {
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
    if is_quiet(state, job.ino) && steady && now == Some(size) {
        state.debts.progress().finished_file();
        passes::backed(state, job, size);
        state.debts.paid(job.ino);
        if state.is_written(job.ino) && !state.finishing {
            passes::owe_again(state, job.ino, true);
        }
        return Ok(());
    }
    if steady {
        // What was copied can leave memory while the file goes on growing.
        passes::backed(state, job, size);
    }
    again_soon(state, job);
    Ok(())
}
