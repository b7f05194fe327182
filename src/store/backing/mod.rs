//! The permanent store behind the memory tier: where files come from and where the drain brings
//! them.
//!
//! Paths are bytes relative to the store's root, `b"a/b"`, without leading slash; `b""` is the
//! root. Symbolic links are things of their own here and are never followed; whoever gives a path
//! has resolved them, so no path leads out of the root. A new version of a file is staged under a
//! temporary name and published by one rename, so a name never shows half of it. A version that
//! somebody else put there meanwhile is never lost: it is kept beside ours.
//!
//! Not here: what is owed, in which order, and how often to try again (the drain); durability of a
//! single call (only [`Backing::sync`] waits for the disk).

use terral_format::fingerprint::Fingerprint;
use terral_format::ids::{Ino, InstanceId};
use terral_format::wire::message::{Attributes, Change, Name, Space};
use terral_format::{Error, ErrorKind, Result};

mod beneath;

mod attributes;

mod insist;

mod home;

mod links;

mod staged;

mod update;

mod xattrs;

pub mod dir;

#[cfg(any(test, feature = "conformance"))]
pub mod faulty;

#[cfg(any(test, feature = "conformance"))]
pub mod scripted;

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;

#[cfg(test)]
mod tests;

/// Name of the staging directory in the root; `.terral-UID` is another user's. No path may begin
/// with one of them.
pub const STAGING: &[u8] = b".terral";

/// What is under a name now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// As `stat(2)` says, but with inode number 0.
    pub attributes: Attributes,
    /// To compare with later. Two changes within one tick of the file system's clock that keep the
    /// size look alike.
    pub fingerprint: Fingerprint,
}

/// How a name operation changed the look of what it was done to. Whoever remembers a fingerprint
/// goes on with `after`, but only if `before` is what was remembered; else somebody else was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touched {
    /// The look just before.
    pub before: Fingerprint,
    /// The look just after.
    pub after: Fingerprint,
    /// When its bytes were last changed before, nanoseconds since 1970.
    pub modified_ns: u64,
}

/// What [`Staged::publish`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// How the file looks under its name.
    pub fingerprint: Fingerprint,
    /// Where somebody else's version of it is now, if there was one: `NAME.theirs-N`.
    pub conflict: Option<Vec<u8>>,
}

/// Whom a version tells how it looks before it gets its name.
pub type Announce<'a> = &'a mut dyn FnMut(&Found) -> Result<()>;

/// Extended attributes: names and values.
pub type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// A permanent store.
///
/// # Errors
/// Of every call: [`ErrorKind::Backing`] if the store itself is away or broken (so that a store
/// that is away is never taken for one without files), [`ErrorKind::NoSpace`] if it or the user's
/// quota is full, [`ErrorKind::Denied`] if it does not let this process do that or the path begins
/// with [`STAGING`], [`ErrorKind::Invalid`] and [`ErrorKind::NameTooLong`] for what cannot be
/// a path, [`ErrorKind::NotFound`], [`ErrorKind::NotDirectory`] (also where a symbolic link is on
/// the way), [`ErrorKind::IsDirectory`] as in POSIX, and [`ErrorKind::Unsupported`] for anything
/// but files, directories, symbolic links and FIFOs: devices and sockets.
pub trait Backing: Send + Sync {
    /// The store's name, for messages.
    fn describe(&self) -> String;

    /// Whether its answers come from elsewhere, over a network or from another program, and may be
    /// long in coming.
    fn is_far(&self) -> bool {
        false
    }

    /// What is at `path`. A symbolic link is itself, wherever it leads; its size is its target's.
    fn stat(&self, path: &[u8]) -> Result<Found>;

    /// The names in `path`, in order of their bytes, with inode number 0. What [`Backing::stat`]
    /// would refuse, and what belongs to the staging, is left out.
    fn list(&self, path: &[u8]) -> Result<Vec<Name>>;

    /// Reads bytes of a file from `offset`; fewer than asked for only at its end. Of a symbolic
    /// link: [`ErrorKind::Loop`]; of a FIFO: [`ErrorKind::Unsupported`].
    fn read(&self, path: &[u8], offset: u64, buffer: &mut [u8]) -> Result<usize>;

    /// Starts a whole new version of a file, or goes on with what an earlier process of the same
    /// instance staged for this `ino` (see [`Staged::resumed_bytes`]). One at a time per `ino`.
    fn stage(&self, ino: Ino, instance: InstanceId) -> Result<Box<dyn Staged>>;

