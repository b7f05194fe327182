//! What the backing is owed: which files, since when, and what was copied so far. Not logged: after
//! a restart it follows from the inodes and the page states.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use rustc_hash::FxHashMap;
use terral_format::ids::{Ino, Lsn};
use terral_format::wire::message::Drain;

use crate::core::world::Tick;
use crate::debts::version::SharedVersion;

/// A new debt waits so long, and while clients go on changing names up to the longer one: what is
/// removed, renamed or written again meanwhile costs the backing nothing, and the drain does not
/// take the cores from a program that makes many small files.
const LINGER: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));
/// Clients that have changed no name for so long do not go on.
const CALM: Duration = Duration::from_millis(200);
/// First and longest pause after a failure.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));
/// So many debts that are young no more may stand among those that are, and as many as those.
const YOUNG_MIN: usize = 1024;
/// Failures kept for display.
const SHOWN_MAX: usize = 16;
/// Characters of one that are shown: all of them must fit a reply.
const SHOWN_CHARACTERS: usize = 300;

/// What the backing is owed of one file.
pub struct Debt {
    /// Since when.
    pub since: Tick,
    /// Not before then.
    next_pass: Tick,
    /// It was never looked at.
    young: bool,
    /// The drain is at it; chunks must not be evicted, compacted or moved for convenience.
    pub draining: bool,
    /// Its new version is just getting its name, and cannot be read.
    pub publishing: bool,
    /// The new version, once begun.
    pub version: Option<SharedVersion>,
    /// What went wrong last.
    pub failure: Option<String>,
    /// How long the next pause after a failure is.
    pause: Duration,
}

/// All debts.
#[derive(Default)]
pub struct Debts {
    files: FxHashMap<Ino, Debt>,
    /// Those that were never looked at, in order, among others that are so no more.
    young: VecDeque<(Tick, Ino)>,
    /// So many there were when the others were last dropped.
    were_young: usize,
    /// The others that are not being drained, by when they may be.
    queue: BTreeSet<(Tick, Ino)>,
    /// When clients last changed names.
    changed: Option<Tick>,
    /// Sums for display.
    pub shown: Drain,
    /// Something was brought to the backing that it has not yet said is safe.
    pub unsynced: bool,
    /// Somebody waits for it to say so.
    pub sync_wanted: bool,
    /// Somebody waits for the memory that a paid debt frees.
    pub pressed: bool,
    /// Why name operations stand still, and until when.
    pub names_failure: Option<(String, Tick, Duration)>,
    /// What became of some versions is not known: when that is looked at again, and the next pause.
    unsure: Option<(Tick, Duration)>,
    /// The name operations' debt is this old.
    pub names_since: Option<Tick>,
    /// Versions of files that are gone.
    pub discarded: Vec<SharedVersion>,
    /// Name operations up to this one are just being brought, one after the other.
    pub names_until: Option<Lsn>,
    /// It was said that the backing takes no extended attributes.
    pub no_xattrs: bool,
    recent: VecDeque<String>,
}

impl Debts {
    /// The backing is owed something of this file from now on, if it was not before. Gives the
    /// debt.
    pub fn owe(&mut self, ino: Ino, now: Tick) -> &mut Debt {
        self.shown.settled = false;
        if self.young.len() > 2 * self.were_young + YOUNG_MIN {
            let mut young = std::mem::take(&mut self.young);
            young.retain(|debt| self.is_young(debt));
            (self.were_young, self.young) = (young.len(), young);
        }
        let young = &mut self.young;
        self.files.entry(ino).or_insert_with(|| {
            young.push_back((now, ino));
            Debt {
                since: now,
                next_pass: now + LINGER.0,
                young: true,
                draining: false,
                publishing: false,
                version: None,
                failure: None,
                pause: PAUSE.0,
            }
        })
    }

    /// Clients changed names just now.
    pub fn names_changed(&mut self, now: Tick) {
        self.changed = Some(now);
    }

    /// When a new debt may be paid.
    fn patience(&self, since: Tick) -> Tick {
        if self.sync_wanted || self.pressed {
            return since;
        }
        let calm = self.changed.map_or(since, |changed| changed + CALM);
        calm.clamp(since + LINGER.0, since + LINGER.1)
    }

