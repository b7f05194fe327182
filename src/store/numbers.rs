//! Inode numbers: which slots are free, and that no number comes twice.
//!
//! A number is the slot and, above, its generation: how often it was used before. A slot that has
//! used its generations up is not used again, so that numbers stay below
//! [`terral_format::ids::NUMBERS`].

use std::collections::BTreeSet;

use terral_format::ids::{Ino, NUMBERS};
use terral_format::local::geometry::INDEX_BITS;
use terral_format::local::names::{generation_of, index_of, ino_of};

/// Generations of a slot.
const GENERATIONS: u64 = NUMBERS >> INDEX_BITS;

/// The numbers of one table.
pub struct Numbers {
    /// Slots from here on were never used.
    end: u32,
    /// The last numbers of slots that may be used again.
    free: Vec<Ino>,
    /// The generation of a slot that was never used.
    first: u64,
    /// The highest of all generations.
    newest: u64,
}

impl Default for Numbers {
    fn default() -> Self {
        Numbers { end: 1, free: Vec::new(), first: 0, newest: 0 }
    }
}

impl Numbers {
    /// The number the next new inode gets.
    pub fn next(&self) -> Ino {
        match self.free.last() {
            Some(last) => ino_of(index_of(*last), generation_of(*last) + 1),
            None => ino_of(self.end, self.first),
        }
    }

    /// How many more may be taken, of a table with so many slots.
    pub fn left(&self, slots: u32) -> u32 {
        self.free.len() as u32 + slots.saturating_sub(self.end)
    }

    /// Slots from here on were never used.
    pub fn end(&self) -> u32 {
        self.end
    }

    /// No slot from this one's on was used, and no generation is higher: what must be remembered
    /// of the numbers of inodes that are no more.
    pub fn bound(&self) -> Ino {
        ino_of(self.end.min((1 << INDEX_BITS) - 1), self.newest)
    }

    /// Nobody else gets this number, which is the next one or was taken before.
    pub fn take(&mut self, ino: Ino) {
        let index = index_of(ino);
        self.newest = self.newest.max(generation_of(ino));
        if self.free.last().is_some_and(|last| index_of(*last) == index) {
            self.free.pop();
        }
        self.end = self.end.max(index + 1);
    }

    /// The slot that had this number may get another one.
    pub fn free(&mut self, last: Ino) {
        if generation_of(last) + 1 < GENERATIONS {
            self.free.push(last);
        }
    }

    /// After a replay: free is what is not `used`, and not lent. What generations the free slots
    /// had is not known, so that they begin above all of them.
    pub fn replayed(
        &mut self,
        bound: Ino,
        lent: impl Iterator<Item = Ino>,
        used: impl Fn(u32) -> bool,
    ) {
        self.newest = self.newest.max(generation_of(bound));
        self.first = self.newest + 1;
        if self.first >= GENERATIONS {
            // That they may have used theirs up costs their places.
            (self.first, self.end) = (0, self.end.max(index_of(bound)));
            self.free.clear();
            return;
        }
        let lent: BTreeSet<u32> = lent.map(index_of).collect();
        let unused = |index: &u32| !used(*index) && !lent.contains(index);
        let last = |index| ino_of(index, self.newest);
        self.free = (1..self.end).filter(unused).rev().map(last).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::{GENERATIONS, Numbers};
    use std::collections::BTreeSet;
    use terral_format::ids::{Ino, NUMBERS};
    use terral_format::local::names::{generation_of, index_of, ino_of};

    fn taken(numbers: &mut Numbers) -> Ino {
        let ino = numbers.next();
        numbers.take(ino);
        ino
    }

    #[test]
    fn no_number_comes_twice_across_restarts() {
        let (mut numbers, mut seen) = (Numbers::default(), BTreeSet::new());
        let mut living: Vec<Ino> = Vec::new();
        for round in 0..40_usize {
            for step in 0..50 {
                let ino = taken(&mut numbers);
                assert!(seen.insert(ino), "{ino} again in round {round}");
                living.push(ino);
                if step % 3 > 0 {
                    numbers.free(living.remove(step * 7 % living.len()));
                }
            }
            // Half of the starts know of the dead only what a snapshot says.
            let bound = numbers.bound();
            let known: Vec<Ino> =
                if round % 2 == 0 { living.clone() } else { seen.iter().copied().collect() };
            numbers = Numbers::default();
            known.into_iter().for_each(|ino| numbers.take(ino));
            let used: BTreeSet<u32> = living.iter().map(|ino| index_of(*ino)).collect();
            numbers.replayed(bound, std::iter::empty(), |index| used.contains(&index));
        }
    }

    #[test]
    fn a_slot_that_has_used_its_generations_up_is_left_alone() {
        let mut numbers = Numbers::default();
        let first = taken(&mut numbers);
        numbers.free(ino_of(index_of(first), GENERATIONS - 2));
        let last = taken(&mut numbers);
        assert_eq!((index_of(last), generation_of(last)), (index_of(first), GENERATIONS - 1));
        assert!(last.0 < NUMBERS);
        numbers.free(last);
        let next = taken(&mut numbers);
        assert_ne!(index_of(next), index_of(first));
        // After a restart, too, when nobody knows which slot it was.
        let bound = numbers.bound();
        let mut numbers = Numbers::default();
        numbers.replayed(bound, std::iter::empty(), |_| false);
        let later = taken(&mut numbers);
        assert!(index_of(later) > index_of(next) && later.0 < NUMBERS, "{later}");
    }
}
