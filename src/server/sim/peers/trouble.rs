//! What goes wrong in walks between servers that live: one way of a link holds back what is sent on
//! it, or loses it, and the other way does not; clocks go at rates of their own; the permanent
//! store stands still for one of them, between two things that it does there.
//!
//! What is lost is lost with its session, as an endpoint promises: both have another one once the
//! way is well again. Not here: deaths, and sessions that are cut at once (`Peers::go_wrong`).

use std::collections::BTreeMap;
use std::time::Duration;

use super::Peers;
use super::walks::walk_with;
use crate::sim::world::Virtual;

/// A way is ill for so long at most: longer than a lease, and not so long that somebody gives up.
const ILL_MS: u64 = 7000;
/// By so many thousandths clocks may differ, as the partition bears it.
const DRIFT: u64 = 10;

/// What is wrong with one way of a link.
#[derive(Clone, Copy)]
struct Ill {
    left: Duration,
    loses: bool,
}

/// All that is wrong.
#[derive(Default)]
pub(super) struct Trouble {
    chance: Option<Virtual>,
    ways: BTreeMap<(usize, usize), Ill>,
    /// By how many thousandths the clock of each is fast.
    fast: Vec<u64>,
}

impl Trouble {
    /// Whether what is sent this way arrives now.
    pub(super) fn lets_through(&self, way: (usize, usize)) -> bool {
        !self.ways.contains_key(&way)
    }

    /// Whether it never does.
    pub(super) fn loses(&self, way: (usize, usize)) -> bool {
        self.ways.get(&way).is_some_and(|ill| ill.loses)
    }

    /// Two have another session: what was wrong with the last one is over.
    pub(super) fn is_over(&mut self, one: usize, other: usize) {
        self.ways.remove(&(one, other));
        self.ways.remove(&(other, one));
    }

    /// How much time passes by the clock of one.
    pub(super) fn by_clock(&self, at: usize, time: Duration) -> Duration {
        let fast = self.fast.get(at).copied().unwrap_or_default();
        time + time.mul_f64(fast as f64 / 1000.0)
    }
}

impl Peers {
    /// From now on something goes wrong now and then; half of the seeds have a calm walk.
    pub(super) fn may_have_trouble(&mut self, seed: u64) {
        // Other parts of a walk go by whether a seed is even.
        if seed / 4 % 2 == 1 {
            let drift = |chance: &Virtual| chance.one_of(DRIFT + 1);
            self.has_trouble(seed, drift);
        }
    }

    fn has_trouble(&mut self, seed: u64, drift: impl Fn(&Virtual) -> u64) {
        let chance = Virtual::new(seed + 2);
        self.trouble.fast = self.sims.iter().map(|_| drift(&chance)).collect();
        self.trouble.chance = Some(chance);
    }

    /// Something more goes wrong, or nothing.
    pub(super) fn more_trouble(&mut self) {
        let Some(chance) = &self.trouble.chance else { return };
        let count = self.sims.len() as u64;
        let (what, one) = (chance.one_of(24), chance.one_of(count) as usize);
        let other = (one + 1 + chance.one_of(count - 1) as usize) % self.sims.len();
        let left = Duration::from_millis(chance.one_of(ILL_MS));
        match what {
            // What is lost already is not forgotten.
            0 | 1 if self.trouble.loses((one, other)) => {}
            0 => _ = self.trouble.ways.insert((one, other), Ill { left, loses: false }),
            1 => {
                self.links.remove(&(one, other));
                self.trouble.ways.insert((one, other), Ill { left, loses: true });
            }
            2 => self.sims[one].store_stands_still(left),
            _ => {}
        }
    }

    /// Time has passed: ways are well again.
    pub(super) fn trouble_passes(&mut self, time: Duration) {
        let mut well = Vec::new();
        self.trouble.ways.retain(|way, ill| {
            ill.left = ill.left.saturating_sub(time);
            if ill.left.is_zero() {
                well.push((*way, ill.loses));
            }
            !ill.left.is_zero()
        });
        for ((one, other), _) in well.into_iter().filter(|(_, lost)| *lost) {
            self.cut(one, other);
        }
    }

    /// All is well, and stays so.
    pub(super) fn trouble_ends(&mut self) {
        self.trouble.chance = None;
        self.trouble_passes(Duration::from_millis(ILL_MS));
    }
}

#[test]
fn clocks_that_differ_by_more_than_a_partition_bears_are_found() {
    // One of them is slow: it goes on to look at what others have stopped to show.
    let drift = |chance: &Virtual| [0, 1000][chance.one_of(2) as usize];
    let walk = |seed| walk_with(seed, 200, false, |peers| peers.has_trouble(seed, drift));
    assert!((0..100).any(|seed| std::panic::catch_unwind(|| walk(seed)).is_err()));
}
