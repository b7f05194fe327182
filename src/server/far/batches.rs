//! What was written here to other members' files and is not committed yet: batches, which are files
//! of this machine without a name, in the order in which they began.
//!
//! Invariant: of one file, only the last batch is written to, and an earlier one goes to its home
//! before a later one does. Not here: what is done with them (`committing`), and how they begin
//! (`sharing/batching`).

use std::collections::BTreeMap;

use terral_format::disk::membership::Membership;
use terral_format::ids::{Asker, Ino, Number, SessionSlot};
use terral_format::local::batch::RECORD_MAX;
use terral_format::wire::locks::FarOwner;
use terral_format::{Error, Result};

use crate::core::world::Tick;

/// Parts of a batch that are on their way at a time.
const AT_ONCE: usize = 4;

/// One of them.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The file that is it.
    pub ino: Ino,
    /// What is written.
    pub file: Number,
    /// No other batch has it.
    pub id: u64,
    /// By somebody who takes set-id bits off.
    pub strips: bool,
    /// It is to go.
    pub(super) goes: bool,
    /// Nothing is added to it any more: this is all that it has, bytes.
    pub(super) sealed: Option<u64>,
    /// Since when it cannot be sealed, as somebody is just adding to it.
    pub(super) busy: Option<Tick>,
    /// What is before that is on its way, or there.
    pub(super) next: u64,
    /// Parts that are on their way.
    pub(super) under_way: usize,
    /// Its home does not take it.
    pub(super) failure: Option<Error>,
}

impl Batch {
    /// Whether a part of it may go now.
    pub(super) fn may_send(&self) -> bool {
        let left = self.sealed.is_some_and(|bytes| self.next < bytes);
        left && self.under_way < AT_ONCE && self.failure.is_none()
    }

    /// Whether nothing of it is to go any more.
    pub(super) fn is_over(&self) -> bool {
        let all = self.sealed.is_some_and(|bytes| self.next >= bytes);
        self.under_way == 0 && (all || self.failure.is_some())
    }

    /// At most so many bytes are in its next part.
    pub(super) fn part_max(&self) -> u64 {
        self.sealed.unwrap_or_default().saturating_sub(self.next).min(RECORD_MAX as u64)
    }
}

/// See the module.
#[derive(Default)]
pub struct Batches {
    /// By when they began.
    all: BTreeMap<u64, Batch>,
    began: u64,
    /// Which of a file's a request waits for, that and those before it, and since when.
    waits: BTreeMap<(Asker, Number), (u64, Tick)>,
    /// When a home last took something of a file of which there are some.
    moved: BTreeMap<Number, Tick>,
    /// What a home did not take of a file: who commits is told, once.
    failures: BTreeMap<Number, Error>,
    /// Whose locks of a file are over once these batches of it are where they are to be.
    locked: Vec<(Number, FarOwner, u64)>,
}

impl Batches {
    pub(super) fn apply(&mut self, member: &Membership) {
        match member {
            Membership::Batch { ino, file, id, strips } => {
                self.began += 1;
                let (goes, sealed, busy, next, under_way, failure) = Default::default();
                let (ino, file, id, strips) = (*ino, *file, *id, *strips);
                let batch =
                    Batch { ino, file, id, strips, goes, sealed, busy, next, under_way, failure };
                self.all.insert(self.began, batch);
            }
            Membership::Merged { ino } => {
                self.all.retain(|_, batch| batch.ino != *ino);
                let all = &self.all;
                self.moved.retain(|file, _| all.values().any(|batch| batch.file == *file));
            }
            _ => {}
        }
    }

    pub(super) fn snapshot(&self) -> impl Iterator<Item = Membership> + '_ {
        let one = |batch: &Batch| {
            let Batch { ino, file, id, strips, .. } = *batch;
            Membership::Batch { ino, file, id, strips }
        };
        self.all.values().map(one)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether a file of this machine is one.
    pub fn has(&self, ino: Ino) -> bool {
        self.all.values().any(|batch| batch.ino == ino)
    }

