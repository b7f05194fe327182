//! What one target, the permanent directory, is owed: which files, since when, and what was copied
//! so far. Facts only; when each has its turn the [`Policy`] says. Not logged: after a restart it
//! follows from the inodes and the page states.
//!
//! Invariant: a file of which something is owed is among the young, or in the queue, or in the
//! drain's hands, which puts it back.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use terral_format::ids::{Ino, Lsn};
use terral_format::local::names::Inode;
use terral_format::wire::message::Drain;

use crate::core::world::Tick;
use crate::debts::failures::{Failures, Work};
use crate::debts::names::NamesOwed;
use crate::debts::policy::{Event, Facts, Policy, Standing};
use crate::debts::progress::Progress;
use crate::debts::version::{SharedVersion, Unneeded, Version};

/// So many debts that are young no more may stand among those that are, and as many as those.
const YOUNG_MIN: usize = 1024;

/// What is owed of one file.
pub struct Debt {
    since: Tick,
    /// When it has its turn, if it is not young.
    turn: Tick,
    /// It was never looked at.
    young: bool,
    draining: bool,
    publishing: bool,
    version: Option<SharedVersion>,
    /// What went wrong last, and how often since it went well.
    failure: Option<String>,
    failures: u32,
}

impl Debt {
    /// Whether the drain is at it: chunks must not be evicted, compacted or moved for convenience.
    pub fn is_draining(&self) -> bool {
        self.draining
    }

    /// Whether its new version is just getting its name, and cannot be read.
    pub fn is_publishing(&self) -> bool {
        self.publishing
    }

    /// The new version, once begun.
    pub fn version(&self) -> Option<&SharedVersion> {
        self.version.as_ref()
    }

    /// What went wrong last.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    fn standing(&self) -> Standing {
        Standing { young: self.young, draining: self.draining, failures: self.failures }
    }
}

/// All debts.
pub struct Debts {
    policy: Box<dyn Policy>,
    facts: Facts,
    /// Somebody waits for the memory that a paid debt frees.
    pressed: bool,
    files: FxHashMap<Ino, Debt>,
    /// Those that were never looked at, in order, among others that are so no more.
    young: VecDeque<(Tick, Ino)>,
    /// So many there were when the others were last dropped.
    were_young: usize,
    /// The others that are not being drained, by when they have their turn.
    queue: BTreeSet<(Tick, Ino)>,
    names: NamesOwed,
    progress: Progress,
    failures: Failures,
    /// Files for which a version may be staged that no object here knows.
    left: FxHashSet<Ino>,
    /// Versions of files that are gone.
    unneeded: Vec<Unneeded>,
    /// Files whose versions are just getting their names, also of those that are gone by now.
    publishing: BTreeSet<Ino>,
}

impl Debts {
    /// None yet; `policy` says when they are paid.
    pub fn new(policy: Box<dyn Policy>) -> Self {
        Debts {
            policy,
            facts: Facts::default(),
            pressed: false,
            files: FxHashMap::default(),
            young: VecDeque::new(),
            were_young: 0,
            queue: BTreeSet::new(),
            names: NamesOwed::default(),
            progress: Progress::default(),
            failures: Failures::default(),
            left: FxHashSet::default(),
            unneeded: Vec::new(),
            publishing: BTreeSet::new(),
        }
    }

    /// Whether the target is to get this file.
    pub fn takes(&self, file: &Inode) -> bool {
        self.policy.takes(file)
    }

    // What is owed.

    /// Something is owed of this file from now on, if it was not before.
    pub fn owe(&mut self, ino: Ino, now: Tick) {
        self.progress.unsettle(false);
        if self.young.len() > 2 * self.were_young + YOUNG_MIN {
            let mut young = std::mem::take(&mut self.young);
            young.retain(|debt| self.is_young(debt));
            (self.were_young, self.young) = (young.len(), young);
        }
        let young = &mut self.young;
        self.files.entry(ino).or_insert_with(|| {
            young.push_back((now, ino));
            let (version, failure) = (None, None);
            let (young, draining, publishing) = (true, false, false);
            let (since, turn, failures) = (now, now, 0);
            Debt { since, turn, young, draining, publishing, version, failure, failures }
        });
    }

