//! One name operation brought to the backing, without the server's lock. Each may be done again
//! after a restart. One that moves names and may have been done is looked at first: until then it
//! is not known where the backing has what has those names, and whoever needs that waits.
//!
//! Not here: their order, and what must be copied before (`turns`).

use terral_format::disk::NameOperation;
use terral_format::disk::facts::Fact;
use terral_format::disk::local::Local;
use terral_format::fingerprint::Object;
use terral_format::ids::{Ino, Lsn};
use terral_format::local::names::{Inode, flag};
use terral_format::wire::message::{Change, Kind};
use terral_format::wire::moving::Renamed;
use terral_format::{Error, ErrorKind, Result};
use terral_store::backing::{Found, NameSink, Source, Touched};

use crate::core::paths::shown;
use crate::core::state::State;
use crate::debts::failures::Work;
use crate::debts::owing;
use crate::members::moving;
use crate::naming::exchanging;
use crate::naming::names::is_known;
use crate::naming::unsettled::moves;
use crate::shared::Shared;

/// `EPERM`.
const NOT_PERMITTED: i32 = 1;
/// `EMLINK`.
const TOO_MANY_LINKS: i32 = 31;

/// So often directories are made anew before one operation is left for later.
const TRIES: usize = 4;

/// How it is refused to make what has a name already.
const ANYTHING: [ErrorKind; 1] = [ErrorKind::Exists];
/// How it is refused to move a file to a directory, a directory to a file, or to a directory with
/// something in it.
const DIRECTORIES: [ErrorKind; 4] =
    [ErrorKind::IsDirectory, ErrorKind::NotDirectory, ErrorKind::NotEmpty, ErrorKind::Exists];

/// An operation on names that is done in the backing without the server's lock.
pub struct NameJob {
    lsn: Lsn,
    operation: NameOperation,
    /// It may have been done before, by a server that died, or as its answer was lost.
    resumed: bool,
    /// Only this is to be found out.
    looks: bool,
    /// What had the first name of an exchange before it was begun, if it was.
    exchanging: Option<Object>,
    /// Another name of the file that loses one.
    other: Option<Vec<u8>>,
}

/// What was done, and what is to be noted of it.
#[derive(Default)]
pub struct Brought {
    /// It was only found out that it was not done before.
    not_yet: bool,
    /// Looks that changed: which of the inodes that the operation names, and how.
    touched: [Option<Touched>; 2],
    /// What users should know.
    said: Vec<String>,
    /// What was to be moved is not there any more.
    gone: bool,
    /// The backing takes no extended attributes.
    no_xattrs: bool,
}

impl NameJob {
    /// The next operation; it counts as begun from now on.
    pub fn begin(state: &mut State) -> Option<Self> {
        let (lsn, operation) = state.names.owed().front().cloned()?;
        let resumed = state.names.is_resumed();
        let looks = resumed && moves(&operation);
        let other = match operation {
            NameOperation::Unlink { keeps: Some(ino), .. } => state.names.path(ino),
            _ => None,
        };
        let other = other.map(|path| state.names.backing_path(&path));
        let operation = match operation {
            NameOperation::Change { path, ino, change } => {
                let change = as_it_is(state, ino, &change);
                NameOperation::Change { path, ino, change }
            }
            operation => operation,
        };
        let exchanging = state.names.exchanging(lsn);
        state.names.may_be_begun();
        state.fetches.spoil(&operation.paths());
        Some(NameJob { lsn, operation, resumed, looks, exchanging, other })
    }

    /// Whether it moves names, and does not only look whether it has.
    #[cfg(test)]
    pub fn moves(&self) -> bool {
        moves(&self.operation) && !self.looks
    }

    /// Does it there, without the server's lock.
    pub fn carry_out(&self, shared: &Shared, backing: &dyn NameSink) -> Result<Brought> {
        let mut brought = Brought::default();
        if self.looks {
            return self.look(backing);
        }
        self.bring(shared, backing, &mut brought)?;
        Ok(brought)
    }

