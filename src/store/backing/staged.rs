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
use terral_format::fingerprint::Fingerprint;
use terral_format::ids::{Ino, InstanceId};
use terral_format::wire::message::Attributes;
use terral_format::{Error, ErrorKind, Result};

use super::access::with_access;
use super::attributes::{
    clear_full, fingerprint, found, read_full, same_file, set_attributes, write_full,
};
use super::beneath::{Place, Root, remove_if_there, split};
use super::exclusive::{Naming, look};
use super::home::{find_staging, make_staging, open_own, staging_names};
use super::links::{Purpose, read_link, temporary};
use super::{Announce, Published, RandomAccess, STAGING, Staged, check_path};

/// Times that something is tried which somebody else may undo meanwhile.
pub(super) const TRIES: u32 = 8;

/// Foreign versions of one name that are kept.
pub(super) const THEIRS_MAX: u32 = 9_999;

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
    root: &'a Root,
    /// All that is open of it here.
    file: &'a mut File,
    directory: &'a OwnedFd,
    name: &'a [u8],
}

/// What all of an instance's temporary names begin with.
fn prefix(instance: InstanceId) -> String {
    format!("{:032x}-", instance.0)
}

/// What the version of a file is called in the staging directory.
pub(super) fn label(ino: Ino, instance: InstanceId) -> String {
    format!("{}{ino}", prefix(instance))
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
        let label = label(ino, instance);
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
        &mut self,
        (path, attributes): (&[u8], &Attributes),
        size: u64,
        expect: Option<Fingerprint>,
        announce: Announce<'_>,
    ) -> Result<Published> {
        let root = &*self.root.clone();
        let fail_io = |error: std::io::Error| root.failed_io("publish", path, &error);
        let place = root.place("publish", path)?;
        for _ in 0..TRIES {
            let home = self.whole().map_err(|error| self.failed("publish", &error))?;
            let resized = self.file.set_len(size);
            resized.and_then(|()| set_attributes(&self.file, attributes)).map_err(fail_io)?;
            let name = self.label.as_bytes();
            let mut ready = Ready { root, file: &mut self.file, directory: &home, name };
            let put = match ready.put((&place, path), expect, announce) {
                Err(error) if error.kind == ErrorKind::CrossDevice && root.owner().is_none() => {
                    self.put_copy(&home, (&place, path), attributes, expect, announce)?
                }
                done => done?,
            };
            if let Some(published) = put {
                return Ok(published);
            }
        }
        let what = "somebody else takes the name again and again";
        let context = format!("publish {}: {what}", root.full(path));
        Err(Error::new(ErrorKind::Denied, context))
    }

    /// The staging directory with the version in it. If somebody has removed or replaced its name
    /// there, it is copied to it anew.
    fn whole(&mut self) -> std::io::Result<OwnedFd> {
        let home = make_staging(&self.root).map_err(std::io::Error::other)?;
        let there = look(&home, self.label.as_bytes()).ok().flatten();
        if !there.is_some_and(|there| same_file(&there, &self.file).unwrap_or(false)) {
            self.file = copy_to(&self.file, &home, self.label.as_bytes())?;
        }
        Ok(home)
    }

    /// Publishes on another file system than the staging directory's.
    fn put_copy(
        &self,
        home: &OwnedFd,
        (place, path): (&Place, &[u8]),
        attributes: &Attributes,
        expect: Option<Fingerprint>,
        announce: Announce<'_>,
    ) -> Result<Option<Published>> {
        let fail = |error: Errno| self.root.failed("publish", path, error);
        let fail_io = |error: std::io::Error| self.root.failed_io("publish", path, &error);
        let name = format!(".terral-{}", self.label);
        let note = format!("{}.at", self.label);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::TRUNC;
        let mode = Mode::from_raw_mode(0o600);
        let noted = rustix::fs::openat(home, &*note, flags | OFlags::CLOEXEC, mode);
        let noted = File::from(noted.map_err(fail)?);
        noted.write_all_at(&place.beside(name.as_bytes()), 0).map_err(fail_io)?;
        let mut copy = copy_to(&self.file, &place.directory, name.as_bytes()).map_err(fail_io)?;
        // `sync` reaches the root's file system only, so this one is made safe here.
        set_attributes(&copy, attributes).and_then(|()| copy.sync_all()).map_err(fail_io)?;
        let (directory, name) = (&place.directory, name.as_bytes());
        let mut ready = Ready { root: &self.root, file: &mut copy, directory, name };
        let published = ready.put((place, path), expect, announce)?;
        if published.is_some() {
            for name in [&*self.label, &*note] {
                let _ = rustix::fs::unlinkat(home, name, AtFlags::empty());
            }
        }
        Ok(published)
    }
}

