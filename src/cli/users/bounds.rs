//! How many users' servers are started as somebody else looks at what is theirs: so many at a time,
//! so many that run for him and for all, and so many in a while.
//!
//! Invariants: what one has had started takes nothing from others but what is for all; one that
//! fails counts for nobody as one that was started; each is tried less and less, whoever asks,
//! until it has lived for a while. Root, who may start them himself, is bounded by what is for all
//! users. Not here: who is somebody whose server is started for others (`account`).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use terral_client::Needed;

use super::times::Times;

/// So many run that were started for others, whose users have not come themselves.
pub const RUN_MAX: usize = 100;
/// So many of these for one asker.
const RUN_EACH: usize = 16;
/// Those of so many owners were started for one asker,
const STARTS_EACH: usize = 32;
/// and of so many have failed for him, and for all,
const FAILED_EACH: usize = 64;
const FAILED_ALL: usize = 512;
/// in so long.
const WHILE: Duration = Duration::from_secs(600);
/// So many are being started at a time for others,
const AT_ONCE: usize = 8;
/// and for one asker; and so many that have died.
const AT_ONCE_EACH: usize = 2;
const AGAIN_AT_ONCE: usize = 4;
/// One that was tried is not tried again for others before so long, twice as long each time, nor,
/// if it failed, before as many times as long as it took: its user may have it take long.
const APART: (Duration, u32) = (Duration::from_secs(1), 5);
/// One that has lived so long is as one that was never tried.
const LIVED: Duration = Duration::from_secs(60);
/// Of so many it is known that they were tried.
const KNOWN_MOST: usize = 1024;

/// What may be done for who asks.
#[derive(Debug, PartialEq, Eq)]
pub enum May {
    /// It may be started.
    Begin,
    /// When others have been.
    Later,
    /// It has just failed.
    Failed,
    /// Not for him: why.
    No(String),
}

/// What came of one that was to be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Came {
    /// It was started, for others alone if its user has not come.
    Begun {
        /// Whether he has not.
        for_others: bool,
    },
    /// It runs, or is being started by its user.
    Runs,
    /// It is not to be: its user is none. To find that out costs as much as a start that fails.
    Refused,
    /// It did not come.
    Failed,
}

/// For whom one is being started: who asks for it, or nobody, as it has died.
type For = Option<u32>;

/// What was started for whom.
#[derive(Default)]
pub struct Bounds {
    /// Those that run for others, by their owners: for whom they were started.
    run: BTreeMap<u32, u32>,
    /// Those that are being started, likewise.
    under_way: BTreeMap<u32, For>,
    /// When some were started, by who asked,
    begun: Times,
    /// and when some have failed.
    failures: Times,
    /// Those that were tried, by their owners.
    tried: BTreeMap<u32, Tried>,
    /// Until when those that run are not looked at again.
    looked: BTreeMap<u32, Instant>,
}

/// One that has not lived long since.
struct Tried {
    often: u32,
    /// Until then it is not again.
    until: Instant,
    /// Since when it runs, as far as is known.
    begun: Option<Instant>,
    /// Its user is none: anybody may have files of many such numbers.
    refused: bool,
}

impl Bounds {
    /// Whether one may be started now.
    pub fn may(&mut self, needed: Needed, now: Instant) -> May {
        if let Some(not) = self.not_now(needed.owner, now) {
            return not;
        }
        let is_new = !self.run.contains_key(&needed.owner);
        if is_new && self.run.len() + self.under_way.len() >= RUN_MAX {
            return May::No(format!("{RUN_MAX} servers run for others than their users"));
        }
        // One place is root's, who has no bound of his own.
        let most = if needed.asker == 0 { AT_ONCE } else { AT_ONCE - 1 };
        if needed.asker != 0
            && let Some(not) = self.not_for(needed, is_new)
        {
            return not;
        }
        if self.under_way.len() >= most { May::Later } else { May::Begin }
    }

    /// What is so whoever asks.
    fn not_now(&mut self, owner: u32, now: Instant) -> Option<May> {
        self.begun.forget(WHILE, now);
        self.failures.forget(WHILE, now);
        self.tried.retain(|_, tried| now < tried.until + WHILE);
        self.looked.retain(|_, until| now < *until);
        if self.under_way.contains_key(&owner) || self.looked.contains_key(&owner) {
            return Some(May::Later);
        }
        let tried = self.tried.get(&owner).filter(|tried| now < tried.until)?;
        // One that has come is about to be there.
        Some(if tried.begun.is_some() { May::Later } else { May::Failed })
    }

