//! Changes that clients have made already, and what they are about: the keys that they are claimed
//! by, and what they use. How they are ordered is `deferred`'s.

use serde::{Deserialize, Serialize};

use crate::ids::{DescriptionSlot, Ino};
use crate::local::deferred::Key;
use crate::local::names::{hash, index_of};
use crate::wire::capability::Operations;
use crate::wire::message::Change;

/// A deferred change, and on whose authority it was made.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Made<'a> {
    /// As in an [`crate::wire::message::Envelope`].
    pub authority: u32,
    /// The change.
    #[serde(borrow)]
    pub change: Deferred<'a>,
}

/// A change that a client has made already; see [`crate::local::deferred`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Deferred<'a> {
    /// A file in hand has a name now.
    Create {
        /// Which.
        ino: Ino,
        /// Where.
        parent: Ino,
        /// Its name.
        #[serde(borrow)]
        name: &'a [u8],
        /// Permission bits, umask already taken off.
        mode: u32,
        /// User and group of who made it, for readers: the server looks at the authority.
        by: (u32, u32),
        /// When, nanoseconds since 1970.
        time_ns: u64,
    },
    /// A file's name is no more.
    Unlink {
        /// Where.
        parent: Ino,
        /// The name.
        name: &'a [u8],
        /// What it stood for.
        ino: Ino,
        /// When, nanoseconds since 1970.
        time_ns: u64,
    },
    /// Attributes of an open file, whose header has the times already.
    Change {
        /// Which.
        ino: Ino,
        /// To what.
        change: Change,
        /// When, nanoseconds since 1970.
        time_ns: u64,
    },
    /// A descriptor of this description was closed; if it was the last, the description ends.
    Close {
        /// Which.
        description: DescriptionSlot,
        /// Must match.
        nonce: u32,
    },
    /// A file or directory that is there was opened, with a description in hand.
    Open {
        /// Which.
        ino: Ino,
        /// The description.
        description: DescriptionSlot,
        /// Must match.
        nonce: u32,
        /// Bits of [`crate::local::tables::access`].
        access: u8,
    },
    /// A directory was made, with a number in hand.
    MakeDirectory {
        /// Which.
        ino: Ino,
        /// Where.
        parent: Ino,
        /// Its name.
        name: &'a [u8],
        /// Permission bits, umask already taken off.
        mode: u32,
        /// User and group of who made it, for readers: the server looks at the authority.
        by: (u32, u32),
        /// When, nanoseconds since 1970.
        time_ns: u64,
    },
    /// An empty directory is no more.
    RemoveDirectory {
        /// Where it was.
        parent: Ino,
        /// Its name.
        name: &'a [u8],
        /// Which.
        ino: Ino,
        /// When, nanoseconds since 1970.
        time_ns: u64,
    },
    /// A name was moved, over that of a file if there was one.
    Rename {
        /// From where.
        parent: Ino,
        /// The old name.
        name: &'a [u8],
        /// To where.
        to_parent: Ino,
        /// The new name.
        to_name: &'a [u8],
        /// What has it.
        ino: Ino,
        /// What had it before; 0: nothing.
        over: Ino,
        /// When, nanoseconds since 1970.
        time_ns: u64,
    },
}

impl Deferred<'_> {
    /// The operations a capability must allow for this change.
    pub fn needs(&self) -> Operations {
        match self {
            Deferred::Create { .. } => Operations::CREATE.and(Operations::WRITE),
            Deferred::MakeDirectory { .. } => Operations::CREATE,
            Deferred::Unlink { .. } | Deferred::RemoveDirectory { .. } => Operations::REMOVE,
            Deferred::Rename { .. } => Operations::CREATE.and(Operations::REMOVE),
            Deferred::Change { .. } => Operations::WRITE,
            Deferred::Open { access, .. } => Operations(access & 3),
            Deferred::Close { .. } => Operations(0),
        }
    }
}

fn key(parent: Ino, name: &[u8]) -> Key {
    Key::name(hash(index_of(parent), name))
}

/// The name that a change is about, if it is about one.
pub fn name_of(change: &Deferred<'_>) -> Option<Key> {
    match change {
        Deferred::Create { parent, name, .. }
        | Deferred::Unlink { parent, name, .. }
        | Deferred::MakeDirectory { parent, name, .. }
        | Deferred::RemoveDirectory { parent, name, .. } => Some(key(*parent, name)),
        Deferred::Rename { to_parent, to_name, .. } => Some(key(*to_parent, to_name)),
        Deferred::Change { .. } | Deferred::Close { .. } | Deferred::Open { .. } => None,
    }
}

/// The directories whose names a change changes.
pub fn directories_of(change: &Deferred<'_>) -> [Option<Ino>; 2] {
    match change {
        Deferred::Create { parent, .. }
        | Deferred::Unlink { parent, .. }
        | Deferred::MakeDirectory { parent, .. }
        | Deferred::RemoveDirectory { parent, .. } => [Some(*parent), None],
        Deferred::Rename { parent, to_parent, .. } => [Some(*parent), Some(*to_parent)],
        Deferred::Change { .. } | Deferred::Close { .. } | Deferred::Open { .. } => [None, None],
    }
}

/// What else it is about: the key of its shadow.
pub fn shadow_of(change: &Deferred<'_>) -> Option<Key> {
    match change {
        Deferred::Rename { parent, name, .. } => Some(key(*parent, name)),
        Deferred::RemoveDirectory { ino, .. } => Some(Key::removal(index_of(*ino))),
        _ => None,
    }
}
