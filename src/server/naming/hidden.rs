//! Names that the backing may still have although they are gone, or stand for something else here:
//! what it has there is not to be seen until the operation that takes it away is done.
//!
//! Invariants: operations are hidden for, and done, in the order of their numbers; a name that is
//! in the table is looked up there first. Not here: what is owed.

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use terral_format::ids::{Ino, Lsn};

type Key = (Ino, Arc<[u8]>);

/// Hidden names.
#[derive(Debug, Default)]
pub struct Hidden {
    /// In the order of what they wait for.
    waiting: VecDeque<(Lsn, Key)>,
    /// The last that each waits for.
    last: FxHashMap<Key, Lsn>,
}

impl Hidden {
    /// Hides a name until operation `until`, which is later than all before it, is done.
    pub fn hide(&mut self, (parent, name): (Ino, &[u8]), until: Lsn) {
        let key: Key = (parent, name.into());
        self.waiting.push_back((until, key.clone()));
        self.last.insert(key, until);
    }

    /// Until what a name is hidden.
    pub fn until(&self, (parent, name): (Ino, &[u8])) -> Option<Lsn> {
        if self.last.is_empty() {
            return None;
        }
        self.last.get(&(parent, name.into())).copied()
    }

    /// All operations up to this one are done.
    pub fn done(&mut self, ordinal: Lsn) {
        while self.waiting.front().is_some_and(|(until, _)| *until <= ordinal) {
            let Some((until, key)) = self.waiting.pop_front() else { break };
            if self.last.get(&key) == Some(&until) {
                self.last.remove(&key);
            }
        }
    }

    /// All of them, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (Lsn, Ino, &[u8])> {
        self.waiting.iter().map(|(until, (parent, name))| (*until, *parent, &name[..]))
    }
}

#[cfg(test)]
mod tests {
    use terral_format::ids::{Ino, Lsn};

    use super::Hidden;

    #[test]
    fn a_name_is_hidden_until_the_last_operation_on_it_is_done() {
        let (mut hidden, place) = (Hidden::default(), (Ino(7), &b"name"[..]));
        hidden.hide(place, Lsn(1));
        hidden.hide((Ino(8), b"name"), Lsn(2));
        hidden.hide(place, Lsn(3));
        assert_eq!(hidden.until(place), Some(Lsn(3)));
        hidden.done(Lsn(2));
        assert_eq!(hidden.until(place), Some(Lsn(3)));
        assert_eq!(hidden.until((Ino(8), b"name")), None);
        assert_eq!(hidden.iter().collect::<Vec<_>>(), [(Lsn(3), Ino(7), &b"name"[..])]);
        hidden.done(Lsn(3));
        assert_eq!((hidden.until(place), hidden.iter().count()), (None, 0));
    }
}