    /// Finds out whether it was done before: files would be sought there under names that they have
    /// no more.
    fn look(&self, backing: &dyn Source) -> Result<Brought> {
        let look = |path: &[u8]| seen(backing, path);
        let (from, to, done) = match &self.operation {
            NameOperation::Rename { from, to, over, .. } => {
                // What it is to replace may still be there, as somebody else has removed the other.
                let there = look(to)?.map(|found| found.fingerprint.object());
                (from, to, there.is_some() && there != *over && look(from)?.is_none())
            }
            NameOperation::Exchange { from, to, .. } => {
                let there = object(look(to)?);
                (from, to, self.exchanging == Some(there))
            }
            _ => return Ok(Brought { not_yet: true, ..Brought::default() }),
        };
        let now = |path: &[u8]| if done { there_already(backing, path) } else { Ok(None) };
        let touched = [now(to)?, now(from)?];
        Ok(Brought { not_yet: !done, touched, ..Brought::default() })
    }

    fn bring(&self, shared: &Shared, backing: &dyn NameSink, brought: &mut Brought) -> Result<()> {
        match &self.operation {
            NameOperation::MakeDirectory { path, mode } => {
                let make = || within(shared, backing, path, || backing.make_directory(path, *mode));
                brought.said.extend(beside_theirs(backing, path, &ANYTHING, make)?.1);
            }
            NameOperation::MakeLink { path, target } => {
                let make = || within(shared, backing, path, || backing.make_link(path, target));
                brought.said.extend(beside_theirs(backing, path, &ANYTHING, make)?.1);
            }
            NameOperation::MakeFifo { path, mode } => {
                let make = || within(shared, backing, path, || backing.make_fifo(path, *mode));
                brought.said.extend(beside_theirs(backing, path, &ANYTHING, make)?.1);
            }
            NameOperation::RemoveDirectory { path } => backing.remove_directory(path)?,
            NameOperation::Unlink { path, keeps: None } => backing.unlink(path)?,
            NameOperation::Unlink { path, keeps: Some(_) } => {
                // A file keeps its other names, and looks different with one less.
                let look = || match &self.other {
                    Some(other) => seen(backing, other),
                    None => Ok(None),
                };
                let before = look()?;
                backing.unlink(path)?;
                // What cannot be seen now is tried again: it would be taken for somebody else's
                // change.
                brought.touched[0] = between(before, look()?);
            }
            NameOperation::Exchange { from, to, .. } => {
                brought.touched = self.exchange(shared, backing, (from, to))?;
            }
            NameOperation::Link { from, to, over, .. } => {
                brought.said.extend(keep_theirs(backing, (from, to), *over)?);
                let done = within(shared, backing, to, || backing.link(from, to));
                brought.touched[0] = unless_gone(backing, from, done)?;
            }
            NameOperation::Rename { from, to, over, .. } => {
                brought.said.extend(keep_theirs(backing, (from, to), *over)?);
                let rename = || within(shared, backing, to, || backing.rename(from, to));
                let rename = || unless_gone(backing, from, rename());
                let (moved, said) = beside_theirs(backing, to, &DIRECTORIES, rename)?;
                brought.said.extend(said);
                brought.touched[0] = match moved {
                    None => self.missing(backing, to, *over, brought)?,
                    moved => moved,
                };
            }
            NameOperation::SetXattr { path, name, value, .. } => {
                let done = backing.set_xattr(path, name, value.as_deref());
                xattr_done(brought, done)?;
            }
            NameOperation::Change { path, change, .. } => {
                let mut found = done_before(backing.change(path, *change))?;
                if let Some(found) = &mut found
                    && change.modified_ns == Some(found.modified_ns)
                {
                    // Its bytes were not changed then: that is what an earlier attempt has set.
                    found.modified_ns = 0;
                }
                brought.touched[0] = found;
            }
        }
        Ok(())
    }

