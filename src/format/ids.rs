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

    /// The server's own: no session's slots reach as far.
    pub const SERVER: Owner = Owner(Self::APPENDS - 1);

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
    /// A file whose bytes are on another machine: it has no record here, and all that is done with
    /// it is asked of the server. No record's slot is as great.
    pub const FAR: FileSlot = FileSlot(u32::MAX - 2);
}

/// How many inode numbers a server may give: 2^50. The bits above are left for which server it was,
/// where there are several, so that the two are a number that no other file has, without asking.
pub const NUMBERS: u64 = 1 << 50;

id!(
    /// A server, for the life of its memory: random bits, so that a member's successor in the same
    /// place is not taken for it.
    ServerId(u64)
);
id!(
    /// Counts the changes of who is a member of the partition.
    Epoch(u64)
);
id!(
    /// A request of a local client, by a number of which the client has no other until it has the
    /// answer; presented again by whoever serves it after a restart.
    Wish(u64)
);

/// A member of the partition: 14 bits, given by the control and never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u16")]
pub struct Member(u16);

impl Member {
    /// How many members there can be in the life of a partition.
    pub const MAX: u16 = 1 << 14;

    /// Bits of its number.
    pub const BITS: u32 = 14;

    /// The first of all.
    pub const LEAST: Member = Member(0);

    /// The member of that number, if it is below [`Member::MAX`].
    pub fn new(number: u16) -> Option<Self> {
        (number < Self::MAX).then_some(Member(number))
    }

    /// Its number.
    pub fn number(self) -> u16 {
        self.0
    }

    /// The one that a word says, which may be any.
    pub fn of_word(word: u64) -> Self {
        Member((word % u64::from(Self::MAX)) as u16)
    }
}

impl TryFrom<u16> for Member {
    type Error = &'static str;

    fn try_from(number: u16) -> Result<Self, &'static str> {
        Member::new(number).ok_or("a member's number has 14 bits")
    }
}

impl std::fmt::Display for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "member {}", self.0)
    }
}

/// The number of a file or directory, the same on every machine: the member where it was born, and
/// what that member counted. All 64 bits are used: each value is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Number(u64);

impl Number {
    /// The `counted`-th file of `born`; none if that is [`NUMBERS`] or more.
    pub fn new(born: Member, counted: u64) -> Option<Self> {
        (counted < NUMBERS).then(|| Number(u64::from(born.0) * NUMBERS + counted))
    }

    /// What a member has in this place of its tables and was born there.
    pub fn of(born: Member, ino: Ino) -> Self {
        Number(u64::from(born.0) * NUMBERS + ino.0 % NUMBERS)
    }

    /// The one of this word, which may be any.
    pub fn of_word(word: u64) -> Self {
        Number(word)
    }

    /// As a word: what `st_ino` says. Where the first member was born, and on a server that is
    /// alone, it is the place.
    pub fn word(self) -> u64 {
        self.0
    }

    /// What the member where it was born has counted.
    pub fn counted(self) -> u64 {
        self.0 % NUMBERS
    }

    /// Where it was born.
    pub fn born(self) -> Member {
        Member((self.0 / NUMBERS) as u16)
    }
}

/// What is decided by exactly one server at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Thing {
    /// The names of a directory.
    Directory(Number),
    /// Attributes and size of a file, and who has which chunk of it.
    File(Number),
    /// A chunk of a file, by its index: who decides the file decides it.
    Chunk(Number, u32),
}

impl Thing {
    /// The first of all.
    pub const LEAST: Thing = Thing::Directory(Number(0));

    /// The number of the file or directory it is, or is of.
    pub fn number(self) -> Number {
        match self {
            Thing::Directory(number) | Thing::File(number) | Thing::Chunk(number, _) => number,
        }
    }
}

/// One operation that a server wants done, across sessions and restarts: it is done once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Operation {
    /// Who wants it.
    pub by: Member,
    /// Counted by that member, never used twice.
    pub number: u64,
}

/// A request of a client, until it has its answer, or a change that it has deferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Asker {
    /// Whose.
    pub session: SessionSlot,
    /// Which of its request slots.
    pub index: u8,
    /// Which request of that slot.
    pub sequence: u64,
}

/// One loan, of one thing to one member, from when it is lent or shown until it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Loan {
    /// Who lent it.
    pub by: Member,
    /// Counted by that member, never used twice.
    pub number: u64,
}

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

#[cfg(test)]
mod tests {
    use super::{Member, NUMBERS, Number};

    #[test]
    fn a_number_says_where_it_was_born_up_to_the_last_of_the_last_member() {
        let last = Member::new(Member::MAX - 1).expect("14 bits");
        assert_eq!(Number::new(last, NUMBERS - 1).map(Number::born), Some(last));
        assert_eq!(Number::new(last, NUMBERS), None);
        assert_eq!(Member::new(Member::MAX), None);
    }
}