    /// All files that are.
    pub fn inos(&self) -> Vec<Ino> {
        self.all.values().map(|batch| batch.ino).collect()
    }

    /// Those of a file, in order.
    pub fn of(&self, file: Number) -> impl DoubleEndedIterator<Item = &Batch> {
        self.all.values().filter(move |batch| batch.file == file)
    }

    /// Whether there are any of a file.
    pub fn has_some(&self, file: Number) -> bool {
        self.of(file).next().is_some()
    }

    /// The one that a file's writers add to.
    pub fn open(&self, file: Number) -> Option<&Batch> {
        self.of(file).next_back().filter(|batch| !batch.goes)
    }

    /// Files of which there are some.
    pub(super) fn files(&self) -> Vec<Number> {
        let mut files: Vec<_> = self.all.values().map(|batch| batch.file).collect();
        files.sort_unstable();
        files.dedup();
        files
    }

    pub(super) fn first_mut(&mut self, file: Number) -> Option<&mut Batch> {
        self.all.values_mut().find(|batch| batch.file == file)
    }

    pub(super) fn by_id(&mut self, id: u64) -> Option<&mut Batch> {
        self.all.values_mut().find(|batch| batch.id == id)
    }

    pub(super) fn get_mut(&mut self, ino: Ino) -> Option<&mut Batch> {
        self.all.values_mut().find(|batch| batch.ino == ino)
    }

    /// All of a file go that have begun by now. Whether there are any.
    pub fn must_go(&mut self, file: Number) -> bool {
        let mut some = false;
        for batch in self.all.values_mut().filter(|batch| batch.file == file) {
            (batch.goes, some) = (true, true);
        }
        some
    }

    /// Whether something may be to be done that nothing else brings about.
    pub fn has_work(&self) -> bool {
        self.all.values().any(|batch| batch.goes && batch.under_way == 0)
    }

    fn last(&self, file: Number) -> Option<u64> {
        let its = self.all.iter().rev().find(|(_, batch)| batch.file == file);
        its.map(|(began, _)| *began)
    }

    fn has_until(&self, file: Number, until: u64) -> bool {
        self.all.range(..=until).any(|(_, batch)| batch.file == file)
    }

    /// Since when a request waits, and nothing moves, until all of a file that had begun when it
    /// first asked, or, if `all_but` is not 0, all but so many, are over; `None`: they are.
    pub(super) fn waits(
        &mut self,
        asker: Asker,
        file: Number,
        all_but: usize,
        now: Tick,
    ) -> Option<Tick> {
        let (until, since) = match self.waits.get(&(asker, file)) {
            Some(known) => *known,
            None => {
                let its = self.all.iter().rev().filter(|(_, batch)| batch.file == file);
                let until = *its.map(|(began, _)| began).nth(all_but)?;
                self.waits.insert((asker, file), (until, now));
                (until, now)
            }
        };
        let moved = self.moved.get(&file).copied().unwrap_or(since);
        self.has_until(file, until).then_some(since.max(moved))
    }

    /// A request has its answer.
    pub(super) fn has_run(&mut self, asker: Asker) {
        self.waits.retain(|(of, _), _| *of != asker);
    }

    /// A session is over.
    pub(super) fn has_ended(&mut self, session: SessionSlot) {
        self.waits.retain(|(of, _), _| of.session != session);
    }

    /// A home has taken a part of what was written to a file.
    pub(super) fn moves(&mut self, file: Number, now: Tick) {
        self.moved.insert(file, now);
    }

    /// Whether somebody has waited so long for what does not move.
    pub(super) fn is_late(&self, is: impl Fn(Tick) -> bool) -> bool {
        let moved = |file| self.moved.get(file).copied();
        self.waits
            .iter()
            .any(|((_, file), (_, since))| is(moved(file).map_or(*since, |at| at.max(*since))))
    }