    /// What was to be moved to `to` is not there: a server that died may have moved it, or an
    /// attempt that failed. Or somebody has removed it: what it replaces goes all the same.
    fn missing(
        &self,
        backing: &dyn NameSink,
        to: &[u8],
        over: Option<Object>,
        brought: &mut Brought,
    ) -> Result<Option<Touched>> {
        let there = seen(backing, to)?;
        let stays = over.is_some() && over == there.map(|found| found.fingerprint.object());
        if self.resumed && !stays && there.is_some() {
            return Ok(between(there, there));
        }
        brought.gone = true;
        match there {
            Some(_) if stays => backing.unlink(to)?,
            // Nothing of that may be taken for what is only in the store of the file that comes.
            Some(found) if found.attributes.kind != Kind::Directory => {
                brought.said.push(made_there(to, &backing.set_aside(to)?));
            }
            _ => {}
        }
        Ok(None)
    }

    /// Done twice, an exchange would be undone: what had the first name is noted before, if only
    /// that nothing had.
    fn exchange(
        &self,
        shared: &Shared,
        backing: &dyn NameSink,
        (from, to): (&[u8], &[u8]),
    ) -> Result<[Option<Touched>; 2]> {
        let look = |path| seen(backing, path);
        let mut before = [look(from)?, look(to)?];
        if self.exchanging == Some(object(before[1])) {
            before.reverse();
        } else {
            if self.exchanging.is_none() {
                let mut state = shared.lock();
                let object = object(before[0]);
                state.record(Local::Exchanging { lsn: self.lsn, object });
                state.commit()?;
            }
            let rename = |from: &[u8], to: &[u8]| {
                within(shared, backing, to, || backing.rename(from, to)).map(drop)
            };
            // What is not there yet comes to its new name by itself.
            done_before(match before {
                [Some(_), Some(_)] => backing.exchange(from, to).map(drop),
                [Some(_), None] => rename(from, to),
                [None, Some(_)] => rename(to, from),
                [None, None] => Ok(()),
            })?;
        }
        let after = [look(to)?, look(from)?];
        Ok([between(before[0], after[0]), between(before[1], after[1])])
    }

    /// Notes what became of it.
    ///
    /// # Errors
    /// What it failed with, if it is to be tried again.
    pub fn conclude(&self, state: &mut State, brought: Result<Brought>) -> Result<()> {
        state.fetches.spoil(&self.operation.paths());
        let brought = match brought {
            Ok(brought) if brought.not_yet => {
                state.names.is_not_begun();
                return Ok(());
            }
            Err(error) if is_final(&error) => {
                let said = vec![format!("not done there: {error}")];
                Brought { said, ..Brought::default() }
            }
            brought => brought?,
        };
        brought.said.into_iter().for_each(|said| state.debts.progress().conflict(said));
        if brought.no_xattrs && state.debts.progress().has_no_xattrs() {
            let path = self.operation.paths().first().map(|path| shown(path)).unwrap_or_default();
            let what = "extended attributes are kept here only: the directory takes none";
            state.debts.progress().conflict(format!("{path}: {what}"));
        }
        // Another file may have taken the place of one meanwhile.
        let now = state.names.owed().front().filter(|(lsn, _)| *lsn == self.lsn);
        let inos = now.map_or([None, None], |(_, operation)| operation.inos());
        let came = brought.touched[1].map(|touched| renamed(touched, self.resumed));
        moving::has_seen(state, self.lsn, came);
        for (ino, touched) in inos.iter().copied().zip(brought.touched) {
            if let (Some(ino), Some(touched)) = (ino, touched) {
                exchanging::is_seen_renamed(state, ino, renamed(touched, self.resumed));
            }
        }
        if let (true, Some(ino)) = (brought.gone, inos[0]) {
            bring_again(state, ino);
        }
        if !moving::must_be_known(state, self.lsn) {
            state.record(Fact::NamesDrained(self.lsn));
            state.debts.name_brought();
        }
        if let Err(error) = state.commit() {
            state.debts.work_failed(Work::Log, error.to_string(), state.world.now());
        }
        Ok(())
    }
}

/// In another server: notes that the next operation was done by one that died before it could.
/// Where the backing cannot say, or another member may be moving something there, the drain looks
/// later.
pub(crate) fn find_renamed(state: &mut State) {
    let front = state.names.owed().front().filter(|_| state.names.is_next_unsure());
    let front = front.filter(|_| !state.names.may_rest());
    let next = front.filter(|(_, operation)| !state.names.is_unsure(operation));
    let (true, Some(backing)) = (next.is_some(), state.backing.clone()) else { return };
    let Some(job) = NameJob::begin(state) else { return };
    if let Ok(found) = job.look(&*backing) {
        let _ = job.conclude(state, Ok(found));
    }
}

