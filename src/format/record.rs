//! What the log says. A transaction is a list of records in one frame: all or nothing.
//!
//! Replaying the records of a log, in order, gives the namespace, the sessions, the open files and
//! the drain's state. Which chunk holds which bytes is not here: the map entries in shared memory
//! say it (see [`crate::entry`]).

use serde::{Deserialize, Serialize};

use crate::capability::{Key, Rights};
use crate::geometry::Geometry;
use crate::ids::{DescriptionSlot, FileSlot, Ino, InstanceId, Lsn, SessionSlot};
use crate::message::{Attributes, Change, Kind, Totals};
use crate::person::Person;

/// How the backing's copy of a file looked when it was last read or published: if it looks
/// different later, somebody else changed it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// Inode number in the backing.
    pub inode: u64,
    /// Bytes.
    pub size: u64,
    /// Last change, nanoseconds since 1970.
    pub changed_ns: u64,
}

/// One effect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Record {
    /// First record of every log.
    Began(Began),
    /// A client came.
    SessionBegan {
        /// Its session.
        session: SessionSlot,
        /// Its process.
        pid: u32,
        /// When that process started, in clock ticks since boot: a pid alone may be somebody
        /// else's.
        started_ticks: u64,
    },
    /// A client is gone; what it had counted.
    SessionEnded {
        /// Its session.
        session: SessionSlot,
        /// What it did.
        totals: Totals,
    },
    /// A new file, directory, symbolic link, FIFO or socket.
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
    /// A file got a record in shared memory.
    Attached {
        /// Which.
        ino: Ino,
        /// Where.
        slot: FileSlot,
    },
    /// A file lost its record; its size and times as they were in the header.
    Detached {
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
    /// A small closed file lost its record; its bytes are among the packed ones.
    Packed {
        /// Which.
        ino: Ino,
        /// First granule.
        place: u32,
        /// Bytes.
        size: u64,
        /// Last modification.
        modified_ns: u64,
        /// Last read.
        accessed_ns: u64,
        /// Last change.
        changed_ns: u64,
    },
    /// A description was opened.
    Opened {
        /// Which.
        description: DescriptionSlot,
        /// Its nonce.
        nonce: u32,
        /// Of what.
        ino: Ino,
        /// Bits of `tables::access`.
        access: u8,
        /// By whom.
        session: SessionSlot,
    },
    /// A client has a file in hand that it will create, open and without a name.
    Spared {
        /// Which.
        ino: Ino,
        /// Its record in shared memory.
        slot: FileSlot,
        /// Its description.
        description: DescriptionSlot,
        /// The description's nonce.
        nonce: u32,
        /// Bits of `tables::access`.
        access: u8,
        /// Whose.
        session: SessionSlot,
    },
    /// A session presented a capability, and it was good.
    Presented {
        /// Which session.
        session: SessionSlot,
        /// The number that stands for it there.
        handle: u32,
        /// What it allows.
        rights: Rights,
        /// The container's revocation epoch at issue.
        epoch: u64,
        /// Whom its holder acts as.
        person: Person,
    },
    /// A session may defer changes.
    Defers {
        /// Which.
        session: SessionSlot,
    },
    /// A client has descriptions and inode numbers in hand, for what it will open and make.
    Lent {
        /// Whose.
        session: SessionSlot,
        /// Descriptions, with their nonces.
        descriptions: Vec<(DescriptionSlot, u32)>,
        /// Inode numbers.
        inos: Vec<Ino>,
    },
    /// A file in hand got its name.
    Created {
        /// Which.
        ino: Ino,
        /// Where.
        parent: Ino,
        /// Its name.
        name: Vec<u8>,
        /// Permission bits.
        mode: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
        /// When.
        time_ns: u64,
    },
    /// A description ended.
    Closed {
        /// Which.
        description: DescriptionSlot,
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
    /// The drain is about to change a published file in place.
    Intent {
        /// Which.
        ino: Ino,
    },
    /// The copy that a file is to replace was being changed in place, and is so no more.
    Settled {
        /// Which file.
        ino: Ino,
        /// How the copy looks now.
        fingerprint: Fingerprint,
    },
    /// The drain is about to put a whole version under its name: whether it is there is seen from
    /// what has the name.
    Publishing {
        /// Of which file.
        ino: Ino,
        /// Where, and what.
        version: Publishing,
    },
    /// The drain is about to let two names change places in the backing: not to be done twice.
    Exchanging {
        /// The operation's ordinal.
        lsn: Lsn,
        /// Inode number, in the backing, of what has the first name before.
        inode: u64,
    },
    /// Owed name operations up to this ordinal are done in the backing.
    NamesDrained(Lsn),
    /// The answer to a request, in the same transaction as its effects.
    Answered {
        /// Whose.
        session: SessionSlot,
        /// Which of its request slots.
        request: u8,
        /// Which request of that slot.
        sequence: u64,
        /// The encoded [`crate::message::Reply`].
        reply: Vec<u8>,
    },
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
    /// The counters of a snapshot.
    Counters {
        /// The next file gets this number.
        next_ino: Ino,
        /// Ordinal of the newest owed name operation.
        lsn: Lsn,
        /// Of sessions that ended.
        totals: Totals,
    },
    /// Somebody else changed the backing's copy: this file goes there whole, beside theirs.
    Contested {
        /// Which.
        ino: Ino,
    },
}

/// A whole version on its way to its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Publishing {
    /// The name, in the backing.
    pub path: Vec<u8>,
    /// How it looks before; its time of change becomes another with the name.
    pub fingerprint: Fingerprint,
    /// Its time of modification, nanoseconds since 1970.
    pub modified_ns: u64,
}

