//! Which chunks of other members' files this one has: for each file, one of this machine without a
//! name, which has them under the same numbers. Its size is what the file is known to have at its
//! home.
//!
//! Invariant: a chunk that is asked back is marked as borrowed in its map, and stays as it is until
//! its home has it; no client uses one that is so marked. Not here: how they come and go
//! (`borrowing`).

use std::collections::BTreeMap;

use terral_format::disk::membership::Membership;
use terral_format::ids::{Asker, Ino, Number};
use terral_format::local::geometry::CHUNK_BYTES;
use terral_format::wire::far::BYTES_MAX;

/// Of one file.
#[derive(Clone, Debug)]
pub(super) struct Loan {
    /// Who has the chunks.
    pub(super) ino: Ino,
    /// Nobody has the file open any more: all goes back.
    pub(super) returning: bool,
    /// Its home has been told so, in the session that there is.
    pub(super) said: bool,
    /// It says that what is here may stay.
    pub(super) stays: bool,
    /// By which stamp each was lent to this process.
    pub(super) since: BTreeMap<u64, u64>,
}

/// See the module.
#[derive(Default)]
pub struct Loans {
    files: BTreeMap<Number, Loan>,
    /// What was asked back before it had come: an answer that lends it with an older stamp is void.
    fences: BTreeMap<(Number, u64), u64>,
    /// This server is about to leave.
    leaves: bool,
    /// Chunks that requests have come here with all that is in them.
    arriving: BTreeMap<(Number, u64), Arriving>,
}

/// A chunk that comes with all that is in it.
pub struct Arriving {
    /// For which request.
    asker: Asker,
    /// What has come of it, and is not in its place yet.
    pub parts: [Option<Vec<u8>>; PARTS],
    /// All of it is.
    pub is_here: bool,
}

/// In so many parts a chunk comes.
pub const PARTS: usize = (CHUNK_BYTES / BYTES_MAX as u64) as usize;

impl Loans {
    pub(super) fn apply(&mut self, member: &Membership) {
        match member {
            Membership::Borrows { ino, file } => {
                let (returning, said, stays, since) = Default::default();
                self.files.insert(*file, Loan { ino: *ino, returning, said, stays, since });
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
            (loan.returning, loan.said, loan.stays) = (false, false, false);
        }
    }

    /// Chunks come that are to stay here, whoever has the file open.
    pub fn begins_to_keep(&mut self, file: Number) {
        if let Some(loan) = self.files.get_mut(&file) {
            (loan.returning, loan.said, loan.stays) = (true, true, true);
        }
    }

    /// By which stamp a chunk came to this process.
    pub fn since(&self, file: Number, index: u64) -> Option<u64> {
        self.files.get(&file)?.since.get(&index).copied()
    }

    /// It is not here any more.
    pub(super) fn is_returned(&mut self, file: Number, index: u64) {
        if let Some(loan) = self.files.get_mut(&file) {
            loan.since.remove(&index);
        }
    }

    /// The home of a file says that what is here of it may stay. Whether nobody has it open.
    pub(super) fn may_stay(&mut self, file: Number) -> bool {
        let loan = self.files.get_mut(&file).filter(|loan| loan.returning && loan.said);
        loan.map(|loan| loan.stays = true).is_some()
    }

    /// This server is about to leave: all goes back.
    pub(super) fn all_leave(&mut self) {
        if !std::mem::replace(&mut self.leaves, true) {
            let loans = self.files.values_mut();
            loans.for_each(|loan| (loan.returning, loan.said, loan.stays) = (true, false, false));
        }
    }

    /// More is here of a file than its home was told to take back.
    pub(super) fn is_unsaid(&mut self, file: Number) {
        if let Some(loan) = self.files.get_mut(&file) {
            loan.said = false;
        }
    }

    /// A request has a chunk come, unless another one does.
    pub fn arrives(&mut self, (file, index): (Number, u64), asker: Asker) -> Option<&mut Arriving> {
        let (parts, is_here) = Default::default();
        let new = Arriving { asker, parts, is_here };
        let arriving = self.arriving.entry((file, index)).or_insert(new);
        (arriving.asker == asker).then_some(arriving)
    }

    /// All of it, as it was offered by this stamp, is in its place.
    pub fn has_arrived(&mut self, (file, index): (Number, u64), stamp: u64) {
        if let Some(loan) = self.files.get_mut(&file) {
            loan.since.insert(index, stamp);
        }
        if let Some(arriving) = self.arriving.get_mut(&(file, index)) {
            (arriving.is_here, arriving.parts) = (true, Default::default());
        }
    }

    /// Requests that this is true of have run, or never will. Whether one has had a chunk come.
    pub(super) fn are_over(&mut self, of: impl Fn(Asker) -> bool) -> bool {
        self.arriving.extract_if(.., |_, arriving| of(arriving.asker)).count() > 0
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
        loan.is_some_and(|loan| {
            loan.returning = true;
            !loan.stays
        })
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

    /// So it is if a chunk is just coming.
    pub(super) fn fence_arriving(&mut self, file: Number, index: u64, stamp: u64) {
        if self.arriving.contains_key(&(file, index)) {
            self.fence(file, index, stamp);
        }
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
