//! Staging a whole version of a file and putting it under its name.
//!
//! A version grows in `.terral/INSTANCE-INO` of the root and takes its name by one rename. Where
//! the name lies on another file system below the root, a copy `.terral-INSTANCE-INO` is made
//! beside it first; `.terral/INSTANCE-INO.at` says where, so that a copy left by a dead server is
//! found.
//!
//! At every instant the name has the whole old version or the whole new one, and a foreign version
//! has a second name before its first is taken (except where hard links are refused: there the name
//! is missing for a moment).

use std::fs::{File, Permissions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::sync::Arc;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use terral_format::ids::{Ino, InstanceId};
use terral_format::message::Attributes;
use terral_format::record::Fingerprint;
use terral_format::{Error, ErrorKind, Result};

use super::attributes::{dress, fingerprint, read_full};
use super::beneath::{Place, Root, look, remove_if_there, rename_new, split};
use super::insist::insist;
use super::links::read_link;
use super::{Published, STAGING, Staged, check_path};

/// Foreign versions of one name that are kept.
const THEIRS_MAX: u32 = 9_999;

/// To open what only this instance can have made.
const OWN: OFlags = OFlags::RDWR.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A version in the staging directory.
pub(super) struct DirStaged {
    root: Arc<Root>,
    label: String,
    file: File,
    resumed_bytes: Option<u64>,
}

/// A complete version, ready for its rename.
struct Ready<'a> {
    file: &'a File,
    directory: &'a OwnedFd,
    name: &'a [u8],
}

/// What all of an instance's temporary names begin with.
fn prefix(instance: InstanceId) -> String {
    format!("{:032x}-", instance.0)
}

/// Whether a name of any directory is that of an unfinished copy.
pub(super) fn is_copy(name: &[u8]) -> bool {
    let Some(rest) = name.strip_prefix(b".terral-") else { return false };
    let digits = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
    rest.len() > 33
        && rest[..32].iter().all(u8::is_ascii_hexdigit)
        && rest[32] == b'-'
        && digits(&rest[33..])
}

impl DirStaged {
    /// Makes the temporary file, or finds it.
    pub(super) fn open(root: &Arc<Root>, ino: Ino, instance: InstanceId) -> Result<Self> {
        let label = format!("{}{ino}", prefix(instance));
        let fail = |error: Errno| root.failed("stage in", STAGING, error);
        let home = make_staging(root)?;
        let (file, resumed_bytes) = match reopen(&home, &label) {
            Some((file, size)) => (file, Some(size)),
            None => {
                let flags = OWN | OFlags::CREATE | OFlags::EXCL;
                remove_if_there(&home, label.as_bytes()).map_err(fail)?;
                let mode = Mode::from_raw_mode(0o600);
                (rustix::fs::openat(&home, &*label, flags, mode).map_err(fail)?.into(), None)
            }
        };
        Ok(DirStaged { root: root.clone(), label, file, resumed_bytes })
    }

    fn failed(&self, what: &str, error: &std::io::Error) -> Error {
        self.root.failed_io(what, format!(".terral/{}", self.label).as_bytes(), error)
    }

    fn put(
        &self,
        path: &[u8],
        attributes: &Attributes,
        size: u64,
        expect: Option<Fingerprint>,
    ) -> Result<Published> {
        let fail = |error: Errno| self.root.failed("publish", path, error);
        let place = self.root.place("publish", path)?;
        let home = self.home()?;
        let set = self.file.set_len(size).and_then(|()| dress(&self.file, attributes));
        set.map_err(|error| self.root.failed_io("publish", path, &error))?;
        let name = self.label.as_bytes();
        let ready = Ready { file: &self.file, directory: &home, name };
        match ready.put(&place, expect) {
            Err(Errno::XDEV) => self.put_copy(&home, &place, path, attributes, expect),
            done => done.map_err(fail),
        }
    }

    /// The staging directory, if the version is still in it.
    fn home(&self) -> Result<OwnedFd> {
        let gone = || {
            let what = "what was staged there is gone; it must be staged again";
            let context = format!("{}: {what}", self.root.full(STAGING));
            Error::new(ErrorKind::Backing, context)
        };
        let home = open_staging(&self.root.open()?).map_err(|_| gone())?;
        let there = look(&home, self.label.as_bytes()).ok().flatten().ok_or_else(gone)?;
        if same_file(&there, &self.file).unwrap_or(false) { Ok(home) } else { Err(gone()) }
    }

