//! Chunks that were born here, and that other members are to have: to whom each was offered, by
//! which stamp, and what it was then. An offer of a process that is no more counts nothing. Not
//! here: what is offered (`offers`, `stripes`).

use std::collections::BTreeMap;
use std::time::Duration;

use terral_format::ids::{Ino, Member};
use terral_format::local::entry::MapEntry;

use crate::core::world::Tick;

/// So long a chunk may take to where it is to be.
const TAKES: Duration = Duration::from_secs(5);
/// And who maps one to say that he has it: he may be gone.
const MAPS: Duration = Duration::from_secs(60);

/// A chunk that was offered.
pub(super) struct Offer {
    pub(super) to: Member,
    /// Who has it until then.
    pub(super) from: Member,
    pub(super) stamp: u64,
    /// What the offer has left in the map.
    pub(super) entry: MapEntry,
    /// When.
    pub(super) since: Tick,
    /// To be kept there, and not to be mapped: so many bytes of it count.
    pub(super) takes: Option<u32>,
}

/// See the module.
#[derive(Default)]
pub struct Offers(BTreeMap<(Ino, u64), Offer>);

impl Offers {
    /// How many chunks are on their way to where they are to be.
    pub(super) fn taken(&self) -> usize {
        self.0.values().filter(|offer| offer.takes.is_some()).count()
    }

    pub(super) fn has(&self, ino: Ino, index: u64) -> bool {
        self.0.contains_key(&(ino, index))
    }

    pub(super) fn begin(&mut self, which: (Ino, u64), offer: Offer) {
        self.0.insert(which, offer);
    }

    /// A chunk has come where it is to be, by this stamp, or does not. Gives its offer, if that is
    /// so.
    pub(super) fn end(&mut self, which: (Ino, u64), of: (Member, u64)) -> Option<Offer> {
        let is_it = |it: &Offer| (it.to, it.stamp) == of && it.takes.is_some();
        self.0.get(&which).filter(|offer| is_it(offer))?;
        self.0.remove(&which)
    }

    /// What a member was to have of a chunk, it has no more.
    pub(super) fn forget_of(&mut self, which: (Ino, u64), to: Member) {
        if self.0.get(&which).is_some_and(|offer| offer.to == to) {
            self.0.remove(&which);
        }
    }

    /// How many of these are a member's until then.
    pub(super) fn taken_from(&self, from: Member) -> usize {
        self.0.values().filter(|offer| offer.takes.is_some() && offer.from == from).count()
    }

    /// What a chunk that is to be taken from here by this stamp was when it was offered.
    pub(super) fn taken_by(&self, ino: Ino, index: u64, stamp: u64) -> Option<MapEntry> {
        let offer = self.0.get(&(ino, index))?;
        (offer.takes.is_some() && offer.stamp == stamp).then_some(offer.entry)
    }

    /// What has taken too long does not count any more. Gives those of it that were to be taken.
    pub(super) fn expire(&mut self, now: Tick) -> Vec<((Ino, u64), Offer)> {
        let bound = |offer: &Offer| if offer.takes.is_some() { TAKES } else { MAPS };
        let old = self.0.extract_if(.., |_, offer| now.since(offer.since) >= bound(offer));
        old.filter(|(_, offer)| offer.takes.is_some()).collect()
    }

    /// What a member was to take, or to have taken from it, does not count any more.
    pub(super) fn forget_taken(&mut self, by: Member) {
        self.0.retain(|_, it| it.takes.is_none() || (it.to != by && it.from != by));
    }

    /// A member has all that was offered to it, to be mapped there, by this stamp. Gives the offer,
    /// if that is so; it counts nothing any more.
    pub(super) fn accepted(&mut self, which: (Ino, u64), of: (Member, u64)) -> Option<Offer> {
        let offer = self.0.remove(&which)?;
        ((offer.to, offer.stamp) == of && offer.takes.is_none()).then_some(offer)
    }

    /// Those of these chunks count nothing any more.
    pub fn forget(&mut self, ino: Ino, (first, count): (u64, u32)) {
        let chunks = first..first.saturating_add(u64::from(count));
        self.0.retain(|(of, index), _| *of != ino || !chunks.contains(index));
    }

    /// So it is with all of a file.
    pub fn forget_all(&mut self, ino: Ino) {
        self.0.retain(|(of, _), _| *of != ino);
    }
}
