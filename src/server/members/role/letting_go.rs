//! Names of others' files that their homes have let go for this server: by which of these times
//! names may be taken away here, and by which they have been.
//!
//! Invariants: a time is used once, and not after its home has asked what has come of it; that it
//! was used is written down with what it was used for, until the home knows. Not here: what homes
//! are asked for (`naming/letting_go`), and what is said of it (`sharing/letting_go`).

use std::collections::{BTreeMap, BTreeSet};

use terral_format::disk::membership::Membership;
use terral_format::ids::{Asker, Member};

use super::Members;

/// All of it. The home of a file, and which of its times.
#[derive(Default)]
pub(super) struct LettingGo {
    /// What the present request goes by, if it comes to be.
    uses: BTreeSet<(Member, u64)>,
    /// The last time of each home of which it has asked what has come of it.
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
            _ => {}
        }
    }

    /// For a snapshot.
    pub(super) fn snapshot(&self) -> impl Iterator<Item = Membership> + '_ {
        let gone = self.gone.iter();
        gone.map(|(home, which)| Membership::Gone { home: *home, which: *which, is: true })
    }

    /// Another request is carried out.
    pub(super) fn begins(&mut self) {
        self.uses.clear();
    }
}

impl Members {
    /// The present request is to take a name away by this time, once it comes to be. Whether it
    /// may.
    pub fn uses(&mut self, home: Member, which: u64) -> bool {
        let of = &mut self.letting_go;
        let is_old = of.asked.get(&home).is_some_and(|asked| which <= *asked);
        let may = !is_old && !of.gone.contains(&(home, which));
        if may {
            of.uses.insert((home, which));
        }
        may
    }

    /// It comes to be: what it goes by.
    pub fn take_uses(&mut self) -> BTreeSet<(Member, u64)> {
        std::mem::take(&mut self.letting_go.uses)
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
    /// not, and are not from now on.
    pub fn is_asked_of(&mut self, home: Member, which: &[u64]) -> (Vec<u64>, Vec<u64>) {
        let of = &mut self.letting_go;
        let asked = of.asked.entry(home).or_default();
        *asked = which.iter().copied().fold(*asked, u64::max);
        which.iter().partition(|which| of.gone.contains(&(home, **which)))
    }

    /// Whether a request is to ask homes once more about names: it does so once.
    pub fn asks_again(&mut self, asker: Asker) -> bool {
        self.letting_go.again.replace(asker) != Some(asker)
    }
}
