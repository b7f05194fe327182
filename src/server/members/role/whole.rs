//! Directories of which the tables have all names, though there is a permanent store: they were
//! made in this run, and so all that has come to be in them since. Nobody need look there for what
//! is missing in one, whoever asks about changes of it.
//!
//! Invariants: of this process only, as it is of use only; one that goes to another member is
//! whole here no more, and there if what goes says so. None is once a member was removed: what that
//! one has brought, or brings yet, may have names that nobody knows. Not here: which are
//! (`naming/whole`).

use std::collections::BTreeSet;

use terral_format::ids::Thing;

use super::Members;

/// Those that are gone are looked for when so many more have come.
const LOOK_AFTER: usize = 1024;

/// All of them.
#[derive(Default)]
pub(super) struct Whole {
    all: BTreeSet<Thing>,
    /// How many there are when one looks for those that are gone.
    look_at: usize,
}

impl Members {
    /// Whether the tables have all names of a directory.
    pub fn is_whole(&self, thing: Thing) -> bool {
        self.whole.all.contains(&thing) && !self.has_lost()
    }

    /// They do from now on, if it was made here, or has come so.
    pub fn has_whole(&mut self, thing: Thing) {
        self.whole.all.insert(thing);
    }

    /// Those that are gone need not be known, if there are many.
    pub fn forget_whole(&mut self, is: impl Fn(&Self, Thing) -> bool) {
        if self.whole.all.len() < self.whole.look_at.max(LOOK_AFTER) {
            return;
        }
        let mut all = std::mem::take(&mut self.whole.all);
        all.retain(|thing| is(self, *thing));
        self.whole = Whole { look_at: 2 * all.len(), all };
    }

    /// It goes, or somebody else may know more of it.
    pub fn has_part(&mut self, thing: Thing) {
        self.whole.all.remove(&thing);
    }
}
