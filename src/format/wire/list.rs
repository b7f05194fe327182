//! A list in a message from outside. How long it says that it is, is not believed: memory is taken
//! as its elements come, of which each is a byte at least.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

struct List<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for List<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Vec<T>, A::Error> {
        let mut list = Vec::new();
        while let Some(element) = from.next_element()? {
            list.push(element);
        }
        Ok(list)
    }
}

/// Reads it.
///
/// # Errors
/// The deserializer's.
pub fn deserialize<'de, T, D>(from: D) -> Result<Vec<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    from.deserialize_seq(List(PhantomData))
}

#[cfg(test)]
mod tests {
    use serde::de::value::{Error, SeqDeserializer};

    use super::deserialize;

    /// Says that there is far more than there is.
    struct Boasting(u32);

    impl Iterator for Boasting {
        type Item = u32;

        fn next(&mut self) -> Option<u32> {
            self.0 = self.0.checked_sub(1)?;
            Some(self.0)
        }

        fn size_hint(&self) -> (usize, Option<usize>) {
            (1 << 40, Some(1 << 40))
        }
    }

    #[test]
    fn memory_is_taken_for_what_has_come() {
        let list: Vec<u32> =
            deserialize(SeqDeserializer::<_, Error>::new(Boasting(3))).expect("a list");
        assert_eq!(list, [2, 1, 0]);
        assert!(list.capacity() < 10, "{}", list.capacity());
    }
}
