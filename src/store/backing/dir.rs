//! A directory of a POSIX file system as permanent store: ext4, XFS, NFS, Lustre, GPFS, tmpfs.
//!
//! It may go away and come back (unmounted, removed and made again): calls fail with
//! [`ErrorKind::Backing`] meanwhile. Found on *another file system* than before, it is taken for
//! away: an empty mount point must not be mistaken for a store without files.

use std::fs::{File, Metadata, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustix::fs::{AtFlags, DirEntry, FileType, Mode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;
use terral_format::fingerprint::{Fingerprint, Object};
use terral_format::ids::{Ino, InstanceId};
use terral_format::wire::message::{Change, Kind, Name, Space};
use terral_format::{Error, ErrorKind, Result};

use super::access::{with_access, with_own_access};
use super::attributes::{by_name, fingerprint, fingerprint_now, found, read_full, touched};
use super::beneath::{Place, Root};
use super::for_users::beside_others;
use super::home::{is_staging, make_staging};
use super::in_place::is_being_given;
use super::sign::{has_sign, leave_sign};
use super::staged::{DirStaged, clean, is_copy, keep_aside, move_across, set_aside, take_back};
use super::update::DirUpdate;
use super::xattrs;
use super::{
    BesideOthers, Found, Listing, NameSink, Sink, Source, Staged, Touched, Update, Xattrs, links,
};

/// Permission bits of the group.
const GROUP: u32 = 0o070;

/// A backing in a directory. Holds no descriptor of it between calls.
pub struct Dir {
    root: Arc<Root>,
    /// As soon as that is found out.
    beside: OnceLock<BesideOthers>,
}

impl Dir {
    /// The directory at `path`, which must exist. A relative path is taken from the present working
    /// directory, once.
    ///
    /// # Errors
    /// [`ErrorKind::Backing`] if it is missing or no directory.
    pub fn open(path: &Path) -> Result<Self> {
        Ok(Dir { root: Arc::new(Root::new(path)?), beside: BesideOthers::All.into() })
    }

    /// The same where each user has a process of his own: nothing is touched in it but what is
    /// this process' user's, by ways on which nobody but root and he renames that. All else is
    /// [`ErrorKind::Denied`], with `EPERM`; [`Source::stat`] says of what is another's how it
    /// looks, and whose it is.
    ///
    /// # Errors
    /// As those of [`Dir::open`]; [`ErrorKind::Denied`] if the directory is not root's, or others
    /// may make names in it.
    pub fn open_among_users(path: &Path) -> Result<Self> {
        Ok(Dir::of_one(Root::of_one(path)?))
    }

    /// The same, of a directory that was opened.
    pub(super) fn of_one(root: Root) -> Self {
        let dir = Dir { root: Arc::new(root), beside: OnceLock::new() };
        dir.find_out();
        dir
    }

    /// Finds out what can be done where others make names, if that is not known yet: one that was
    /// full, or away, is tried again. Root's alone gives names in such directories.
    fn find_out(&self) {
        if self.beside.get().is_none()
            && let Ok(found) = match self.root.owner() {
                Some(0) => beside_others(&self.root),
                _ => Ok(BesideOthers::All),
            }
        {
            self.beside.get_or_init(|| found);
        }
    }

    fn look(&self, what: &str, path: &[u8]) -> Result<File> {
        self.root.open_at(what, path, OFlags::PATH)
    }

    fn found(&self, what: &str, path: &[u8], file: &File) -> Result<Found> {
        let metadata = file.metadata().map_err(|error| self.root.failed_io(what, path, &error))?;
        found(&metadata).ok_or_else(|| {
            let why = "a device or a socket";
            self.unsupported(what, path, why)
        })
    }

    fn unsupported(&self, what: &str, path: &[u8], why: &str) -> Error {
        let context = format!("{what} {}: {why}", self.root.full(path));
        Error::new(ErrorKind::Unsupported, context)
    }

    /// Renames where no rename is possible: a file to another file system.
    fn move_across(&self, from: &Place, to: &Place, error: Error) -> Result<Touched> {
        let look = |place: &Place| -> std::io::Result<Metadata> {
            place.look()?.ok_or(Errno::NOENT)?.metadata()
        };
        let moved = look(from).and_then(|before| {
            move_across(from, to)?;
            Ok(touched(&before, &look(to)?))
        });
        moved.map_err(|cause| match cause.raw_os_error() {
            Some(code) if code == Errno::XDEV.raw_os_error() => error,
            _ => self.root.failed_io("move", &to.beside(&to.name), &cause),
        })
    }

    /// Removes a name; a missing one is no error.
    fn remove(&self, what: &str, path: &[u8], flags: AtFlags) -> Result<()> {
        let place = match self.root.place(what, path) {
            Err(error) if error.kind == ErrorKind::NotFound => return Ok(()),
            done => done?,
        };
        let removed = place.look().and_then(|there| match there {
            // What somebody makes there now is his.
            None => Ok(()),
            Some(_) => rustix::fs::unlinkat(&place.directory, &*place.name, flags),
        });
        match removed {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(self.root.failed(what, path, error)),
        }
    }

    /// Kind of a directory entry, or `None` if it is not to be shown.
    fn kind(directory: &File, entry: &DirEntry) -> Option<Kind> {
        let mut kind = entry.file_type();
        if kind == FileType::Unknown {
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            let stat = rustix::fs::statat(directory, entry.file_name(), flags).ok()?;
            kind = FileType::from_raw_mode(stat.st_mode);
        }
        match kind {
            FileType::RegularFile => Some(Kind::File),
            FileType::Directory => Some(Kind::Directory),
            FileType::Symlink => Some(Kind::Symlink),
            FileType::Fifo => Some(Kind::Fifo),
            _ => None,
        }
    }

    /// Whether something there may be a directory that is being given to a user.
    fn may_be_given(&self, path: &[u8]) -> bool {
        self.root.owner().is_some() && !path.is_empty() && !path.contains(&b'/')
    }

    /// Whether what has a name in a directory is one, where they are made in their places.
    fn is_being_given(&self, inside: &[u8], name: &[u8]) -> Result<bool> {
        let everywhere = self.beside.get() == Some(&BesideOthers::All);
        if everywhere || inside != b"/" || !self.may_be_given(name) {
            return Ok(false);
        }
        let Ok(there) = self.root.look_at("stat", name) else { return Ok(false) };
        is_being_given(&there).map_err(|error| self.root.failed("stat", name, error))
    }

    /// The error where a name was not given, which may have been refused for what others do there.
    fn not_named(&self, what: &str, path: &[u8], place: &Place, error: Errno) -> Error {
        let mut failure = self.root.failed(what, path, error);
        if error == Errno::ACCESS && place.naming.must_be_for_one(&place.directory).is_err() {
            let why = "; others may make names there, which its file system cannot keep from being \
                       replaced (renameat2): take their right to write there away (chmod go-w)";
            failure.context.push_str(why);
        }
        failure
    }

    /// Whether something of this kind is there that counts as made.
    fn is_there(&self, path: &[u8], kind: Kind) -> Result<bool> {
        let there = with_access(&self.root, &[path], || self.look("stat", path))?;
        Ok(self.found("stat", path, &there)?.attributes.kind == kind)
    }

    /// Gives what was just made all of its permission bits.
    fn set_made(&self, what: &str, path: &[u8], place: &Place, mode: u32) -> Result<()> {
        let fail = |error: std::io::Error| self.root.failed_io(what, path, &error);
        let gone = || fail(Errno::NOENT.into());
        let made = place.look().map_err(|errno| fail(errno.into()))?.ok_or_else(gone)?;
        let mode = Some(mode);
        Dir::set(&made, &Change { mode, ..Change::default() }).map_err(fail)
    }

    /// The error where a kind of name was asked for, which a file system need not have.
    fn no_such_kind(&self, what: &str, path: &[u8], error: &std::io::Error) -> Error {
        let mut failure = self.root.failed_io(what, path, error);
        // EPERM, EMLINK, ENOSYS, EOPNOTSUPP.
        if matches!(failure.errno, 1 | 31 | 38 | 95) {
            failure.kind = ErrorKind::Unsupported;
        }
        failure
    }

    /// Sets attributes of a file that is open only to be looked at. The name by which it is changed
    /// leads to a symbolic link, and not on to where that leads.
    fn set(file: &File, change: &Change) -> std::io::Result<()> {
        let name = by_name(file);
        if change.uid.is_some() || change.gid.is_some() {
            std::os::unix::fs::chown(&name, change.uid, change.gid)?;
        }
        if let Some(mode) = change.mode
            && !file.metadata()?.is_symlink()
        {
            std::fs::set_permissions(&name, Permissions::from_mode(mode & 0o7777))?;
        }
        if change.accessed_ns.is_some() || change.modified_ns.is_some() {
            let times = Timestamps {
                last_access: timespec(change.accessed_ns),
                last_modification: timespec(change.modified_ns),
            };
            rustix::fs::utimensat(rustix::fs::CWD, &name, &times, AtFlags::empty())?;
        }
        Ok(())
    }
}

impl Source for Dir {
    fn describe(&self) -> String {
        self.root.describe()
    }

    fn is_far(&self) -> bool {
        self.root.is_far()
    }

    fn owner(&self) -> Option<u32> {
        self.root.owner()
    }

    fn beside_others(&self) -> BesideOthers {
        // Whoever asks has locks, and is not made to wait. Until it is known, what cannot be done
        // is refused as it is done, and not before.
        self.beside.get().copied().unwrap_or(BesideOthers::All)
    }

    fn stat(&self, path: &[u8]) -> Result<Found> {
        with_access(&self.root, &[path], || {
            let file = self.root.look_at("stat", path)?;
            let fail = |error: Errno| self.root.failed("stat", path, error);
            if self.may_be_given(path) && is_being_given(&file).map_err(fail)? {
                return Err(fail(Errno::NOENT));
            }
            let mut found = self.found("stat", path, &file)?;
            if self.root.owner().is_some() && xattrs::has_acl(&file).map_err(fail)? {
                found.attributes.mode &= !GROUP;
            }
            Ok(found)
        })
    }

    fn list_unless(&self, path: &[u8], known: Option<Fingerprint>) -> Result<Option<Listing>> {
        let fail = |error: Errno| self.root.failed("list", path, error);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let inside = [path, b"/"].concat();
        let directory =
            with_access(&self.root, &[&inside], || self.root.open_at("list", path, flags))?;
        let looks = fingerprint_now(&directory)
            .map_err(|error| self.root.failed_io("look at", path, &error))?;
        if known == Some(looks) {
            return Ok(None);
        }
        let mut names = Vec::new();
        // Not by a name in it, which takes the right to search it.
        let own =
            directory.try_clone().map_err(|error| self.root.failed_io("list", path, &error))?;
        for entry in rustix::fs::Dir::new(own).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let name = entry.file_name().to_bytes();
            let staging = path.is_empty() && is_staging(name) || is_copy(name);
            if name == b"." || name == b".." || staging {
                continue;
            }
            if let Some(kind) = Dir::kind(&directory, &entry)
                && !(kind == Kind::Directory && self.is_being_given(&inside, name)?)
            {
                names.push(Name { name: name.to_vec(), number: None, kind });
            }
        }
        names.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        Ok(Some(Listing { looks, names }))
    }

    fn read(&self, path: &[u8], offset: u64, buffer: &mut [u8]) -> Result<usize> {
        // Without NONBLOCK the open of a pipe would wait for a writer.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let file = with_access(&self.root, &[path], || self.root.open_at("read", path, flags))?;
        match self.found("read", path, &file)?.attributes.kind {
            Kind::Directory => return Err(self.root.failed("read", path, Errno::ISDIR)),
            Kind::Fifo => return Err(self.unsupported("read", path, "a FIFO")),
            _ => {}
        }
        read_full(&file, offset, buffer).map_err(|error| self.root.failed_io("read", path, &error))
    }

    fn read_link(&self, path: &[u8]) -> Result<Vec<u8>> {
        let what = "read the link";
        let fail = |error: Errno| self.root.failed(what, path, error);
        if path.is_empty() {
            return Err(fail(Errno::INVAL));
        }
        links::read_link(&self.root.place(what, path)?).map_err(fail)
    }

    fn xattrs(&self, path: &[u8]) -> Result<Xattrs> {
        let what = "read the extended attributes of";
        let file = with_access(&self.root, &[path], || self.look(what, path))?;
        xattrs::all(&file).map_err(|error| self.root.failed(what, path, error))
    }

    fn space(&self) -> Result<Space> {
        let directory = self.root.open()?;
        let space = rustix::fs::fstatvfs(&directory)
            .map_err(|error| self.root.failed("ask for the space of", b"", error))?;
        Ok(Space {
            total_bytes: space.f_blocks.saturating_mul(space.f_frsize),
            free_bytes: space.f_bavail.saturating_mul(space.f_frsize),
            total_files: space.f_files,
            free_files: space.f_favail,
        })
    }
}

impl Sink for Dir {
    fn stage(&self, ino: Ino, instance: InstanceId) -> Result<Box<dyn Staged>> {
        self.find_out();
        Ok(Box::new(DirStaged::open(&self.root, ino, instance)?))
    }

    fn take_back(&self, path: &[u8], ino: Ino, instance: InstanceId) -> Result<()> {
        with_access(&self.root, &[path], || take_back(&self.root, path, ino, instance))
    }

    fn update(&self, path: &[u8], expect: Fingerprint) -> Result<Box<dyn Update>> {
        let same = |present: Fingerprint| present == expect;
        let open = || DirUpdate::open(&self.root, path, same);
        Ok(Box::new(with_access(&self.root, &[path], open)?))
    }

    fn resume_update(&self, path: &[u8], expect: Fingerprint) -> Result<Box<dyn Update>> {
        let same = |present: Fingerprint| present.is_same_object(expect);
        let open = || DirUpdate::open(&self.root, path, same);
        Ok(Box::new(with_access(&self.root, &[path], open)?))
    }

    fn sync(&self) -> Result<()> {
        self.find_out();
        // A fresh descriptor also hears of earlier write errors, if nobody else has yet.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let directory = match self.root.owner() {
            // What is root's he opens nothing of; the staging directory is his, and there.
            Some(owner) if owner != 0 => File::from(make_staging(&self.root)?),
            _ => self.root.open_at("sync", b"", flags)?,
        };
        rustix::fs::syncfs(&directory).map_err(|error| self.root.failed("sync", b"", error))
    }

    fn leave_sign(&self, number: u128) -> Result<()> {
        leave_sign(&self.root, number)
    }

    fn has_sign(&self, number: u128) -> Result<bool> {
        has_sign(&self.root, number)
    }

    fn clean(&self, instance: InstanceId) -> Result<()> {
        clean(&self.root, instance)
    }
}

