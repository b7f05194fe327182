//! Something a request needs that is not in memory: what it is, and how it is fetched. Not here:
//! when, by whom, and who waits for it (`fetching`).

use std::sync::Arc;

use terral_format::fingerprint::Fingerprint;
use terral_format::ids::{Ino, InstanceId, SpillPlace};
use terral_format::local::entry::MapEntry;
use terral_format::local::geometry::CHUNK_BYTES;
use terral_format::wire::message::Kind;
use terral_format::{Error, ErrorKind, Result};
use terral_store::backing::{Found, Sink, Source, Xattrs};
use terral_store::memory::Memory;
use terral_store::sparse::Sparse;
use terral_store::spill::Block;

use crate::debts::version::{SharedVersion, Version};
use crate::needs::listings::{Listed, Wanted};

/// Something that is not in memory.
#[derive(Clone, PartialEq)]
pub enum Need {
    /// What is at this path there, which is that of a name nobody has asked for.
    Look(Vec<u8>),
    /// The names in this directory.
    List(Wanted),
    /// Bytes of a file.
    Bytes(Piece),
    /// Bytes of a version that has no name yet.
    Version(Slice),
    /// The version of a file that a server before us has staged.
    Open(Staging),
    /// The extended attributes of what is at this path.
    Xattrs(Vec<u8>),
    /// A chunk that was spilled.
    Spilled(SpilledChunk),
}

/// A chunk in the spill.
#[derive(Clone)]
pub struct SpilledChunk {
    /// Whose spill it is.
    pub memory: Arc<Memory>,
    /// Of which file.
    pub ino: Ino,
    /// Which chunk of it.
    pub index: u64,
    /// What the file's map says of it, which no other chunk is ever called.
    pub entry: MapEntry,
    /// Where it is.
    pub place: SpillPlace,
}

impl PartialEq for SpilledChunk {
    fn eq(&self, other: &Self) -> bool {
        (self.ino, self.index, self.entry) == (other.ino, other.index, other.entry)
    }
}

impl SpilledChunk {
    /// Reads it, without the server's lock, or before it has clients.
    ///
    /// # Errors
    /// What the disk says.
    pub fn read(&self) -> Result<Block> {
        self.memory.read_spilled(self.place, (self.ino, self.index))
    }
}

/// A version that is staged somewhere.
#[derive(Clone)]
pub struct Staging {
    /// Where.
    pub sink: Arc<dyn Sink>,
    /// Of which file.
    pub ino: Ino,
    /// Who has staged it.
    pub instance: InstanceId,
}

impl PartialEq for Staging {
    fn eq(&self, other: &Self) -> bool {
        (self.ino, self.instance) == (other.ino, other.instance)
    }
}

impl Staging {
    fn open(&self) -> Result<(Version, bool)> {
        Version::open(&*self.sink, self.ino, self.instance)
    }
}

/// Bytes of a version that has no name yet.
#[derive(Clone)]
pub struct Slice {
    /// Which.
    pub version: SharedVersion,
    /// Of which file.
    pub ino: Ino,
    /// From where on.
    pub at: u64,
    /// How many.
    pub bytes: usize,
    /// Of the file's size.
    pub epoch: u16,
}

impl PartialEq for Slice {
    fn eq(&self, other: &Self) -> bool {
        let same = Arc::ptr_eq(&self.version, &other.version);
        same && (self.at, self.bytes, self.epoch) == (other.at, other.bytes, other.epoch)
    }
}

/// Bytes of a file as the permanent store has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where it is there.
    pub path: Vec<u8>,
    /// Which it is.
    pub ino: Ino,
    /// From where on.
    pub at: u64,
    /// How many bytes count.
    pub bytes: usize,
    /// How it looked when it was published, if it was.
    pub published: Option<Fingerprint>,
    /// Of its size.
    pub epoch: u16,
}

/// What is at a path, and where it leads to if it is a symbolic link; `None` if nothing is.
pub type Looked = Option<(Found, Vec<u8>)>;

/// What was fetched for a [`Need`].
pub enum Fetched {
    /// For [`Need::Look`].
    Look(Result<Looked>),
    /// For [`Need::List`].
    List(Result<Arc<Listed>>),
    /// For [`Need::Bytes`] and [`Need::Version`]: zeros where the file is shorter than it was.
    Bytes(Result<Sparse>),
    /// For [`Need::Open`], and whether there was one.
    Opened(Result<(Version, bool)>),
    /// For [`Need::Xattrs`].
    Xattrs(Result<Xattrs>),
    /// For [`Need::Spilled`].
    Block(Result<Block>),
}

