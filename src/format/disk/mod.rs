//! What the log says. A transaction is a list of records in one frame: all or nothing.
//!
//! Replaying the records of a log, in order, gives the namespace, the sessions, the open files and
//! the drain's state. Each says whether it is a fact of the namespace or only so on this machine.
//! Which chunk holds which bytes is not here: the map entries in shared memory say it (see
//! [`crate::local::entry`]).

pub mod facts;
pub mod local;
pub mod membership;
pub mod migrate;
pub mod partition;
pub mod v4;
pub mod v5;

use serde::{Deserialize, Serialize};

use self::facts::Fact;
use self::local::Local;
use self::membership::Membership;
use self::migrate::Migrate;
use crate::fingerprint::Object;
use crate::ids::Ino;
use crate::wire::message::Change;

/// One effect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Record {
    /// Of the namespace, wherever it is served.
    Fact(Fact),
    /// On this machine.
    Local(Local),
    /// As a member of a partition.
    Member(Membership),
}

impl From<Fact> for Record {
    fn from(fact: Fact) -> Self {
        Record::Fact(fact)
    }
}

impl From<Membership> for Record {
    fn from(member: Membership) -> Self {
        Record::Member(member)
    }
}

impl From<Local> for Record {
    fn from(local: Local) -> Self {
        Record::Local(local)
    }
}

/// What happens together or not at all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Transaction(pub Vec<Record>);

impl Migrate for Transaction {
    const VERSION: u16 = 6;
    type Previous = v5::Transaction;

    fn migrate(previous: v5::Transaction) -> Self {
        Transaction(previous.0.into_iter().map(Record::from).collect())
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
        /// What has the new name there: anything else is somebody else's, and kept. `None`: not
        /// known.
        over: Option<Object>,
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
        /// As for [`NameOperation::Rename`].
        over: Option<Object>,
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

/// What leads from a path to another one that is it, or below.
fn below<'p>(path: &'p [u8], above: &[u8]) -> Option<&'p [u8]> {
    path.strip_prefix(above).filter(|rest| rest.first().is_none_or(is_slash))
}

fn is_slash(byte: &u8) -> bool {
    *byte == b'/'
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

    /// The inodes whose look it changes, in order.
    pub fn inos(&self) -> [Option<Ino>; 2] {
        match self {
            NameOperation::Rename { ino, .. }
            | NameOperation::Link { ino, .. }
            | NameOperation::Change { ino, .. }
            | NameOperation::SetXattr { ino, .. }
            | NameOperation::Unlink { keeps: Some(ino), .. } => [Some(*ino), None],
            NameOperation::Exchange { inos, .. } => inos.map(Some),
            NameOperation::MakeDirectory { .. }
            | NameOperation::MakeLink { .. }
            | NameOperation::MakeFifo { .. }
            | NameOperation::RemoveDirectory { .. }
            | NameOperation::Unlink { keeps: None, .. } => [None, None],
        }
    }

    /// A directory was moved from one path to another: what is below it is there now.
    pub fn moved(&mut self, from: &[u8], to: &[u8]) {
        self.each(|path| {
            if let Some(rest) = below(path, from) {
                *path = [to, rest].concat();
            }
        });
    }

    /// Two names have changed places: what is at them, and below, is at the other now.
    pub fn exchanged(&mut self, one: &[u8], other: &[u8]) {
        self.each(|path| {
            if let Some(rest) = below(path, one) {
                *path = [other, rest].concat();
            } else if let Some(rest) = below(path, other) {
                *path = [one, rest].concat();
            }
        });
    }

    fn each(&mut self, change: impl Fn(&mut Vec<u8>)) {
        match self {
            NameOperation::Rename { from, to, .. }
            | NameOperation::Link { from, to, .. }
            | NameOperation::Exchange { from, to, .. } => [from, to].into_iter().for_each(change),
            NameOperation::MakeDirectory { path, .. }
            | NameOperation::Unlink { path, .. }
            | NameOperation::MakeLink { path, .. }
            | NameOperation::MakeFifo { path, .. }
            | NameOperation::RemoveDirectory { path }
            | NameOperation::Change { path, .. }
            | NameOperation::SetXattr { path, .. } => change(path),
        }
    }
}
