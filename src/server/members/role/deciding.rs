//! Who decides what, and how much of it others have. Not here: what may be done with a thing.

use terral_format::ids::{Member, Thing};

use super::{Members, Part};

impl Members {
    /// Whether this server decides a thing.
    pub fn decides(&self, thing: Thing) -> bool {
        match &self.part {
            Part::Runs(machine) => machine.decides(thing),
            Part::Replayed(_) => false,
        }
    }

    /// How many things of its own others have, and how many of others it has.
    pub fn loans(&self) -> (u64, u64) {
        match &self.part {
            Part::Runs(machine) => machine.loans(),
            Part::Replayed(_) => (0, 0),
        }
    }

    /// The member that decides a thing, if that is known.
    pub fn decider(&self, thing: Thing) -> Option<Member> {
        match &self.part {
            Part::Runs(machine) => machine.decider(thing),
            Part::Replayed(_) => None,
        }
    }
}