impl Ready<'_> {
    /// Puts the version under its name; a foreign one there gets another name. `None`: what has the
    /// name after that is not ours. Somebody replaced it at once, or what was to get it.
    fn put(
        &mut self,
        (place, path): (&Place, &[u8]),
        expect: Option<Fingerprint>,
        announce: Announce<'_>,
    ) -> Result<Option<Published>> {
        let fail = |error: Errno| self.root.failed("publish", path, error);
        let fail_io = |error: std::io::Error| self.root.failed_io("publish", path, &error);
        let from = (self.directory, self.name);
        let to = (&place.directory, &*place.name);
        let mut conflict = None;
        // Somebody may make or remove the name between the look and the rename: look again.
        for _ in 0..TRIES {
            let present = place.look().map_err(fail)?;
            // By an attempt that was cut short, or whose answer was lost.
            let is_ours = match &present {
                Some(present) => same_file(present, self.file).map_err(fail_io)?,
                None => false,
            };
            if let Some(present) = present.as_ref().filter(|_| !is_ours) {
                conflict = self.keep_foreign(place, present, expect).map_err(fail)?.or(conflict);
            }
            let ready = found(&self.file.metadata().map_err(fail_io)?);
            announce(&ready.ok_or_else(|| fail(Errno::INVAL))?)?;
            let named = match present {
                Some(_) if is_ours => Ok(true),
                Some(_) => rustix::fs::renameat(from.0, from.1, to.0, to.1).map(|()| false),
                None => place.naming.name_new(from, to),
            };
            let has_both = match named {
                Err(Errno::EXIST | Errno::ISDIR) => continue,
                named => named.map_err(fail)?,
            };
            let there = place.look().map_err(fail)?;
            let same = |there: &File| same_file(there, self.file).unwrap_or(false);
            let Some(there) = there.filter(same) else { return Ok(None) };
            if has_both {
                self.leave(there, place.naming).map_err(fail_io)?;
            }
            // Only now: the rename itself changes the time of the last change.
            let fingerprint = fingerprint(&self.file.metadata().map_err(fail_io)?);
            return Ok(Some(Published { fingerprint, conflict }));
        }
        Err(fail(Errno::BUSY))
    }

    /// Takes the version from where it grew, after nothing of it is open by that name: over NFS it
    /// would have a further name there until it is closed, and the time of its change would move
    /// then. `there`: opened by its own name, only to look at it.
    fn leave(&mut self, there: File, naming: Naming) -> std::io::Result<()> {
        // What is not written out keeps it open, too.
        self.file.sync_all()?;
        *self.file = there;
        match (naming.calls.unlink)((self.directory, self.name)) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives what has the name another one, unless it is what is expected or replacing it loses
    /// nothing.
    fn keep_foreign(
        &self,
        place: &Place,
        present: &File,
        expect: Option<Fingerprint>,
    ) -> rustix::io::Result<Option<Vec<u8>>> {
        let metadata = present.metadata().map_err(|error| system(&error))?;
        if metadata.is_dir() {
            return set_aside(place).map(Some);
        }
        if expect == Some(fingerprint(&metadata)) || place.has_the_bytes(self.file) {
            return Ok(None);
        }
        keep_aside(place, present).map(Some)
    }
}