    /// Publishes on another file system than the staging directory's.
    fn put_copy(
        &self,
        home: &OwnedFd,
        place: &Place,
        path: &[u8],
        attributes: &Attributes,
        expect: Option<Fingerprint>,
    ) -> Result<Published> {
        let fail = |error: Errno| self.root.failed("publish", path, error);
        let fail_io = |error: std::io::Error| self.root.failed_io("publish", path, &error);
        let name = format!(".terral-{}", self.label);
        let note = format!("{}.at", self.label);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::TRUNC;
        let mode = Mode::from_raw_mode(0o600);
        let noted = rustix::fs::openat(home, &*note, flags | OFlags::CLOEXEC, mode);
        let noted = File::from(noted.map_err(fail)?);
        noted.write_all_at(&place.beside(name.as_bytes()), 0).map_err(fail_io)?;
        let copy = copy_to(&self.file, &place.directory, name.as_bytes()).map_err(fail_io)?;
        // `sync` reaches the root's file system only, so this one is made safe here.
        dress(&copy, attributes).and_then(|()| copy.sync_all()).map_err(fail_io)?;
        let ready = Ready { file: &copy, directory: &place.directory, name: name.as_bytes() };
        let published = ready.put(place, expect).map_err(fail)?;
        for name in [&*self.label, &*note] {
            let _ = rustix::fs::unlinkat(home, name, AtFlags::empty());
        }
        Ok(published)
    }
}

impl Ready<'_> {
    /// Puts the version under its name; a foreign one there gets another name.
    fn put(&self, place: &Place, expect: Option<Fingerprint>) -> rustix::io::Result<Published> {
        let from = (self.directory, self.name);
        let to = (&place.directory, &*place.name);
        let mut conflict = None;
        // Somebody may make or remove the name between the look and the rename: look again.
        for _ in 0..8 {
            let renamed = match place.look()? {
                None => rename_new(from, to),
                Some(present) => {
                    let metadata = present.metadata().map_err(|error| system(&error))?;
                    if metadata.is_dir() {
                        return Err(Errno::ISDIR);
                    }
                    let known = expect == Some(fingerprint(&metadata));
                    if !known && !self.has_the_bytes_of(place) {
                        conflict = Some(keep_aside(place, &present)?);
                    }
                    rustix::fs::renameat(from.0, from.1, to.0, to.1)
                }
            };
            match renamed {
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
                Ok(()) => {
                    // Only now: the rename itself changes the time of the last change.
                    let metadata = self.file.metadata().map_err(|error| system(&error))?;
                    return Ok(Published { fingerprint: fingerprint(&metadata), conflict });
                }
            }
        }
        Err(Errno::BUSY)
    }

    /// Whether replacing what is there loses nothing. So it is when the server died between its
    /// rename and the record of it, and publishes once more.
    fn has_the_bytes_of(&self, place: &Place) -> bool {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let Ok(theirs) = rustix::fs::openat(&place.directory, &*place.name, flags, Mode::empty())
        else {
            return false;
        };
        same_bytes(self.file, &File::from(theirs)).unwrap_or(false)
    }
}

impl Staged for DirStaged {
    fn resumed_bytes(&self) -> Option<u64> {
        self.resumed_bytes
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.file.write_all_at(bytes, offset).map_err(|error| self.failed("write", &error))
    }

    fn truncate(&mut self, size: u64) -> Result<()> {
        // ext4 writes a file out at its close once it was truncated, be it to what it is.
        let long = self.file.metadata().map(|found| found.len());
        let done =
            long.and_then(|long| if long == size { Ok(()) } else { self.file.set_len(size) });
        done.map_err(|error| self.failed("truncate", &error))
    }

    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        read_full(&self.file, offset, buffer).map_err(|error| self.failed("read", &error))
    }

    fn publish(
        self: Box<Self>,
        path: &[u8],
        attributes: &Attributes,
        size: u64,
        expect: Option<Fingerprint>,
    ) -> Result<Published> {
        let put = || self.put(path, attributes, size, expect);
        let published = insist(&self.root, &[path], put);
        if published.is_err() {
            // Else the next `stage` could not open a version that is to be read-only.
            let _ = self.file.set_permissions(Permissions::from_mode(0o600));
        }
        published
    }

    fn discard(self: Box<Self>) {
        if let Ok(home) = self.home() {
            let _ = rustix::fs::unlinkat(&home, &*self.label, AtFlags::empty());
        }
    }
}

