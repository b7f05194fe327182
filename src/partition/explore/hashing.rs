//! A quick hash of a state, 64 bits: of a million states, two that differ are taken for the same in
//! one of thirty million searches.

use std::hash::{Hash, Hasher};

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