/// What an instance is, for ever.
#[derive(Clone, Serialize, Deserialize, PartialEq, Debug)]
pub struct Began {
    /// Its id.
    pub instance: InstanceId,
    /// The boot in which its memory lives (`/proc/sys/kernel/random/boot_id`).
    pub boot: String,
    /// Sizes of its tables.
    pub geometry: Geometry,
    /// The permanent directory.
    pub backing: Option<Vec<u8>>,
    /// What capabilities are signed with.
    pub key: Key,
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key")
    }
}

/// A name operation that the backing is owed. Paths are relative to the backing's root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NameOperation {
    /// Make a directory with these permission bits.
    MakeDirectory {
        /// Where.
        path: Vec<u8>,
        /// Permission bits.
        mode: u32,
    },
    /// Move a published name.
    Rename {
        /// The old name.
        from: Vec<u8>,
        /// The new name.
        to: Vec<u8>,
        /// What moves: its bytes closed before go first.
        ino: Ino,
        /// The backing's inode number of the file that has the new name there, 0 for nothing: any
        /// other is somebody else's, and kept. `None`: not known.
        over: Option<u64>,
    },
    /// Remove a file's name.
    Unlink {
        /// Which.
        path: Vec<u8>,
        /// The file, if it has other names there: their look changes.
        keeps: Option<Ino>,
    },
    /// Give a published file a further name, in place of what has it.
    Link {
        /// The file's first name.
        from: Vec<u8>,
        /// The new name.
        to: Vec<u8>,
        /// The file.
        ino: Ino,
    },
    /// Make a symbolic link.
    MakeLink {
        /// Where.
        path: Vec<u8>,
        /// What it says.
        target: Vec<u8>,
    },
    /// Let two names change places.
    Exchange {
        /// The one.
        from: Vec<u8>,
        /// The other.
        to: Vec<u8>,
        /// What had them before, in the same order.
        inos: [Ino; 2],
    },
    /// Remove a directory.
    RemoveDirectory {
        /// Which.
        path: Vec<u8>,
    },
    /// Set attributes of a published name.
    Change {
        /// Of what.
        path: Vec<u8>,
        /// The same.
        ino: Ino,
        /// To what.
        change: Change,
    },
    /// Set or remove an extended attribute of a published name.
    SetXattr {
        /// Of what.
        path: Vec<u8>,
        /// What that is.
        ino: Ino,
        /// Its name.
        name: Vec<u8>,
        /// Its value; `None` removes it.
        value: Option<Vec<u8>>,
    },
    /// Make a FIFO with these permission bits.
    MakeFifo {
        /// Where.
        path: Vec<u8>,
        /// Permission bits.
        mode: u32,
    },
}

impl NameOperation {
    /// The names that it gives, takes or changes.
    pub fn paths(&self) -> Vec<&[u8]> {
        match self {
            NameOperation::Rename { from, to, .. }
            | NameOperation::Link { from, to, .. }
            | NameOperation::Exchange { from, to, .. } => vec![from, to],
            NameOperation::MakeDirectory { path, .. }
            | NameOperation::Unlink { path, .. }
            | NameOperation::MakeLink { path, .. }
            | NameOperation::MakeFifo { path, .. }
            | NameOperation::RemoveDirectory { path }
            | NameOperation::Change { path, .. }
            | NameOperation::SetXattr { path, .. } => vec![path],
        }
    }
}

/// An inode in a snapshot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InodeImage {
    /// Attributes; size and times as last known outside the header.
    pub attributes: Attributes,
    /// Its name; `None` if it was removed and is still open.
    pub name: Option<(Ino, Vec<u8>)>,
    /// Its record in shared memory.
    pub slot: Option<FileSlot>,
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
    /// Where a packed file's bytes are.
    pub packed: Option<u32>,
    /// A client has it in hand for a file it will create.
    pub spare: bool,
}