impl Place {
    /// Whether there is a file with the bytes of this one.
    fn has_the_bytes(&self, file: &File) -> bool {
        let there = open_file(self);
        there.is_ok_and(|there| same_bytes(file, &there).unwrap_or(false))
    }

    /// Whether there are two files with the same bytes.
    pub(super) fn has_the_bytes_of(&self, other: &Place) -> bool {
        open_file(other).is_ok_and(|other| self.has_the_bytes(&other))
    }
}

impl RandomAccess for DirStaged {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        write_full(&self.file, offset, bytes).map_err(|error| self.failed("write", &error))
    }

    fn clear(&mut self, offset: u64, bytes: u64) -> Result<()> {
        clear_full(&self.file, offset, bytes).map_err(|error| self.failed("write", &error))
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
}

impl Staged for DirStaged {
    fn resumed_bytes(&self) -> Option<u64> {
        self.resumed_bytes
    }

    fn publish(
        mut self: Box<Self>,
        path: &[u8],
        attributes: &Attributes,
        size: u64,
        expect: Option<Fingerprint>,
        announce: Announce<'_>,
    ) -> Result<Published> {
        let root = self.root.clone();
        let put = || self.put((path, attributes), size, expect, announce);
        let published = with_access(&root, &[path], put);
        if published.is_err() {
            // Else the next `stage` could not open a version that is to be read-only.
            let _ = self.file.set_permissions(Permissions::from_mode(0o600));
        }
        published
    }

    fn discard(self: Box<Self>) {
        let home = find_staging(&self.root).ok().flatten();
        if let Some(home) = home {
            let _ = rustix::fs::unlinkat(&home, &*self.label, AtFlags::empty());
        }
    }
}

/// Gives the version at `place` a second name, and says which.
pub(super) fn keep_aside(place: &Place, present: &File) -> rustix::io::Result<Vec<u8>> {
    let directory = &place.directory;
    first_free(place, |name| {
        let linked = rustix::fs::linkat(directory, &*place.name, directory, name, AtFlags::empty());
        match linked {
            // No hard links here, or not of another user's file.
            Err(Errno::PERM | Errno::OPNOTSUPP | Errno::MLINK | Errno::NOSYS | Errno::ACCESS) => {
                place.naming.rename_new((directory, &*place.name), (directory, name))
            }
            Err(Errno::EXIST) => {
                // An attempt that was cut short may have named it already.
                let there = look(directory, name)?;
                let named = there.is_some_and(|there| same_file(&there, present).unwrap_or(false));
                if named { Ok(()) } else { Err(Errno::EXIST) }
            }
            done => done,
        }
    })
}

/// Gives what is at `place` another name, and says which.
pub(super) fn set_aside(place: &Place) -> rustix::io::Result<Vec<u8>> {
    let directory = &place.directory;
    first_free(place, |name| place.naming.move_new((directory, &*place.name), (directory, name)))
}

/// Tries the names for foreign versions of one, until it is another answer than `EXIST`.
fn first_free(
    place: &Place,
    mut take: impl FnMut(&[u8]) -> rustix::io::Result<()>,
) -> rustix::io::Result<Vec<u8>> {
    for number in 1..=THEIRS_MAX {
        let name = theirs_name(&place.name, number);
        match take(&name) {
            Err(Errno::EXIST) => {}
            taken => return taken.map(|()| place.beside(&name)),
        }
    }
    Err(Errno::EXIST)
}

/// A name for a foreign version of `name`: cut where it would get too long.
pub(super) fn theirs_name(name: &[u8], number: u32) -> Vec<u8> {
    let ending = format!(".theirs-{number}");
    let kept = &name[..name.len().min(255 - ending.len())];
    [kept, ending.as_bytes()].concat()
}

