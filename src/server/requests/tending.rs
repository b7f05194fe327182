//! What is looked after now and then: what has run out, what waits to be tried again, what nobody
//! holds any more. Not here: who does so, and how often (`watcher`).

use terral_format::Result;

use crate::core::state::State;

impl State {
    /// Takes back what has run out, and says whether [`State::tend`] must be called by and by:
    /// whoever is there may open files at any time, without a word.
    pub fn must_tend(&mut self) -> bool {
        let recalled = self.recall_expired(self.world.wall_s());
        self.tell(recalled);
        let somebody = self.sessions.clients().next().is_some() || !self.lingering.is_empty();
        let waits = self.waiting.count() > 0 || self.unapplied;
        somebody || waits || self.descriptions.count_kernel() > 0
    }

    /// Tries again what waits, and ends what nobody holds.
    pub fn tend(&mut self) {
        self.warn_if_cramped(false);
        let tried = self.try_waiting();
        self.tell(tried);
        let settled = self.close_unheld(None).and_then(|()| self.settle_lingering());
        let tended = settled.and_then(|()| self.commit());
        self.tell(tended);
    }

    /// What fails is said, and tried again.
    fn tell(&mut self, done: Result<()>) {
        if let Err(error) = done {
            self.debts.names_failed(error.to_string(), self.world.now());
        }
    }
}
