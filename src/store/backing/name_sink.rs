//! Where operations on names are brought. Each can be repeated, by whoever does not know whether it
//! was done, but for [`NameSink::rename`] and [`NameSink::exchange`], which say what to look at.

use terral_format::Result;
use terral_format::fingerprint::{Fingerprint, Object};
use terral_format::wire::message::Change;

use super::Source;

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

/// What takes names and attributes. It is a [`Source`] too: what somebody else has under a name is
/// looked at before that is taken, and what an operation has changed after it.
///
/// # Errors
/// Of every call: those of a [`Backing`](super::Backing).
pub trait NameSink: Source {
    /// Makes a directory with exactly these permission bits. One that exists is left as it is.
    fn make_directory(&self, path: &[u8], mode: u32) -> Result<()>;

    /// Removes an empty directory. One that is missing is no error.
    fn remove_directory(&self, path: &[u8]) -> Result<()>;

    /// Makes a symbolic link to `target`, which may be anything. One with the same target is left
    /// as it is.
    ///
    /// # Errors
    /// `ErrorKind::Exists` if something else is there, `ErrorKind::NameTooLong` for a longer
    /// target than the store takes (4,095 bytes, with XFS 1,023), `ErrorKind::Invalid` for one
    /// that cannot be, `ErrorKind::Unsupported` if it has no symbolic links.
    fn make_link(&self, path: &[u8], target: &[u8]) -> Result<()>;

    /// Makes a FIFO with exactly these permission bits. One that exists is left as it is.
    ///
    /// # Errors
    /// `ErrorKind::Exists` if something else is there, `ErrorKind::Unsupported` if the store
    /// has no FIFOs.
    fn make_fifo(&self, path: &[u8], mode: u32) -> Result<()>;

    /// Gives what is at `from`, but a directory, the further name `to`, in place of whatever else
    /// but a directory has it. If it is the same already, nothing changes.
    ///
    /// # Errors
    /// `ErrorKind::IsDirectory` if either is a directory, `ErrorKind::CrossDevice` between file
    /// systems, `ErrorKind::Unsupported` if the store has no hard links, or not one more of it.
    fn link(&self, from: &[u8], to: &[u8]) -> Result<Touched>;

    /// Lets two names change places, whatever they name. Done twice it is undone: only whoever
    /// knows what was where before may repeat it.
    ///
    /// # Errors
    /// `ErrorKind::NotFound` if either is missing, `ErrorKind::Invalid` if one lies within the
    /// other, `ErrorKind::CrossDevice` between file systems. Where the store cannot do it in one
    /// step, an attempt that was cut short leaves one of the names missing until it is repeated;
    /// `ErrorKind::Exists` if somebody made that name meanwhile.
    fn exchange(&self, from: &[u8], to: &[u8]) -> Result<()>;

    /// Removes the name of anything but a directory. One that is missing is no error.
    fn unlink(&self, path: &[u8]) -> Result<()>;

    /// Moves a name, over an existing one if there is one. A missing `from` is
    /// `ErrorKind::NotFound`: after a restart that may mean that it was done before.
    fn rename(&self, from: &[u8], to: &[u8]) -> Result<Touched>;

    /// Gives what has a name a further one beside it, `NAME.theirs-N`, unless it is one of these
    /// objects, a directory, missing, or has the bytes of the file at `alike`. Gives the path.
    fn keep_theirs(&self, path: &[u8], ours: &[Object], alike: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Moves what has a name to `NAME.theirs-N`, also a directory with all that is in it. Gives the
    /// path.
    fn set_aside(&self, path: &[u8]) -> Result<Vec<u8>>;

    /// Changes attributes. A symbolic link has owner and times of its own; its mode stays.
    fn change(&self, path: &[u8], change: Change) -> Result<Touched>;

    /// Sets an extended attribute, or removes it; one that is missing is no error.
    ///
    /// # Errors
    /// `ErrorKind::Unsupported` if the store takes none.
    fn set_xattr(&self, path: &[u8], name: &[u8], value: Option<&[u8]>) -> Result<Touched>;
}
