//! Whom a mechanism has identified: a local user, or a name that a server's list of principals
//! gives to who proves that he has a key, a token, or a ticket.
//!
//! Invariant: a name is short, of letters, digits and `. _ @ -` only, so that it can be said on one
//! line, in a log and as an argument.

use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Error, ErrorKind, Result};

/// Longest name, bytes.
pub const NAME_MAX: usize = 64;

/// What a principal is called. In place, so that a principal is copied as a number is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PrincipalName {
    /// Zeros behind the name, which has none.
    bytes: [u8; NAME_MAX],
}

fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'@' | b'-')
}

impl PrincipalName {
    /// The name that is said so.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if there is none like that.
    pub fn new(said: &str) -> Result<Self> {
        let good = (1..=NAME_MAX).contains(&said.len()) && said.bytes().all(is_of_name);
        if !good {
            let what = "name of a principal: up to 64 letters, digits and . _ @ -";
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        let mut bytes = [0; NAME_MAX];
        bytes[..said.len()].copy_from_slice(said.as_bytes());
        Ok(PrincipalName { bytes })
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        let end = self.bytes.iter().position(|byte| *byte == 0).unwrap_or(NAME_MAX);
        std::str::from_utf8(&self.bytes[..end]).unwrap_or_default()
    }
}

impl fmt::Debug for PrincipalName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

impl Serialize for PrincipalName {
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        to.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for PrincipalName {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        let said = <&str>::deserialize(from)?;
        PrincipalName::new(said).map_err(|error| D::Error::custom(error.context))
    }
}

/// Whom a mechanism has identified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Principal {
    /// A local user, vouched for by the kernel.
    User(u32),
    /// Who has a key that the server lists.
    Key(PrincipalName),
    /// Whom an issuer of tokens has named, as the server lists him.
    Token(PrincipalName),
    /// Whom Kerberos knows (GSS-API), as the server lists him.
    Gss(PrincipalName),
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Principal::User(user) => write!(f, "{user}"),
            Principal::Key(name) => write!(f, "key:{}", name.as_str()),
            Principal::Token(name) => write!(f, "token:{}", name.as_str()),
            Principal::Gss(name) => write!(f, "gss:{}", name.as_str()),
        }
    }
}

impl FromStr for Principal {
    type Err = Error;

    fn from_str(said: &str) -> Result<Self> {
        match said.split_once(':') {
            Some(("key", name)) => PrincipalName::new(name).map(Principal::Key),
            Some(("token", name)) => PrincipalName::new(name).map(Principal::Token),
            Some(("gss", name)) => PrincipalName::new(name).map(Principal::Gss),
            _ => said.parse().map(Principal::User).map_err(|_| {
                let what = "principal: a user's number, key:NAME, token:NAME or gss:NAME";
                Error::new(ErrorKind::Invalid, what)
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{NAME_MAX, Principal, PrincipalName};
    use crate::frame;
    use proptest::prelude::{any, prop, proptest};

    #[test]
    fn principals_are_said_and_read_alike() {
        let name = PrincipalName::new("pilot-7@grid.example").expect("is one");
        let named = [Principal::Key, Principal::Token, Principal::Gss].map(|kind| kind(name));
        for one in named.into_iter().chain([Principal::User(1000)]) {
            assert_eq!(one.to_string().parse(), Ok(one));
        }
        assert!(PrincipalName::new(&"x".repeat(NAME_MAX)).is_ok());
        let long = format!("key:{}", "x".repeat(NAME_MAX + 1));
        for none in [
            "",
            "key:",
            "key:a b",
            "key:a\"",
            "key:\u{e4}",
            "gss:",
            "ticket:a",
            "-1",
            "root",
            &long,
        ] {
            assert!(none.parse::<Principal>().is_err(), "{none}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_principal_or_refused(
            bytes in prop::collection::vec(any::<u8>(), 0..96)
        ) {
            if let Ok(read) = frame::decode::<Principal>(&bytes) {
                assert_eq!(frame::encode(&read).expect("encodes"), bytes);
                assert_eq!(read.to_string().parse(), Ok(read));
            }
        }
    }
}
