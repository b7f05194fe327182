//! Inode numbers: which slots are free, and that no number comes twice.

use std::collections::BTreeSet;

use terral_format::ids::Ino;
use terral_format::names::{generation_of, index_of, ino_of};

/// The numbers of one table.
pub struct Numbers {
    /// Slots from here on were never used.
    end: u32,
    free: Vec<u32>,
    generation: u64,
}

impl Default for Numbers {
    fn default() -> Self {
        Numbers { end: 1, free: Vec::new(), generation: 0 }
    }
}

impl Numbers {
    /// The number the next new inode gets.
    pub fn next(&self) -> Ino {
        match self.free.last() {
            Some(index) => ino_of(*index, self.generation + 1),
            None => ino_of(self.end, self.generation),
        }
    }

    /// Slots from here on were never used.
    pub fn end(&self) -> u32 {
        self.end
    }

    /// Nobody else gets this number, which is the next one or was taken before.
    pub fn take(&mut self, ino: Ino) {
        let index = index_of(ino);
        self.generation = self.generation.max(generation_of(ino));
        if self.free.last() == Some(&index) {
            self.free.pop();
        }
        self.end = self.end.max(index + 1);
    }

    /// A slot may get another number.
    pub fn free(&mut self, index: u32) {
        self.free.push(index);
    }

    /// After a replay: free is what is not `used`, and not lent.
    pub fn replayed(
        &mut self,
        counted: Ino,
        lent: impl Iterator<Item = Ino>,
        used: impl Fn(u32) -> bool,
    ) {
        self.generation = self.generation.max(generation_of(counted));
        let lent: BTreeSet<u32> = lent.map(index_of).collect();
        let unused = |index: &u32| !used(*index) && !lent.contains(index);
        self.free = (1..self.end).filter(unused).rev().collect();
    }
}