    /// Of one file.
    pub fn get(&self, ino: Ino) -> Option<&Debt> {
        self.files.get(&ino)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (Ino, &Debt)> {
        self.files.iter().map(|(ino, debt)| (*ino, debt))
    }

    /// Nothing is owed of this file any more.
    pub fn paid(&mut self, ino: Ino) -> Option<Debt> {
        let debt = self.files.remove(&ino)?;
        if !debt.young {
            self.queue.remove(&(debt.turn, ino));
        }
        self.forget_old();
        Some(debt)
    }

    /// The file is gone: its new version, which may be this one, is thrown away by the drain.
    pub fn lost(&mut self, ino: Ino, version: Option<SharedVersion>) {
        let begun = self.paid(ino).and_then(|debt| debt.version);
        let (version, left) = (version.or(begun), self.left.remove(&ino));
        if left || version.is_some() {
            self.unneeded.push(Unneeded { ino, version });
        }
    }

    /// For this file a version may be staged, which the next pass goes on with.
    pub fn leaves_staged(&mut self, ino: Ino) {
        self.left.insert(ino);
    }

    /// Versions of files that are gone, which nobody throws away yet.
    pub fn take_unneeded(&mut self) -> Vec<Unneeded> {
        std::mem::take(&mut self.unneeded)
    }

    /// Those of them that could not be thrown away.
    pub fn keep_unneeded(&mut self, versions: Vec<Unneeded>) {
        self.unneeded.extend(versions);
    }

    /// Whether there are any.
    pub fn has_unneeded(&self) -> bool {
        !self.unneeded.is_empty()
    }

    /// Whether nothing is owed of any file.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Whether chunks of this file may be moved or evicted.
    pub fn may_move(&self, ino: Ino) -> bool {
        self.files.get(&ino).is_none_or(|debt| !debt.draining)
    }

    // When.

    /// Clients changed names just now.
    pub fn names_changed(&mut self, now: Tick) {
        self.facts.names_changed = Some(now);
    }

    /// Somebody waits for the memory that a paid debt frees, or nobody does.
    pub fn press(&mut self, pressed: bool) {
        self.pressed = pressed;
        self.facts.awaited = pressed || self.progress.is_sync_wanted();
    }

    /// Whether anybody does.
    pub fn is_pressed(&self) -> bool {
        self.pressed
    }

    /// Somebody waits until all is safe.
    pub fn want_sync(&mut self) {
        self.progress.want_sync();
        self.facts.awaited = true;
    }

    /// Whether anybody does.
    pub fn is_sync_wanted(&self) -> bool {
        self.progress.is_sync_wanted()
    }

    /// Somebody began to wait for any debt to be paid.
    pub fn hasten(&mut self, now: Tick) {
        self.all_happened(Event::Awaited, now);
    }

    /// Somebody asked for all of it.
    pub fn ask_for_all(&mut self, now: Tick) {
        self.all_happened(Event::Asked, now);
    }

    fn all_happened(&mut self, event: Event, now: Tick) {
        let young = self.young.iter().filter(|debt| self.is_young(debt));
        let later = self.queue.range((now, Ino(u64::MAX))..).chain(young);
        let inos: Vec<Ino> = later.map(|(_, ino)| *ino).collect();
        inos.into_iter().for_each(|ino| self.happened(ino, event, now));
    }

    /// Something happened to a file.
    pub fn happened(&mut self, ino: Ino, event: Event, now: Tick) {
        let Some(debt) = self.files.get(&ino) else { return };
        let turn = self.policy.turn(event, debt.standing(), now);
        // Who had it in hand puts it back, whatever the policy says.
        let over = matches!(event, Event::Passed { .. } | Event::Failed);
        let back = || over && !debt.young && !self.queue.contains(&(debt.turn, ino));
        let turn = turn.or_else(|| back().then_some(now));
        turn.into_iter().for_each(|at| self.not_before(ino, at));
    }

    /// A file has its turn at `at`, as something else must be first, or nothing.
    pub fn not_before(&mut self, ino: Ino, at: Tick) {
        let Some(debt) = self.files.get_mut(&ino) else { return };
        if !std::mem::take(&mut debt.young) {
            self.queue.remove(&(debt.turn, ino));
        }
        self.queue.insert((at, ino));
        debt.turn = at;
        self.forget_old();
    }

    fn is_young(&self, (since, ino): &(Tick, Ino)) -> bool {
        self.files.get(ino).is_some_and(|debt| debt.young && debt.since == *since)
    }

    /// The first of the young ones is one.
    fn forget_old(&mut self) {
        while self.young.front().is_some_and(|first| !self.is_young(first)) {
            self.young.pop_front();
        }
    }

    /// When a file has its turn.
    pub fn due(&self, ino: Ino) -> Option<Tick> {
        let ripe = |debt: &Debt| self.policy.ripe(debt.since, Facts::default());
        self.files.get(&ino).map(|debt| if debt.young { ripe(debt) } else { debt.turn })
    }

    /// When the first file has its turn.
    pub fn first_due(&self) -> Option<Tick> {
        let young = self.young.front().map(|(since, _)| self.policy.ripe(*since, self.facts));
        self.queue.first().map(|(at, _)| *at).into_iter().chain(young).min()
    }

    /// The file that has its turn now; without one, `wake` becomes no later than when one has.
    /// Whoever takes it says when its turn is next.
    pub fn next_due(&mut self, now: Tick, wake: &mut Option<Tick>) -> Option<Ino> {
        let due = self.first_due()?;
        if due > now {
            *wake = Some(wake.map_or(due, |wake| wake.min(due)));
            return None;
        }
        let queued = self.queue.first().is_some_and(|(at, _)| *at <= now);
        let next = if queued { self.queue.pop_first() } else { self.young.pop_front() };
        let (_, ino) = next?;
        if let Some(debt) = self.files.get_mut(&ino) {
            debt.young = false;
        }
        self.forget_old();
        Some(ino)
    }

    // The drain.

    /// The drain begins with a file.
    pub fn begin(&mut self, ino: Ino) {
        if let Some(debt) = self.files.get_mut(&ino) {
            debt.draining = true;
        }
    }

    /// It is through with it for now; somebody may change it further if it is `open`.
    pub fn end(&mut self, ino: Ino, open: bool, now: Tick) {
        if let Some(debt) = self.files.get_mut(&ino) {
            debt.draining = false;
        }
        self.happened(ino, Event::Passed { open }, now);
        self.progress.unsettle(true);
    }

    /// A file's new version, if none was begun meanwhile: gives the one that counts.
    pub fn begin_version(&mut self, ino: Ino, version: Version) -> SharedVersion {
        let version = Arc::new(version);
        // It goes on with what was left.
        self.left.remove(&ino);
        self.unneeded.retain(|version| version.ino != ino);
        match self.files.get_mut(&ino) {
            Some(debt) => debt.version.get_or_insert(version).clone(),
            None => version,
        }
    }

    /// Its new version is to get its name.
    pub fn publishes(&mut self, ino: Ino) {
        self.publishing.insert(ino);
        if let Some(debt) = self.files.get_mut(&ino) {
            debt.publishing = true;
        }
    }

    /// Files whose versions are just getting their names.
    pub fn publishing(&self) -> &BTreeSet<Ino> {
        &self.publishing
    }

    /// It has it, or what was staged is left for the next pass.
    pub fn published(&mut self, ino: Ino, done: bool) {
        self.publishing.remove(&ino);
        if let Some(debt) = self.files.get_mut(&ino) {
            (debt.publishing, debt.version) = (false, None);
        }
        if !done {
            self.leaves_staged(ino);
        }
    }

    /// Something went wrong with a file, of which something is owed.
    pub fn failed(&mut self, ino: Ino, why: String, now: Tick) {
        if let Some(debt) = self.files.get_mut(&ino) {
            debt.failures = debt.failures.saturating_add(1);
            debt.failure = Some(why);
            self.happened(ino, Event::Failed, now);
        }
    }

    /// A copy of a file went well.
    pub fn progressed(&mut self, ino: Ino) {
        if let Some(debt) = self.files.get_mut(&ino) {
            (debt.failure, debt.failures) = (None, 0);
        }
    }

    // What fails, beside files.

    /// Some work failed. Gives when it may be tried again.
    pub fn work_failed(&mut self, work: Work, why: String, now: Tick) -> Tick {
        self.failures.failed(work, why, &*self.policy, now)
    }

    /// It went well, or there is nothing of it to do.
    pub fn work_went_well(&mut self, work: Work) {
        self.failures.went_well(work);
    }

    /// Until when it is not tried after a failure, if it is not now.
    pub fn paused(&self, work: Work, now: Tick) -> Option<Tick> {
        self.failures.paused(work, now)
    }

    /// Why it has failed, if it has not gone well since.
    pub fn failure(&self, work: Work) -> Option<&str> {
        self.failures.why(work)
    }

    // Names.

    /// None is owed.
    pub fn names_paid(&mut self) {
        self.names.paid();
        self.failures.went_well(Work::Names);
    }

    /// One was done.
    pub fn name_brought(&mut self) {
        self.failures.went_well(Work::Names);
        self.progress.unsettle(true);
    }

    /// When the operation `next` may be done, if not now: with the first file, whose directory it
    /// may make. Those up to `last` have their turn together.
    pub fn names_wait(&mut self, next: Lsn, last: Option<Lsn>, now: Tick) -> Option<Tick> {
        let since = self.names.waits_since(next, now)?;
        let due = self.names_due_since(since);
        if due > now {
            return Some(due);
        }
        self.names.begin(last);
        None
    }

    /// When name operations may be done, if any are owed.
    pub fn names_due(&self, now: Tick) -> Tick {
        self.names_due_since(self.names.since().unwrap_or(now))
    }

    /// Somebody waits until the store has the names that it is owed.
    pub fn hasten_names(&mut self) {
        self.names.hasten();
    }

    fn names_due_since(&self, since: Tick) -> Tick {
        if self.names.is_awaited() {
            return since;
        }
        let due = self.policy.ripe(since, self.facts);
        self.first_due().map_or(due, |first| first.min(due))
    }

    // What was done.

    /// What was brought so far.
    pub fn progress(&mut self) -> &mut Progress {
        &mut self.progress
    }

    /// The store keeps all that it had when it was asked; that was all, or there is `more` by now.
    pub fn synced(&mut self, more: bool) {
        self.progress.synced(more);
        self.facts.awaited = self.pressed || self.progress.is_sync_wanted();
    }

    /// Whether nothing was owed, and all is safe.
    pub fn is_settled(&self) -> bool {
        self.progress.is_settled()
    }

    /// Everything for display but bytes and names owed.
    pub fn status(&self, now: Tick) -> Drain {
        let failures = self.files.values().filter_map(|debt| debt.failure.clone());
        let others = self.failures.all().map(str::to_owned);
        let mut drain = self.progress.shown(others.chain(failures));
        drain.owed_files = self.files.len() as u64;
        let ages = self.files.values().map(|debt| debt.since).chain(self.names.since());
        drain.oldest_ms = ages.min().map_or(0, |since| now.since(since).as_millis() as u64);
        drain
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Debts, Event, Facts, Ino, Inode, Policy, Standing, Tick, Work};
    use crate::debts::policy::Usual;

    const S: u64 = 1_000_000_000;
    const A: Ino = Ino(10);
    const B: Ino = Ino(11);

    fn due(debts: &mut Debts, at: Tick) -> (Option<Ino>, Option<Tick>) {
        let mut wake = None;
        (debts.next_due(at, &mut wake), wake)
    }

    #[test]
    fn the_oldest_goes_first_and_what_is_put_back_has_another_turn() {
        let mut debts = Debts::new(Box::new(Usual));
        debts.owe(A, Tick(0));
        debts.owe(B, Tick(1));
        debts.owe(A, Tick(2));
        assert_eq!(due(&mut debts, Tick(5)), (None, Some(Tick(S))));
        assert_eq!(due(&mut debts, Tick(2 * S)).0, Some(A));
        debts.begin(A);
        assert!(!debts.may_move(A) && debts.may_move(B));
        assert_eq!(due(&mut debts, Tick(2 * S)).0, Some(B));
        assert_eq!(due(&mut debts, Tick(9 * S)), (None, None), "both are in hand");
        debts.end(A, true, Tick(9 * S));
        let next = Tick(9 * S) + Duration::from_millis(500);
        assert_eq!((due(&mut debts, Tick(9 * S)), debts.may_move(A)), ((None, Some(next)), true));
        debts.paid(A);
        debts.paid(B);
        assert!(debts.is_empty() && due(&mut debts, Tick(99 * S)) == (None, None));
    }

    #[test]
    fn who_waits_hastens_all_but_what_is_in_hand_or_has_failed() {
        let mut debts = Debts::new(Box::new(Usual));
        debts.owe(A, Tick(0));
        debts.owe(B, Tick(0));
        assert_eq!(due(&mut debts, Tick(S)).0, Some(A));
        debts.hasten(Tick(S / 2));
        assert_eq!(due(&mut debts, Tick(S / 2)).0, Some(B), "A is in hand");
        debts.failed(A, "away".into(), Tick(S));
        debts.end(B, true, Tick(S));
        debts.hasten(Tick(S));
        let later = Tick(S) + Usual.pause(1);
        assert_eq!([due(&mut debts, Tick(S)).0, due(&mut debts, Tick(S)).0], [Some(B), None]);
        assert_eq!(due(&mut debts, later).0, Some(A));
    }

    #[test]
    fn who_waits_for_safety_or_memory_ripens_what_comes_until_he_has_it() {
        let mut debts = Debts::new(Box::new(Usual));
        debts.want_sync();
        debts.owe(A, Tick(3));
        assert_eq!(debts.first_due(), Some(Tick(3)));
        debts.synced(false);
        assert_eq!(debts.first_due(), Some(Tick(3 + S)));
        debts.press(true);
        assert_eq!(debts.first_due(), Some(Tick(3)));
        debts.press(false);
        assert_eq!(debts.first_due(), Some(Tick(3 + S)));
    }

    /// Brings nothing before a moment, and all then.
    struct AtNight(Tick);

    impl Policy for AtNight {
        fn takes(&self, _: &Inode) -> bool {
            true
        }

        fn ripe(&self, since: Tick, _: Facts) -> Tick {
            since.max(self.0)
        }

        fn turn(&self, event: Event, _: Standing, now: Tick) -> Option<Tick> {
            matches!(event, Event::Passed { .. } | Event::Failed).then(|| now.max(self.0))
        }

        fn pause(&self, _: u32) -> Duration {
            Duration::from_nanos(1)
        }
    }

    /// Leaves everything as it was.
    struct Mute;

    impl Policy for Mute {
        fn takes(&self, _: &Inode) -> bool {
            true
        }

        fn ripe(&self, since: Tick, _: Facts) -> Tick {
            since
        }

        fn turn(&self, _: Event, _: Standing, _: Tick) -> Option<Tick> {
            None
        }

        fn pause(&self, _: u32) -> Duration {
            Duration::from_nanos(1)
        }
    }

    #[test]
    fn what_was_in_hand_is_put_back_whatever_the_policy_says() {
        let mut debts = Debts::new(Box::new(Mute));
        debts.owe(A, Tick(0));
        assert_eq!(due(&mut debts, Tick(1)).0, Some(A));
        debts.failed(A, "away".into(), Tick(1));
        assert_eq!(due(&mut debts, Tick(1)).0, Some(A));
        debts.begin(A);
        debts.happened(A, Event::Grown(u64::MAX), Tick(2));
        assert_eq!(due(&mut debts, Tick(2)), (None, None), "it is in hand");
        debts.end(A, false, Tick(3));
        debts.not_before(A, Tick(9));
        debts.failed(A, "away".into(), Tick(4));
        assert_eq!(due(&mut debts, Tick(4)), (None, Some(Tick(9))), "it was not in hand");
    }

    #[test]
    fn another_policy_is_obeyed() {
        let mut debts = Debts::new(Box::new(AtNight(Tick(50))));
        debts.owe(A, Tick(0));
        debts.want_sync();
        debts.hasten(Tick(1));
        debts.happened(A, Event::Grown(u64::MAX), Tick(2));
        assert_eq!(due(&mut debts, Tick(49)), (None, Some(Tick(50))));
        assert_eq!(due(&mut debts, Tick(50)).0, Some(A));
        debts.failed(A, "away".into(), Tick(51));
        assert_eq!(due(&mut debts, Tick(51)).0, Some(A));
        assert_eq!(debts.work_failed(Work::Names, "away".into(), Tick(51)), Tick(52));
    }
}
