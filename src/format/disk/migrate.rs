//! Versions of what a later program must be able to read, each with a typed step from the one
//! before: the version that a frame says selects the decoder, and what it gives is migrated.
//!
//! A new version: today's types move to a module of their own, which nobody changes any more; the
//! new ones say how they are made of them; and a golden instance of the old one is kept.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{Error, ErrorKind, Result, frame};

/// One version.
pub trait Migrate: DeserializeOwned {
    /// What its frames say.
    const VERSION: u16;
    /// The version before it.
    type Previous: Migrate;

    /// The same, said in this version.
    fn migrate(previous: Self::Previous) -> Self;

    /// Reads what lies in a frame of this version, or of any before.
    ///
    /// # Errors
    /// [`ErrorKind::Version`] if it is of none of them.
    fn read(version: u16, payload: &[u8]) -> Result<Self> {
        if version == Self::VERSION {
            return frame::decode(payload);
        }
        Self::Previous::read(version, payload).map(Self::migrate)
    }

    /// Whether it can be made of what is of that version.
    fn reads(version: u16) -> bool {
        version == Self::VERSION || Self::Previous::reads(version)
    }
}

/// What is before the first version: there is no value of it.
#[derive(Debug, Serialize, Deserialize)]
pub enum Nothing {}

impl Migrate for Nothing {
    const VERSION: u16 = 0;
    type Previous = Nothing;

    fn migrate(previous: Nothing) -> Nothing {
        previous
    }

    fn read(version: u16, _: &[u8]) -> Result<Nothing> {
        let context = format!("format {version}, which this program does not read");
        Err(Error::new(ErrorKind::Version, context))
    }

    fn reads(_: u16) -> bool {
        false
    }
}
