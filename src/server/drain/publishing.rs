//! How a whole version of a file gets its name in the backing, and how it is found out whether it
//! has, after a failure or in another server. The backing is asked without the server's lock:
//! meanwhile the file may be written, moved, removed.
//!
//! Invariants: no name operation is owed when a version is announced. One that was moved, or lost
//! its name, since then is taken back before any other operation is done, so that what was decided
//! meanwhile of a file that the backing does not know stays true. Not here: what is copied
//! (`copying`), and when (`turns`).

use terral_format::disk::facts::Fact;
use terral_format::disk::local::{Local, Publishing};
use terral_format::fingerprint::Fingerprint;
use terral_format::ids::{Ino, InstanceId};
use terral_format::local::names::flag;
use terral_format::wire::message::{Attributes, Change};
use terral_format::{Error, ErrorKind, Result};
use terral_store::backing::{Found, NameSink, Published, Sink, Source};

use crate::core::left_out::{Step, does};
use crate::core::paths::shown;
use crate::core::state::State;
use crate::debts::failures::Work;
use crate::debts::policy::Event;
use crate::debts::version::SharedVersion;
use crate::drain::copying::{FileJob, Pass, replaces_open};
use crate::drain::owed_names::{self, lacks_directory};
use crate::drain::passes::{self, again_soon, is_quiet};
use crate::shared::Shared;

/// A version that is to get its name.
pub struct PublishJob {
    pub(crate) file: FileJob,
    version: SharedVersion,
    path: Vec<u8>,
    attributes: Attributes,
    /// Of the file's size.
    epoch: u16,
    /// How the copy looks that ours is to replace, as far as that is known.
    known: Option<Fingerprint>,
    /// A server that died was changing that one in place.
    interrupted: bool,
    verified_bytes: u64,
}

/// What became of it.
pub struct Publication {
    done: Result<Published>,
    /// Directories above it were missing, and are there now.
    pub(crate) restored: bool,
}

impl PublishJob {
    /// For a pass that has copied all of a file: what is to be published; `None` if it must wait.
    ///
    /// # Errors
    /// If the log cannot be written.
    pub(crate) fn prepare(state: &mut State, file: FileJob, pass: Pass) -> Result<Option<Self>> {
        let ino = file.ino;
        let Some(version) = pass.version else { return Ok(None) };
        // Names go first: the directory must exist, and our name must be the one the backing will
        // have.
        if !state.names.owed().is_empty() {
            state.debts.happened(ino, Event::Passed { open: true }, state.world.now());
            return Ok(None);
        }
        // A pass that ended while names were owed has not read its copy back.
        let later = !version.is_whole() || !pass.verified;
        let ripe = replaces_open(state, ino) || is_quiet(state, ino);
        if later || !ripe || state.storage.memory().size_epoch(file.slot) != pass.epoch {
            again_soon(state, &file);
            return Ok(None);
        }
        let found = (state.sound_attributes(ino), state.names.path(ino), state.names.inode(ino));
        let (Some(attributes), Some(path), Some(inode)) = found else { return Ok(None) };
        // From here on, what is cut off counts for what gets the name, too.
        passes::backed(state, &file, attributes.size);
        state.commit()?;
        state.fetches.spoil(&[&path]);
        let (epoch, verified_bytes) = (pass.epoch, pass.verified_bytes);
        let (known, interrupted) = (inode.published, inode.is(flag::INTENT));
        passes::begin(state, &file);
        state.debts.publishes(ino);
        let job = PublishJob {
            file,
            version,
            path,
            attributes,
            epoch,
            known,
            interrupted,
            verified_bytes,
        };
        Ok(Some(job))
    }

    /// Gives it its name, without the server's lock.
    pub(crate) fn carry_out(&self, shared: &Shared, names: &dyn NameSink) -> Publication {
        let done = self.publish(shared, names);
        if !matches!(&done, Err(error) if lacks_directory(error)) {
            return Publication { done, restored: false };
        }
        match owed_names::restore(shared, names, &self.path) {
            Ok(restored) => Publication { done, restored },
            Err(error) => Publication { done: Err(error), restored: false },
        }
    }

    fn publish(&self, shared: &Shared, source: &dyn Source) -> Result<Published> {
        let expect = self.expected(source)?;
        let staged = self.version.copied().staged.take();
        let gone = || Error::new(ErrorKind::Backing, "a version that is gone");
        let mut announce =
            |found: &Found| announce(&mut shared.lock(), self.file.ino, &self.path, found);
        let (attributes, size) = (&self.attributes, self.attributes.size);
        let staged = staged.ok_or_else(gone)?;
        staged.publish(&self.path, attributes, size, expect, &mut announce)
    }