    /// Makes the file at `path`, which was published for this `ino`, its staged version again.
    fn take_back(&self, path: &[u8], ino: Ino, instance: InstanceId) -> Result<()>;

    /// Starts changing a file in place; owner, hard links and extended attributes stay. Readers see
    /// each write at once.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] if the file does not look like `expect` or is none: somebody else
    /// changed it, and a whole version must be staged instead.
    fn update(&self, path: &[u8], expect: Fingerprint) -> Result<Box<dyn Update>>;

    /// As [`Backing::update`], for an update that was interrupted: `expect` is how the file looked
    /// before it began, and only the inode number must still be that one.
    fn resume_update(&self, path: &[u8], expect: Fingerprint) -> Result<Box<dyn Update>>;

    /// Makes a directory with exactly these permission bits. One that exists is left as it is.
    fn make_directory(&self, path: &[u8], mode: u32) -> Result<()>;

    /// Removes an empty directory. One that is missing is no error.
    fn remove_directory(&self, path: &[u8]) -> Result<()>;

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if it is none.
    fn read_link(&self, path: &[u8]) -> Result<Vec<u8>>;

    /// Makes a symbolic link to `target`, which may be anything. One with the same target is left
    /// as it is.
    ///
    /// # Errors
    /// [`ErrorKind::Exists`] if something else is there, [`ErrorKind::NameTooLong`] for a longer
    /// target than the store takes (4,095 bytes, with XFS 1,023), [`ErrorKind::Invalid`] for one
    /// that cannot be, [`ErrorKind::Unsupported`] if it has no symbolic links.
    fn make_link(&self, path: &[u8], target: &[u8]) -> Result<()>;

    /// Makes a FIFO with exactly these permission bits. One that exists is left as it is.
    ///
    /// # Errors
    /// [`ErrorKind::Exists`] if something else is there, [`ErrorKind::Unsupported`] if the store
    /// has no FIFOs.
    fn make_fifo(&self, path: &[u8], mode: u32) -> Result<()>;

    /// Gives what is at `from`, but a directory, the further name `to`, in place of whatever else
    /// but a directory has it. If it is the same already, nothing changes.
    ///
    /// # Errors
    /// [`ErrorKind::IsDirectory`] if either is a directory, [`ErrorKind::CrossDevice`] between file
    /// systems, [`ErrorKind::Unsupported`] if the store has no hard links, or not one more of it.
    fn link(&self, from: &[u8], to: &[u8]) -> Result<Touched>;

    /// Lets two names change places, whatever they name. Done twice it is undone: only whoever
    /// knows what was where before may repeat it.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if either is missing, [`ErrorKind::Invalid`] if one lies within the
    /// other, [`ErrorKind::CrossDevice`] between file systems. Where the store cannot do it in one
    /// step, an attempt that was cut short leaves one of the names missing until it is repeated;
    /// [`ErrorKind::Exists`] if somebody made that name meanwhile.
    fn exchange(&self, from: &[u8], to: &[u8]) -> Result<()>;

    /// Removes the name of anything but a directory. One that is missing is no error.
    fn unlink(&self, path: &[u8]) -> Result<()>;

    /// Moves a name, over an existing one if there is one. A missing `from` is
    /// [`ErrorKind::NotFound`]: after a restart that may mean that it was done before.
    fn rename(&self, from: &[u8], to: &[u8]) -> Result<Touched>;

    /// Gives what has a name a further one beside it, `NAME.theirs-N`, unless it is one of these
    /// inodes, a directory, missing, or has the bytes of the file at `alike`. Gives the path.
    fn keep_theirs(&self, path: &[u8], ours: &[u64], alike: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Moves what has a name to `NAME.theirs-N`, also a directory with all that is in it. Gives the
    /// path.
    fn set_aside(&self, path: &[u8]) -> Result<Vec<u8>>;

    /// Changes attributes. A symbolic link has owner and times of its own; its mode stays.
    fn change(&self, path: &[u8], change: Change) -> Result<Touched>;

    /// Sets an extended attribute, or removes it; one that is missing is no error.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the store takes none.
    fn set_xattr(&self, path: &[u8], name: &[u8], value: Option<&[u8]>) -> Result<Touched>;

    /// The extended attributes a user may set (`user.*`), with their values.
    fn xattrs(&self, path: &[u8]) -> Result<Xattrs>;

    /// Waits until all that was done so far survives a power cut, as far as the store promises it.
    fn sync(&self) -> Result<()>;

    /// Bytes and names there, used and free for this user.
    fn space(&self) -> Result<Space>;

    /// Removes what `instance` has staged and not published, and the staging directory if nothing
    /// of others is in it.
    fn clean(&self, instance: InstanceId) -> Result<()>;
}

/// A version of a file that nobody sees yet. Dropping it keeps what was written, for the next
/// [`Backing::stage`] of the same file.
pub trait Staged: Send {
    /// Size of what was found from before, or `None` if this stage is new and empty. Where it is
    /// `None`, nothing that was staged earlier for this file exists any more. Where it is not,
    /// holes of the new version may have old bytes: truncate to 0 first, unless it is known which
    /// were written.
    fn resumed_bytes(&self) -> Option<u64>;

