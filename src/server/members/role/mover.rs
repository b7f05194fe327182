//! A directory that this member moves just now. Not here: how it does (`members/moving`).

use std::collections::BTreeSet;

use terral_format::ids::{Asker, Lsn, Member};
use terral_format::wire::moving::Moving;

use crate::core::world::Tick;

/// A directory that this member moves to another path, while the others rest.
pub(crate) struct Mover {
    pub moving: Moving,
    /// For whom, as long as it may still fail, and since when.
    pub asker: Option<Asker>,
    pub since: Tick,
    /// What the permanent store is owed of it, once it is sure.
    pub owed: Option<Lsn>,
    /// Who rests.
    pub rest: BTreeSet<Member>,
    /// Who knows that it is done.
    pub know: BTreeSet<Member>,
    /// Since when it is.
    pub done: Option<Tick>,
}

impl Mover {
    pub(crate) fn of(
        moving: Moving,
        (asker, since): (Option<Asker>, Tick),
        owed: Option<Lsn>,
    ) -> Self {
        let (rest, know) = Default::default();
        Mover { moving, asker, since, owed, rest, know, done: None }
    }
}
