//! Finding names below a directory without ever leaving it.
//!
//! No symbolic link is followed, neither on the way nor at the end: whoever asks has resolved them.
//! One that is on the way all the same is no directory, whoever put it there and when.
//!
//! The directory is opened anew for each operation: nothing keeps its file system from being
//! unmounted, and one that was away works again when it is back. `openat2(RESOLVE_NO_SYMLINKS)`
//! does the work; kernels without it (before 5.6) get a walk of one component at a time.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use terral_format::{Error, ErrorKind, Result};

use super::calls::Calls;
use super::exclusive::Naming;
use super::{check_path, failed, own_way, shown};

/// To look at a directory, and nothing more.
const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// File systems of this machine: ext2 to 4, XFS, Btrfs, tmpfs, ramfs, overlayfs, F2FS, ZFS and
/// bcachefs.
const NEAR: [i64; 9] = [
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0x0102_1994,
    0x8584_58f6,
    0x794c_7630,
    0xf2f5_2010,
    0x2fc1_2fc1,
    0xca45_1a4e,
];

/// The directory everything is relative to.
pub(super) struct Root {
    path: PathBuf,
    seen: Mutex<Option<Seen>>,
    /// Whose alone is touched, by ways that are his own; and how names are given.
    naming: Naming,
}

/// Which directory on which file system it was when last opened.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Seen {
    device: u64,
    inode: u64,
    file_system: (i64, u64),
}

/// A name in an open directory.
pub(super) struct Place {
    /// The directory.
    pub(super) directory: OwnedFd,
    /// Where that is, below the root.
    pub(super) within: Vec<u8>,
    /// The last component.
    pub(super) name: Vec<u8>,
    /// Whose alone is touched there, and how names are given.
    pub(super) naming: Naming,
}

impl Root {
    pub(super) fn new(path: &Path) -> Result<Self> {
        let path = std::path::absolute(path)
            .map_err(|error| failed(&error, &shown(path.as_os_str().as_bytes())))?;
        let naming = Naming { owner: None, calls: Calls::KERNEL };
        let root = Root { path, seen: Mutex::new(None), naming };
        root.open()?;
        Ok(root)
    }

    /// One in which nothing is touched but what is this process' user's, by ways that are his own.
    pub(super) fn of_one(path: &Path) -> Result<Self> {
        Root::of_one_by(path, Calls::KERNEL)
    }

    /// The same, where names are given like that.
    pub(super) fn of_one_by(path: &Path, calls: Calls) -> Result<Self> {
        let owner = Some(rustix::process::geteuid().as_raw());
        let root = Root { naming: Naming { owner, calls }, ..Root::new(path)? };
        own_way::must_be_shut(&root.open()?).map_err(|error| root.failed("serve", b"", error))?;
        Ok(root)
    }

    /// Whether it is on none of the file systems that keep what they have on disks, or in memory,
    /// of this machine (statfs(2)).
    pub(super) fn is_far(&self) -> bool {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.is_some_and(|seen| !NEAR.contains(&seen.file_system.0))
    }

    /// Whose alone is touched.
    pub(super) fn owner(&self) -> Option<u32> {
        self.naming.owner
    }

    /// How names are given.
    pub(super) fn naming(&self) -> Naming {
        self.naming
    }

    pub(super) fn describe(&self) -> String {
        shown(self.path.as_os_str().as_bytes())
    }

    /// The error for what the system said about `path`.
    pub(super) fn failed(&self, what: &str, path: &[u8], error: Errno) -> Error {
        let mut failure = self.failed_io(what, path, &error.into());
        if error == Errno::PERM
            && let Some(owner) = self.owner()
        {
            let why = match owner {
                0 => "; it is not root's, or others may rename on the way there (sticky bit)",
                _ => "; it, or a directory on the way there, is neither yours nor only root's",
            };
            failure.context.push_str(why);
        }
        failure
    }

    /// The same for an error of the standard library.
    pub(super) fn failed_io(&self, what: &str, path: &[u8], error: &std::io::Error) -> Error {
        failed(error, &format!("{what} {}", self.full(path)))
    }

    pub(super) fn full(&self, path: &[u8]) -> String {
        if path.is_empty() {
            return self.describe();
        }
        format!("{}/{}", self.describe(), shown(path))
    }

    /// The directory, to look from. Fails with [`ErrorKind::Backing`], never with `NotFound`: a
    /// file is not missing because its file system is.
    pub(super) fn open(&self) -> Result<OwnedFd> {
        let away = |error: std::io::Error| {
            Error::new(ErrorKind::Backing, format!("{}: {error}; bring it back", self.describe()))
        };
        let directory = rustix::fs::openat(rustix::fs::CWD, &*self.path, DIRECTORY, Mode::empty())
            .map_err(|errno| away(errno.into()))?;
        let directory = File::from(directory);
        let metadata = directory.metadata().map_err(away)?;
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(seen) = *seen
            && (seen.device, seen.inode) == (metadata.dev(), metadata.ino())
        {
            return Ok(directory.into());
        }
        if self.owner().is_some() && seen.is_some() {
            // Who may rename above it could have put any of root's there.
            let why = "is another directory than before; restart Terral";
            return Err(Error::new(ErrorKind::Backing, format!("{} {why}", self.describe())));
        }
        // Asked only when the directory is another one: on a network this is a message.
        let kind = rustix::fs::fstatfs(&directory).map_err(|errno| away(errno.into()))?.f_type;
        let id = rustix::fs::fstatvfs(&directory).map_err(|errno| away(errno.into()))?.f_fsid;
        #[allow(clippy::useless_conversion, clippy::unnecessary_cast)]
        let file_system = (kind as i64, id as u64);
        if let Some(before) = *seen
            && before.file_system != file_system
        {
            let why = "is on another file system than before; mount it again, or restart Terral";
            return Err(Error::new(ErrorKind::Backing, format!("{} {why}", self.describe())));
        }
        *seen = Some(Seen { device: metadata.dev(), inode: metadata.ino(), file_system });
        Ok(directory.into())
    }

