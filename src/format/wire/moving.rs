//! A directory that is about to get another path in the permanent directory of several members:
//! what the one that moves it says to the others, and they to it.
//!
//! Not here: why they rest meanwhile (`server/sharing/moving`).

use serde::{Deserialize, Serialize};

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
}

impl Moving {
    /// Whether it leads from somewhere to somewhere else, by names.
    pub fn is_sound(&self) -> bool {
        let odd = |name: &[u8]| matches!(name, b"" | b"." | b"..");
        let sound = |path: &[u8]| !path.split(|byte| *byte == b'/').any(odd);
        let way: Vec<&[u8]> = self.way.iter().map(|(_, name)| name.as_slice()).collect();
        let names = way.iter().all(|name| !name.contains(&b'/'));
        let leads = names && way.join(&b'/') == self.to && self.from != self.to;
        leads && sound(&self.from) && sound(&self.to)
    }
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
}
