//! What is said of a name: what it stands for, and the attributes of that.

use std::ops::Deref;

use serde::{Deserialize, Serialize};

use crate::ids::{Ino, Number};

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A FIFO: what it carries is the kernel's.
    Fifo,
    /// A socket: the same.
    Socket,
}

impl Kind {
    /// Whether the kernel has an object for it, in the instance's own directory.
    pub fn is_node(self) -> bool {
        matches!(self, Kind::Fifo | Kind::Socket)
    }

    /// Whether its inode has a text: what a link says, or a socket's address.
    pub fn has_text(self) -> bool {
        matches!(self, Kind::Symlink | Kind::Socket)
    }
}

/// Attributes as `stat(2)` has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// Its place in the tables.
    pub ino: Ino,
    /// What it is.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    /// Names (directories: 2 + subdirectories).
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// Last read, nanoseconds since 1970.
    pub accessed_ns: u64,
    /// Last modification, nanoseconds since 1970.
    pub modified_ns: u64,
    /// Last change of attributes, nanoseconds since 1970.
    pub changed_ns: u64,
}

/// What a program is told of something: its attributes, and the number that is the same on every
/// machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// What `st_ino` says.
    pub number: Number,
    /// All else.
    pub attributes: Attributes,
}

impl Deref for Seen {
    type Target = Attributes;

    fn deref(&self) -> &Attributes {
        &self.attributes
    }
}

/// Whether a file of this mode gives rights to who runs it that a write takes away (write(2)).
pub fn gives_rights(mode: u32) -> bool {
    mode & 0o4000 != 0 || mode & 0o2010 == 0o2010
}

/// One name of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Name {
    /// 1 to 255 bytes, no slash, no zero.
    pub name: Vec<u8>,
    /// What `st_ino` says of it; none if only the backing knows it so far.
    pub number: Option<Number>,
    /// What it stands for.
    pub kind: Kind,
}

/// New attributes; `None` leaves one as it is. Times are nanoseconds since 1970. A change of
/// nothing is `chown(2)` of nothing, which takes set-id bits off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Last read.
    pub accessed_ns: Option<u64>,
    /// Last modification.
    pub modified_ns: Option<u64>,
}

/// A time so little ago was now when the change was asked for.
const MOMENT_NS: u64 = 100_000_000;

fn is_just_now(time: u64, now_ns: u64) -> bool {
    (now_ns.saturating_sub(MOMENT_NS)..=now_ns).contains(&time)
}

impl Change {
    /// When it is made, if it is `now_ns`: who sets the time of modification to now means the same
    /// moment.
    pub fn made_ns(&self, now_ns: u64) -> u64 {
        self.modified_ns.filter(|time| is_just_now(*time, now_ns)).unwrap_or(now_ns)
    }

    /// Whether all it does, if it is `now_ns`, is to set both times to now.
    pub fn is_now(&self, now_ns: u64) -> bool {
        let now = |time: Option<u64>| time.is_some_and(|time| is_just_now(time, now_ns));
        let others = self.mode.is_some() || self.uid.is_some() || self.gid.is_some();
        !others && now(self.accessed_ns) && now(self.modified_ns)
    }
}
