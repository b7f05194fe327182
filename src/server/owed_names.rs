//! One name operation brought to the backing. Each may be done again after a restart.
//!
//! Not here: their order, and what must be copied before (`drain`).

use terral_format::ids::{Ino, Lsn, ROOT};
use terral_format::message::{Change, Kind};
use terral_format::record::facts::Fact;
use terral_format::record::local::Local;
use terral_format::record::{Fingerprint, NameOperation};
use terral_format::{Error, ErrorKind, Result};
use terral_store::backing::{Backing, Found, Touched};

use crate::paths::shown;
use crate::state::State;

/// `EPERM`.
const NOT_PERMITTED: i32 = 1;
/// `EMLINK`.
const TOO_MANY_LINKS: i32 = 31;

/// Does one operation there.
pub fn bring(
    state: &mut State,
    backing: &dyn Backing,
    lsn: Lsn,
    owed: &NameOperation,
) -> Result<()> {
    match owed {
        NameOperation::MakeDirectory { path, mode } => {
            within(state, backing, path, || backing.make_directory(path, *mode))
        }
        NameOperation::MakeLink { path, target } => {
            within(state, backing, path, || backing.make_link(path, target))
        }
        NameOperation::MakeFifo { path, mode } => {
            within(state, backing, path, || backing.make_fifo(path, *mode))
        }
        NameOperation::RemoveDirectory { path } => backing.remove_directory(path),
        NameOperation::Unlink { path, keeps: None } => backing.unlink(path),
        NameOperation::Unlink { path, keeps: Some(ino) } => unlink_one(state, backing, path, *ino),
        NameOperation::Exchange { from, to, inos } => {
            exchange(state, backing, lsn, (from, to), *inos)
        }
        NameOperation::Link { from, to, ino } => {
            let done = within(state, backing, to, || backing.link(from, to));
            touched(state, *ino, done_before(done)?);
            Ok(())
        }
        NameOperation::Rename { from, to, ino, over } => {
            keep_theirs(state, backing, (from, to), *over)?;
            let done = within(state, backing, to, || backing.rename(from, to));
            let moved = match done_before(done)? {
                // A server that died may have moved it, or an attempt that failed.
                None if state.names.is_resumed() => there_already(backing, to)?,
                moved => moved,
            };
            touched(state, *ino, moved);
            Ok(())
        }
        NameOperation::SetXattr { path, ino, name, value } => {
            let done = backing.set_xattr(path, name, value.as_deref());
            xattr_done(state, path, *ino, done)
        }
        NameOperation::Change { path, ino, change } => {
            let change = as_it_is(state, *ino, change);
            let mut found = done_before(backing.change(path, change))?;
            if let Some(found) = &mut found
                && change.modified_ns == Some(found.modified_ns)
            {
                // Its bytes were not changed then: that is what an earlier attempt has set.
                found.modified_ns = 0;
            }
            touched(state, *ino, found);
            Ok(())
        }
    }
}

/// An operation is done there.
pub fn done(state: &mut State, ordinal: Lsn) {
    state.record(Fact::NamesDrained(ordinal));
    if let Err(error) = state.commit() {
        state.debts.names_failed(error.to_string(), state.world.now());
    }
    state.debts.names_failure = None;
    state.debts.unsynced = true;
    state.debts.shown.settled = false;
}

impl State {
    /// Notes that the next operation was done by a server that died before it could: files would be
    /// sought there under names that they have no more.
    pub(crate) fn find_renamed(&mut self) -> Result<()> {
        let next = self.names.owed().front().filter(|_| self.names.is_resumed());
        let (Some((lsn, operation)), Some(backing)) = (next.cloned(), self.backing.clone()) else {
            return Ok(());
        };
        if self.is_unsure(&operation) {
            return Ok(());
        }
        let look = |path: &[u8]| done_before(backing.stat(path));
        let was_done = match &operation {
            NameOperation::Rename { from, to, .. } => look(from)?.is_none() && look(to)?.is_some(),
            NameOperation::Exchange { to, .. } => {
                let begun = self.names.exchanging(lsn);
                begun.is_some() && begun == look(to)?.map(|found| found.fingerprint.inode)
            }
            _ => false,
        };
        if was_done {
            bring(self, backing.as_ref(), lsn, &operation)?;
            done(self, lsn);
        }
        Ok(())
    }
}

/// A rename is about to take a name: if somebody else has made a file there, that gets another.
fn keep_theirs(
    state: &mut State,
    backing: &dyn Backing,
    (from, to): (&[u8], &[u8]),
    over: Option<u64>,
) -> Result<()> {
    let (Some(over), Some(moved)) = (over, done_before(backing.stat(from))?) else { return Ok(()) };
    let theirs = backing.keep_theirs(to, &[over, moved.fingerprint.inode], from);
    if let Some(theirs) = done_before(theirs)?.flatten() {
        let (ours, theirs) = (shown(to), shown(&theirs));
        state.debts.conflict(format!("{ours}: made there meanwhile; theirs is {theirs}"));
    }
    Ok(())
}

/// Does what makes a name; once more if directories above it had to be made anew.
fn within<T>(
    state: &mut State,
    backing: &dyn Backing,
    path: &[u8],
    act: impl Fn() -> Result<T>,
) -> Result<T> {
    match act() {
        Err(error) if lacks_directory(&error) && restore(state, backing, path) => act(),
        done => done,
    }
}