    /// How the copy looks that ours is to replace.
    fn expected(&self, source: &dyn Source) -> Result<Option<Fingerprint>> {
        if !does(Step::CompareThere) {
            let found = owed_names::done_before(source.stat(&self.path))?;
            return Ok(found.map(|found| found.fingerprint));
        }
        let (Some(known), true) = (self.known, self.interrupted) else { return Ok(self.known) };
        // A server that died was changing it in place, for the file that had this name before or
        // for this one: how far it came nobody knows.
        let found = owed_names::done_before(source.stat(&self.path))?;
        let found = found.map(|found| found.fingerprint);
        Ok(found.filter(|found| found.is_same_object(known)).or(Some(known)))
    }

    /// Notes what became of it.
    ///
    /// # Errors
    /// What kept it from getting its name.
    pub(crate) fn conclude(&self, state: &mut State, publication: Publication) -> Result<()> {
        let ino = self.file.ino;
        state.fetches.spoil(&[&self.path]);
        state.debts.published(ino, publication.done.is_ok());
        let Published { fingerprint, conflict } = publication.done?;
        if let Some(theirs) = conflict {
            let (ours, theirs) = (shown(&self.path), shown(&theirs));
            state
                .debts
                .progress()
                .conflict(format!("{ours}: changed there meanwhile; theirs is {theirs}"));
        }
        if state.names.is_moved(ino, &self.path) {
            // It stays announced, and is taken back.
            state.debts.not_before(ino, state.world.now());
            return Ok(());
        }
        state.debts.progress().finished_file();
        state.debts.progress().verified(self.verified_bytes);
        state.record(Fact::Published { ino, fingerprint });
        changed_meanwhile(state, ino, &self.attributes);
        self.cut_meanwhile(state);
        state.debts.paid(ino);
        let file = &self.file;
        let now = state.attributes(ino).map(|attributes| attributes.size);
        let steady = state.storage.memory().size_epoch(file.slot) == self.epoch;
        let same = steady && now == Some(self.attributes.size);
        if state.is_written(ino) && !state.finishing {
            passes::owe_again(state, ino, true);
        } else if !same || !is_quiet(state, ino) {
            passes::owe_again(state, ino, false);
        }
        Ok(())
    }

    /// What was truncated to nothing stays in the backing until the new is whole.
    fn cut_meanwhile(&self, state: &mut State) {
        let (ino, then) = (self.file.ino, &self.attributes);
        let cut = state.storage.backed_bytes(self.file.slot) == 0 && then.size > 0;
        if cut && state.names.inode(ino).is_some_and(|inode| inode.links < 2) {
            state.record(Fact::Rewritten { ino });
        }
    }
}

/// What was changed of a file that the backing did not know yet was not owed. `then` is what it has
/// there.
fn changed_meanwhile(state: &mut State, ino: Ino, then: &Attributes) {
    let Some(now) = state.attributes(ino) else { return };
    // What was written goes there with its times.
    let times = now.changed_ns != then.changed_ns && is_quiet(state, ino);
    let change = Change {
        mode: (now.mode != then.mode).then_some(now.mode),
        uid: (now.uid != then.uid).then_some(now.uid),
        gid: (now.gid != then.gid).then_some(now.gid),
        accessed_ns: (times && now.accessed_ns != then.accessed_ns).then_some(now.accessed_ns),
        modified_ns: (times && now.modified_ns != then.modified_ns).then_some(now.modified_ns),
    };
    if change != Change::default() {
        state.record(Fact::Changed { ino, change, time_ns: now.changed_ns });
    }
}

/// Versions of which it is to be found out whether they have got their names.
pub struct ResolveJob(Vec<(Ino, Publishing)>);

impl ResolveJob {
    /// All that were announced; `None` if there are none, or it was tried just now.
    pub(crate) fn prepare(state: &State) -> Option<Self> {
        let later = state.debts.paused(Work::Versions, state.world.now()).is_some();
        let announced = state.names.publishing();
        let all = announced.iter().map(|(ino, version)| (*ino, version.clone()));
        (!later && !announced.is_empty()).then(|| ResolveJob(all.collect()))
    }

    /// Finds it out, without the server's lock.
    pub(crate) fn carry_out(
        &self,
        shared: &Shared,
        source: &dyn Source,
        sink: &dyn Sink,
    ) -> Vec<(Ino, Error)> {
        let resolve = |(ino, version): &(Ino, Publishing)| {
            let instance = shared.lock().began.instance;
            let found = look_at_one((source, sink), (*ino, instance), version)?;
            if settle_version(&mut shared.lock(), *ino, version, found)? {
                take_back(shared, sink, *ino, version)?;
            }
            Ok(())
        };
        let failed = |one: &(Ino, Publishing)| resolve(one).err().map(|error| (one.0, error));
        self.0.iter().filter_map(failed).collect()
    }
}

