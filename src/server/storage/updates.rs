//! Update ids of files: what was told as one, how the file was then, and which requests have
//! written as long as it was so.
//!
//! Invariant: an id only grows, and is in the log before anybody is told. Another process of the
//! server knows no more how a file was: then it counts as changed. Not here: how it is seen that
//! nobody has changed a file (`updating`).

use std::collections::{BTreeMap, HashMap};

use terral_format::disk::local::Local;
use terral_format::ids::Ino;
use terral_format::local::entry::MapEntry;
use terral_format::local::size::SizeWord;
use terral_format::wire::updates::{Attempt, Slot};

/// So many requests are remembered: the latest of each place for one, also of other machines, of
/// whose processes nobody says here that they are no more.
const REMEMBERED: usize = 1 << 16;

/// How a file was while nobody could change it without asking: its size's word, and the entries of
/// all its chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub size: SizeWord,
    pub entries: Vec<(u64, MapEntry)>,
}

#[derive(Default)]
struct Known {
    id: u64,
    seen: Option<Seen>,
}

/// What was recorded and may not be in memory.
#[derive(Clone)]
pub struct Unwritten {
    /// The update id from then on.
    pub id: u64,
    attempt: Attempt,
    /// See [`Local::Update`].
    pub records: Vec<u8>,
}

/// See the module.
#[derive(Default)]
pub struct Updates {
    known: HashMap<Ino, Known>,
    /// The latest of each place: which it is, and to which id it led.
    attempts: BTreeMap<Slot, (u64, u64)>,
    unwritten: BTreeMap<Ino, Unwritten>,
}

impl Updates {
    /// A record, new or replayed.
    pub fn apply(&mut self, local: &Local) {
        match local {
            Local::Updated { ino, id } => self.is_now(*ino, *id),
            Local::Update { ino, id, attempt, records } => {
                self.is_now(*ino, *id);
                self.remember(*attempt, *id);
                let (id, attempt, records) = (*id, *attempt, records.clone());
                self.unwritten.insert(*ino, Unwritten { id, attempt, records });
            }
            Local::Attempted { attempt, id } => self.remember(*attempt, *id),
            // Its bytes were all there before.
            Local::Detached { ino } | Local::Packed { ino, .. } => {
                self.unwritten.remove(ino);
                self.has_changed(*ino);
            }
            _ => {}
        }
    }

    fn is_now(&mut self, ino: Ino, id: u64) {
        let known = self.known.entry(ino).or_default();
        *known = Known { id: known.id.max(id), seen: None };
    }

    fn remember(&mut self, attempt: Attempt, id: u64) {
        self.attempts.insert(attempt.of, (attempt.call, id));
        if self.attempts.len() > REMEMBERED {
            let mut ids: Vec<u64> = self.attempts.values().map(|(_, id)| *id).collect();
            let middle = ids.len() / 2;
            let (_, least, _) = ids.select_nth_unstable(middle);
            let least = *least;
            self.attempts.retain(|_, (_, id)| *id >= least);
        }
    }

    /// The file is no more.
    pub fn forget(&mut self, ino: Ino) {
        self.known.remove(&ino);
        self.unwritten.remove(&ino);
    }

    /// Records from which all comes back.
    pub fn snapshot(&self) -> impl Iterator<Item = Local> {
        let known =
            self.known.iter().map(|(ino, known)| Local::Updated { ino: *ino, id: known.id });
        let attempted = |(of, (call, id)): (&Slot, &(u64, u64))| {
            let attempt = Attempt { of: *of, call: *call };
            Local::Attempted { attempt, id: *id }
        };
        let unwritten = |(ino, one): (&Ino, &Unwritten)| {
            let Unwritten { id, attempt, records } = one.clone();
            Local::Update { ino: *ino, id, attempt, records }
        };
        let attempted = self.attempts.iter().map(attempted);
        known.chain(attempted).chain(self.unwritten.iter().map(unwritten))
    }

    /// The id to which a request has led.
    pub fn led_to(&self, attempt: Attempt) -> Option<u64> {
        let known = self.attempts.get(&attempt.of);
        known.filter(|(call, _)| *call == attempt.call).map(|(_, id)| *id)
    }

    /// The id of a file that is still as it was seen.
    pub fn still(&self, ino: Ino, now: &Seen) -> Option<u64> {
        let known = self.known.get(&ino)?;
        (known.seen.as_ref() == Some(now)).then_some(known.id)
    }

    /// An id that is greater than all of this file before: by the time, if that is greater, so that
    /// it is also for one of the same address in a later run.
    pub fn next(&self, ino: Ino, time_ns: u64) -> u64 {
        (self.known.get(&ino).map_or(0, |known| known.id) + 1).max(time_ns)
    }

    /// So it was when it had the id that was recorded last.
    pub fn was_seen(&mut self, ino: Ino, seen: Seen) {
        if let Some(known) = self.known.get_mut(&ino) {
            known.seen = Some(seen);
        }
    }

    /// It has another id from now on, if it had one.
    pub fn has_changed(&mut self, ino: Ino) {
        if let Some(known) = self.known.get_mut(&ino) {
            known.seen = None;
        }
    }

    /// What was recorded last of a file is in memory.
    pub fn is_written(&mut self, ino: Ino) {
        self.unwritten.remove(&ino);
    }

    /// What was recorded and may not be in memory.
    pub fn take_unwritten(&mut self) -> BTreeMap<Ino, Unwritten> {
        std::mem::take(&mut self.unwritten)
    }
}

#[cfg(test)]
mod tests {
    use terral_format::disk::local::Local;
    use terral_format::ids::{Ino, Member, SessionSlot};
    use terral_format::wire::updates::{Attempt, Slot};

    use super::Updates;

    const FILE: Ino = Ino(7);

    fn attempt(index: u8, call: u64) -> Attempt {
        let (by, session) = (Member::LEAST, SessionSlot(3));
        Attempt { of: Slot { by, session, pid: 1, started_ticks: 2, index }, call }
    }

    fn update(attempt: Attempt, id: u64) -> Local {
        Local::Update { ino: FILE, id, attempt, records: vec![1] }
    }

    #[test]
    fn who_asks_again_is_told_the_same_and_another_program_in_his_place_is_not() {
        let mut updates = Updates::default();
        updates.apply(&update(attempt(0, 5), 10));
        updates.apply(&update(attempt(1, 5), 11));
        let mut again = Updates::default();
        updates.snapshot().for_each(|local| again.apply(&local));
        for known in [&updates, &again] {
            assert_eq!(known.led_to(attempt(0, 5)), Some(10));
            assert_eq!(known.led_to(attempt(1, 5)), Some(11));
            assert_eq!(known.led_to(attempt(0, 6)), None, "another program, or another call");
            assert_eq!(known.next(FILE, 3), 12);
        }
        assert_eq!(again.take_unwritten().remove(&FILE).map(|one| one.id), Some(11));
        updates.is_written(FILE);
        assert!(updates.take_unwritten().is_empty());
    }
}
