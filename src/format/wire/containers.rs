//! Containers: places with an owner, and a list of who may do what there.
//!
//! Invariants: a name is short, and of lower-case letters, digits and `. _ -` only; a list is
//! bounded, and gives nobody `admin`, which is the owner's. Not here: which container counts for a
//! path, and for whom.

use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::capability::Operations;
use super::principal::{Principal, PrincipalName};
use crate::{Error, ErrorKind, Result};

/// Most containers, the run's own among them.
pub const CONTAINERS_MAX: usize = 256;
/// Most entries of one's list.
pub const ENTRIES_MAX: usize = 64;
/// Most groups.
pub const GROUPS_MAX: usize = 256;
/// Most bytes of all their names and members, as they are said.
pub const GROUPS_BYTES_MAX: usize = 128 << 10;
/// Longest name, bytes.
pub const NAME_MAX: usize = 64;
/// What the run's own is called, which is at the root.
pub const DEFAULT: &str = "default";
/// What people call all who are not named.
const OTHERS: &str = "others";
/// What stands before the name of a group.
const GROUP: &str = "group:";

/// What a container is called.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ContainerName(Box<str>);

fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'_' | b'-')
}

impl ContainerName {
    /// The name that is said so.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if there is none like that.
    pub fn new(said: &str) -> Result<Self> {
        if (1..=NAME_MAX).contains(&said.len()) && said.bytes().all(is_of_name) {
            return Ok(ContainerName(said.into()));
        }
        let what = "name of a container: 1 to 64 of a to z, 0 to 9 and . _ -";
        Err(Error::new(ErrorKind::Invalid, what))
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is that of the run's own.
    pub fn is_default(&self) -> bool {
        &*self.0 == DEFAULT
    }
}

impl fmt::Display for ContainerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ContainerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for ContainerName {
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        to.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for ContainerName {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        let said = <&str>::deserialize(from)?;
        ContainerName::new(said).map_err(|error| D::Error::custom(error.context))
    }
}

/// Of whom an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Party {
    /// Of one.
    Principal(Principal),
    /// Of all who have none of their own, by themselves or as a group.
    Others,
    /// Of all in a group that the list of principals says who have none of their own.
    Group(PrincipalName),
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Party::Principal(principal) => principal.fmt(f),
            Party::Others => f.write_str(OTHERS),
            Party::Group(name) => write!(f, "{GROUP}{}", name.as_str()),
        }
    }
}

impl FromStr for Party {
    type Err = Error;

    fn from_str(said: &str) -> Result<Self> {
        if let Some(name) = said.strip_prefix(GROUP) {
            return PrincipalName::new(name).map(Party::Group);
        }
        match (said, said.parse()) {
            (OTHERS, _) => Ok(Party::Others),
            (_, Ok(named)) if !matches!(named, Principal::User(_)) => Ok(Party::Principal(named)),
            _ => {
                let what = "who: key:NAME, token:NAME, gss:NAME, group:NAME, or others (users are \
                            not asked)";
                Err(Error::new(ErrorKind::Invalid, what))
            }
        }
    }
}

/// Those whom the list of principals names together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Its name.
    pub name: PrincipalName,
    /// Who is in it, in order; each once.
    pub members: Vec<Principal>,
}

/// What somebody may do in a container; one may be denied everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Who.
    pub who: Party,
    /// What.
    pub may: Operations,
}

/// A container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    /// Its name.
    pub name: ContainerName,
    /// A path relative to the root, normal: all that is there or below, but for what is in a
    /// container further in. Empty: the root.
    pub place: Vec<u8>,
    /// Who may do everything there, and change it.
    pub owner: Principal,
    /// What others may, in order; each once.
    pub entries: Vec<Entry>,
}

/// How much there may be in a container, with what is further in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Quota {
    /// Bytes of files, as long as they are.
    pub bytes: Option<u64>,
    /// Files.
    pub files: Option<u64>,
}

impl Quota {
    /// There may be any number.
    pub const NONE: Quota = Quota { bytes: None, files: None };
}

/// How much there is, as it is counted by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    /// Bytes.
    pub bytes: u64,
    /// Files.
    pub files: u64,
}

/// A container that has a quota.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounded {
    /// Its name.
    pub name: ContainerName,
    /// The quota.
    pub quota: Quota,
    /// What of it is used by files that were born on the machine of the server that says so.
    pub used: Used,
}

/// What somebody asks to be done with containers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Setting {
    /// There is to be one more.
    Create {
        /// Its name.
        name: ContainerName,
        /// As that of [`Container`].
        place: Vec<u8>,
        /// Its owner; `None`: who asks.
        owner: Option<Principal>,
        /// Its list.
        entries: Vec<Entry>,
        /// How much there may be in it.
        quota: Quota,
    },
    /// These entries take the place of those of the same parties. The run's own has a list from
    /// then on.
    Set {
        /// Of which.
        name: ContainerName,
        /// Them; one with nothing denies.
        entries: Vec<Entry>,
    },
    /// It ends, with its quota; of the run's own, its list does.
    Remove(ContainerName),
    /// There may be so much in it from now on.
    Bound(ContainerName, Quota),
}

impl Setting {
    /// Which it is about.
    pub fn name(&self) -> &ContainerName {
        match self {
            Setting::Create { name, .. }
            | Setting::Set { name, .. }
            | Setting::Remove(name)
            | Setting::Bound(name, _) => name,
        }
    }
}

/// What has become of one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Altered {
    /// It is so from now on.
    Is(Container),
    /// It is no more.
    Ended(ContainerName),
}

#[cfg(test)]
mod tests {
    use super::{ContainerName, NAME_MAX, Party};
    use crate::frame;
    use proptest::prelude::{any, prop, proptest};

    #[test]
    fn names_and_parties_are_said_and_read_alike() {
        for name in ["a", "results", "7.x_y-z", &"x".repeat(NAME_MAX)] {
            assert_eq!(ContainerName::new(name).expect("is one").to_string(), name);
        }
        for none in ["", "A", "a b", "a/b", "\u{e4}", &"x".repeat(NAME_MAX + 1)] {
            assert!(ContainerName::new(none).is_err(), "{none}");
        }
        for party in ["key:pilot", "token:wf-7", "others", "group:staff"] {
            assert_eq!(party.parse::<Party>().expect("is one").to_string(), party);
        }
        for none in ["", "1000", "other", "key:", "Others", "group:", "group:a b", "group:group:a"]
        {
            assert!(none.parse::<Party>().is_err(), "{none}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_name_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Ok(read) = frame::decode::<ContainerName>(&bytes) {
                assert_eq!(ContainerName::new(read.as_str()), Ok(read));
            }
        }
    }
}