/// The temporary file of an earlier process, if it can be gone on with.
fn reopen(home: &OwnedFd, label: &str) -> Option<(File, u64)> {
    let file = File::from(rustix::fs::openat(home, label, OWN, Mode::empty()).ok()?);
    let metadata = file.metadata().ok()?;
    // A second name would show whatever is written.
    let alone = metadata.is_file() && metadata.nlink() == 1;
    // Only its owner may do this.
    let usable = alone && file.set_permissions(Permissions::from_mode(0o600)).is_ok();
    usable.then_some((file, metadata.len()))
}

/// Makes a version of ours that has its name its staged version again.
pub(super) fn take_back(root: &Root, path: &[u8], ino: Ino, instance: InstanceId) -> Result<()> {
    let (home, label) = (make_staging(root)?, label(ino, instance));
    let place = root.place("take back", path)?;
    let fail = |error: Errno| root.failed("take back", path, error);
    let fail_io = |error: std::io::Error| root.failed_io("take back", path, &error);
    let from = (&place.directory, &*place.name);
    let staged = look(&home, label.as_bytes()).map_err(fail)?;
    let has_both = match (&staged, place.look().map_err(fail)?) {
        (Some(staged), Some(there)) => same_file(staged, &there).map_err(fail_io)?,
        _ => false,
    };
    if has_both {
        // It was given its name and not taken from here: a rename would leave it both.
        return remove_if_there(from.0, from.1).map_err(fail);
    }
    let moved = match rustix::fs::renameat(from.0, from.1, &home, &*label) {
        Err(Errno::XDEV) => open_file(&place)
            .and_then(|file| copy_to(&file, &home, label.as_bytes()))
            .and_then(|_| Ok(rustix::fs::unlinkat(from.0, from.1, AtFlags::empty())?)),
        done => done.map_err(Into::into),
    };
    moved.map_err(fail_io)
}

/// Opens a file to read it, and nothing that would make us wait.
fn open_file(place: &Place) -> std::io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(&place.directory, &*place.name, flags, Mode::empty())?.into())
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
pub(super) fn move_across(from: &Place, to: &Place) -> std::io::Result<()> {
    let (directory, name) = (&to.directory, &*temporary(Purpose::Move, from, to));
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
    let old = open_file(from)?;
    let attributes = super::attributes::found(&old.metadata()?).map(|found| found.attributes);
    let is_file = old.metadata()?.is_file();
    let (Some(attributes), true) = (attributes, is_file) else { return Err(Errno::XDEV.into()) };
    let copy = copy_to(&old, directory, name)?;
    set_attributes(&copy, &attributes).and_then(|()| copy.sync_all())
}

/// Removes what an instance left, and the staging directories if they are empty then.
pub(super) fn clean(root: &Root, instance: InstanceId) -> Result<()> {
    let fail = |error: Errno| root.failed("clean", STAGING, error);
    let directory = root.open()?;
    for name in staging_names(root) {
        let Some(home) = open_own(root, &name).map_err(fail)? else { continue };
        clean_home(root, &home, &prefix(instance)).map_err(fail)?;
        if root.owner().is_some_and(|owner| owner != 0) {
            // Root has made it, and gives its name.
            continue;
        }
        match rustix::fs::unlinkat(&directory, &*name, AtFlags::REMOVEDIR) {
            // Others are still at work.
            Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(error) => return Err(fail(error)),
        }
    }
    Ok(())
}

fn clean_home(root: &Root, home: &OwnedFd, prefix: &str) -> rustix::io::Result<()> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(home)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if name.starts_with(prefix.as_bytes()) {
            names.push(name);
        }
    }
    for name in names {
        if name.ends_with(b".at") {
            clean_copy(root, home, &name, prefix);
        }
        remove_if_there(home, &name)?;
    }
    Ok(())
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
