//! An instance as those see it who start servers: who is in charge of it, and what a server that is
//! gone has left in it.
//!
//! Invariants: only who holds the claim of an instance starts a server on it, or removes it; the
//! kernel gives it back, however he ends. Not here: whose turn it is, and what becomes of it.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind as IoKind, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use terral_format::disk::Transaction;
use terral_format::disk::migrate::Migrate;
use terral_format::local::geometry::PAGE_BYTES;
use terral_format::local::names::{Inode, flag};
use terral_format::wire::message::Kind;
use terral_format::{Error, ErrorKind, Result, frame};
use terral_store::backing::Source;
use terral_transport::lock;
use terral_transport::process::{self, Process};

use crate::core::paths::{join, shown};
use crate::core::state::State;
use crate::naming::names::is_known;
use crate::shell::instance;
use crate::shell::options::Options;

/// An exec takes no longer.
const EXEC: Duration = Duration::from_millis(10);
/// Version of the logs that this program writes.
pub const FORMAT: u16 = Transaction::VERSION;
/// The byte of the file `lock` that whoever is in charge holds.
const CLAIMED: u8 = 1;

fn failed(path: &Path, error: &std::io::Error) -> Error {
    Error::system(error, path.display().to_string())
}

/// Takes charge of an instance, as long as the file lives; `None` if somebody else is.
///
/// # Errors
/// [`ErrorKind::NotFound`] if it is gone.
pub fn claim(directory: &Path) -> Result<Option<File>> {
    hold(&directory.join("lock"))
}

/// Takes the lock that this file is for, made if it is not there; `None` if somebody else has it.
///
/// # Errors
/// [`ErrorKind::NotFound`] if its directory is gone.
pub fn hold(path: &Path) -> Result<Option<File>> {
    let mut how = OpenOptions::new();
    let how = how.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = how.open(path).map_err(|e| failed(path, &e))?;
    if !lock::try_exclusive(&file, CLAIMED).map_err(|e| failed(path, &e))? {
        return Ok(None);
    }
    // Who held it before may have removed it, with the instance.
    let of = |found: std::fs::Metadata| (found.dev(), found.ino());
    let ours = file.metadata().map(of).map_err(|e| failed(path, &e))?;
    match std::fs::symlink_metadata(path).map(of) {
        Ok(there) if there == ours => Ok(Some(file)),
        Ok(_) => Ok(None),
        Err(error) => Err(failed(path, &error)),
    }
}

/// Whether somebody is in charge of an instance.
pub fn is_claimed(directory: &Path) -> bool {
    let file = File::open(directory.join("lock"));
    file.is_ok_and(|file| lock::probe(file.as_fd(), CLAIMED).unwrap_or(false))
}

/// A process that was started as a program of an instance, connected or not, and has not ended.
pub fn program_of(directory: &Path) -> Option<Process> {
    let entry = [b"TERRAL_INSTANCE=", directory.as_os_str().as_encoded_bytes()].concat();
    // In the middle of its exec a process shows none.
    process::with_environment(&entry, directory).or_else(|| {
        std::thread::sleep(EXEC);
        process::with_environment(&entry, directory)
    })
}

/// Whether this program takes over logs of that version.
pub fn reads(version: u16) -> bool {
    Transaction::reads(version)
}

/// Version of an instance's log, as its first frame says it.
///
/// # Errors
/// [`ErrorKind::Corrupt`] if it does not begin as one.
pub fn format_of(directory: &Path) -> Result<u16> {
    let path = directory.join("log");
    let mut header = [0; frame::HEADER_BYTES];
    let mut log = File::open(&path).map_err(|e| failed(&path, &e))?;
    match log.read_exact(&mut header) {
        Err(error) if error.kind() == IoKind::UnexpectedEof => {
            Err(Error::new(ErrorKind::Corrupt, path.display().to_string()))
        }
        Err(error) => Err(failed(&path, &error)),
        Ok(()) => Ok(frame::version(&header)),
    }
}