impl Fetched {
    /// The same again, if it says something of names.
    pub fn of_names(&self) -> Option<Self> {
        match self {
            Fetched::Look(looked) => Some(Fetched::Look(looked.clone())),
            Fetched::List(names) => Some(Fetched::List(names.clone())),
            _ => None,
        }
    }

    /// Whether these were bytes of a version that was just getting its name.
    pub fn is_elsewhere(&self) -> bool {
        matches!(self, Fetched::Bytes(Err(error)) if error.kind == ErrorKind::Busy)
    }
}

impl Need {
    /// Where that is there, if it has a name.
    pub fn path(&self) -> Option<&[u8]> {
        match self {
            Need::Look(path) | Need::Xattrs(path) => Some(path),
            Need::List(wanted) => Some(&wanted.path),
            Need::Bytes(piece) => Some(&piece.path),
            Need::Version(_) | Need::Open(_) | Need::Spilled(_) => None,
        }
    }

    /// Whether these are bytes of this chunk as the store has them.
    pub fn is_of_chunk(&self, ino: Ino, index: u64) -> bool {
        let of = match self {
            Need::Bytes(piece) => Some((piece.ino, piece.at)),
            Need::Version(slice) => Some((slice.ino, slice.at)),
            _ => None,
        };
        of.is_some_and(|(of, at)| (of, at / CHUNK_BYTES) == (ino, index))
    }

    /// Fetches it, however long that takes.
    pub fn fetch(&self, source: Option<&dyn Source>) -> Fetched {
        let store = || source.ok_or_else(|| Error::new(ErrorKind::Backing, "there is none"));
        match self {
            Need::Look(path) => Fetched::Look(store().and_then(|store| look(store, path))),
            Need::List(wanted) => Fetched::List(store().and_then(|store| wanted.list(store))),
            Need::Bytes(piece) => Fetched::Bytes(store().and_then(|store| piece.read(store))),
            Need::Version(slice) => Fetched::Bytes(slice.version.read(slice.at, slice.bytes)),
            Need::Open(staging) => Fetched::Opened(staging.open()),
            Need::Xattrs(path) => Fetched::Xattrs(store().and_then(|store| store.xattrs(path))),
            Need::Spilled(chunk) => Fetched::Block(chunk.read()),
        }
    }

    /// The same in place. `None`: that would be a wait for who writes it.
    pub fn fetch_now(&self, source: Option<&dyn Source>) -> Option<Fetched> {
        match self {
            Need::Version(slice) => {
                slice.version.try_read(slice.at, slice.bytes).map(Fetched::Bytes)
            }
            need => Some(need.fetch(source)),
        }
    }

    /// What it gives if nobody can fetch it.
    pub fn failed(&self, error: Error) -> Fetched {
        match self {
            Need::Look(_) => Fetched::Look(Err(error)),
            Need::List(_) => Fetched::List(Err(error)),
            Need::Bytes(_) | Need::Version(_) => Fetched::Bytes(Err(error)),
            Need::Open(_) => Fetched::Opened(Err(error)),
            Need::Xattrs(_) => Fetched::Xattrs(Err(error)),
            Need::Spilled(_) => Fetched::Block(Err(error)),
        }
    }
}

impl Piece {
    fn read(&self, source: &dyn Source) -> Result<Sparse> {
        let mut bytes = Sparse::default();
        source.read_sparse(&self.path, self.at, self.bytes, &mut bytes)?;
        Ok(bytes)
    }
}

/// What is at a path of the permanent store.
fn look(source: &dyn Source, path: &[u8]) -> Result<Looked> {
    let found = match source.stat(path) {
        Ok(found) => found,
        Err(error) if error.kind == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    // What another user's says he reads himself.
    let reads = source.owner().is_none_or(|owner| owner == found.attributes.uid);
    let target = match found.attributes.kind {
        Kind::Symlink if reads => source.read_link(path)?,
        _ => Vec::new(),
    };
    Ok(Some((found, target)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use terral_format::ids::{Ino, InstanceId};
    use terral_store::backing::scripted::Scripted;

    use super::{Fetched, Need, Slice};
    use crate::debts::version::Version;

    #[test]
    fn a_version_that_is_just_written_is_not_waited_for_in_place() {
        let store = Scripted::new(|| 0);
        let (version, _) = Version::open(&store, Ino(1), InstanceId(1)).expect("it is staged");
        let version = Arc::new(version);
        let need = Need::Version(Slice {
            version: version.clone(),
            ino: Ino(1),
            at: 0,
            bytes: 4,
            epoch: 0,
        });
        let writing = version.copied();
        assert!(need.fetch_now(None).is_none());
        drop(writing);
        assert!(matches!(need.fetch_now(None), Some(Fetched::Bytes(Ok(_)))));
    }
}
