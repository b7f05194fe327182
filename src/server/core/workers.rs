//! Who works in the background, what each does next, and who of them sleeps, so that they are woken
//! for what they would miss, and for nothing else. Not here: their threads (`shell/workers`).

use crate::core::world::Tick;

/// What somebody works at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trade {
    /// Brings what is dirty to the permanent store.
    Draining,
    /// Makes memory ready before anybody writes.
    Preparing,
    /// Copies chunks from a full memory to the spill.
    Spilling,
    /// Writes down in a pool's registry what was decided.
    Keeping,
}

impl Trade {
    /// All of them, each at its own index.
    pub const ALL: [Trade; 4] =
        [Trade::Draining, Trade::Preparing, Trade::Spilling, Trade::Keeping];
}

/// What a worker does after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// There may be more to do.
    Busy,
    /// There is, but not before that: something failed, or lacks. More work is no reason to wake.
    Throttled(Tick),
    /// Nothing is to be done before that, or before more comes.
    Idle(Option<Tick>),
}

/// Who sleeps until more comes.
#[derive(Default)]
pub struct Sleepers([Asleep; Trade::ALL.len()]);

#[derive(Clone, Copy, Default)]
struct Asleep {
    workers: usize,
    /// When the last of them looks by himself; `None`: never.
    until: Option<Tick>,
}

impl Sleepers {
    /// A worker sleeps from now on, and looks again then by himself, or never.
    pub fn lies_down(&mut self, trade: Trade, until: Option<Tick>) {
        let asleep = &mut self.0[trade as usize];
        let others = (asleep.workers > 0).then_some(asleep.until);
        asleep.workers += 1;
        asleep.until = others.map_or(until, |others| Some(others?.max(until?)));
    }

    /// One of them is awake.
    pub fn gets_up(&mut self, trade: Trade) {
        self.0[trade as usize].workers -= 1;
    }

    /// Whether anybody sleeps.
    pub fn sleeps(&self, trade: Trade) -> bool {
        self.0[trade as usize].workers > 0
    }

    /// Whether anybody would sleep on when something is due.
    pub fn oversleeps(&self, trade: Trade, due: Option<Tick>) -> bool {
        let until = self.0[trade as usize].until;
        self.sleeps(trade) && due.is_some_and(|due| until.is_none_or(|until| due < until))
    }
}

#[cfg(test)]
mod tests {
    use super::{Sleepers, Tick, Trade};

    #[test]
    fn each_trade_has_its_index() {
        assert!(Trade::ALL.iter().enumerate().all(|(at, trade)| *trade as usize == at));
    }

    #[test]
    fn who_would_miss_something_is_woken_and_nobody_else() {
        let mut sleepers = Sleepers::default();
        let now = Some(Tick(3));
        assert!(!sleepers.oversleeps(Trade::Draining, now), "nobody sleeps");
        sleepers.lies_down(Trade::Draining, Some(Tick(5)));
        assert!(sleepers.oversleeps(Trade::Draining, now));
        assert!(!sleepers.oversleeps(Trade::Draining, Some(Tick(5))), "he looks himself");
        assert!(!sleepers.oversleeps(Trade::Draining, None), "nothing is due");
        assert!(!sleepers.oversleeps(Trade::Spilling, now), "another trade");
        sleepers.gets_up(Trade::Draining);
        assert!(!sleepers.oversleeps(Trade::Draining, now));
    }

    #[test]
    fn of_several_the_one_who_sleeps_longest_counts() {
        let mut sleepers = Sleepers::default();
        sleepers.lies_down(Trade::Spilling, Some(Tick(5)));
        sleepers.lies_down(Trade::Spilling, Some(Tick(9)));
        assert!(sleepers.oversleeps(Trade::Spilling, Some(Tick(7))));
        sleepers.lies_down(Trade::Spilling, None);
        assert!(sleepers.oversleeps(Trade::Spilling, Some(Tick(99))));
        (0..3).for_each(|_| sleepers.gets_up(Trade::Spilling));
        assert!(!sleepers.sleeps(Trade::Spilling));
        sleepers.lies_down(Trade::Spilling, Some(Tick(5)));
        assert!(!sleepers.oversleeps(Trade::Spilling, Some(Tick(7))), "those before are forgotten");
    }
}
