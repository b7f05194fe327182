//! What the servers of a partition call each other, and what they talk about. Each is a newtype.
//!
//! Not here: `Ino`, the index of a server's own tables, which no other server sees.

use terral_format::ids::NUMBERS;

/// A server, for the life of its memory: random bits, so that a member's successor in the same
/// place is not taken for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(pub u64);

/// A member of the partition: 14 bits, given by the control and never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member(u16);

impl Member {
    /// How many members there can be in the life of a partition.
    pub const MAX: u16 = 1 << 14;

    /// The member of that number, if it is below [`Member::MAX`].
    pub fn new(number: u16) -> Option<Self> {
        (number < Self::MAX).then_some(Member(number))
    }
}

impl std::fmt::Display for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "member {}", self.0)
    }
}

/// Counts the changes of who is a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// The number of a file or directory, the same on every machine: the member where it was born, and
/// what that member counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Number(u64);

impl Number {
    /// The `counted`-th file of `born`; none if that is [`NUMBERS`] or more.
    pub fn new(born: Member, counted: u64) -> Option<Self> {
        (counted < NUMBERS).then(|| Number(u64::from(born.0) * NUMBERS + counted))
    }

    /// Where it was born.
    pub fn born(self) -> Member {
        Member((self.0 / NUMBERS) as u16)
    }
}

/// What is decided by exactly one server at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Thing {
    /// The names of a directory.
    Directory(Number),
    /// Attributes and size of a file, and who has which chunk of it.
    File(Number),
    /// A chunk of a file, by its index: who decides the file decides it.
    Chunk(Number, u32),
}

impl Thing {
    /// The number of the file or directory it is, or is of.
    pub fn number(self) -> Number {
        match self {
            Thing::Directory(number) | Thing::File(number) | Thing::Chunk(number, _) => number,
        }
    }
}

/// One operation that a server wants done, across sessions and restarts: it is done once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Operation {
    /// Who wants it.
    pub by: Member,
    /// Counted by that member, never used twice.
    pub number: u64,
}

/// One loan, of one thing to one member, from when it is lent or shown until it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Loan {
    /// Who lent it.
    pub by: Member,
    /// Counted by that member, never used twice.
    pub number: u64,
}

/// A request of a local client, by a number of which the client has no other until it has the
/// answer; presented again by whoever serves it after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wish(pub u64);

/// Bytes that the server's roles have written and will read: what a thing is, what is to be done to
/// it, what came of that.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Body(pub Box<[u8]>);

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
