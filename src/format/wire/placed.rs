//! Objects that one server is to have for programs of another machine: created there, or copied to
//! it. Not here: what an object is (the client library), and who does it (the relay).

use serde::{Deserialize, Serialize};

use super::person::Person;
use crate::ids::NUMBERS;
use crate::{Result, frame};

/// Most bytes that one question has copied: of many that wait for their turn each is answered
/// before who asks gives up.
pub const COPIED_MAX: u64 = 16 << 20;

/// What is to be done with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Placing {
    /// It is created there, empty. [`ErrorKind::Exists`](crate::ErrorKind::Exists) if there is one.
    Create {
        /// Permission bits of its container, as who asks knows them: nobody there need look.
        mode: u32,
    },
    /// No object, but a file: the path is its own, and the id is none. It is created there, empty,
    /// and has that name. [`ErrorKind::Exists`](crate::ErrorKind::Exists) if something has.
    File {
        /// Permission bits, umask already taken off.
        mode: u32,
        /// Who asks fails if something has the name: then it must not be created twice.
        exclusive: bool,
    },
    /// These bytes of the one of this id that another server has are had there, too, in an object
    /// that is created if there is none; fewer at its end. Done twice, it is as if done once.
    Copy {
        /// The server, a member.
        of: u16,
        /// From here on.
        at: u64,
        /// So many, at most [`COPIED_MAX`].
        bytes: u64,
    },
}

impl Placing {
    /// The number, of no file, that questions for this have: of one number one is carried out at a
    /// time. So who copies, and waits for another machine to do its part, keeps nobody there from
    /// doing what this machine waits for.
    pub fn counted(&self) -> u64 {
        match self {
            Placing::Create { .. } | Placing::File { .. } => NUMBERS - 1,
            Placing::Copy { .. } => NUMBERS - 2,
        }
    }
}

impl Placing {
    /// Whether something is created, and opened then.
    pub fn creates(&self) -> bool {
        !matches!(self, Placing::Copy { .. })
    }

    /// Whether it must not be done again by another process of the server that was asked, which
    /// does not know whether it was done.
    pub fn is_once(&self) -> bool {
        matches!(self, Placing::Create { .. } | Placing::File { exclusive: true, .. })
    }
}

/// Which object, and for whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placed {
    /// The path of its container, from the root; of a file, its own.
    pub container: Vec<u8>,
    /// Its id.
    pub id: u128,
    /// Who may or may not do so, and whose it is then.
    pub person: Person,
}

impl Placed {
    /// As it goes behind the words of a question.
    ///
    /// # Errors
    /// [`ErrorKind::Malformed`](crate::ErrorKind::Malformed) if memory does not suffice.
    pub fn write(&self) -> Result<Vec<u8>> {
        frame::encode(self)
    }

    /// # Errors
    /// [`ErrorKind::Malformed`](crate::ErrorKind::Malformed) for anything that
    /// [`Placed::write`] would not write.
    pub fn read(bytes: &[u8]) -> Result<Self> {
        frame::decode(bytes)
    }
}
