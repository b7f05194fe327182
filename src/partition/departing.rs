//! What a member asks before it leaves in order: what it still has of others, and whether anything
//! that it was asked, or has said, is on its way.
//!
//! Not here: what it does about that, and who says that it has left.

use terral_format::ids::Thing;

use crate::machine::Machine;

impl Machine {
    /// What this server has of things that others decide.
    pub fn borrowed(&self) -> Vec<Thing> {
        self.durable.borrower.borrowed(self.durable.me).collect()
    }

    /// Whether another member has a thing that this one decides, to change it.
    pub fn is_lent(&self, thing: Thing) -> bool {
        self.durable.decider.is_lent(thing, self.durable.me)
    }

    /// Whether another member was shown a thing that this one decides.
    pub fn is_shown_to_others(&self, thing: Thing) -> bool {
        self.durable.decider.is_shown(thing, self.durable.me)
    }

    /// Whether nobody waits for this server, nor it for a change elsewhere, and all that it has
    /// said was taken. Who asks it from then on is not answered.
    pub fn is_quiet(&self) -> bool {
        let durable = &self.durable;
        let said = durable.channels.values().all(|channel| channel.is_taken());
        said && !durable.decider.is_asked() && !durable.borrower.awaits_changes()
    }
}