    /// Writes all of `bytes` at `offset`.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Sets the size; what is new reads as zeros.
    fn truncate(&mut self, size: u64) -> Result<()>;

    /// Reads back; fewer bytes than asked for only at the end.
    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize>;

    /// Gives the version its size, mode, owner and times, and puts it under `path` in one step.
    /// Owner and times are set as far as this process may; without the owner, set-id bits are
    /// dropped. `expect` is how the file there must look, `None` that there must be none; if
    /// something else is there and its bytes differ, it is kept as [`Published::conflict`] says.
    /// `announce` is told just before how what gets the name looks, so that a caller that dies can
    /// find out whether it did; the name changes nothing of that but the time of change.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if the directory is missing, and those of `announce`. After any
    /// error, [`Backing::stage`] goes on with what is left, unless the name has been taken.
    fn publish(
        self: Box<Self>,
        path: &[u8],
        attributes: &Attributes,
        size: u64,
        expect: Option<Fingerprint>,
        announce: Announce<'_>,
    ) -> Result<Published>;

    /// Throws it away.
    fn discard(self: Box<Self>);
}

/// A file being changed in place.
pub trait Update: Send {
    /// Writes all of `bytes` at `offset`.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Sets the size; what is new reads as zeros.
    fn truncate(&mut self, size: u64) -> Result<()>;

    /// Reads back; fewer bytes than asked for only at the end.
    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize>;

    /// Sets mode, owner and times where they differ and this process may; says how the file looks.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] if its name is another file's by now, and [`ErrorKind::NotFound`] if it
    /// has none.
    fn finish(self: Box<Self>, attributes: &Attributes) -> Result<Fingerprint>;
}

/// Refuses what is not a path within a store.
fn check_path(path: &[u8]) -> Result<()> {
    let refuse = |kind, why: &str| Err(Error::new(kind, format!("{}: {why}", shown(path))));
    if path.is_empty() {
        return Ok(());
    }
    if path.len() > 4095 {
        return refuse(ErrorKind::NameTooLong, "more than 4095 bytes");
    }
    if path.contains(&0) {
        return refuse(ErrorKind::Invalid, "a zero byte in a path");
    }
    for (index, name) in path.split(|byte| *byte == b'/').enumerate() {
        if name.is_empty() || name == b"." || name == b".." {
            return refuse(ErrorKind::Invalid, "not a path below the root");
        }
        if name.len() > 255 {
            return refuse(ErrorKind::NameTooLong, "a name of more than 255 bytes");
        }
        if index == 0 && home::is_staging(name) {
            return refuse(ErrorKind::Denied, "this name is Terral's own; take another one");
        }
    }
    Ok(())
}

/// A path as a person can read it, on one line.
fn shown(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len());
    for character in String::from_utf8_lossy(path).chars() {
        if character.is_control() {
            text.extend(character.escape_default());
        } else {
            text.push(character);
        }
    }
    text
}

/// The error for an `errno` while doing `what`.
fn failed(error: &std::io::Error, what: &str) -> Error {
    let mut failure = Error::system(error, what);
    // The kinds of the general table, except where an errno of a file system says something else
    // than the same errno of a system call: EPERM, EIO, EDQUOT, ENXIO, ENODEV, ETXTBSY, ENOTCONN,
    // ETIMEDOUT, EHOSTDOWN, ESTALE.
    failure.kind = match failure.errno {
        1 | 30 => ErrorKind::Denied,
        28 | 122 => ErrorKind::NoSpace,
        5 | 6 | 19 | 107 | 110 | 112 | 116 => ErrorKind::Backing,
        26 => ErrorKind::Busy,
        _ => failure.kind,
    };
    if failure.kind == ErrorKind::NoSpace {
        failure.context.push_str("; free some there, then it goes on");
    }
    failure
}
