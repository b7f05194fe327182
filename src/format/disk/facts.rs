//! Facts of the namespace: what is so wherever its server runs. Names, attributes, what the
//! permanent store has and is owed. Another server could be told all of it.
//!
//! Not here: where on this machine something lies, who is connected, what the drain is about to do
//! (`local`).

use serde::{Deserialize, Serialize};

use super::NameOperation;
use crate::fingerprint::Fingerprint;
use crate::ids::{Ino, Lsn};
use crate::wire::message::{Attributes, Change, Kind};

/// One fact.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Fact {
    /// A new file, directory, symbolic link, FIFO or socket, also one that a client had in hand
    /// without a name.
    Made {
        /// Where.
        parent: Ino,
        /// Its name; empty for a file that has none.
        name: Vec<u8>,
        /// Its number.
        ino: Ino,
        /// What it is.
        kind: Kind,
        /// Permission bits.
        mode: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
        /// When.
        time_ns: u64,
        /// What a symbolic link says, or the address that a socket is bound to.
        target: Vec<u8>,
    },
    /// A name found in the backing.
    Adopted {
        /// Where.
        parent: Ino,
        /// Its name.
        name: Vec<u8>,
        /// Its attributes.
        attributes: Attributes,
        /// How it looked.
        fingerprint: Fingerprint,
        /// What a symbolic link says.
        target: Vec<u8>,
    },
    /// A further name of a file, or the first of one that had none.
    Linked {
        /// Which file.
        ino: Ino,
        /// What the name is called in the table of names.
        alias: Ino,
        /// Where.
        parent: Ino,
        /// The name.
        name: Vec<u8>,
        /// When.
        time_ns: u64,
    },
    /// A further name, in a snapshot.
    Alias {
        /// Of which file.
        ino: Ino,
        /// What the name is called in the table of names.
        alias: Ino,
        /// Where.
        parent: Ino,
        /// The name.
        name: Vec<u8>,
    },
    /// Two names changed places.
    Exchanged {
        /// Where one is.
        parent: Ino,
        /// The one.
        name: Vec<u8>,
        /// Where the other is.
        to_parent: Ino,
        /// The other.
        to_name: Vec<u8>,
        /// When.
        time_ns: u64,
    },
    /// A name moved; what was at the new one is gone.
    Renamed {
        /// From where.
        parent: Ino,
        /// The old name.
        name: Vec<u8>,
        /// To where.
        to_parent: Ino,
        /// The new name.
        to_name: Vec<u8>,
        /// When.
        time_ns: u64,
    },
    /// A name was removed.
    Removed {
        /// From where.
        parent: Ino,
        /// The name.
        name: Vec<u8>,
        /// When.
        time_ns: u64,
    },
    /// Attributes changed.
    Changed {
        /// Of what.
        ino: Ino,
        /// To what.
        change: Change,
        /// When.
        time_ns: u64,
    },
    /// Nobody has a file open any more; its size and times as they were in its header.
    Rested {
        /// Which.
        ino: Ino,
        /// Bytes.
        size: u64,
        /// Last modification.
        modified_ns: u64,
        /// Last read.
        accessed_ns: u64,
        /// Last change.
        changed_ns: u64,
    },
    /// An extended attribute was set or removed.
    Xattr {
        /// Of what.
        ino: Ino,
        /// Its name.
        name: Vec<u8>,
        /// Its value; `None`: it was removed.
        value: Option<Vec<u8>>,
        /// When.
        time_ns: u64,
    },
    /// An extended attribute that the backing has, too, or that a snapshot found here. Once there
    /// is one of an inode, the backing is not asked again for any of it.
    XattrFound {
        /// Of what.
        ino: Ino,
        /// Its name; empty if there is none.
        name: Vec<u8>,
        /// Its value.
        value: Vec<u8>,
    },
    /// A file's content starts anew (truncated to nothing): the backing keeps the old until the new
    /// is whole.
    Rewritten {
        /// Which.
        ino: Ino,
    },
    /// A file's bytes in the backing count only up to here from now on (it was truncated).
    BackedTo {
        /// Which.
        ino: Ino,
        /// Bytes.
        size: u64,
    },
    /// The drain put a whole file under its name.
    Published {
        /// Which.
        ino: Ino,
        /// How it looks there.
        fingerprint: Fingerprint,
    },
    /// A name operation changed how the backing's copy looks.
    Touched {
        /// Which.
        ino: Ino,
        /// How it looks now.
        fingerprint: Fingerprint,
    },
    /// The copy that a file is to replace was being changed in place, and is so no more.
    Settled {
        /// Which file.
        ino: Ino,
        /// How the copy looks now.
        fingerprint: Fingerprint,
    },
    /// Somebody else changed the backing's copy: this file goes there whole, beside theirs.
    Contested {
        /// Which.
        ino: Ino,
    },
    /// Owed name operations up to this ordinal are done in the backing.
    NamesDrained(Lsn),
    /// Everything of an inode in one record: what a snapshot is made of.
    Inode(InodeImage),
    /// A pending name operation of a snapshot, in its order.
    Owed {
        /// Its ordinal.
        lsn: Lsn,
        /// What it does in the backing.
        operation: NameOperation,
    },
    /// A name the backing still has, and we do not, until an owed operation is done.
    Hidden {
        /// That operation's ordinal.
        lsn: Lsn,
        /// Where.
        parent: Ino,
        /// The name.
        name: Vec<u8>,
    },
    /// Ordinal of the newest owed name operation, in a snapshot.
    Ordinal(Lsn),
}

/// An inode in a snapshot, but for where it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InodeImage {
    /// Attributes; size and times as last known outside its header.
    pub attributes: Attributes,
    /// Its name; `None` if it was removed and is still open.
    pub name: Option<(Ino, Vec<u8>)>,
    /// How the backing's copy looks, if there is one.
    pub published: Option<Fingerprint>,
    /// The backing's copy is to be replaced whole.
    pub rewritten: bool,
    /// Bytes below this without a chunk lie in the backing.
    pub backed_bytes: u64,
    /// A directory that was in the backing before.
    pub overlay: bool,
    /// What a symbolic link says, or the address of a socket.
    pub target: Vec<u8>,
}
