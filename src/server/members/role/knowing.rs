//! Which roster counts at whom: here, and, as the control hears, at the others.

use terral_format::ids::Member;

use super::Members;

impl Members {
    /// This version of the roster counts at a member.
    pub fn knows(&mut self, member: Member, version: u64) {
        self.knows.insert(member, version);
        // Who waits for that looks again.
        self.go_on();
    }

    /// Whether the roster that counts here counts at a member, as far as this one has heard.
    pub fn is_current(&self, member: Member) -> bool {
        self.goes_by(member, self.roster.version)
    }

    /// Whether this version of it does, or a later one.
    pub fn goes_by(&self, member: Member, version: u64) -> bool {
        member == self.me() || self.knows.get(&member).is_some_and(|known| *known >= version)
    }

    /// Others go by a later roster than this one.
    pub fn needs_roster(&mut self) {
        self.asks_control = true;
    }

    /// Whether they do. Said once.
    pub fn take_asks(&mut self) -> bool {
        std::mem::take(&mut self.asks_control)
    }
}
