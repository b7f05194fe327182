//! Random numbers for tests, with a seed that is printed.
#![allow(clippy::print_stdout)] // Seeds are said.
#![allow(dead_code)] // Each test file uses its part.

/// Random numbers (xorshift64*, Marsaglia 2003), so that a failing run can be repeated.
pub struct Random(pub u64);

impl Random {
    /// Seeded by `TERRAL_TEST_SEED`; says with what.
    pub fn new(name: &str) -> Self {
        let seed = std::env::var("TERRAL_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or_else(|| u64::from(std::process::id()) << 20 | 1);
        println!("{name}: TERRAL_TEST_SEED={seed}");
        Random(seed)
    }

    /// A number less than `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % bound
    }
}
