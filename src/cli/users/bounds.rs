//! How many users' servers are started as somebody else looks at what is theirs: so many at a time,
//! so many that run for him and for all, and so many in a while.
//!
//! Invariant: what one has had started takes nothing from others but what is for all. Root, who may
//! start them himself, is bounded by what is for all users. Not here: who is somebody whose server
//! is started for others (`user`).

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use terral_client::Needed;

/// So many run that were started for others, whose users have not come themselves.
pub const RUN_MAX: usize = 100;
/// So many of these for one asker.
pub const RUN_EACH: usize = 16;
/// So many starts of one asker, failed ones, too,
pub const STARTS_EACH: usize = 32;
/// in so long.
pub const WHILE: Duration = Duration::from_secs(600);
/// So many are being started at a time for others,
const AT_ONCE: usize = 8;
/// and for one asker.
const AT_ONCE_EACH: usize = 2;
/// One that has failed is not tried again for others before so long, twice as long each time, nor
/// before as many times as long as it took: its user may have it take long.
const APART: (Duration, u32) = (Duration::from_secs(1), 5);

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

/// What was started for whom.
#[derive(Default)]
pub struct Bounds {
    /// Those that run for others, by their owners: for whom they were started.
    run: BTreeMap<u32, u32>,
    /// Those that are being started, likewise.
    under_way: BTreeMap<u32, u32>,
    /// When some were started, by who asked.
    begun: BTreeMap<u32, VecDeque<Instant>>,
    /// Those that have failed, by their owners: how often, and until when they are not tried.
    failed: BTreeMap<u32, (u32, Instant)>,
}

impl Bounds {
    /// Whether one may be started now.
    pub fn may(&mut self, needed: Needed, now: Instant) -> May {
        let Needed { owner, asker } = needed;
        self.begun.retain(|_, times| {
            times.retain(|at| now.duration_since(*at) < WHILE);
            !times.is_empty()
        });
        self.failed.retain(|_, (_, until)| now < *until + WHILE);
        if self.under_way.contains_key(&owner) {
            return May::Later;
        }
        if self.failed.get(&owner).is_some_and(|(_, until)| now < *until) {
            return May::Failed;
        }
        if asker == 0 {
            let is_full = self.under_way.len() >= AT_ONCE;
            return if is_full { May::Later } else { May::Begin };
        }
        let of_him = |of: &BTreeMap<u32, u32>| of.values().filter(|it| **it == asker).count();
        let others = self.run.keys().filter(|it| **it != owner).count();
        let is_new = !self.run.contains_key(&owner);
        if is_new && others + self.under_way.len() >= RUN_MAX {
            return May::No(format!("{RUN_MAX} servers run for others than their users"));
        }
        if is_new && of_him(&self.run) + of_him(&self.under_way) >= RUN_EACH {
            return May::No(format!("{RUN_EACH} servers of others run for user {asker}"));
        }
        if self.begun.get(&asker).is_some_and(|times| times.len() >= STARTS_EACH) {
            let minutes = WHILE.as_secs() / 60;
            return May::No(format!(
                "{STARTS_EACH} servers of others were started for user {asker} in {minutes} minutes"
            ));
        }
        // One place is root's.
        let is_full = self.under_way.len() + 1 >= AT_ONCE;
        match is_full || of_him(&self.under_way) >= AT_ONCE_EACH {
            true => May::Later,
            false => May::Begin,
        }
    }

    /// One is being started.
    pub fn begins(&mut self, needed: Needed, now: Instant) {
        self.under_way.insert(needed.owner, needed.asker);
        if needed.asker != 0 {
            self.begun.entry(needed.asker).or_default().push_back(now);
        }
    }

    /// It could not be started, which took so long.
    pub fn has_failed(&mut self, owner: u32, took: Duration, now: Instant) {
        self.under_way.remove(&owner);
        let (often, until) = self.failed.entry(owner).or_insert((0, now));
        let apart = APART.0.saturating_mul(1 << *often).max(took.saturating_mul(APART.1));
        (*often, *until) = ((*often + 1).min(16), now + apart.min(WHILE));
    }

