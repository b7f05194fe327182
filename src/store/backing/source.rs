//! Where files come from: what requests ask of the permanent store, and what is looked at before
//! something is brought there. Nothing here changes anything.

use terral_format::Result;
use terral_format::fingerprint::Fingerprint;
use terral_format::wire::message::{Attributes, Name, Space};

use crate::sparse::Sparse;

/// What is under a name now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// As `stat(2)` says, but with inode number 0.
    pub attributes: Attributes,
    /// To compare with later. Two changes within one tick of the file system's clock that keep the
    /// size look alike.
    pub fingerprint: Fingerprint,
}

/// The names in a directory, as they were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// How the directory looked just before: if it looks so again, it has these names still, unless
    /// it has changed twice within one tick of the file system's clock.
    pub looks: Fingerprint,
    /// In order of their bytes, with inode number 0.
    pub names: Vec<Name>,
}

/// What is done with names where others make some, too, so that nothing of theirs is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BesideOthers {
    /// Names are made, moved, exchanged.
    All,
    /// Names are made. What is moved there could replace what has come just before.
    Made,
    /// Directories, links and FIFOs are made, and no files.
    NoFiles,
}

/// Extended attributes: names and values.
pub type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// What files, names and attributes are read from.
///
/// # Errors
/// Of every call: those of a [`Backing`](super::Backing).
pub trait Source: Send + Sync {
    /// The store's name, for messages.
    fn describe(&self) -> String;

    /// Whether its answers come from elsewhere, over a network or from another program, and may be
    /// long in coming.
    fn is_far(&self) -> bool {
        false
    }

    /// Whose alone is touched, by its number, where each of several users has a process of his own:
    /// of what is another's it says, by [`Source::stat`], how it looks and whose it is. `None`: one
    /// process touches all, as far as the kernel lets it.
    fn owner(&self) -> Option<u32> {
        None
    }

    /// What this does with names in root's directories in which others make some.
    fn beside_others(&self) -> BesideOthers {
        BesideOthers::All
    }

    /// What is at `path`. A symbolic link is itself, wherever it leads; its size is its target's.
    fn stat(&self, path: &[u8]) -> Result<Found>;

    /// The names in `path`; `None`, and none is read, if the directory looks as `known`, by the
    /// word of whoever has it and not of a cache that may be older than its names. What
    /// [`Source::stat`] would refuse, and what belongs to the staging, is left out.
    fn list_unless(&self, path: &[u8], known: Option<Fingerprint>) -> Result<Option<Listing>>;

    /// The names in `path`, whatever is known.
    fn list(&self, path: &[u8]) -> Result<Vec<Name>> {
        Ok(self.list_unless(path, None)?.unwrap_or_default().names)
    }

    /// Reads bytes of a file from `offset`; fewer than asked for only at its end. Of a symbolic
    /// link: `ErrorKind::Loop`; of a FIFO: `ErrorKind::Unsupported`.
    fn read(&self, path: &[u8], offset: u64, buffer: &mut [u8]) -> Result<usize>;

    /// So many bytes of a file from `offset` on, without the holes that the store knows of; zeros
    /// beyond its end. Otherwise as [`Source::read`]. A directory knows of none: file systems have
    /// taken what was just written for holes.
    fn read_sparse(&self, path: &[u8], offset: u64, bytes: usize, into: &mut Sparse) -> Result<()> {
        into.clear(bytes);
        let all = into.add(0, bytes);
        let count = self.read(path, offset, all)?;
        all[count..].fill(0);
        Ok(())
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// `ErrorKind::Invalid` if it is none.
    fn read_link(&self, path: &[u8]) -> Result<Vec<u8>>;

    /// The extended attributes a user may set (`user.*`), with their values.
    fn xattrs(&self, path: &[u8]) -> Result<Xattrs>;

    /// Bytes and names there, used and free for this user.
    fn space(&self) -> Result<Space>;
}
