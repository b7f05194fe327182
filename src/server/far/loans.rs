//! Which chunks of other members' files this one has: for each file, one of this machine without a
//! name, which has them under the same numbers. Its size is what the file is known to have at its
//! home.
//!
//! Invariant: a chunk that is asked back is marked as borrowed in its map, and stays as it is until
//! its home has it; no client uses one that is so marked. Not here: how they come and go
//! (`borrowing`).

use std::collections::BTreeMap;

use terral_format::disk::membership::Membership;
use terral_format::ids::{Ino, Number};

/// Of one file.
#[derive(Clone, Debug)]
pub(super) struct Loan {
    /// Who has the chunks.
    pub(super) ino: Ino,
    /// Nobody has the file open any more: all goes back.
    pub(super) returning: bool,
    /// Its home has been told so, in the session that there is.
    pub(super) said: bool,
    /// By which stamp each was lent to this process.
    pub(super) since: BTreeMap<u64, u64>,
}

/// See the module.
#[derive(Default)]
pub struct Loans {
    files: BTreeMap<Number, Loan>,
    /// What was asked back before it had come: an answer that lends it with an older stamp is void.
    fences: BTreeMap<(Number, u64), u64>,
}

impl Loans {
    pub(super) fn apply(&mut self, member: &Membership) {
        match member {
            Membership::Borrows { ino, file } => {
                let (returning, said, since) = Default::default();
                self.files.insert(*file, Loan { ino: *ino, returning, said, since });
            }
            Membership::Returned { ino } => self.files.retain(|_, loan| loan.ino != *ino),
            _ => {}
        }
    }

    pub(super) fn snapshot(&self) -> impl Iterator<Item = Membership> + '_ {
        let files = self.files.iter();
        files.map(|(file, loan)| Membership::Borrows { ino: loan.ino, file: *file })
    }

    pub(super) fn get(&self, file: Number) -> Option<&Loan> {
        self.files.get(&file)
    }

    pub(super) fn get_mut(&mut self, file: Number) -> Option<&mut Loan> {
        self.files.get_mut(&file)
    }

    /// A chunk was lent, by this stamp.
    pub fn was_lent(&mut self, file: Number, index: u64, stamp: u64) {
        if let Some(loan) = self.files.get_mut(&file) {
            loan.since.insert(index, stamp);
            (loan.returning, loan.said) = (false, false);
        }
    }

    /// Whose.
    pub(super) fn files(&self) -> Vec<Number> {
        self.files.keys().copied().collect()
    }

    /// Whether a file of this machine has chunks of another one.
    pub fn has(&self, ino: Ino) -> bool {
        self.files.values().any(|loan| loan.ino == ino)
    }

    /// Whether there are any.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Nobody here has a file open any more. Whether chunks of it are to go back first.
    pub(super) fn must_return(&mut self, file: Number) -> bool {
        let loan = self.files.get_mut(&file);
        loan.map(|loan| loan.returning = true).is_some()
    }

    /// There is a new session: what was said in the one before may be known to nobody.
    pub(super) fn connected(&mut self, with: terral_format::ids::Member) {
        let its = self.files.iter_mut().filter(|(file, _)| file.born() == with);
        its.for_each(|(_, loan)| loan.said = false);
    }

    /// A chunk was asked back, and is not here.
    pub(super) fn fence(&mut self, file: Number, index: u64, stamp: u64) {
        let fence = self.fences.entry((file, index)).or_default();
        *fence = stamp.max(*fence);
    }

    /// Whether a chunk that was lent by this stamp was asked back since.
    pub fn is_void(&self, file: Number, index: u64, stamp: u64) -> bool {
        self.fences.get(&(file, index)).is_some_and(|fence| *fence >= stamp)
    }

    /// Nobody waits for what is lent of a file any more.
    pub(super) fn closed(&mut self, file: Number) {
        self.fences.retain(|(of, _), _| *of != file);
    }
}