    /// A file's debt may be paid from `at` on.
    pub fn not_before(&mut self, ino: Ino, at: Tick) {
        let Some(debt) = self.files.get_mut(&ino) else { return };
        if !std::mem::take(&mut debt.young) {
            self.queue.remove(&(debt.next_pass, ino));
        }
        self.queue.insert((at, ino));
        debt.next_pass = at;
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

    /// All debts may be paid now.
    pub fn hasten(&mut self, now: Tick) {
        let young = self.young.iter().filter(|debt| self.is_young(debt));
        let later = self.queue.range((now, Ino(u64::MAX))..).chain(young);
        let inos: Vec<Ino> = later.map(|(_, ino)| *ino).collect();
        inos.into_iter().for_each(|ino| self.not_before(ino, now));
    }

    /// When the name operations that are owed may be done: with the first file, whose directory
    /// they may make.
    pub fn names_due(&self, now: Tick) -> Tick {
        let due = self.patience(self.names_since.unwrap_or(now));
        self.first_due().map_or(due, |first| first.min(due))
    }

    /// When the first file's debt may be paid.
    pub fn first_due(&self) -> Option<Tick> {
        let young = self.young.front().map(|(since, _)| self.patience(*since));
        self.queue.first().map(|(at, _)| *at).into_iter().chain(young).min()
    }

    /// Of one file.
    pub fn get(&self, ino: Ino) -> Option<&Debt> {
        self.files.get(&ino)
    }

    /// Of one file.
    pub fn get_mut(&mut self, ino: Ino) -> Option<&mut Debt> {
        self.files.get_mut(&ino)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (Ino, &Debt)> {
        self.files.iter().map(|(ino, debt)| (*ino, debt))
    }

    /// Nothing is owed of this file any more.
    pub fn paid(&mut self, ino: Ino) -> Option<Debt> {
        let debt = self.files.remove(&ino)?;
        if !debt.young {
            self.queue.remove(&(debt.next_pass, ino));
        }
        self.forget_old();
        Some(debt)
    }

    /// Whether nothing is owed of any file.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// When a file's debt may be paid.
    pub fn due(&self, ino: Ino) -> Option<Tick> {
        self.files.get(&ino).map(|debt| debt.next_pass)
    }

    /// Whether chunks of this file may be moved or evicted.
    pub fn may_move(&self, ino: Ino) -> bool {
        self.files.get(&ino).is_none_or(|debt| !debt.draining)
    }

    /// The debt that may be paid now; without one, `wake` becomes no later than when there is.
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

    /// Something went wrong with a file: it is tried again after a pause that grows.
    pub fn failed(&mut self, ino: Ino, why: String, now: Tick) {
        if let Some(debt) = self.files.get_mut(&ino) {
            let next = now + debt.pause;
            debt.pause = (debt.pause * 2).min(PAUSE.1);
            debt.failure = Some(why);
            self.not_before(ino, next);
        }
    }

    /// There is so much to bring of a file that it need not wait for its turn.
    pub fn hurry(&mut self, ino: Ino, now: Tick) {
        if self.files.get(&ino).is_some_and(|debt| debt.failure.is_none() && !debt.draining) {
            self.not_before(ino, now);
        }
    }

    /// The same for one that was not looked at yet.
    pub fn hurry_new(&mut self, ino: Ino, now: Tick) {
        if self.files.get(&ino).is_some_and(|debt| debt.young) {
            self.hurry(ino, now);
        }
    }

    /// A copy of a file went well.
    pub fn progressed(&mut self, ino: Ino) {
        if let Some(debt) = self.files.get_mut(&ino) {
            debt.failure = None;
            debt.pause = PAUSE.0;
        }
    }

    /// A name operation failed. Gives when it may be tried again.
    pub fn names_failed(&mut self, why: String, now: Tick) -> Tick {
        let pause = self.names_failure.as_ref().map_or(PAUSE.0, |(.., p)| (*p * 2).min(PAUSE.1));
        let until = now + pause;
        self.names_failure = Some((why, until, pause));
        until
    }

    /// Whether it is not known what became of some versions.
    pub fn are_unsure(&mut self, unsure: bool, now: Tick) {
        let pause = self.unsure.map_or(PAUSE.0, |(_, pause)| (pause * 2).min(PAUSE.1));
        self.unsure = unsure.then(|| (now + pause, pause));
    }

    /// When that is looked at again.
    pub fn unsure_until(&self) -> Option<Tick> {
        self.unsure.map(|(until, _)| until)
    }

    /// Somebody else's version of a file was kept.
    pub fn conflict(&mut self, what: String) {
        self.recent.push_back(what.chars().take(SHOWN_CHARACTERS).collect());
        if self.recent.len() > SHOWN_MAX {
            self.recent.pop_front();
        }
    }

    /// Everything for display but bytes and names owed.
    pub fn status(&self, now: Tick) -> Drain {
        let mut drain = self.shown.clone();
        drain.owed_files = self.files.len() as u64;
        let ages = self.files.values().map(|debt| debt.since).chain(self.names_since);
        drain.oldest_ms = ages.min().map_or(0, |since| now.since(since).as_millis() as u64);
        let failures = self.files.values().filter_map(|debt| debt.failure.clone());
        let names = self.names_failure.iter().map(|(why, ..)| why.clone());
        let short = |why: String| why.chars().take(SHOWN_CHARACTERS).collect();
        drain.failures = names.chain(failures).take(SHOWN_MAX).map(short).collect();
        drain.conflicts = self.recent.iter().cloned().collect();
        drain
    }
}
