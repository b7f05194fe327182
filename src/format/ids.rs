//! Identifiers. Each is a newtype, so that an index of one table cannot be used in another.

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize,
            Deserialize,
        )]
        pub struct $name(pub $inner);

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

id!(
    /// A file, directory or link of one server; never used twice in an instance's life, and below
    /// [`NUMBERS`]. 1 is the root.
    Ino(u64)
);
id!(
    /// Index of a file's record and header in shared memory; used again once the file has neither
    /// bytes in memory nor openers. Valid only together with the [`Ino`] found in the record.
    FileSlot(u32)
);
id!(
    /// Index of an open-file description in shared memory.
    DescriptionSlot(u32)
);
id!(
    /// Index of a session, 0 to `SESSIONS` − 1.
    SessionSlot(u16)
);
id!(
    /// A hazard slot anywhere on the machine: `session × HAZARDS + slot + 1`. It fits 14 bits and
    /// is never 0, so that a page lane can name it as claimer.
    Owner(u16)
);

impl Owner {
    /// In the number under which a thread appends, beside one that no other of its process appends
    /// under. Without it the ticket of an append could be taken for that of whoever makes a file
    /// longer from the hazard slot of the same number.
    const APPENDS: u16 = 1 << 14;

    /// The same number, for an append.
    #[must_use]
    pub fn appending(self) -> Self {
        Owner(self.0 | Self::APPENDS)
    }

    /// The hazard slot's number.
    #[must_use]
    pub fn hazard(self) -> Self {
        Owner(self.0 & !Self::APPENDS)
    }
}

id!(
    /// A 4 KiB page of the arena, counted over all segments.
    PageNumber(u32)
);
id!(
    /// A place of the spill, which holds one chunk.
    SpillPlace(u32)
);
id!(
    /// Ordinal of a name operation that the backing is owed, from 1.
    Lsn(u64)
);
id!(
    /// The unit of access control.
    ContainerId(u64)
);

impl FileSlot {
    /// What is no file, and has no record ever.
    pub const NONE: FileSlot = FileSlot(u32::MAX);
    /// A file that was opened at rest: closed for long, it had no record then. Who needs one asks.
    pub const RESTING: FileSlot = FileSlot(u32::MAX - 1);
}

/// How many inode numbers a server may give: 2^50. The bits above are left for which server it was,
/// where there are several, so that the two are a number that no other file has, without asking.
pub const NUMBERS: u64 = 1 << 50;

/// The root directory.
pub const ROOT: Ino = Ino(1);

/// The container of a server's one namespace.
pub const ROOT_CONTAINER: ContainerId = ContainerId(1);

/// One life of a server's memory, across restarts of its process: 128 random bits.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct InstanceId(pub u128);

impl std::fmt::Display for InstanceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:08x}", (self.0 >> 96) as u32)
    }
}