/// A rename, or a link, is about to take a name: if somebody else has made a file there, that gets
/// another, and users are told.
fn keep_theirs(
    backing: &dyn NameSink,
    (from, to): (&[u8], &[u8]),
    over: Option<Object>,
) -> Result<Option<String>> {
    let (Some(over), Some(moved)) = (over, seen(backing, from)?) else {
        return Ok(None);
    };
    let theirs = backing.keep_theirs(to, &[over, moved.fingerprint.object()], from);
    let theirs = unless_gone(backing, to, theirs)?.flatten();
    Ok(theirs.map(|theirs| made_there(to, &theirs)))
}

/// What users are told of a file that is kept beside ours.
fn made_there(path: &[u8], theirs: &[u8]) -> String {
    format!("{}: made there meanwhile; theirs is {}", shown(path), shown(theirs))
}

/// Makes what somebody has something else in the place of, which nobody could see when it was made
/// here, and which fails as `in_the_way` says: that gets another name, and users are told.
fn beside_theirs<T>(
    backing: &dyn NameSink,
    path: &[u8],
    in_the_way: &[ErrorKind],
    make: impl Fn() -> Result<T>,
) -> Result<(T, Option<String>)> {
    match make() {
        Err(error) if in_the_way.contains(&error.kind) => {}
        made => return made.map(|made| (made, None)),
    }
    let said = made_there(path, &backing.set_aside(path)?);
    make().map(|made| (made, Some(said)))
}

/// Does what makes a name; once more if directories above it had to be made anew. If it lacks
/// something all the same, it is not one of them.
///
/// # Errors
/// Those of `act`, and of [`restore`].
fn within<T>(
    shared: &Shared,
    backing: &dyn NameSink,
    path: &[u8],
    act: impl Fn() -> Result<T>,
) -> Result<T> {
    for _ in 0..TRIES {
        match act() {
            Err(error) if lacks_directory(&error) && restore(shared, backing, path)? => {}
            done => return done,
        }
    }
    Err(taken_away(path))
}

/// Whether it failed for want of a directory on the way.
pub fn lacks_directory(error: &Error) -> bool {
    matches!(error.kind, ErrorKind::NotFound | ErrorKind::NotDirectory)
}

/// Somebody else removes directories as fast as they are made.
fn taken_away(path: &[u8]) -> Error {
    let context = format!("{}: somebody else removes a directory above it", shown(path));
    Error::new(ErrorKind::Backing, context)
}

/// Makes the directories above `path` that somebody else has removed, or put something else in the
/// place of, which gets another name: what is brought needs them. Whether there were any.
///
/// # Errors
/// If it is not known whether they are there, or one cannot be made: never as if something were
/// missing.
pub fn restore(shared: &Shared, backing: &dyn NameSink, path: &[u8]) -> Result<bool> {
    match restore_above(shared, backing, path) {
        Err(error) if lacks_directory(&error) => Err(taken_away(path)),
        restored => restored,
    }
}