impl NameSink for Dir {
    fn make_directory(&self, path: &[u8], mode: u32) -> Result<()> {
        let what = "make directory";
        if path.is_empty() {
            return self.root.open().map(drop);
        }
        let place = self.root.place(what, path)?;
        // As far as the umask lets it, in one step: who is killed here leaves it as it shall be.
        let whole = Mode::from_raw_mode(mode & 0o1777);
        match rustix::fs::mkdirat(&place.directory, &*place.name, whole) {
            Err(Errno::EXIST) if self.is_there(path, Kind::Directory)? => Ok(()),
            Err(error) => Err(self.root.failed(what, path, error)),
            Ok(()) => self.set_made(what, path, &place, mode),
        }
    }

    fn remove_directory(&self, path: &[u8]) -> Result<()> {
        self.remove("remove directory", path, AtFlags::REMOVEDIR)
    }

    fn make_link(&self, path: &[u8], target: &[u8]) -> Result<()> {
        let what = "make the symbolic link";
        let place = self.root.place(what, path)?;
        links::make_link(&place, target)
            .map_err(|error| self.no_such_kind(what, path, &error.into()))
    }

    fn make_fifo(&self, path: &[u8], mode: u32) -> Result<()> {
        let what = "make the FIFO";
        let place = self.root.place(what, path)?;
        let whole = Mode::from_raw_mode(mode & 0o777);
        match rustix::fs::mknodat(&place.directory, &*place.name, FileType::Fifo, whole, 0) {
            Err(Errno::EXIST) if self.is_there(path, Kind::Fifo)? => Ok(()),
            Err(error) => Err(self.no_such_kind(what, path, &error.into())),
            Ok(()) => self.set_made(what, path, &place, mode),
        }
    }