/// What has the name of an announced version, if it is that.
///
/// # Errors
/// If the backing cannot say.
fn look(source: &dyn Source, version: &Publishing) -> Result<Option<Found>> {
    match source.stat(&version.path) {
        Ok(found) if found.fingerprint.is_same_object(version.fingerprint) => Ok(Some(found)),
        Err(error) if is_away(&error) => Err(error),
        _ => Ok(None),
    }
}

/// The same of one that got its name by a link, perhaps, and is still where it grew: it is taken
/// from there first, which would look like somebody else's change of it later.
fn look_at_one(
    (source, sink): (&dyn Source, &dyn Sink),
    (ino, instance): (Ino, InstanceId),
    version: &Publishing,
) -> Result<Option<Found>> {
    let found = look(source, version)?;
    // Without users names are given by renames only: nothing is made there to find out.
    let is_linked = found.is_some_and(|found| found.attributes.links > 1);
    if source.owner().is_none() || !is_linked {
        return Ok(found);
    }
    sink.stage(ino, instance)?.discard();
    look(source, version)
}

/// Whether the store itself failed, and not what was asked for.
fn is_away(error: &Error) -> bool {
    matches!(error.kind, ErrorKind::Backing | ErrorKind::Denied | ErrorKind::System)
}

/// Makes a version that has a name which is not its file's any more one on its way again, or, if
/// there is no such file any more, none.
fn take_back(shared: &Shared, sink: &dyn Sink, ino: Ino, version: &Publishing) -> Result<()> {
    let instance = shared.lock().began.instance;
    sink.take_back(&version.path, ino, instance)?;
    let mut state = shared.lock();
    state.fetches.spoil(&[&version.path]);
    is_unpublished(&mut state, ino);
    Ok(())
}

/// A version that was announced has no name: it may be staged, for the next pass, unless its file
/// is gone.
fn is_unpublished(state: &mut State, ino: Ino) {
    state.names.is_unpublished(ino);
    state.debts.leaves_staged(ino);
    if state.names.inode(ino).is_none() {
        state.debts.lost(ino, None);
    }
}

/// What is about to get a name in the backing: if we die, the next server looks whether it has.
fn announce(state: &mut State, ino: Ino, path: &[u8], found: &Found) -> Result<()> {
    let (path, modified_ns) = (path.to_vec(), found.attributes.modified_ns);
    let version = Publishing { path, fingerprint: found.fingerprint, modified_ns };
    if does(Step::Announce) {
        state.record(Local::Publishing { ino, version });
    }
    state.commit()
}

/// In another server: finds out which versions that were announced have got their names, by what
/// has them. Where the backing cannot say, the drain does later.
pub(crate) fn find_published(state: &mut State) {
    let Some(backing) = state.backing.clone() else { return };
    let announced: Vec<_> = state.names.publishing().clone().into_iter().collect();
    for (ino, version) in announced {
        let (both, one) = ((&*backing as _, &*backing as _), (ino, state.began.instance));
        let Ok(found) = look_at_one(both, one, &version) else { continue };
        // What is to be taken back is so by the drain, before it does anything else.
        let _ = settle_version(state, ino, &version, found);
    }
}

/// It is known what has the name of an announced version. Whether that must be taken back.
fn settle_version(
    state: &mut State,
    ino: Ino,
    version: &Publishing,
    found: Option<Found>,
) -> Result<bool> {
    let Some(found) = found else {
        is_unpublished(state, ino);
        return Ok(false);
    };
    state.fetches.spoil(&[&version.path]);
    let size = version.fingerprint.size();
    let same = (found.attributes.modified_ns, found.attributes.size) == (version.modified_ns, size);
    if state.names.is_moved(ino, &version.path) {
        if !same {
            // Somebody has changed it since: it is his.
            state.names.is_unpublished(ino);
        }
        return Ok(same);
    }
    // If somebody has changed it since, it does not look as we know it.
    let fingerprint = if same { found.fingerprint } else { version.fingerprint };
    state.record(Fact::Published { ino, fingerprint });
    // Nobody noted how it was when it was announced. What is written by now goes there yet; when it
    // was read may have changed there.
    let accessed_ns = state.attributes(ino).map_or(0, |now| now.accessed_ns);
    let there = Attributes { accessed_ns, ..found.attributes };
    changed_meanwhile(state, ino, &there);
    state.commit()?;
    Ok(false)
}
