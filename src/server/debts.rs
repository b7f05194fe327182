//! What the backing is owed: which files, since when, and what was copied so far. Not logged: after
//! a restart it follows from the inodes and the page states.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use terral_format::Result;
use terral_format::ids::{Ino, InstanceId};
use terral_format::message::Drain;
use terral_store::backing::{Backing, Staged};

/// First and longest pause after a failure.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));
/// Failures kept for display.
const SHOWN_MAX: usize = 16;
/// Characters of one that are shown: all of them must fit a reply.
const SHOWN_CHARACTERS: usize = 300;

/// A new version of a file on its way: the temporary file, and checksum and length of each chunk
/// that was copied into it.
pub struct Version {
    /// The temporary file.
    pub staged: Box<dyn Staged>,
    /// Chunk index → checksum, bytes.
    pub sums: BTreeMap<u64, (u64, u64)>,
    /// It has not yet had every chunk once: the next pass copies all of them, and nothing of the
    /// file may leave memory before.
    pub incomplete: bool,
}

/// A version that the drain and readers of evicted bytes share.
pub type SharedVersion = Arc<Mutex<Version>>;

impl Version {
    /// The version `instance` has staged, or a new one.
    pub fn open(backing: &dyn Backing, ino: Ino, instance: InstanceId) -> Result<(Self, bool)> {
        let staged = backing.stage(ino, instance)?;
        let resumed = staged.resumed_bytes().is_some();
        Ok((Version { staged, sums: BTreeMap::new(), incomplete: true }, resumed))
    }
}

/// What the backing is owed of one file.
pub struct Debt {
    /// Since when.
    pub since: Instant,
    /// Not before then.
    pub next_pass: Instant,
    /// The drain is at it; chunks must not be evicted, compacted or moved for convenience.
    pub draining: bool,
    /// The new version, once begun.
    pub version: Option<SharedVersion>,
    /// What went wrong last.
    pub failure: Option<String>,
    /// How long the next pause after a failure is.
    pause: Duration,
    /// Somebody else changed the backing's copy: ours goes there whole, theirs is kept.
    pub whole: bool,
}

/// All debts.
#[derive(Default)]
pub struct Debts {
    files: HashMap<Ino, Debt>,
    /// Due ones, oldest first, as of the last look at all of them.
    queue: VecDeque<Ino>,
    /// Sums for display.
    pub shown: Drain,
    /// Something was brought to the backing that it has not yet said is safe.
    pub unsynced: bool,
    /// Somebody waits for it to say so.
    pub sync_wanted: bool,
    /// Why name operations stand still, and until when.
    pub names_failure: Option<(String, Instant, Duration)>,
    /// The name operations' debt is this old.
    pub names_since: Option<Instant>,
    /// It was said that the backing takes no extended attributes.
    pub no_xattrs: bool,
    recent: VecDeque<String>,
}

impl Debts {
    /// The backing is owed something of this file from now on, if it was not before. Gives the
    /// debt.
    pub fn owe(&mut self, ino: Ino) -> &mut Debt {
        let now = Instant::now();
        self.shown.settled = false;
        self.files.entry(ino).or_insert_with(|| Debt {
            since: now,
            next_pass: now,
            draining: false,
            version: None,
            failure: None,
            pause: PAUSE.0,
            whole: false,
        })
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
        self.files.remove(&ino)
    }

    /// Whether nothing is owed of any file.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Whether chunks of this file may be moved or evicted.
    pub fn may_move(&self, ino: Ino) -> bool {
        self.files.get(&ino).is_none_or(|debt| !debt.draining)
    }

    /// The oldest debt that may be paid now; without one, `wake` becomes no later than the next
    /// that will be. Looks at all debts only when those it found last time are through.
    pub fn next_due(&mut self, now: Instant, wake: &mut Option<Instant>) -> Option<Ino> {
        let due = |debt: &Debt| debt.next_pass <= now && !debt.draining;
        while let Some(ino) = self.queue.pop_front() {
            if self.files.get(&ino).is_some_and(due) {
                return Some(ino);
            }
        }
        let mut found: Vec<(Instant, Ino)> = Vec::new();
        for (ino, debt) in &self.files {
            if due(debt) {
                found.push((debt.since, *ino));
            } else {
                *wake = Some(wake.map_or(debt.next_pass, |wake| wake.min(debt.next_pass)));
            }
        }
        found.sort_unstable();
        self.queue = found.into_iter().map(|(_, ino)| ino).collect();
        self.queue.pop_front()
    }

    /// Something went wrong with a file: it is tried again after a pause that grows.
    pub fn failed(&mut self, ino: Ino, why: String) {
        if let Some(debt) = self.files.get_mut(&ino) {
            debt.next_pass = Instant::now() + debt.pause;
            debt.pause = (debt.pause * 2).min(PAUSE.1);
            debt.failure = Some(why);
        }
    }

    /// A file was closed for good (`closed`): it need not wait for its next turn.
    pub fn hurry(&mut self, ino: Ino, closed: bool) {
        if let Some(debt) = self.files.get_mut(&ino).filter(|debt| closed && debt.failure.is_none())
        {
            debt.next_pass = Instant::now();
        }
    }

    /// A copy of a file went well.
    pub fn progressed(&mut self, ino: Ino) {
        if let Some(debt) = self.files.get_mut(&ino) {
            debt.failure = None;
            debt.pause = PAUSE.0;
        }
    }

    /// A name operation failed.
    pub fn names_failed(&mut self, why: String) {
        let pause = self.names_failure.as_ref().map_or(PAUSE.0, |(.., p)| (*p * 2).min(PAUSE.1));
        self.names_failure = Some((why, Instant::now() + pause, pause));
    }

    /// Somebody else's version of a file was kept.
    pub fn conflict(&mut self, what: String) {
        self.recent.push_back(what.chars().take(SHOWN_CHARACTERS).collect());
        if self.recent.len() > SHOWN_MAX {
            self.recent.pop_front();
        }
    }

    /// Everything for display but bytes and names owed.
    pub fn status(&self) -> Drain {
        let mut drain = self.shown.clone();
        drain.owed_files = self.files.len() as u64;
        let ages = self.files.values().map(|debt| debt.since).chain(self.names_since);
        drain.oldest_ms = ages.min().map_or(0, |since| since.elapsed().as_millis() as u64);
        let failures = self.files.values().filter_map(|debt| debt.failure.clone());
        let names = self.names_failure.iter().map(|(why, ..)| why.clone());
        let short = |why: String| why.chars().take(SHOWN_CHARACTERS).collect();
        drain.failures = names.chain(failures).take(SHOWN_MAX).map(short).collect();
        drain.conflicts = self.recent.iter().cloned().collect();
        drain
    }
}