    fn link(&self, from: &[u8], to: &[u8]) -> Result<Touched> {
        with_access(&self.root, &[from, to], || {
            let (old, new) = (self.root.place("link", from)?, self.root.place("link", to)?);
            links::link(&old, &new).map_err(|error| self.no_such_kind("link to", to, &error))
        })
    }

    fn exchange(&self, from: &[u8], to: &[u8]) -> Result<()> {
        let (one, other) = (self.root.place("exchange", from)?, self.root.place("exchange", to)?);
        for place in [&one, &other].into_iter().filter(|place| place.naming.owner.is_some()) {
            place.look().map_err(|error| self.root.failed("exchange", from, error))?;
        }
        links::exchange(&one, &other).map_err(|error| {
            let is_first = one.naming.must_be_for_one(&one.directory).is_err();
            let (path, place) = if is_first { (from, &one) } else { (to, &other) };
            let mut failure = self.not_named("exchange", path, place, error);
            let aside = links::temporary(links::Purpose::Exchange, &one, &other);
            let is_anothers =
                || one.naming.look((&one.directory, &aside)).err() == Some(Errno::PERM);
            let why = match error {
                Errno::EXIST => "what had one of the names is now",
                Errno::ACCESS if is_anothers() => "somebody else has made, and must remove,",
                _ => return failure,
            };
            let aside = self.root.full(&one.beside(&aside));
            failure.context.push_str(&format!("; {why} {aside}"));
            failure
        })
    }

