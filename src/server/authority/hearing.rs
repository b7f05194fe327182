//! Who has revoked something, and waits until all members have heard of it.
//!
//! Not here: how they hear (`members/telling`).

use std::collections::BTreeMap;
use std::time::Duration;

use terral_format::ids::Asker;

use super::lease::TERM;
use crate::core::world::Tick;

/// The lease of a member that has not heard is over by then, whatever its clock.
const OVER: Duration = Duration::from_millis(TERM.as_millis() as u64 + 100);
/// Who does not come for his answer for so long is gone.
const GONE: Duration = Duration::from_secs(60);

/// What was revoked here, for somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun {
    /// From this version of the roster on it counts.
    pub version: u64,
    /// So many sessions here may do less.
    pub sessions: u32,
    /// When.
    pub since: Tick,
}

impl Begun {
    /// Whether a capability that was handed out is good nowhere any more, whoever has heard.
    pub fn is_over(&self, now: Tick) -> bool {
        now.since(self.since) >= OVER
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Hearing {
    begun: BTreeMap<Asker, Begun>,
    /// Who waits to begin, and since when.
    waits: BTreeMap<Asker, Tick>,
}

impl Hearing {
    /// What this one has revoked.
    pub fn of(&self, asker: Asker) -> Option<Begun> {
        self.begun.get(&asker).copied()
    }

    /// He waits to begin. Since when he does.
    pub fn waits(&mut self, asker: Asker, now: Tick) -> Tick {
        *self.waits.entry(asker).or_insert(now)
    }

    /// He does not any more.
    pub fn waits_no_more(&mut self, asker: Asker) {
        self.waits.remove(&asker);
    }

    /// He begins to wait.
    pub fn begins(&mut self, asker: Asker, begun: Begun) {
        self.begun.insert(asker, begun);
    }

    /// He has his answer.
    pub fn ends(&mut self, asker: Asker) {
        self.begun.remove(&asker);
    }

    /// Whether somebody waits. Time has passed: who is gone does not.
    pub fn tick(&mut self, now: Tick) -> bool {
        self.begun.retain(|_, begun| now.since(begun.since) < GONE);
        self.waits.retain(|_, since| now.since(*since) < GONE);
        !self.begun.is_empty() || !self.waits.is_empty()
    }
}