    /// What one asker has had of it.
    fn not_for(&self, Needed { owner, asker }: Needed, is_new: bool) -> Option<May> {
        let minutes = WHILE.as_secs() / 60;
        let run = self.run.values().filter(|it| **it == asker).count();
        let under_way = self.under_way.values().filter(|it| **it == Some(asker)).count();
        if is_new && run + under_way >= RUN_EACH {
            return Some(May::No(format!("{RUN_EACH} servers of others run for user {asker}")));
        }
        if !self.begun.knows(asker, owner) && self.begun.of(asker) + under_way >= STARTS_EACH {
            return Some(May::No(format!(
                "{STARTS_EACH} servers of others were started for user {asker} in {minutes} minutes"
            )));
        }
        let is_known = self.failures.knows(asker, owner);
        let failed = self.failures.of(asker) >= FAILED_EACH || self.failures.all() >= FAILED_ALL;
        if failed && !is_known {
            return Some(May::No(format!(
                "too many servers of others failed in {minutes} minutes"
            )));
        }
        (under_way >= AT_ONCE_EACH).then_some(May::Later)
    }

    /// Whether one that has died may be started again now; what it runs for stays as it was.
    pub fn may_again(&mut self, owner: u32, now: Instant) -> bool {
        let again = self.under_way.values().filter(|it| it.is_none()).count();
        self.not_now(owner, now).is_none() && again < AGAIN_AT_ONCE
    }

    /// One is being started, for who has asked; for nobody, as it has died.
    pub fn begins(&mut self, owner: u32, asker: For) {
        self.under_way.insert(owner, asker);
    }

    /// What came of it, which took so long.
    pub fn came(&mut self, owner: u32, came: Came, (took, now): (Duration, Instant)) {
        let asker = self.under_way.remove(&owner).flatten();
        // Who has asked, and is not root.
        let bounded = asker.filter(|user| *user != 0);
        match came {
            Came::Runs => drop(self.looked.insert(owner, now + APART.0)),
            Came::Begun { for_others } => {
                bounded.inspect(|user| self.begun.has_one(*user, owner, now));
                if let Some(asker) = asker.filter(|_| for_others) {
                    self.run.entry(owner).or_insert(asker);
                }
                self.was_tried(owner, (Duration::ZERO, now), came);
            }
            Came::Refused | Came::Failed => {
                bounded.inspect(|user| self.failures.has_one(*user, owner, now));
                self.was_tried(owner, (took, now), came);
            }
        }
    }

    /// It is not tried again for a while.
    fn was_tried(&mut self, owner: u32, (took, now): (Duration, Instant), came: Came) {
        if self.tried.len() >= KNOWN_MOST && !self.tried.contains_key(&owner) {
            let first = self.tried.iter().min_by_key(|(_, tried)| (!tried.refused, tried.until));
            let first = first.map(|(first, _)| *first);
            first.map(|first| self.tried.remove(&first));
        }
        let often = self.tried.get(&owner).map_or(0, |tried| tried.often);
        let apart = APART.0.saturating_mul(1 << often).max(took.saturating_mul(APART.1));
        let (often, until) = ((often + 1).min(16), now + apart.min(WHILE));
        let begun = matches!(came, Came::Begun { .. }).then_some(now);
        let refused = came == Came::Refused;
        self.tried.insert(owner, Tried { often, until, begun, refused });
    }

    /// It is seen to run.
    pub fn lives(&mut self, owner: u32, now: Instant) {
        let begun = self.tried.get(&owner).and_then(|tried| tried.begun);
        if begun.is_some_and(|at| now.saturating_duration_since(at) >= LIVED) {
            self.tried.remove(&owner);
        }
    }

    /// It is seen to run no more.
    pub fn has_ended(&mut self, owner: u32) {
        self.tried.get_mut(&owner).into_iter().for_each(|tried| tried.begun = None);
    }

    /// It runs no more, or for its user, who has come: its place is free.
    pub fn is_not_for_others(&mut self, owner: u32) {
        self.run.remove(&owner);
    }
}

#[cfg(test)]
mod tests;
