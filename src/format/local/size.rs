//! The size word and the append ticket of a file.
//!
//! The size word is the size (48 bits) and an epoch (16). A writer reads the word when it has
//! pinned its chunk, and raises the size only while the epoch is still that one; the server bumps
//! the epoch when it truncates or takes a ticket away. So a writer that slept through a truncate
//! cannot make the file long again over chunks that are gone: it finds the epoch changed and redoes
//! the write.
//!
//! An append takes the ticket (at most one is out), copies to the end of the file, and publishes by
//! moving size from the offset it wrote at to the end of what it wrote. Bytes of a ticket that was
//! lost lie beyond the size, where nobody sees them.

use crate::ids::Owner;
use crate::local::sync::{AtomicU64, Ordering};

const SIZE_BITS: u32 = 48;
const SIZE_MASK: u64 = (1 << SIZE_BITS) - 1;

/// A size word, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeWord(pub u64);

impl SizeWord {
    /// The word for `size` bytes in `epoch`.
    pub fn new(size: u64, epoch: u16) -> Self {
        debug_assert!(size <= SIZE_MASK);
        SizeWord(size & SIZE_MASK | u64::from(epoch) << SIZE_BITS)
    }

    /// Reads a size another process may be raising.
    pub fn load(word: &AtomicU64) -> Self {
        SizeWord(word.load(Ordering::SeqCst))
    }

    /// Bytes of the file.
    pub fn size(self) -> u64 {
        self.0 & SIZE_MASK
    }

    /// Counts truncations and lost tickets, modulo 2^16.
    pub fn epoch(self) -> u16 {
        (self.0 >> SIZE_BITS) as u16
    }
}

/// Raises the size to at least `end` if the epoch is still `epoch`. False: redo the write.
#[must_use]
pub fn raise(word: &AtomicU64, end: u64, epoch: u16) -> bool {
    let mut seen = SizeWord::load(word);
    loop {
        if seen.epoch() != epoch {
            return false;
        }
        if seen.size() >= end {
            return true;
        }
        let want = SizeWord::new(end, epoch);
        match word.compare_exchange(seen.0, want.0, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => return true,
            Err(now) => seen = SizeWord(now),
        }
    }
}

/// Publishes an append: the size moves from `seen` (read under the ticket) to `end`. False:
/// somebody truncated, took the ticket, or wrote beyond; redo at the new end.
#[must_use]
pub fn append(word: &AtomicU64, seen: SizeWord, end: u64) -> bool {
    let want = SizeWord::new(end, seen.epoch());
    word.compare_exchange(seen.0, want.0, Ordering::SeqCst, Ordering::SeqCst).is_ok()
}

/// Starts a new epoch, with the size that `next` makes of the one so far. Gives that one.
fn renew(word: &AtomicU64, next: impl Fn(u64) -> u64) -> u64 {
    let mut seen = SizeWord::load(word);
    loop {
        let want = SizeWord::new(next(seen.size()), seen.epoch().wrapping_add(1));
        match word.compare_exchange(seen.0, want.0, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => return seen.size(),
            Err(now) => seen = SizeWord(now),
        }
    }
}

/// Sets the size and starts a new epoch. Gives the size that counted until then: whatever was
/// written below it has been seen, and stays unless the new size cuts it. (Server only, with the
/// chunks beyond already recalled.)
pub fn reset(word: &AtomicU64, size: u64) -> u64 {
    renew(word, |_| size)
}

/// Starts a new epoch and keeps the size, which it gives: the writers that pinned before must redo.
/// (Server only.)
pub fn bump(word: &AtomicU64) -> u64 {
    renew(word, |size| size)
}

/// Takes the append ticket. `Err`: who has it.
pub fn take_ticket(ticket: &AtomicU64, owner: Owner) -> Result<(), Owner> {
    let want = u64::from(owner.0);
    match ticket.compare_exchange(0, want, Ordering::SeqCst, Ordering::SeqCst) {
        Ok(_) => Ok(()),
        Err(holder) => Err(Owner(holder as u16)),
    }
}

