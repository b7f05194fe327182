//! What a server's roles have written and will read, and nobody between them does.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::bytes;

/// Bytes: what a thing is, what is to be done to it, what came of that. [`Body::MAX`] at most.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Body(Box<[u8]>);

impl Body {
    /// Most bytes of one.
    pub const MAX: usize = 8 << 20;

    /// That of these bytes, if they are not too many.
    pub fn new(bytes: impl Into<Box<[u8]>>) -> Option<Self> {
        let bytes = bytes.into();
        (bytes.len() <= Self::MAX).then_some(Body(bytes))
    }

    /// What it holds.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Serialize for Body {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        bytes::serialize(&self.0, to)
    }
}

impl<'de> Deserialize<'de> for Body {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Body::new(bytes::deserialize(from)?).ok_or_else(|| D::Error::custom("too long a body"))
    }
}

#[cfg(test)]
mod tests {
    use super::Body;
    use crate::frame;

    #[test]
    fn a_body_is_as_long_as_it_may_be_and_no_longer() {
        let longest = vec![7; Body::MAX];
        let body = Body::new(longest.clone()).expect("as long as it may be");
        let bytes = frame::encode(&longest).expect("encodes");
        assert_eq!(frame::encode(&body).as_ref(), Ok(&bytes));
        assert_eq!(frame::decode::<Body>(&bytes), Ok(body));
        let longer = vec![7; Body::MAX + 1];
        assert!(frame::decode::<Body>(&frame::encode(&longer).expect("encodes")).is_err());
        assert_eq!(Body::new(longer), None);
    }
}