fn restore_above(shared: &Shared, backing: &dyn NameSink, path: &[u8]) -> Result<bool> {
    let mut restored = false;
    let modes = shared.lock().names.modes_above(path);
    for (end, mode) in modes {
        let above = &path[..end];
        let aside = match backing.stat(above) {
            Ok(found) if found.attributes.kind == Kind::Directory => continue,
            // Something else is there, or something that cannot be brought here.
            Ok(_) => backing.set_aside(above)?,
            Err(error) if error.kind == ErrorKind::Unsupported => backing.set_aside(above)?,
            Err(error) if error.kind == ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        backing.make_directory(above, mode)?;
        restored = true;
        let what = match &*aside {
            b"" => "removed there meanwhile; made anew".into(),
            aside => format!("no directory there any more; made anew, theirs is {}", shown(aside)),
        };
        shared.lock().debts.progress().conflict(format!("{}: {what}", shown(above)));
    }
    Ok(restored)
}

/// A change with the times as they are by now: what was written since may be there before it.
fn as_it_is(state: &State, ino: Ino, change: &Change) -> Change {
    let Some(now) = state.attributes(ino) else { return *change };
    Change {
        accessed_ns: change.accessed_ns.map(|_| now.accessed_ns),
        modified_ns: change.modified_ns.map(|_| now.modified_ns),
        ..*change
    }
}

/// What is missing was moved before a restart, or somebody else took it away: nothing is left to
/// do.
pub fn done_before<T>(done: Result<T>) -> Result<Option<T>> {
    match done {
        Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
        done => done.map(Some),
    }
}

/// What this was about may be gone, and so may its directory be.
fn unless_gone<T>(backing: &dyn Source, path: &[u8], done: Result<T>) -> Result<Option<T>> {
    match done {
        Err(error) if lacks_directory(&error) && seen(backing, path)?.is_none() => Ok(None),
        done => done.map(Some),
    }
}

/// How this name looks now, if it is there: its directory may be none yet, or none any more.
fn seen(backing: &dyn Source, path: &[u8]) -> Result<Option<Found>> {
    match backing.stat(path) {
        Err(error) if lacks_directory(&error) => Ok(None),
        found => found.map(Some),
    }
}

/// Which object that is.
fn object(found: Option<Found>) -> Object {
    found.map_or(Object::NONE, |found| found.fingerprint.object())
}

/// The same as who has the file is told, or notes himself.
fn renamed(Touched { before, after, modified_ns }: Touched, again: bool) -> Renamed {
    Renamed { before, after, modified_ns, again }
}

/// What changed between these two looks.
fn between(before: Option<Found>, after: Option<Found>) -> Option<Touched> {
    let (before, after) = (before?, after?);
    let modified_ns = before.attributes.modified_ns;
    Some(Touched { before: before.fingerprint, after: after.fingerprint, modified_ns })
}

/// What was moved here before.
fn there_already(backing: &dyn Source, path: &[u8]) -> Result<Option<Touched>> {
    let there = seen(backing, path)?;
    Ok(between(there, there))
}

/// What cannot be kept there is kept here only: said once if that is so of all, and for this one
/// if it is too much there.
fn xattr_done(brought: &mut Brought, done: Result<Touched>) -> Result<()> {
    match done_before(done) {
        Ok(found) => brought.touched[0] = found,
        Err(error) if error.kind == ErrorKind::Unsupported => brought.no_xattrs = true,
        Err(error) if error.kind == ErrorKind::NoSpace => {
            brought.said.push(format!("extended attribute kept here only: {error}"));
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Whether a name operation failed because of what somebody else has there, because this user may
/// not do it, or because a file can have no more names there: trying again will not help, and the
/// rest must not wait for it.
pub fn is_final(error: &Error) -> bool {
    let theirs = [
        ErrorKind::NotEmpty,
        ErrorKind::IsDirectory,
        ErrorKind::NotDirectory,
        ErrorKind::Exists,
        ErrorKind::CrossDevice,
        ErrorKind::Unsupported,
        ErrorKind::NameTooLong,
        ErrorKind::Invalid,
        ErrorKind::Loop,
    ];
    theirs.contains(&error.kind) || [NOT_PERMITTED, TOO_MANY_LINKS].contains(&error.errno)
}

/// Somebody has removed a file there before it could be moved: as it is used here, it arrives
/// whole, unless nothing of it is here.
fn bring_again(state: &mut State, ino: Ino) {
    let alone = |inode: &Inode| inode.kind == Kind::File && inode.links < 2 && is_known(inode);
    let Some(inode) = state.names.inode(ino).filter(alone) else { return };
    let path = shown(&state.names.path(ino).unwrap_or_default());
    let (here, backed) = match inode.slot {
        Some(slot) => (state.storage.has_any(slot), state.storage.backed_bytes(slot)),
        None => (inode.is(flag::PACKED), inode.backed_bytes),
    };
    if here || backed == 0 {
        state.record(Fact::Contested { ino });
        return owing::owe(state, ino);
    }
    let said = format!("{path}: removed there meanwhile, and nothing of it is in memory");
    state.debts.progress().conflict(said);
}
