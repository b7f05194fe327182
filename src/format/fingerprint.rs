//! How a file of the permanent store looked, to know it again. What that is made of, an inode
//! number and a time, is the store's affair: others keep it, write it down, and ask it questions.

use serde::{Deserialize, Serialize};

/// Which object of a store something is, whatever its name: equal for the same one only, as long as
/// that exists.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Object(u64);

impl Object {
    /// What no object is.
    pub const NONE: Object = Object(0);

    /// The store's own number for one, not 0.
    pub const fn new(number: u64) -> Self {
        Object(number)
    }
}

/// How the backing's copy of a file looked when it was last read or published. If it is not equal
/// later, somebody else changed it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    object: Object,
    size: u64,
    changed_ns: u64,
}

impl Fingerprint {
    /// Of an object of `size` bytes that was changed last at `changed_ns`, nanoseconds since 1970.
    pub const fn new(object: Object, size: u64, changed_ns: u64) -> Self {
        Fingerprint { object, size, changed_ns }
    }

    /// Which object it is of.
    pub fn object(self) -> Object {
        self.object
    }

    /// Bytes that it had.
    pub fn size(self) -> u64 {
        self.size
    }

    /// Whether both are of one object, changed or not.
    pub fn is_same_object(self, other: Fingerprint) -> bool {
        self.object == other.object
    }

    /// Whether both are of one object, and as long: only its attributes or names changed, or bytes
    /// in place.
    pub fn is_as_long(self, other: Fingerprint) -> bool {
        self.is_same_object(other) && self.size == other.size
    }

    /// Whether a change at `time_ns` was before it, or then.
    pub fn has_seen(self, time_ns: u64) -> bool {
        time_ns <= self.changed_ns
    }

    /// As a table keeps it.
    pub(crate) fn to_words(self) -> [u64; 3] {
        [self.object.0, self.size, self.changed_ns]
    }

    /// As it was kept.
    pub(crate) fn of_words([object, size, changed_ns]: [u64; 3]) -> Self {
        Fingerprint { object: Object(object), size, changed_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::{Fingerprint, Object};

    #[test]
    fn what_is_asked_of_two_looks() {
        let look = Fingerprint::new(Object::new(7), 100, 50);
        let touched = Fingerprint::new(Object::new(7), 100, 60);
        let grown = Fingerprint::new(Object::new(7), 101, 60);
        let other = Fingerprint::new(Object::new(8), 100, 50);
        assert!(look != touched && look.is_same_object(touched) && look.is_as_long(touched));
        assert!(look.is_same_object(grown) && !look.is_as_long(grown));
        assert!(!look.is_same_object(other) && !look.is_as_long(other));
        assert!(look.has_seen(50) && !look.has_seen(51));
        assert_eq!(Fingerprint::of_words(look.to_words()), look);
    }
}
