//! Attributes of objects: small values of a type, under keys. They are extended attributes of the
//! file that the object is, so they go where it goes.

use terral_format::{Error, ErrorKind, Result};

use super::address::invalid;

/// What stands before a key in the name of the extended attribute.
const PREFIX: &[u8] = b"user.terral.";
/// Most bytes of a key.
const KEY_MAX: usize = 200;

/// The name of an extended attribute, and its value.
type Stored = (Vec<u8>, Option<Vec<u8>>);

/// A value, and of which type it is.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A number that may be negative.
    Integer(i64),
    /// A number with a fraction.
    Real(f64),
    /// UTF-8.
    Text(String),
    /// Anything.
    Bytes(Vec<u8>),
}

impl Value {
    /// The type's letter, then the value: numbers as eight bytes, little-endian.
    pub(super) fn write(&self) -> Vec<u8> {
        let with = |letter: u8, bytes: &[u8]| [&[letter], bytes].concat();
        match self {
            Value::Integer(value) => with(b'i', &value.to_le_bytes()),
            Value::Real(value) => with(b'r', &value.to_le_bytes()),
            Value::Text(value) => with(b't', value.as_bytes()),
            Value::Bytes(value) => with(b'b', value),
        }
    }

    pub(super) fn read(stored: &[u8]) -> Result<Self> {
        let wrong = || Error::new(ErrorKind::Malformed, "attribute of an object");
        let (letter, bytes) = stored.split_first().ok_or_else(wrong)?;
        let eight = || <[u8; 8]>::try_from(bytes).map_err(|_| wrong());
        match letter {
            b'i' => Ok(Value::Integer(i64::from_le_bytes(eight()?))),
            b'r' => Ok(Value::Real(f64::from_le_bytes(eight()?))),
            b't' => String::from_utf8(bytes.to_vec()).map(Value::Text).map_err(|_| wrong()),
            b'b' => Ok(Value::Bytes(bytes.to_vec())),
            _ => Err(wrong()),
        }
    }
}

/// What the attribute of a key is called.
pub(super) fn name_of(key: &[u8]) -> Result<Vec<u8>> {
    if key.is_empty() || key.len() > KEY_MAX || key.contains(&0) {
        return Err(invalid("key of an attribute"));
    }
    Ok([PREFIX, key].concat())
}

/// An extended attribute that is to be set, or removed: its name, and its value.
pub(crate) fn attribute_of(key: &[u8], value: Option<&Value>) -> Result<Stored> {
    Ok((name_of(key)?, value.map(Value::write)))
}

/// The key of an attribute, if it is one of an object.
pub(super) fn key_of(name: &[u8]) -> Option<&[u8]> {
    name.strip_prefix(PREFIX).filter(|key| !key.is_empty())
}

#[cfg(test)]
mod tests {
    use super::{Value, key_of, name_of};

    #[test]
    fn values_come_back_as_what_they_were() {
        let values = [
            Value::Integer(i64::MIN),
            Value::Real(-0.5),
            Value::Text("°C".into()),
            Value::Bytes(vec![0, 255]),
        ];
        for value in values {
            assert_eq!(Value::read(&value.write()).expect("a value"), value);
        }
        for wrong in [&b""[..], b"x", b"i1234567", b"r", b"t\xff"] {
            assert!(Value::read(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn keys_that_cannot_be_are_refused() {
        assert_eq!(key_of(&name_of(b"unit").expect("a key")), Some(&b"unit"[..]));
        assert_eq!(key_of(b"user.unit"), None);
        for wrong in [&b""[..], b"a\0", &[b'x'; 201]] {
            assert!(name_of(wrong).is_err());
        }
    }
}