    /// A home did not take what was written to a file.
    pub(super) fn fails(&mut self, file: Number, error: Error) {
        self.failures.insert(file, error);
    }

    /// What came of what was committed before. Said once.
    ///
    /// # Errors
    /// If a home did not take it.
    pub(super) fn take_failure(&mut self, file: Number) -> Result<()> {
        self.failures.remove(&file).map_or(Ok(()), Err)
    }

    /// Nobody has a file open any more.
    pub(super) fn closed(&mut self, file: Number) {
        self.failures.remove(&file);
    }

    /// Who had locks of a file has ended: that is to be heard there after what he had written.
    /// False: there is nothing that it must wait for.
    pub(super) fn locked(&mut self, file: Number, owner: FarOwner) -> bool {
        let Some(until) = self.last(file) else { return false };
        self.must_go(file);
        self.locked.push((file, owner, until));
        true
    }

    /// Those for whom it need not wait any more.
    pub(super) fn take_unlocked(&mut self) -> Vec<(Number, FarOwner)> {
        let all = &self.all;
        let waits = |file: Number, until| all.range(..=until).any(|(_, it)| it.file == file);
        let over = self.locked.extract_if(.., |(file, _, until)| !waits(*file, *until));
        over.map(|(file, owner, _)| (file, owner)).collect()
    }
}

#[cfg(test)]
mod tests {
    use terral_format::disk::membership::Membership;
    use terral_format::ids::{Asker, Ino, Member, Number, SessionSlot};

    use super::Batches;
    use crate::core::world::Tick;

    fn file(counted: u64) -> Number {
        Number::new(Member::new(1).expect("few"), counted).expect("few")
    }

    fn begins(batches: &mut Batches, ino: u64, of: Number) {
        let (ino, id, strips) = (Ino(ino), ino, false);
        batches.apply(&Membership::Batch { ino, file: of, id, strips });
    }

    #[test]
    fn who_waits_waits_for_those_that_had_begun_and_no_other() {
        let mut batches = Batches::default();
        let asker = Asker { session: SessionSlot(1), index: 0, sequence: 1 };
        assert_eq!(batches.waits(asker, file(7), 0, Tick(1)), None);
        begins(&mut batches, 10, file(7));
        begins(&mut batches, 11, file(8));
        assert_eq!(batches.waits(asker, file(7), 1, Tick(1)), None, "all but one");
        assert_eq!(batches.waits(asker, file(7), 0, Tick(2)), Some(Tick(2)));
        begins(&mut batches, 12, file(7));
        assert_eq!(batches.waits(asker, file(7), 0, Tick(3)), Some(Tick(2)));
        batches.apply(&Membership::Merged { ino: Ino(10) });
        assert_eq!(batches.waits(asker, file(7), 0, Tick(4)), None);
        batches.has_run(asker);
        assert_eq!(batches.waits(asker, file(7), 0, Tick(5)), Some(Tick(5)));
        batches.moves(file(7), Tick(9));
        assert_eq!(batches.waits(asker, file(7), 0, Tick(10)), Some(Tick(9)), "it moves");
        assert!(batches.is_late(|since| since == Tick(9)));
        assert_eq!(batches.snapshot().count(), 2);
    }

    #[test]
    fn writers_add_to_the_last_one_that_does_not_go() {
        let mut batches = Batches::default();
        begins(&mut batches, 10, file(7));
        assert_eq!(batches.open(file(7)).map(|batch| batch.ino), Some(Ino(10)));
        assert!(batches.must_go(file(7)) && !batches.must_go(file(8)));
        assert!(batches.open(file(7)).is_none());
        begins(&mut batches, 11, file(7));
        assert_eq!(batches.open(file(7)).map(|batch| batch.ino), Some(Ino(11)));
    }
}