/// Gives the ticket back. Harmless if it was taken away meanwhile.
pub fn drop_ticket(ticket: &AtomicU64, owner: Owner) {
    let held = u64::from(owner.0);
    let _ = ticket.compare_exchange(held, 0, Ordering::SeqCst, Ordering::SeqCst);
}

/// In place of an owner: nobody gets the ticket any more, as what there is of the file is all that
/// there will be.
const SEALED: u64 = 1 << 32;

/// Ends all appending. `Err`: somebody is at it. (Server only.)
pub fn seal(ticket: &AtomicU64) -> Result<(), Owner> {
    match ticket.compare_exchange(0, SEALED, Ordering::SeqCst, Ordering::SeqCst) {
        Ok(_) | Err(SEALED) => Ok(()),
        Err(holder) => Err(Owner(holder as u16)),
    }
}

/// Whether that was done.
pub fn is_sealed(ticket: &AtomicU64) -> bool {
    ticket.load(Ordering::SeqCst) == SEALED
}

/// Whether `owner` still has the ticket.
pub fn holds_ticket(ticket: &AtomicU64, owner: Owner) -> bool {
    ticket.load(Ordering::SeqCst) == u64::from(owner.0)
}

/// Takes the ticket away from a dead or stopped holder: the epoch moves first, so that the holder's
/// [`append`] fails, and that of whoever may have taken the ticket since. Gives the size: what lies
/// beyond must be cut off, as nobody will publish it; the chunks there must have been recalled
/// before. (Server only.)
pub fn revoke_ticket(word: &AtomicU64, ticket: &AtomicU64, owner: Owner) -> u64 {
    let size = bump(word);
    drop_ticket(ticket, owner);
    size
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{
        SizeWord, append, drop_ticket, is_sealed, raise, reset, revoke_ticket, seal, take_ticket,
    };
    use crate::ids::Owner;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn a_raise_from_before_a_truncate_is_refused() {
        let word = AtomicU64::new(0);
        let before = SizeWord::load(&word).epoch();
        assert!(raise(&word, 100, before));
        assert!(raise(&word, 50, before));
        assert_eq!(SizeWord::load(&word).size(), 100);
        reset(&word, 10);
        assert!(!raise(&word, 200, before));
        assert_eq!(SizeWord::load(&word).size(), 10);
    }

    #[test]
    fn a_lost_ticket_publishes_nothing() {
        let (word, ticket) = (AtomicU64::new(0), AtomicU64::new(0));
        take_ticket(&ticket, Owner(5)).expect("free");
        let seen = SizeWord::load(&word);
        assert_eq!(take_ticket(&ticket, Owner(6)), Err(Owner(5)));
        revoke_ticket(&word, &ticket, Owner(5));
        take_ticket(&ticket, Owner(6)).expect("revoked");
        assert!(!append(&word, seen, 8));
        drop_ticket(&ticket, Owner(5));
        assert_eq!(take_ticket(&ticket, Owner(7)), Err(Owner(6)));
    }

    #[test]
    fn what_is_sealed_is_not_appended_to_and_who_is_at_it_is_not_sealed() {
        let (word, ticket) = (AtomicU64::new(0), AtomicU64::new(0));
        take_ticket(&ticket, Owner(5)).expect("free");
        assert_eq!(seal(&ticket), Err(Owner(5)));
        assert!(append(&word, SizeWord::load(&word), 8) && !is_sealed(&ticket));
        drop_ticket(&ticket, Owner(5));
        assert_eq!((seal(&ticket), seal(&ticket)), (Ok(()), Ok(())));
        assert!(take_ticket(&ticket, Owner(5)).is_err() && is_sealed(&ticket));
        revoke_ticket(&word, &ticket, Owner(0));
        assert!(is_sealed(&ticket), "it stays");
    }
}