/// Gives the version at `place` a second name, and says which.
pub(super) fn keep_aside(place: &Place, present: &File) -> rustix::io::Result<Vec<u8>> {
    let directory = &place.directory;
    for number in 1..=THEIRS_MAX {
        let ending = format!(".theirs-{number}");
        let mut name = place.name[..place.name.len().min(255 - ending.len())].to_vec();
        name.extend_from_slice(ending.as_bytes());
        let flags = AtFlags::empty();
        let linked = rustix::fs::linkat(directory, &*place.name, directory, &*name, flags);
        let kept = match linked {
            Err(Errno::EXIST) => Err(Errno::EXIST),
            // No hard links here, or not of another user's file.
            Err(Errno::PERM | Errno::OPNOTSUPP | Errno::MLINK | Errno::NOSYS | Errno::ACCESS) => {
                rename_new((directory, &*place.name), (directory, &*name))
            }
            done => done,
        };
        match kept {
            Ok(()) => return Ok(place.beside(&name)),
            Err(Errno::EXIST) => {
                // An attempt that was cut short may have named it already.
                let there = look(directory, &name)?;
                if there.is_some_and(|there| same_file(&there, present).unwrap_or(false)) {
                    return Ok(place.beside(&name));
                }
            }
            Err(error) => return Err(error),
        }
    }
    Err(Errno::EXIST)
}

/// The temporary file of an earlier process, if it can be gone on with.
fn reopen(home: &OwnedFd, label: &str) -> Option<(File, u64)> {
    let file = File::from(rustix::fs::openat(home, label, OWN, Mode::empty()).ok()?);
    let metadata = file.metadata().ok()?;
    // Only its owner may do this. A second name would show whatever is written.
    let ours = file.set_permissions(Permissions::from_mode(0o600)).is_ok();
    let usable = metadata.is_file() && metadata.nlink() == 1 && ours;
    usable.then_some((file, metadata.len()))
}

/// Opens the staging directory.
fn open_staging(root: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(root, STAGING, flags, Mode::empty())
}

/// Makes the staging directory if need be. Whoever may make files in the root may stage, but only
/// remove what is his own.
fn make_staging(root: &Root) -> Result<OwnedFd> {
    let fail = |error: Errno| root.failed("stage in", STAGING, error);
    let directory = root.open()?;
    for _ in 0..8 {
        match open_staging(&directory) {
            Err(Errno::NOENT) => {}
            done => return done.map_err(fail),
        }
        match rustix::fs::mkdirat(&directory, STAGING, Mode::from_raw_mode(0o700)) {
            Err(Errno::EXIST) => continue,
            done => done.map_err(fail)?,
        }
        let made = open_staging(&directory).map_err(fail)?;
        let like = File::from(directory.try_clone().map_err(|_| fail(Errno::MFILE))?);
        let mode = like.metadata().map_or(0o700, |metadata| metadata.mode() & 0o7777);
        let made = File::from(made);
        let _ = made.set_permissions(Permissions::from_mode(mode | 0o1700));
        return Ok(made.into());
    }
    Err(fail(Errno::BUSY))
}

/// Copies a whole file to a new name.
fn copy_to(from: &File, directory: &OwnedFd, name: &[u8]) -> std::io::Result<File> {
    remove_if_there(directory, name)?;
    let flags = OWN | OFlags::CREATE | OFlags::EXCL;
    let copy = rustix::fs::openat(directory, name, flags, Mode::from_raw_mode(0o600))?;
    let copy = File::from(copy);
    let mut buffer = vec![0; 1 << 20];
    let mut offset = 0;
    loop {
        let count = read_full(from, offset, &mut buffer)?;
        copy.write_all_at(&buffer[..count], offset)?;
        offset += count as u64;
        if count < buffer.len() {
            return Ok(copy);
        }
    }
}