    fn unlink(&self, path: &[u8]) -> Result<()> {
        self.remove("remove", path, AtFlags::empty())
    }

    fn rename(&self, from: &[u8], to: &[u8]) -> Result<Touched> {
        let (old, new) = (self.root.place("rename", from)?, self.root.place("rename", to)?);
        let fail = |error: Errno| self.root.failed("rename", from, error);
        let fail_io = |error: std::io::Error| self.root.failed_io("rename", from, &error);
        let there = old.look().map_err(fail)?.ok_or_else(|| fail(Errno::NOENT))?;
        let before = there.metadata().map_err(fail_io)?;
        let (at, onto) = ((&old.directory, &*old.name), (&new.directory, &*new.name));
        let renamed = match new.look().map_err(fail)? {
            // What somebody makes there now is his.
            None if new.naming.owner.is_some() => new.naming.rename_new(at, onto),
            _ => rustix::fs::renameat(at.0, at.1, onto.0, onto.1),
        };
        match renamed {
            Ok(()) => {}
            Err(Errno::XDEV) => {
                let context = format!(
                    "rename {} to {}: these are two file systems",
                    self.root.full(from),
                    self.root.full(to)
                );
                let error = Error::new(ErrorKind::CrossDevice, context);
                return match self.root.owner() {
                    Some(_) => Err(error),
                    None => self.move_across(&old, &new, error),
                };
            }
            Err(error) => return Err(self.not_named("rename to", to, &new, error)),
        }
        Ok(touched(&before, &there.metadata().map_err(fail_io)?))
    }

