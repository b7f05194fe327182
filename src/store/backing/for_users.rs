//! Whether each of several users may have a server on a permanent directory, and what was left
//! there of what root was giving when it was killed. For processes of root's only.
//!
//! Invariant: other processes of root's, of this machine and others, may do the same at the same
//! time: what is made here has a name of its own, and what another one has only just made stays.
//! Not here: what is given (`given`).

use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use terral_format::{Error, Result};

use super::beneath::Root;
use super::calls::{Calls, lacks_flags};
use super::exclusive::lacks_links;
use super::given::{DIRECTORY, MAKING, remove_all, while_taken_away};
use super::home::make_staging;
use super::in_place::{PRIVATE, is_given};
use super::own_way::must_be_his;
use super::{BesideOthers, STAGING};

/// Who makes something takes less than this by far: what is older was left. By the clock of the
/// file system, so that no two machines differ.
const LEFT: Duration = Duration::from_secs(3600);

/// Who it is tried to give something to: `nobody`, on most systems.
const SOMEBODY: u32 = 65534;

/// What the file system of a permanent directory does not do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lacks {
    /// `RENAME_NOREPLACE`.
    pub keeping: bool,
    /// `RENAME_EXCHANGE`.
    pub exchanging: bool,
    /// Names for a file in another directory.
    pub linking: bool,
}

impl Lacks {
    fn beside_others(self) -> BesideOthers {
        match self {
            Lacks { keeping: false, exchanging: false, .. } => BesideOthers::All,
            Lacks { keeping: true, linking: true, .. } => BesideOthers::NoFiles,
            _ => BesideOthers::Made,
        }
    }
}

/// What follows from it, on one line.
impl std::fmt::Display for Lacks {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let flags = [(self.keeping, "RENAME_NOREPLACE"), (self.exchanging, "RENAME_EXCHANGE")];
        let flags: Vec<_> = flags.iter().filter(|flag| flag.0).map(|flag| flag.1).collect();
        let flags = flags.join(" and ");
        let refused = match self.beside_others() {
            BesideOthers::All => return write!(to, "its file system does all that is needed"),
            BesideOthers::Made => "moved (EXDEV: `mv` copies)",
            BesideOthers::NoFiles => "moved (EXDEV), nor files made (EACCES),",
        };
        write!(
            to,
            "its file system lacks {flags}: nothing is {refused} into directories of root's in \
             which others may write (`chmod go-w` mends that); all else goes"
        )
    }
}

/// Whether each of several users may have a server on the permanent directory at this path, and
/// what its file system lacks for that. What root was killed over as it was making something is
/// removed. `fresh`: random bits, of each call others.
///
/// # Errors
/// `ErrorKind::Denied` if it is not root's, others may make names in it, or root may not give
/// there what it makes.
pub fn check_for_users(path: &Path, fresh: u64) -> Result<Lacks> {
    try_out(&Root::of_one(path)?, fresh, Some(LEFT))
}

/// What may be done where others make names, by what its file system lacks.
pub(super) fn beside_others(root: &Root) -> Result<BesideOthers> {
    let fresh = RandomState::new().build_hasher().finish();
    Ok(try_out(root, fresh, None)?.beside_others())
}

/// Tries it, and removes what was left for so long.
fn try_out(root: &Root, fresh: u64, left: Option<Duration>) -> Result<Lacks> {
    let squashed = |error: Error| {
        let mut error = error;
        // EPERM, EACCES.
        if matches!(error.errno, 1 | 13) {
            error.context.push_str(
                "; root must be able to make things there and to give them to users: over NFS it \
                 takes no_root_squash",
            );
        }
        error
    };
    let home = make_staging(root).map_err(squashed)?;
    let tried = while_taken_away(|turn| {
        let name = |what: &str| {
            let name = format!("{what}.{fresh:016x}.{turn}");
            [MAKING, name.as_bytes()].concat()
        };
        let all = ["one", "other", "none"].map(name);
        let tried = try_names(root.naming().calls, &home, &all, |one| match left {
            Some(left) => remove_left(&home, (one, &name("gone")), left),
            None => Ok(()),
        });
        for name in &all {
            let _ = remove_all(&home, name);
        }
        tried
    });
    tried.map_err(|error| squashed(root.failed("stage in", STAGING, error)))
}

/// By two directories that are made, and a name that nothing has.
fn try_names(
    calls: Calls,
    home: &OwnedFd,
    [one, other, none]: &[Vec<u8>; 3],
    made: impl FnOnce(&[u8]) -> rustix::io::Result<()>,
) -> rustix::io::Result<Lacks> {
    let open = |name: &[u8]| rustix::fs::openat(home, name, DIRECTORY, Mode::empty());
    for name in [one, other] {
        rustix::fs::mkdirat(home, &**name, Mode::from_raw_mode(PRIVATE))?;
    }
    made(one)?;
    // One that is full, or failed, lacks nothing by that.
    let lacks = |done: rustix::io::Result<()>, says: fn(Errno) -> bool| match done {
        Ok(()) => Ok(false),
        Err(error) if says(error) => Ok(true),
        Err(error) => Err(error),
    };
    let directories = [open(one)?, open(other)?];
    let file = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o600);
    let file = rustix::fs::openat(&directories[0], "file", file, mode)?;
    let linked = (calls.link)((&directories[0], b"file"), (&directories[1], b"file"));
    // Onto what is not there: else the kernel refuses before it asks the file system.
    let kept = (calls.rename)((home, one), (home, none), RenameFlags::NOREPLACE);
    let kept = lacks(kept, lacks_flags)?;
    let from = if kept { one } else { none };
    let exchanged = (calls.rename)((home, from), (home, other), RenameFlags::EXCHANGE);
    let exchanged = lacks(exchanged, lacks_flags)?;
    is_given(&file, (SOMEBODY, SOMEBODY))?;
    must_be_his(&file, SOMEBODY)?;
    Ok(Lacks { keeping: kept, exchanging: exchanged, linking: lacks(linked, lacks_links)? })
}

/// Removes what was being made for users so long before `new` was. Each gets another name first,
/// which nobody gives anything by: so who is slow to give it has given all of it, or finds that it
/// is away.
fn remove_left(
    home: &OwnedFd,
    (new, aside): (&[u8], &[u8]),
    left: Duration,
) -> rustix::io::Result<()> {
    let made = |name: &[u8]| {
        let found = rustix::fs::statat(home, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let nanos = i128::from(found.st_ctime) * 1_000_000_000 + i128::from(found.st_ctime_nsec);
        Ok::<_, Errno>(nanos)
    };
    let (now, left) = (made(new)?, i128::try_from(left.as_nanos()).unwrap_or(i128::MAX));
    for entry in rustix::fs::Dir::read_from(home)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        // Another one may remove it at the same time.
        if name.starts_with(MAKING)
            && made(name).is_ok_and(|made| now - made > left)
            && rustix::fs::renameat(home, name, home, aside).is_ok()
        {
            let _ = remove_all(home, aside);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
