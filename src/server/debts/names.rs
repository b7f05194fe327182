//! The name operations' debt: since when they wait, and up to which one they are just being
//! brought. Which are owed, the namespace knows; what has kept them, `failures`.

use terral_format::ids::Lsn;

use crate::core::world::Tick;

/// All that.
#[derive(Default)]
pub struct NamesOwed {
    since: Option<Tick>,
    /// Those up to this one are just being brought, one after the other.
    until: Option<Lsn>,
    /// Somebody waits for them.
    awaited: bool,
}

impl NamesOwed {
    /// Somebody waits for them.
    pub fn hasten(&mut self) {
        self.awaited = true;
    }

    /// Whether somebody does.
    pub fn is_awaited(&self) -> bool {
        self.awaited
    }

    /// None is owed.
    pub fn paid(&mut self) {
        *self = NamesOwed::default();
    }

    /// Since when the oldest waits.
    pub fn since(&self) -> Option<Tick> {
        self.since
    }

    /// Whether the operation `next` must wait for the turn of those that came with it: since when
    /// they do. All that are owed when a turn begins go together; those that come meanwhile wait
    /// for their own.
    pub fn waits_since(&mut self, next: Lsn, now: Tick) -> Option<Tick> {
        if self.until.is_some_and(|until| until >= next) {
            return None;
        }
        if self.until.take().is_some() {
            self.since = None;
        }
        Some(*self.since.get_or_insert(now))
    }

    /// The turn begins, of those up to this one.
    pub fn begin(&mut self, last: Option<Lsn>) {
        self.until = last;
    }
}

#[cfg(test)]
mod tests {
    use super::{Lsn, NamesOwed, Tick};

    #[test]
    fn what_comes_during_a_turn_waits_for_its_own() {
        let mut names = NamesOwed::default();
        assert_eq!(names.waits_since(Lsn(1), Tick(5)), Some(Tick(5)));
        assert_eq!(names.waits_since(Lsn(1), Tick(9)), Some(Tick(5)));
        names.begin(Some(Lsn(2)));
        assert_eq!(names.waits_since(Lsn(1), Tick(10)), None);
        assert_eq!(names.waits_since(Lsn(2), Tick(11)), None);
        assert_eq!(names.waits_since(Lsn(3), Tick(12)), Some(Tick(12)), "came meanwhile");
        names.paid();
        assert_eq!(names.since(), None);
    }
}
