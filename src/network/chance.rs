//! Chance by a seed: the same seed, the same numbers (xorshift64*, Marsaglia 2003).

/// A source of numbers.
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        (0..8).for_each(|_| _ = chance.draw());
        chance
    }

    fn draw(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// From `least` to `most`, both included.
    pub(crate) fn between(&mut self, least: u64, most: u64) -> u64 {
        let span = most.saturating_sub(least).saturating_add(1);
        least + self.draw() % span
    }

    /// So many times in a million.
    #[cfg(any(test, feature = "conformance"))]
    pub(crate) fn happens(&mut self, per_million: u32) -> bool {
        per_million > 0 && self.draw() % 1_000_000 < u64::from(per_million)
    }
}
