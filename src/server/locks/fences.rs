//! Tokens: the greatest that each named lock has given, and the least with which each file that is
//! fenced is written; and until when who has a named lock is believed to have it.
//!
//! Invariant: both only grow, and are in the log before anybody is told. Not here: who has a lock
//! (shared memory), and how writers are kept out (`storage/fencing`).

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use terral_format::disk::local::Local;
use terral_format::ids::Ino;
use terral_format::wire::locks::LockOwner;
use terral_format::{Error, ErrorKind, Result};

use crate::core::world::Tick;

/// Of whom it is not known, as this process of the server has not heard of him yet.
const LEASE: Duration = Duration::from_secs(30);

/// See the module.
#[derive(Default)]
pub struct Fences {
    tokens: HashMap<Ino, u64>,
    fences: HashMap<Ino, u64>,
    leases: BTreeMap<(Ino, LockOwner), Tick>,
}

impl Fences {
    /// The last token that a lock has given; 0: none, or it is no named lock.
    pub fn token(&self, lock: Ino) -> u64 {
        self.tokens.get(&lock).copied().unwrap_or(0)
    }

    /// The least token with which a file is written; 0: it needs none.
    pub fn fence(&self, file: Ino) -> u64 {
        self.fences.get(&file).copied().unwrap_or(0)
    }

    /// Refuses who changes bytes of a file with too low a token.
    ///
    /// # Errors
    /// [`ErrorKind::Stale`].
    pub fn permit(&self, file: Ino, token: u64) -> Result<()> {
        match token < self.fence(file) {
            true => Err(Error::new(ErrorKind::Stale, format!("file {file} is fenced"))),
            false => Ok(()),
        }
    }

    /// A record, new or replayed.
    pub fn apply(&mut self, local: &Local) {
        let (all, ino, token) = match local {
            Local::Token { ino, token } => (&mut self.tokens, ino, token),
            Local::Fenced { ino, token } => (&mut self.fences, ino, token),
            _ => return,
        };
        let known = all.entry(*ino).or_default();
        *known = (*known).max(*token);
    }

    /// The file is no more.
    pub fn forget(&mut self, ino: Ino) {
        self.tokens.remove(&ino);
        self.fences.remove(&ino);
        self.leases.retain(|(of, _), _| *of != ino);
    }

    /// Records from which both come back.
    pub fn snapshot(&self) -> impl Iterator<Item = Local> {
        let tokens =
            self.tokens.iter().map(|(ino, token)| Local::Token { ino: *ino, token: *token });
        let fences = self.fences.iter();
        tokens.chain(fences.map(|(ino, token)| Local::Fenced { ino: *ino, token: *token }))
    }

    /// Who has a lock has it until then.
    pub fn has_until(&mut self, lock: Ino, owner: LockOwner, until: Tick) {
        self.leases.insert((lock, owner), until);
    }

    /// Of these only the leases of those who have it are kept.
    pub fn keep(&mut self, lock: Ino, has: impl Fn(LockOwner) -> bool) {
        self.leases.retain(|(of, owner), _| *of != lock || has(*owner));
    }

    /// Whether who has a lock has not said so for too long: it is to be given to others.
    pub fn is_overdue(&mut self, lock: Ino, owner: LockOwner, now: Tick) -> bool {
        self.tokens.contains_key(&lock)
            && *self.leases.entry((lock, owner)).or_insert(now + LEASE) <= now
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use terral_format::disk::local::Local;
    use terral_format::ids::Ino;
    use terral_format::wire::locks::LockOwner;

    use super::{Fences, LEASE};
    use crate::core::world::Tick;

    const LOCK: Ino = Ino(7);

    #[test]
    fn tokens_only_grow_and_come_back_from_a_snapshot() {
        let mut fences = Fences::default();
        for token in [5, 9, 6] {
            fences.apply(&Local::Token { ino: LOCK, token });
            fences.apply(&Local::Fenced { ino: Ino(8), token });
        }
        let mut again = Fences::default();
        fences.snapshot().for_each(|local| again.apply(&local));
        assert_eq!((again.token(LOCK), again.fence(Ino(8))), (9, 9));
        assert_eq!((again.fence(LOCK), again.token(Ino(8))), (0, 0));
        again.forget(LOCK);
        assert_eq!((again.token(LOCK), again.fence(Ino(8))), (0, 9));
    }

    #[test]
    fn only_who_has_a_named_lock_and_is_silent_is_overdue() {
        let (mut fences, now, owner) = (Fences::default(), Tick(0), LockOwner::process(1, 1));
        assert!(!fences.is_overdue(LOCK, owner, now + LEASE * 9), "no named lock");
        fences.apply(&Local::Token { ino: LOCK, token: 1 });
        assert!(!fences.is_overdue(LOCK, owner, now), "nothing was heard of him yet");
        assert!(!fences.is_overdue(LOCK, owner, now + LEASE / 2));
        assert!(fences.is_overdue(LOCK, owner, now + LEASE));
        fences.has_until(LOCK, owner, now + LEASE + Duration::from_secs(1));
        assert!(!fences.is_overdue(LOCK, owner, now + LEASE));
        fences.keep(LOCK, |_| false);
        assert!(!fences.is_overdue(LOCK, owner, now + LEASE * 2), "as if never heard of");
    }
}