    /// Opens what is at `path`: of a link, itself, and only with [`OFlags::PATH`].
    pub(super) fn open_at(&self, what: &str, path: &[u8], flags: OFlags) -> Result<File> {
        check_path(path)?;
        let root = self.open()?;
        let (within, name) = split(path);
        let opened = match self.owner() {
            Some(owner) => own_way::way(&root, within, owner)
                .and_then(|at| own_way::open(&at, name, flags, owner)),
            None => open_beneath(&root, path, flags),
        };
        opened.map(File::from).map_err(|error| self.failed(what, path, error))
    }

    /// Opens what is at `path` only to look at it, whosever it is.
    pub(super) fn look_at(&self, what: &str, path: &[u8]) -> Result<File> {
        let Some(owner) = self.owner() else {
            return self.open_at(what, path, OFlags::PATH);
        };
        check_path(path)?;
        let (within, name) = split(path);
        let way = own_way::way(&self.open()?, within, owner);
        let looked = way.and_then(|at| own_way::look(&at, name));
        looked.map(File::from).map_err(|error| self.failed(what, path, error))
    }

    /// Opens a directory of this name, to list it; `None` if there is none that may be that.
    pub(super) fn directory(&self, name: &[u8]) -> rustix::io::Result<Option<OwnedFd>> {
        let root = self.open().map_err(|_| Errno::IO)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = match self.owner() {
            Some(owner) => own_way::way(&root, b"", owner)
                .and_then(|at| own_way::open(&at, name, flags, owner)),
            None => rustix::fs::openat(&root, name, flags, Mode::empty()),
        };
        match opened {
            Ok(directory) => Ok(Some(directory)),
            // Missing, a link or a file, or closed to us.
            Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR | Errno::ACCESS) => Ok(None),
            Err(Errno::PERM) if self.owner().is_some() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The place of the name `path`.
    pub(super) fn place(&self, what: &str, path: &[u8]) -> Result<Place> {
        check_path(path)?;
        let (within, name) = split(path);
        if name.is_empty() {
            let context = format!("{what} {}: that is the root", self.describe());
            return Err(Error::new(ErrorKind::Busy, context));
        }
        let root = self.open()?;
        let opened = match self.owner() {
            None => open_beneath(&root, within, DIRECTORY),
            Some(owner) => own_way::way(&root, within, owner).and_then(|at| {
                own_way::must_be_free(&at, name, owner)?;
                Ok(at)
            }),
        };
        let directory = opened.map_err(|error| self.failed(what, path, error))?;
        let (within, name, naming) = (within.to_vec(), name.to_vec(), self.naming);
        Ok(Place { directory, within, name, naming })
    }
}

impl Place {
    /// `name` in the same directory, below the root.
    pub(super) fn beside(&self, name: &[u8]) -> Vec<u8> {
        beside(&self.within, name)
    }

    /// What is there, links not followed; `None` if nothing.
    pub(super) fn look(&self) -> rustix::io::Result<Option<File>> {
        self.naming.look((&self.directory, &self.name))
    }
}

/// The directory part and the last name.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

/// The path of `name` in the directory `within`.
pub(super) fn beside(within: &[u8], name: &[u8]) -> Vec<u8> {
    if within.is_empty() {
        return name.to_vec();
    }
    [within, name].join(&b'/')
}

/// Opens what is under a path of names below `root`. A link as the last one is `LOOP`, or itself
/// with [`OFlags::PATH`].
fn open_beneath(root: &OwnedFd, path: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let name = if path.is_empty() { b"." } else { path };
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    match rustix::fs::openat2(root, name, flags, Mode::empty(), beneath) {
        Err(Errno::NOSYS) => open_by_walking(root, path, flags),
        // The last name alone is never this with these flags: a link is on the way.
        Err(Errno::LOOP) if flags.intersects(OFlags::PATH | OFlags::DIRECTORY) => {
            Err(Errno::NOTDIR)
        }
        done => done,
    }
}

/// [`open_beneath`] without the kernel's help.
pub(super) fn open_by_walking(
    root: &OwnedFd,
    path: &[u8],
    flags: OFlags,
) -> rustix::io::Result<OwnedFd> {
    let (within, name) = split(path);
    let mut passed = None;
    for name in within.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
        if name == b".." {
            return Err(Errno::XDEV);
        }
        let here = passed.as_ref().unwrap_or(root);
        let next = rustix::fs::openat(here, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
        passed = Some(next);
    }
    let name = if name.is_empty() { b"." } else { name };
    if name == b".." {
        return Err(Errno::XDEV);
    }
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(passed.as_ref().unwrap_or(root), name, flags, Mode::empty())
}

/// Removes a name of anything but a directory; a missing one is no error.
pub(super) fn remove_if_there(directory: &OwnedFd, name: &[u8]) -> rustix::io::Result<()> {
    match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error),
    }
}
