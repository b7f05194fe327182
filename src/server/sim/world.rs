//! Time that is moved, and chance from a seed.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use terral_format::Result;

use crate::core::world::{Tick, World};

/// When it begins, nanoseconds since 1970.
const BEGIN_NS: u64 = 1_800_000_000_000_000_000;
/// What giving way costs.
const MOMENT: Duration = Duration::from_millis(1);

/// See the module.
pub struct Virtual {
    passed_ns: AtomicU64,
    /// No two readings of the wall's clock are alike.
    readings: AtomicU64,
    /// How far the wall's clock was set.
    set_ns: AtomicI64,
    chance: AtomicU64,
}

impl Virtual {
    pub fn new(seed: u64) -> Self {
        let (passed_ns, readings, set_ns) = Default::default();
        Virtual { passed_ns, readings, set_ns, chance: AtomicU64::new(seed) }
    }

    /// Somebody sets the wall's clock, forth or back.
    pub fn set_wall(&self, by_ns: i64) {
        self.set_ns.fetch_add(by_ns, Ordering::SeqCst);
    }

    pub fn pass(&self, time: Duration) {
        self.passed_ns.fetch_add(time.as_nanos() as u64, Ordering::SeqCst);
    }

    /// 64 bits of chance: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
    pub fn draw(&self) -> u64 {
        let step = 0x9e37_79b9_7f4a_7c15_u64;
        let mut z = self.chance.fetch_add(step, Ordering::SeqCst).wrapping_add(step);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// One of `0..of`.
    pub fn one_of(&self, of: u64) -> u64 {
        self.draw() % of
    }
}

impl World for Virtual {
    fn now(&self) -> Tick {
        Tick(self.passed_ns.load(Ordering::SeqCst))
    }

    fn wall_ns(&self) -> u64 {
        let passed = self.passed_ns.load(Ordering::SeqCst);
        let wall = BEGIN_NS + passed + self.readings.fetch_add(1, Ordering::SeqCst);
        wall.saturating_add_signed(self.set_ns.load(Ordering::SeqCst))
    }

    fn random(&self) -> Result<u128> {
        Ok(u128::from(self.draw()) << 64 | u128::from(self.draw()))
    }

    fn give_way(&self) {
        self.pass(MOMENT);
    }
}
