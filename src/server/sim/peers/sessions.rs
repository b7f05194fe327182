//! Sessions between servers: all have one with each other, and new ones once one of them is another
//! process.

use terral_partition::effect::Input;

use super::{Peers, member};

impl Peers {
    /// Each has a session with each other one.
    pub(super) fn meet(&mut self) {
        let count = self.sims.len();
        for at in 0..count {
            for other in (0..count).filter(|other| *other != at) {
                self.tell(at, Input::Connected(member(other)));
            }
        }
        self.settle();
    }

    /// Who was killed, and is another process now, has new sessions: what was under way is lost.
    pub(super) fn reconnect(&mut self) {
        let count = self.sims.len();
        while let Some(at) = (0..count).find(|at| self.sims[*at].killed != self.killed[*at]) {
            self.killed[at] = self.sims[at].killed;
            self.end_relay(at);
            for other in (0..count).filter(|other| *other != at) {
                self.links.remove(&(at, other));
                self.links.remove(&(other, at));
                self.trouble.is_over(at, other);
                self.tell(at, Input::Connected(member(other)));
                self.tell(other, Input::Connected(member(at)));
            }
        }
    }
}