/// Moves a file or link to another file system below the root: whole or not at all, as with one
/// rename.
pub(super) fn move_across(from: &Place, to: &Place, label: &str) -> std::io::Result<()> {
    let name = format!(".terral-{label}");
    let (directory, name) = (&to.directory, name.as_bytes());
    let copied = match read_link(from) {
        Ok(target) => link_anew(&target, directory, name),
        Err(_) => copy_file(from, directory, name),
    };
    let moved =
        copied.and_then(|()| Ok(rustix::fs::renameat(directory, name, directory, &*to.name)?));
    if moved.is_err() {
        let _ = rustix::fs::unlinkat(directory, name, AtFlags::empty());
        return moved;
    }
    Ok(rustix::fs::unlinkat(&from.directory, &*from.name, AtFlags::empty())?)
}

/// Makes a symbolic link, also where an earlier attempt left one.
fn link_anew(target: &[u8], directory: &OwnedFd, name: &[u8]) -> std::io::Result<()> {
    remove_if_there(directory, name)?;
    Ok(rustix::fs::symlinkat(target, directory, name)?)
}

/// Copies a file and its attributes, safe on the disk.
fn copy_file(from: &Place, directory: &OwnedFd, name: &[u8]) -> std::io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let old = rustix::fs::openat(&from.directory, &*from.name, flags, Mode::empty())?;
    let old = File::from(old);
    let attributes = super::attributes::found(&old.metadata()?).map(|found| found.attributes);
    let is_file = old.metadata()?.is_file();
    let (Some(attributes), true) = (attributes, is_file) else { return Err(Errno::XDEV.into()) };
    let copy = copy_to(&old, directory, name)?;
    dress(&copy, &attributes).and_then(|()| copy.sync_all())
}

/// Removes what an instance left, and the staging directory if it is empty then.
pub(super) fn clean(root: &Root, instance: InstanceId) -> Result<()> {
    let fail = |error: Errno| root.failed("clean", STAGING, error);
    let directory = root.open()?;
    let home = match open_staging(&directory) {
        Err(Errno::NOENT) => return Ok(()),
        done => done.map_err(fail)?,
    };
    let prefix = prefix(instance);
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(&home).map_err(fail)? {
        let name = entry.map_err(fail)?.file_name().to_bytes().to_vec();
        if name.starts_with(prefix.as_bytes()) {
            names.push(name);
        }
    }
    for name in names {
        if name.ends_with(b".at") {
            clean_copy(root, &home, &name, &prefix);
        }
        remove_if_there(&home, &name).map_err(fail)?;
    }
    match rustix::fs::unlinkat(&directory, STAGING, AtFlags::REMOVEDIR) {
        // Others are still at work, or it is another user's.
        Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
        Err(Errno::PERM | Errno::ACCESS) => Ok(()),
        Err(error) => Err(fail(error)),
    }
}

/// Removes the copy a note tells of, if it can only be this instance's.
fn clean_copy(root: &Root, home: &OwnedFd, note: &[u8], prefix: &str) {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(note) = rustix::fs::openat(home, note, flags, Mode::empty()) else { return };
    let mut path = vec![0; 4096];
    let Ok(length) = read_full(&File::from(note), 0, &mut path) else { return };
    path.truncate(length);
    let ours = split(&path).1.starts_with(format!(".terral-{prefix}").as_bytes());
    if ours
        && check_path(&path).is_ok()
        && let Ok(place) = root.place("clean", &path)
    {
        let _ = rustix::fs::unlinkat(&place.directory, &*place.name, AtFlags::empty());
    }
}

pub(super) fn same_file(one: &File, other: &File) -> std::io::Result<bool> {
    let (one, other) = (one.metadata()?, other.metadata()?);
    Ok((one.dev(), one.ino()) == (other.dev(), other.ino()))
}

fn same_bytes(one: &File, other: &File) -> std::io::Result<bool> {
    let metadata = other.metadata()?;
    if !metadata.is_file() || metadata.len() != one.metadata()?.len() {
        return Ok(false);
    }
    let (mut ours, mut theirs) = (vec![0; 1 << 18], vec![0; 1 << 18]);
    let mut offset = 0;
    loop {
        let count = read_full(one, offset, &mut ours)?;
        if read_full(other, offset, &mut theirs)? != count || ours[..count] != theirs[..count] {
            return Ok(false);
        }
        if count < ours.len() {
            return Ok(true);
        }
        offset += count as u64;
    }
}

fn system(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