/// What a server that is gone has left.
#[derive(Debug)]
pub struct Left {
    /// Its bound of memory.
    pub memory_bytes: u64,
    /// Paths whose files, or names, the permanent directory does not have yet.
    pub owed: BTreeSet<Vec<u8>>,
    /// Client processes that are still there, and wait for a server.
    pub living: usize,
    /// What somebody else has changed in the permanent directory since: it is not as remembered.
    pub changed: Option<String>,
    /// It was one of the servers of several machines.
    pub is_member: bool,
}

/// Looks at what a server that is gone has left, as the next one will find it. Only with the claim
/// of the instance.
///
/// # Errors
/// As those of [`crate::shell::serve`], and what its permanent directory fails with.
pub fn examine(options: &Options) -> Result<Left> {
    let state = instance::open(options)?.state;
    let owed = owed(&state);
    let changed = match &state.backing {
        Some(backing) => changed(&state, &owed, backing.as_ref())?,
        None => None,
    };
    Ok(Left {
        memory_bytes: u64::from(state.began.geometry.arena_pages()) * PAGE_BYTES as u64,
        living: state.sessions.clients().count(),
        owed,
        changed,
        is_member: state.members.is_some(),
    })
}

fn owed(state: &State) -> BTreeSet<Vec<u8>> {
    let files = state.debts.iter().filter_map(|(ino, _)| state.names.path(ino));
    let names = state.names.owed().iter().flat_map(|(_, operation)| operation.paths());
    let names = names.map(<[u8]>::to_vec);
    files.chain(names).collect()
}

/// The first name found under which the permanent directory has not what is remembered of it, of
/// those of which nothing is owed.
fn changed(
    state: &State,
    owed: &BTreeSet<Vec<u8>>,
    backing: &dyn Source,
) -> Result<Option<String>> {
    let unfinished = |inode: &Inode| {
        inode.is(flag::REWRITTEN) || inode.is(flag::INTENT) || inode.is(flag::CONTESTED)
    };
    // What is another user's his server looks at, as he.
    let owner = state.owner().filter(|_| state.is_among_users());
    let is_others = |inode: &Inode| owner.is_some_and(|owner| inode.uid != owner);
    let looked = |inode: &Inode| is_known(inode) && !unfinished(inode) && !is_others(inode);
    for inode in state.names.inodes().filter(looked) {
        let Some(path) = state.names.path(inode.ino).filter(|path| !path.is_empty()) else {
            continue;
        };
        if owed.contains(&path) || state.debts.get(inode.ino).is_some() {
            continue;
        }
        let there = state.names.backing_path(&path);
        let same = match backing.stat(&there) {
            Err(error) if error.kind == ErrorKind::NotFound => false,
            Err(error) if error.kind == ErrorKind::NotDirectory => false,
            Err(error) => return Err(error),
            Ok(found) => {
                let kind = found.attributes.kind == inode.kind;
                let look = inode.published.is_none_or(|look| look == found.fingerprint);
                kind && (look || inode.kind != Kind::File)
            }
        };
        if !same || has_more(state, &inode, &there, owed, backing)? {
            return Ok(Some(shown(&path)));
        }
    }
    Ok(None)
}

/// Whether somebody has put something into a directory of which all names are thought to be known.
fn has_more(
    state: &State,
    directory: &Inode,
    there: &[u8],
    owed: &BTreeSet<Vec<u8>>,
    backing: &dyn Source,
) -> Result<bool> {
    if !directory.is_directory() || directory.is(flag::OVERLAY) {
        return Ok(false);
    }
    let unknown = |name: &[u8]| {
        state.names.entry(directory.ino, name).is_none() && !owed.contains(&join(there, name))
    };
    Ok(backing.list(there)?.iter().any(|found| unknown(&found.name)))
}