/// Whether it failed for want of a directory on the way.
pub fn lacks_directory(error: &Error) -> bool {
    matches!(error.kind, ErrorKind::NotFound | ErrorKind::NotDirectory)
}

/// Makes the directories above `path` that somebody else has removed, or put something else in the
/// place of, which gets another name: what is brought needs them. Whether there were any.
pub fn restore(state: &mut State, backing: &dyn Backing, path: &[u8]) -> bool {
    let mut restored = false;
    let mut here = Some(ROOT);
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    let mut from = 0;
    for (end, _) in slashes {
        let above = &path[..end];
        here = here.and_then(|directory| state.names.child_here(directory, &path[from..end]));
        from = end + 1;
        let aside = match backing.stat(above) {
            Ok(found) if found.attributes.kind == Kind::Directory => continue,
            // Something else is there, or something that cannot be brought here.
            Ok(_) => backing.set_aside(above),
            Err(error) if error.kind == ErrorKind::Unsupported => backing.set_aside(above),
            Err(error) if error.kind == ErrorKind::NotFound => Ok(Vec::new()),
            Err(_) => continue,
        };
        let Ok(aside) = aside else { return false };
        let mode = here.and_then(|ino| state.names.inode(ino)).map_or(0o755, |inode| inode.mode);
        if backing.make_directory(above, mode.into()).is_err() {
            return false;
        }
        restored = true;
        let what = match &*aside {
            b"" => "removed there meanwhile; made anew".into(),
            aside => format!("no directory there any more; made anew, theirs is {}", shown(aside)),
        };
        state.debts.conflict(format!("{}: {what}", shown(above)));
    }
    restored
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

/// Done twice, an exchange would be undone: what had the first name is noted before.
fn exchange(
    state: &mut State,
    backing: &dyn Backing,
    lsn: Lsn,
    (from, to): (&[u8], &[u8]),
    inos: [Ino; 2],
) -> Result<()> {
    let look = |path| done_before(backing.stat(path));
    let mut before = [look(from)?, look(to)?];
    let begun = state.names.exchanging(lsn);
    if begun.is_some() && begun == before[1].map(|found| found.fingerprint.inode) {
        before.reverse();
    } else {
        if let (None, Some(found)) = (begun, before[0]) {
            state.record(Local::Exchanging { lsn, inode: found.fingerprint.inode });
            state.commit()?;
        }
        done_before(backing.exchange(from, to))?;
    }
    let after = [look(to)?, look(from)?];
    for ((ino, before), after) in inos.into_iter().zip(before).zip(after) {
        touched(state, ino, between(before, after));
    }
    Ok(())
}

/// What changed between these two looks.
fn between(before: Option<Found>, after: Option<Found>) -> Option<Touched> {
    let (before, after) = (before?, after?);
    let modified_ns = before.attributes.modified_ns;
    Some(Touched { before: before.fingerprint, after: after.fingerprint, modified_ns })
}

/// What was moved here before.
fn there_already(backing: &dyn Backing, path: &[u8]) -> Result<Option<Touched>> {
    let there = done_before(backing.stat(path))?;
    Ok(between(there, there))
}

/// What cannot be kept there is kept here only: said once if that is so of all, and for this one
/// if it is too much there.
fn xattr_done(state: &mut State, path: &[u8], ino: Ino, done: Result<Touched>) -> Result<()> {
    match done_before(done) {
        Ok(found) => {
            touched(state, ino, found);
            Ok(())
        }
        Err(error) if error.kind == ErrorKind::Unsupported => {
            if !std::mem::replace(&mut state.debts.no_xattrs, true) {
                let what = "extended attributes are kept here only: the directory takes none";
                state.debts.conflict(format!("{}: {what}", shown(path)));
            }
            Ok(())
        }
        Err(error) if error.kind == ErrorKind::NoSpace => {
            state.debts.conflict(format!("extended attribute kept here only: {error}"));
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// A file keeps its other names, and looks different with one less.
fn unlink_one(state: &mut State, backing: &dyn Backing, path: &[u8], ino: Ino) -> Result<()> {
    let other = state.names.path(ino).map(|path| state.names.backing_path(&path));
    let look = || match &other {
        Some(other) => done_before(backing.stat(other)),
        None => Ok(None),
    };
    let before = look()?;
    backing.unlink(path)?;
    // What cannot be seen now is tried again: it would be taken for somebody else's change.
    let after = look()?;
    touched(state, ino, between(before, after));
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

/// Our own change of a file's look is not somebody else's.
fn touched(state: &mut State, ino: Ino, found: Option<Touched>) {
    let (Some(inode), Some(found)) = (state.names.inode(ino), found) else { return };
    // Done twice, the first time by a server that died, it shows how it looked in between. A change
    // of its bytes would show, too: their time would be after what we know.
    let again = |known: Fingerprint| {
        let same = (known.inode, known.size) == (found.before.inode, found.before.size);
        state.names.is_resumed() && same && found.modified_ns <= known.changed_ns
    };
    let ours = |known| known == found.before || again(known);
    if inode.published.is_some_and(ours) && !inode.is_directory() {
        state.record(Fact::Touched { ino, fingerprint: found.after });
    }
}
