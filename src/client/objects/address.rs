//! Where an object is: its server, its container, and the 128 bits that its creator has chosen.

use std::fmt::{Display, Formatter};
use std::str::FromStr;

use terral_format::frame::checksum;
use terral_format::ids::Member;
use terral_format::{Error, ErrorKind, Result};

/// Digits of an id in a name.
const DIGITS: usize = 32;

/// What an object is called in its container and server: chosen by who creates it, at random or
/// from what he knows, so that nobody has to be asked for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub u128);

impl ObjectId {
    /// One that nobody else has.
    ///
    /// # Errors
    /// [`ErrorKind::System`] if the kernel gives no random bytes.
    pub fn random() -> Result<Self> {
        let mut bytes = [0; 16];
        let failed = |error: getrandom::Error| {
            let errno = error.raw_os_error().unwrap_or(0);
            Error { kind: ErrorKind::System, errno, context: format!("random id: {error}") }
        };
        getrandom::fill(&mut bytes).map_err(failed)?;
        Ok(ObjectId(u128::from_le_bytes(bytes)))
    }

    /// The one that everybody derives who knows the job, the rank and the step: the same on every
    /// machine and in every version (XXH3 of the bytes, once for each half).
    pub fn derived(job: &[u8], rank: u64, step: u64) -> Self {
        let half = |which: u8| {
            let mut bytes = vec![which];
            bytes.extend_from_slice(&rank.to_le_bytes());
            bytes.extend_from_slice(&step.to_le_bytes());
            bytes.extend_from_slice(job);
            u128::from(checksum(&bytes))
        };
        ObjectId(half(1) << 64 | half(2))
    }
}

impl Display for ObjectId {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for ObjectId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let is_one = text.len() == DIGITS && text.bytes().all(digit);
        let id = is_one.then(|| u128::from_str_radix(text, 16).ok()).flatten();
        id.map(ObjectId).ok_or_else(|| invalid("id of an object"))
    }
}

/// Which object of a container: who created it, and what it is called there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// The member of the partition on which it was created; 0 where there is one server.
    pub server: u16,
    /// What its creator has called it.
    pub id: ObjectId,
}

impl Address {
    /// What a container's directory of a server is called, if it can be one.
    pub(super) fn server_of(name: &[u8]) -> Option<u16> {
        let server: u16 = std::str::from_utf8(name).ok()?.parse().ok()?;
        (server < Member::MAX && server.to_string().as_bytes() == name).then_some(server)
    }

    /// Where it is below its container.
    pub(super) fn path(&self) -> String {
        format!("{}/{}", self.server, self.id)
    }

    /// An address as it is after a look at it.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if there is no such server.
    pub fn checked(self) -> Result<Self> {
        if self.server < Member::MAX { Ok(self) } else { Err(invalid("server of an object")) }
    }
}

pub(super) fn invalid(what: &str) -> Error {
    Error::new(ErrorKind::Invalid, what)
}

#[cfg(test)]
mod tests {
    use super::{Address, ObjectId};

    #[test]
    fn ids_are_said_and_understood_in_one_way_only() {
        let id = ObjectId(0xfe);
        assert_eq!(id.to_string(), "000000000000000000000000000000fe");
        assert_eq!(id.to_string().parse::<ObjectId>().expect("an id"), id);
        for wrong in
            ["", "fe", "000000000000000000000000000000FE", "+00000000000000000000000000000fe"]
        {
            assert!(wrong.parse::<ObjectId>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_derived_is_the_same_for_all_who_know_job_rank_and_step() {
        let id = ObjectId::derived(b"heat", 3, 10);
        assert_eq!(id, ObjectId::derived(b"heat", 3, 10));
        let others = [
            ObjectId::derived(b"heat", 10, 3),
            ObjectId::derived(b"hea", 3, 10),
            ObjectId::derived(b"heat", 3, 11),
        ];
        assert!(!others.contains(&id));
        assert_eq!(id.to_string(), GOLDEN);
    }

    const GOLDEN: &str = "00395df5caf4445e6ae22a2dd1cde92a";

    #[test]
    fn servers_are_plain_numbers_of_members() {
        assert_eq!(Address::server_of(b"0"), Some(0));
        assert_eq!(Address::server_of(b"16383"), Some(16383));
        for wrong in [&b"16384"[..], b"", b"01", b"+1", b"-1", b"x", b"\xff"] {
            assert_eq!(Address::server_of(wrong), None, "{wrong:?}");
        }
    }
}
