//! A directory that is about to get another path in the permanent directory of several members, or
//! two names that change places there: what the one that moves them says to the others, and they to
//! it.
//!
//! Not here: why they rest meanwhile (`server/sharing/moving`).

use serde::{Deserialize, Serialize};

use crate::fingerprint::Fingerprint;
use crate::ids::Number;

/// Such a move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moving {
    /// Tells it from all others of this member; later ones have higher numbers.
    pub id: u64,
    /// Where the permanent directory has it, relative to that.
    pub from: Vec<u8>,
    /// Where it will be, and is once it is `done`.
    pub to: Vec<u8>,
    /// The directories that lead there from the root, and itself, each by its name.
    pub way: Vec<(Number, Vec<u8>)>,
    /// Whether others may bring something below it: then nothing is brought until the permanent
    /// directory has it there.
    pub brings: bool,
    /// Whether it is done; if others bring something below it, also there.
    pub done: bool,
    /// What comes in its place, if two names change places. It is said and written down beside
    /// this: see [`Of::Exchanges`].
    #[serde(skip)]
    pub back: Option<Box<Back>>,
}

/// What had the name that something else gets, and gets that one's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Back {
    /// The directories that lead to its new name from the root, and itself, each by its name.
    pub way: Vec<(Number, Vec<u8>)>,
    /// How it looks in the permanent directory once it is there, if it is.
    pub seen: Option<Renamed>,
    /// Of who was told: whether its tables say so already, and what is owed there.
    pub is_known: bool,
}

/// How the look of something in the permanent directory has changed by its new name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renamed {
    /// The look just before.
    pub before: Fingerprint,
    /// The look just after.
    pub after: Fingerprint,
    /// When its bytes were last changed before, nanoseconds since 1970.
    pub modified_ns: u64,
    /// It may have been done by a server that died: the look before is one after.
    pub again: bool,
}

impl Moving {
    /// Whether it leads from somewhere to somewhere else, by names.
    pub fn is_sound(&self) -> bool {
        let odd = |name: &[u8]| matches!(name, b"" | b"." | b"..");
        let sound = |path: &[u8]| !path.split(|byte| *byte == b'/').any(odd);
        let leads = leads(&self.way, &self.to) && self.from != self.to;
        let back = self.back.as_ref().is_none_or(|back| self::leads(&back.way, &self.from));
        leads && back && sound(&self.from) && sound(&self.to)
    }

    /// What is said of it.
    pub fn said(self) -> Of {
        match self.back.clone() {
            Some(back) => Of::Exchanges(self, back),
            None => Of::Moves(Some(self)),
        }
    }
}

/// Whether these names lead to a path.
fn leads(way: &[(Number, Vec<u8>)], to: &[u8]) -> bool {
    let names: Vec<&[u8]> = way.iter().map(|(_, name)| name.as_slice()).collect();
    names.iter().all(|name| !name.contains(&b'/')) && names.join(&b'/') == to
}

/// What members say to each other of that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Of {
    /// By the one that moves: this is what it is at, if it is at any.
    Moves(Option<Moving>),
    /// To it: nothing is brought there now, nor will be, until it says that it is through.
    Rests(u64),
    /// To it: what is there by now is known here, and more is brought.
    Goes(u64),
    /// As [`Of::Moves`]: two names change places.
    Exchanges(Moving, Box<Back>),
}
