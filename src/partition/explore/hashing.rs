//! A quick hash of a state and of its parts, 64 bits: of a million states, two that differ are
//! taken for the same in one of thirty million searches.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::rc::Rc;

/// Multiplies and folds, eight bytes at a time.
#[derive(Default)]
struct Folding(u64);

impl Folding {
    fn add(&mut self, word: u64) {
        let wide = u128::from(self.0 ^ word ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
        self.0 = (wide as u64) ^ ((wide >> 64) as u64);
    }
}

impl Hasher for Folding {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.add(u64::from_le_bytes(word) ^ (part.len() as u64) << 56);
        }
    }

    fn write_u8(&mut self, word: u8) {
        self.add(u64::from(word));
    }

    fn write_u16(&mut self, word: u16) {
        self.add(u64::from(word));
    }

    fn write_u32(&mut self, word: u32) {
        self.add(u64::from(word));
    }

    fn write_u64(&mut self, word: u64) {
        self.add(word);
    }

    fn write_usize(&mut self, word: usize) {
        self.add(word as u64);
    }
}

/// The hash of something.
pub(crate) fn of(what: &impl Hash) -> u64 {
    let mut folding = Folding::default();
    what.hash(&mut folding);
    folding.finish()
}

/// Parts of states, by their hash.
pub(crate) type Pool<T> = HashMap<u64, Rc<T>>;

/// A part of a state, with its hash.
#[derive(Clone)]
pub(crate) struct Hashed<T> {
    inner: Rc<T>,
    hash: u64,
}

impl<T: Clone + Hash> Hashed<T> {
    pub(crate) fn new(inner: T) -> Self {
        let hash = of(&inner);
        Hashed { inner: Rc::new(inner), hash }
    }

    /// Once it is changed, its hash is not known.
    pub(crate) fn change(&mut self) -> &mut T {
        self.hash = 0;
        Rc::make_mut(&mut self.inner)
    }

    pub(crate) fn hash_anew(&mut self) {
        if self.hash == 0 {
            self.hash = of(&*self.inner);
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// Has it in common with all that are the same.
    pub(crate) fn share(&mut self, pool: &mut Pool<T>) {
        self.inner = Rc::clone(pool.entry(self.hash).or_insert_with(|| Rc::clone(&self.inner)));
    }
}

impl<T> Deref for Hashed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}
