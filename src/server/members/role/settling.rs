//! What waits for the permanent store: a directory goes to another member, or is changed for one,
//! once the store has what it was owed of names.
//!
//! Not here: when that is so, and what of it waits (`sharing/leaving`).

use std::collections::BTreeSet;

use terral_format::ids::{Ino, Lsn, Number, Thing};
use terral_format::wire::transactions::TransactionId;
use terral_partition::effect::Effect;

use super::Members;

/// What the permanent store is to have before something is done.
#[derive(Clone, Debug)]
pub struct Until {
    /// All names that are owed up to this one.
    pub names: Lsn,
    /// What was just becoming of the versions of these files.
    pub files: BTreeSet<Ino>,
    /// Of which transactions homes do not know yet what has become of the names of these.
    pub delegated: Vec<(TransactionId, Number)>,
}

impl Members {
    /// It is to be done once the permanent store has that.
    pub fn postpones(&mut self, effect: Effect, until: Until) {
        self.postponed.push((effect, until));
        self.news = true;
    }

    /// Whether something was postponed.
    pub fn has_postponed(&self) -> bool {
        !self.postponed.is_empty()
    }

    /// What need not wait any more is to be done.
    pub fn take_postponed(&mut self, has: impl Fn(&Until) -> bool) {
        let due = self.postponed.extract_if(.., |(_, until)| has(until));
        let due: Vec<Effect> = due.map(|(effect, _)| effect).collect();
        self.waited.extend(due.iter().cloned());
        self.effects.extend(due);
    }

    /// Whether this has waited for the permanent store: not again. Said once.
    pub fn has_waited(&mut self, effect: &Effect) -> bool {
        let at = self.waited.iter().position(|waited| waited == effect);
        let has = at.map(|at| self.waited.swap_remove(at));
        has.iter().for_each(|effect| self.settles(effect));
        has.is_some()
    }

    /// The permanent store has what it was owed of the names of what this is about.
    pub fn settles(&mut self, effect: &Effect) {
        if let Effect::Serve { thing, .. } | Effect::Fetch { thing, .. } = effect {
            self.settled.insert(*thing);
        }
    }

    /// Programs here may change a thing without asking, or that is not known.
    pub fn is_unsettled(&mut self, thing: Thing) {
        self.settled.remove(&thing);
    }

    /// Whether the permanent store has had what it was owed of a directory's names since programs
    /// here could change them without asking.
    pub fn is_settled(&self, thing: Thing) -> bool {
        self.settled.contains(&thing)
    }
}
