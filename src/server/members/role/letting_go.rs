//! Names of others' files that their homes have let go for this server: by which of these times
//! names may be taken away here, and by which they have been.
//!
//! Invariants: a time is used once, and not after its home was told that it was not; that it was
//! used is written down with what it was used for, until the home knows. Not here: what homes
//! are asked for (`naming/letting_go`), and what is said of it (`sharing/letting_go`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use terral_format::disk::membership::Membership;
use terral_format::ids::{Asker, Member, Wish};

use super::Members;
use crate::core::world::Tick;

/// A request that takes longer has to ask its homes again.
const LONG: Duration = Duration::from_secs(10);

/// All of it. The home of a file, and which of its times.
#[derive(Default)]
pub(super) struct LettingGo {
    /// What the present request goes by, if it comes to be.
    uses: BTreeSet<(Member, u64)>,
    /// Those by which requests go that are not through: which has asked so, and since when.
    held: BTreeMap<(Member, u64), (Wish, Tick)>,
    /// The last time of each home by which nothing goes any more, nor by those before, but for what
    /// is held.
    asked: BTreeMap<Member, u64>,
    /// What has gone, of which homes may not know.
    gone: BTreeSet<(Member, u64)>,
    /// Which request has asked about its names once more.
    again: Option<Asker>,
}

impl LettingGo {
    pub(super) fn apply(&mut self, record: &Membership) {
        match record {
            Membership::Gone { home, which, is: true } => _ = self.gone.insert((*home, *which)),
            Membership::Gone { home, which, is: false } => _ = self.gone.remove(&(*home, *which)),
            Membership::Asked { home, which } => {
                let asked = self.asked.entry(*home).or_default();
                *asked = (*asked).max(*which);
            }
            _ => {}
        }
    }

    /// For a snapshot.
    pub(super) fn snapshot(&self) -> impl Iterator<Item = Membership> + '_ {
        let asked = self.asked.iter();
        let asked = asked.map(|(home, which)| Membership::Asked { home: *home, which: *which });
        let gone = self.gone.iter();
        asked.chain(gone.map(|(home, which)| Membership::Gone {
            home: *home,
            which: *which,
            is: true,
        }))
    }

    /// Another request is carried out.
    pub(super) fn begins(&mut self) {
        self.uses.clear();
    }
}

impl Members {
    /// The present request is to take a name away by this time of a home, once it comes to be: it
    /// has asked for that by this wish. Whether it may.
    pub fn uses(&mut self, time: (Member, u64), by: (Wish, Tick)) -> bool {
        let of = &mut self.letting_go;
        let is_old = of.asked.get(&time.0).is_some_and(|asked| time.1 <= *asked);
        let may = (!is_old || of.held.contains_key(&time)) && !of.gone.contains(&time);
        if may {
            of.uses.insert(time);
            of.held.entry(time).or_insert(by);
        }
        may
    }

    /// It comes to be: what it goes by.
    pub fn take_uses(&mut self) -> BTreeSet<(Member, u64)> {
        let uses = std::mem::take(&mut self.letting_go.uses);
        self.letting_go.held.retain(|time, _| !uses.contains(time));
        uses
    }

    /// Whether names have gone of which homes may not know.
    pub fn has_gone(&self) -> bool {
        !self.letting_go.gone.is_empty()
    }

    /// All of them.
    pub fn gone(&self) -> impl Iterator<Item = (Member, u64)> + '_ {
        self.letting_go.gone.iter().copied()
    }

    /// A home asks what has come of these times: those that have been used, and those that have
    /// not. Of those that a request goes by just now nothing is known yet.
    pub fn is_asked_of(&mut self, home: Member, which: &[u64], now: Tick) -> [Vec<u64>; 2] {
        let (wishes, of) = (&self.wishes, &mut self.letting_go);
        of.held.retain(|_, (wish, since)| wishes.contains_key(wish) && now.since(*since) < LONG);
        let known = which.iter().copied().filter(|which| !of.held.contains_key(&(home, *which)));
        let (gone, stayed) = known.partition(|which| of.gone.contains(&(home, *which)));
        [gone, stayed]
    }

    /// Whether names went by this time of a home until now, or by later ones.
    pub fn is_new_of(&self, home: Member, which: u64) -> bool {
        self.letting_go.asked.get(&home).is_none_or(|asked| which > *asked)
    }

    /// Whether this has gone, and its home may not know of it.
    pub fn is_gone(&self, time: (Member, u64)) -> bool {
        self.letting_go.gone.contains(&time)
    }

    /// Whether a request is to ask homes once more about names: it does so once.
    pub fn asks_again(&mut self, asker: Asker) -> bool {
        self.letting_go.again.replace(asker) != Some(asker)
    }
}
