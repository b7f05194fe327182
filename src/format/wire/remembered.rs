//! A directory that a dead member had is put together from what the others know of it: what who
//! does so asks them, and what they answer.
//!
//! Not here: what is believed of it (`server/sharing/restoring`).

use serde::{Deserialize, Serialize};

use super::attributes::Attributes;
use super::roster::Tag;
use super::things::Child;
use crate::ids::{Epoch, Number};
use crate::{Error, ErrorKind, Result, frame};

/// Longest name of a directory, bytes.
const NAME_MAX: usize = 255;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remember {
    /// Who answers knows of all removals up to this.
    pub epoch: Epoch,
    /// The directory.
    pub directory: Number,
    /// For names after this one.
    pub after: Vec<u8>,
}

/// What is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remembered {
    /// Of which directory.
    pub directory: Number,
    /// Names after this one.
    pub after: Vec<u8>,
    /// The directories that lead there from the root, and itself, each by its name, if known.
    pub way: Vec<(Number, Vec<u8>)>,
    /// How it was last seen.
    pub attributes: Option<Attributes>,
    /// Names in order, with how each was last seen.
    pub names: Vec<(Child, Option<Attributes>)>,
    /// Whether these are the last.
    pub last: bool,
}

impl Remembered {
    /// Whether all names may be names.
    pub fn is_sound(&self) -> bool {
        let sound = |name: &[u8]| {
            let odd = name.is_empty() || name == b"." || name == b"..";
            !odd && name.len() <= NAME_MAX && !name.iter().any(|byte| matches!(byte, b'/' | 0))
        };
        let way = self.way.iter().all(|(_, name)| sound(name));
        way && self.names.iter().all(|(child, _)| sound(&child.name))
    }
}

/// What members say to each other of that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Memory {
    /// By who puts it together.
    Asks(Remember),
    /// To it.
    Says(Remembered),
}

impl Memory {
    /// The frame that says it.
    ///
    /// # Errors
    /// None, of what this program has made.
    pub fn frame(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![Tag::Memory as u8];
        bytes.extend(frame::encode(self)?);
        Ok(bytes)
    }

    /// What a frame says, without its tag.
    ///
    /// # Errors
    /// [`ErrorKind::Malformed`] for what no member sends.
    pub fn of(bytes: &[u8]) -> Result<Self> {
        let memory = frame::decode(bytes)?;
        match &memory {
            Memory::Says(said) if !said.is_sound() => {
                Err(Error::new(ErrorKind::Malformed, "frame of a member: names that are none"))
            }
            _ => Ok(memory),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Memory, Remembered};
    use crate::ErrorKind;
    use crate::ids::{Member, Number};
    use crate::wire::attributes::Kind;
    use crate::wire::things::Child;

    #[test]
    fn what_is_no_name_is_not_believed_to_be_one() {
        let number = Number::new(Member::LEAST, 7).expect("few");
        let said = |name: &[u8]| {
            let child = Child { name: name.into(), number, kind: Kind::File, text: Vec::new() };
            let names = vec![(child, None)];
            let (after, way, attributes) = (Vec::new(), vec![(number, b"d".to_vec())], None);
            Memory::Says(Remembered {
                directory: number,
                after,
                way,
                attributes,
                names,
                last: true,
            })
        };
        let read = |said: &Memory| Memory::of(&said.frame().expect("is written")[1..]);
        assert_eq!(read(&said(b"a")), Ok(said(b"a")));
        for odd in [&b""[..], b".", b"..", b"a/b", b"a\0", &[b'a'; 256]] {
            let kind = read(&said(odd)).map_err(|error| error.kind);
            assert_eq!(kind, Err(ErrorKind::Malformed), "{odd:?}");
        }
    }
}