    fn keep_theirs(&self, path: &[u8], ours: &[Object], alike: &[u8]) -> Result<Option<Vec<u8>>> {
        let what = "keep what somebody else made as";
        let fail = |error: Errno| self.root.failed(what, path, error);
        with_access(&self.root, &[path, alike], || {
            let place = self.root.place(what, path)?;
            let Some(there) = place.look().map_err(fail)? else { return Ok(None) };
            let found =
                there.metadata().map_err(|error| self.root.failed_io(what, path, &error))?;
            if found.is_dir() || ours.contains(&fingerprint(&found).object()) {
                return Ok(None);
            }
            // A move between file systems that was cut short has left a copy.
            let alike = self.root.place(what, alike)?;
            if alike.has_the_bytes_of(&place) {
                return Ok(None);
            }
            keep_aside(&place, &there).map(Some).map_err(fail)
        })
    }

    fn set_aside(&self, path: &[u8]) -> Result<Vec<u8>> {
        let what = "move aside what somebody else made as";
        with_access(&self.root, &[path], || {
            let place = self.root.place(what, path)?;
            set_aside(&place).map_err(|error| self.not_named(what, path, &place, error))
        })
    }

    fn change(&self, path: &[u8], change: Change) -> Result<Touched> {
        let what = "set the attributes of";
        let fail = |error: std::io::Error| self.root.failed_io(what, path, &error);
        let file = with_access(&self.root, &[path], || self.look(what, path))?;
        self.found(what, path, &file)?;
        let before = file.metadata().map_err(fail)?;
        Dir::set(&file, &change).map_err(fail)?;
        Ok(touched(&before, &file.metadata().map_err(fail)?))
    }

    fn set_xattr(&self, path: &[u8], name: &[u8], value: Option<&[u8]>) -> Result<Touched> {
        let what = "set an extended attribute of";
        let file = with_access(&self.root, &[path], || self.look(what, path))?;
        self.found(what, path, &file)?;
        let fail = |error: std::io::Error| self.root.failed_io(what, path, &error);
        let before = file.metadata().map_err(fail)?;
        let set = || xattrs::set(&file, name, value);
        with_own_access(&file, set).map_err(|error| self.root.failed(what, path, error))?;
        Ok(touched(&before, &file.metadata().map_err(fail)?))
    }
}

fn timespec(time_ns: Option<u64>) -> Timespec {
    match time_ns {
        None => Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT },
        Some(time_ns) => Timespec {
            tv_sec: (time_ns / 1_000_000_000).cast_signed(),
            tv_nsec: (time_ns % 1_000_000_000).cast_signed(),
        },
    }
}
