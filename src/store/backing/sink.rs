//! Where the bytes of files are brought: whole, as a version that nobody sees before it has its
//! name, or by changing what is there.
//!
//! Not here: names that come without bytes (`name_sink`).

use terral_format::Result;
use terral_format::fingerprint::Fingerprint;
use terral_format::ids::{Ino, InstanceId};
use terral_format::wire::message::Attributes;

use super::Found;
use crate::sparse::Sparse;

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

/// What takes the bytes of files.
///
/// # Errors
/// Of every call: those of a [`Backing`](super::Backing).
pub trait Sink: Send + Sync {
    /// Starts a whole new version of a file, or goes on with what an earlier process of the same
    /// instance staged for this `ino` (see [`Staged::resumed_bytes`]). One at a time per `ino`.
    fn stage(&self, ino: Ino, instance: InstanceId) -> Result<Box<dyn Staged>>;

    /// Makes the file at `path`, which was published for this `ino`, its staged version again.
    fn take_back(&self, path: &[u8], ino: Ino, instance: InstanceId) -> Result<()>;

    /// Starts changing a file in place; owner, hard links and extended attributes stay. Readers see
    /// each write at once.
    ///
    /// # Errors
    /// `ErrorKind::Busy` if the file does not look like `expect` or is none: somebody else
    /// changed it, and a whole version must be staged instead.
    fn update(&self, path: &[u8], expect: Fingerprint) -> Result<Box<dyn Update>>;

    /// As [`Sink::update`], for an update that was interrupted: `expect` is how the file looked
    /// before it began, and it must only still be that object.
    fn resume_update(&self, path: &[u8], expect: Fingerprint) -> Result<Box<dyn Update>>;

    /// Waits until all that was done so far survives a power cut, as far as the store promises it.
    fn sync(&self) -> Result<()>;

    /// Leaves a sign with this number, which everybody finds who sees the same store. It has a name
    /// in the staging directory as what an instance with that number stages, and goes as that does.
    fn leave_sign(&self, number: u128) -> Result<()>;

    /// Whether somebody has left it. A store that is far away may say so late.
    fn has_sign(&self, number: u128) -> Result<bool>;

    /// Removes what `instance` has staged and not published, and the staging directory if nothing
    /// of others is in it.
    fn clean(&self, instance: InstanceId) -> Result<()>;
}

/// A file of the store that is written to.
pub trait RandomAccess: Send {
    /// Writes all of `bytes` at `offset`.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Sets the size; what is new reads as zeros.
    fn truncate(&mut self, size: u64) -> Result<()>;

    /// Makes zeros of so many bytes from `offset` on, as far as there are any.
    fn clear(&mut self, offset: u64, bytes: u64) -> Result<()>;

    /// Reads back; fewer bytes than asked for only at the end.
    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize>;

    /// Reads back without the holes that the store knows of; zeros beyond the end.
    fn read_sparse(&mut self, offset: u64, bytes: usize, into: &mut Sparse) -> Result<()> {
        into.clear(bytes);
        let all = into.add(0, bytes);
        let count = self.read(offset, all)?;
        all[count..].fill(0);
        Ok(())
    }
}

/// A version of a file that nobody sees yet. Dropping it keeps what was written, for the next
/// [`Sink::stage`] of the same file.
pub trait Staged: RandomAccess {
    /// Size of what was found from before, or `None` if this stage is new and empty. Where it is
    /// `None`, nothing that was staged earlier for this file exists any more. Where it is not,
    /// holes of the new version may have old bytes: truncate to 0 first, unless it is known which
    /// were written.
    fn resumed_bytes(&self) -> Option<u64>;

    /// Gives the version its size, mode, owner and times, and puts it under `path` in one step.
    /// Owner and times are set as far as this process may; without the owner, set-id bits are
    /// dropped. `expect` is how the file there must look, `None` that there must be none; if
    /// something else is there and its bytes differ, it is kept as [`Published::conflict`] says.
    /// `announce` is told just before how what gets the name looks, so that a caller that dies can
    /// find out whether it did; the name changes nothing of that but the time of change.
    ///
    /// # Errors
    /// `ErrorKind::NotFound` if the directory is missing, and those of `announce`. After any
    /// error, [`Sink::stage`] goes on with what is left, unless the name has been taken.
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
pub trait Update: RandomAccess {
    /// Sets mode, owner and times where they differ and this process may; says how the file looks.
    ///
    /// # Errors
    /// `ErrorKind::Busy` if its name is another file's by now, and `ErrorKind::NotFound` if it
    /// has none.
    fn finish(self: Box<Self>, attributes: &Attributes) -> Result<Fingerprint>;
}