    /// It runs, for who asked alone, or for its user, too.
    pub fn is_over(&mut self, owner: u32, runs: bool) {
        let asker = self.under_way.remove(&owner);
        self.failed.remove(&owner);
        if let Some(asker) = asker.filter(|_| runs) {
            self.run.entry(owner).or_insert(asker);
        }
    }

    /// It runs no more, or for its user, who has come.
    pub fn is_not_for_others(&mut self, owner: u32) {
        self.run.remove(&owner);
    }

    /// Whose run for others.
    pub fn owners(&self) -> Vec<u32> {
        self.run.keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Bounds, May, Needed, RUN_EACH, RUN_MAX, STARTS_EACH, WHILE};
    use std::time::{Duration, Instant};

    fn begin(bounds: &mut Bounds, (owner, asker): (u32, u32), runs: bool) -> bool {
        let (needed, now) = (Needed { owner, asker }, Instant::now());
        let may = bounds.may(needed, now) == May::Begin;
        if may {
            bounds.begins(needed, now);
            bounds.is_over(owner, runs);
        }
        may
    }

    #[test]
    fn one_asker_has_so_many_run_and_takes_none_from_others() {
        let mut bounds = Bounds::default();
        let begun = (1000..3000).filter(|owner| begin(&mut bounds, (*owner, 7), true)).count();
        assert_eq!(begun, RUN_EACH);
        assert!(begin(&mut bounds, (2999, 8), true));
        // Who has come himself has his for himself.
        bounds.is_not_for_others(1000);
        assert!(begin(&mut bounds, (2000, 7), true) && !begin(&mut bounds, (2001, 7), true));
        // All together have so many, and root more.
        let all = (3000..4000).filter(|user| begin(&mut bounds, (*user, *user), true)).count();
        assert_eq!(all + RUN_EACH + 1, RUN_MAX);
        assert!(begin(&mut bounds, (9000, 0), true));
    }

    #[test]
    fn starts_that_fail_or_end_are_so_many_in_a_while() {
        let mut bounds = Bounds::default();
        let begun = (1000..3000).filter(|owner| begin(&mut bounds, (*owner, 7), false)).count();
        assert_eq!(begun, STARTS_EACH);
        let needed = Needed { owner: 1000, asker: 7 };
        assert_eq!(bounds.may(needed, Instant::now() + WHILE), May::Begin);
        assert!(bounds.begun.is_empty(), "nothing is kept of who asks no more");
    }

    #[test]
    fn one_that_fails_is_tried_less_and_less() {
        let (mut bounds, begin) = (Bounds::default(), Instant::now());
        let (needed, s) = (Needed { owner: 1000, asker: 0 }, Duration::from_secs);
        let mut now = begin;
        for apart in [1, 2, 4] {
            bounds.has_failed(1000, s(0), now);
            assert_eq!(bounds.may(needed, now + s(apart) / 2), May::Failed, "{apart}");
            now += s(apart);
            assert_eq!(bounds.may(needed, now), May::Begin, "{apart}");
        }
        // It took a minute.
        bounds.has_failed(1000, s(60), now);
        assert_eq!(bounds.may(needed, now + s(299)), May::Failed);
        assert_eq!(bounds.may(needed, now + s(300)), May::Begin);
        bounds.is_over(1000, true);
        bounds.has_failed(1000, s(0), now);
        assert_eq!(bounds.may(needed, now + s(1)), May::Begin, "it ran in between");
    }

    #[test]
    fn one_is_started_once_and_few_at_a_time() {
        let (mut bounds, now) = (Bounds::default(), Instant::now());
        let of = |owner, asker| Needed { owner, asker };
        for owner in [1000, 1001] {
            assert_eq!(bounds.may(of(owner, 7), now), May::Begin);
            bounds.begins(of(owner, 7), now);
        }
        assert_eq!(bounds.may(of(1000, 8), now), May::Later, "the same one");
        assert_eq!(bounds.may(of(1002, 7), now), May::Later, "of the same asker");
        for asker in 8..13 {
            assert_eq!(bounds.may(of(1000 + asker, asker), now), May::Begin, "{asker}");
            bounds.begins(of(1000 + asker, asker), now);
        }
        assert_eq!(bounds.may(of(1003, 13), now), May::Later, "the last is root's");
        assert_eq!(bounds.may(of(1003, 0), now), May::Begin);
    }
}
