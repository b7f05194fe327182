//! What requests need, and how far that is.

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use std::ops::RangeInclusive;

use rustc_hash::FxHasher;
use terral_format::ids::{Asker, Operation, SessionSlot, Thing, Wish};
use terral_format::wire::body::Body;
use terral_format::wire::peers::{Answer, Work};
use terral_format::{Result, frame};
use terral_partition::effect::Effect;

use super::{Members, NOBODY, Part, Stage, Wished};

/// Bits of a wish that say for which session, and for which of its request slots, it is.
const SESSION_BITS: u32 = 16;
const SLOT_BITS: u32 = 8;
/// The others tell the wishes of one request apart.
const REST_BITS: u32 = 64 - SESSION_BITS - SLOT_BITS;

/// For whom something is looked at that nobody has asked for yet.
pub(in crate::members) const AHEAD: Asker = Asker { session: NOBODY, index: u8::MAX, sequence: 0 };

/// The wish of a request: the same whenever it is carried out.
pub(in crate::members) fn wish_of(asker: Asker, thing: Thing, work: &Work) -> Result<Wish> {
    let mut hasher = FxHasher::default();
    asker.sequence.hash(&mut hasher);
    frame::encode(&(thing, work))?.hash(&mut hasher);
    let slot = u64::from(asker.session.0) << SLOT_BITS | u64::from(asker.index);
    Ok(Wish(slot << REST_BITS | hasher.finish() >> (64 - REST_BITS)))
}

/// All wishes of a session's requests, or of those in one of its slots: of each there is one.
pub(in crate::members) fn wishes_of(
    session: SessionSlot,
    index: Option<u8>,
) -> RangeInclusive<Wish> {
    let slots = index.map_or((0, u8::MAX), |index| (index, index));
    let slot = |index| u64::from(session.0) << SLOT_BITS | u64::from(index);
    let (first, last) = (slot(slots.0), slot(slots.1));
    Wish(first << REST_BITS)..=Wish(last << REST_BITS | ((1 << REST_BITS) - 1))
}

/// Whether no request waits for this, nor will.
pub(super) fn is_ahead(wish: Wish) -> bool {
    wishes_of(AHEAD.session, Some(AHEAD.index)).contains(&wish)
}

impl Members {
    /// The wishes among these of which the protocol knows, or a request waits for them.
    pub(in crate::members) fn wanted(&self, among: RangeInclusive<Wish>) -> Vec<Wish> {
        let durable = match &self.part {
            Part::Runs(machine) => machine.durable(),
            Part::Replayed(durable) => durable,
        };
        let here = self.wishes.range(among.clone()).map(|(wish, _)| *wish);
        here.chain(durable.wishes(among)).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// What is wished, as the protocol knows it.
    pub fn work_of(&self, wish: Wish) -> Option<(Thing, Work)> {
        match &self.part {
            Part::Runs(machine) => machine.durable().work_of(wish),
            Part::Replayed(durable) => durable.work_of(wish),
        }
    }

    /// Of those for whom something is needed as another member wants something done, by which
    /// operation that is: those whose operations are over.
    pub fn unwanted(&self, by: impl Fn(Asker) -> Option<Operation>) -> BTreeSet<Asker> {
        let Part::Runs(machine) = &self.part else { return BTreeSet::new() };
        let is_kept = |of: Operation| self.kept.iter().any(|kept| kept.operation == of);
        let is_over = |of: Operation| !machine.is_wanted(of) && !is_kept(of);
        self.askers(|asker| by(asker).is_some_and(is_over))
    }

    /// Those of this kind for whom something is needed.
    pub fn askers(&self, are: impl Fn(Asker) -> bool) -> BTreeSet<Asker> {
        let askers = self.wishes.values().map(|wished| wished.asker);
        askers.filter(|asker| are(*asker)).collect()
    }

    /// What a request has taken by this, or will have, if nothing is done elsewhere.
    pub(in crate::members) fn taken(&self, wish: Wish) -> Option<Thing> {
        let (thing, work) = self.work_of(wish)?;
        let is_ready = |wished: &Wished| wished.look.is_none() && wished.stage == Stage::Ready;
        let is_taken = work == Work::Take || self.wishes.get(&wish).is_some_and(is_ready);
        is_taken.then_some(thing)
    }

    /// Whether a thing that is here to be changed stays until this request has run.
    pub(in crate::members) fn stays_for(&self, asker: Asker, thing: Thing) -> bool {
        let is_it = |wished: &Wished| (wished.asker, wished.thing) == (asker, thing);
        self.wishes.values().any(|wished| is_it(wished) && wished.stage == Stage::Ready)
    }

    /// Whether a request waits to change a thing.
    pub(in crate::members) fn waits_for(&self, asker: Asker, thing: Thing) -> bool {
        let is_it = |wished: &Wished| (wished.asker, wished.thing) == (asker, thing);
        let changes = |wished: &Wished| wished.look.is_none() && wished.stage == Stage::Waits;
        self.wishes.values().any(|wished| is_it(wished) && changes(wished))
    }

    /// Whether a request has heard what came of its wish for a thing.
    pub(in crate::members) fn was_answered(&self, asker: Asker, thing: Thing) -> bool {
        let is_it = |wished: &Wished| (wished.asker, wished.thing) == (asker, thing);
        let is_over = |wished: &Wished| matches!(wished.stage, Stage::Over(_));
        self.wishes.values().any(|wished| is_it(wished) && is_over(wished))
    }

    /// Whether the last of what is to be done is that this request goes on, with what is in the
    /// tables; then it does. Nobody is woken: it would be itself, and for ever if it lets that go
    /// again, as it waits for something else.
    pub(in crate::members) fn may_go(&mut self, (wish, thing): (Wish, Thing)) -> bool {
        let last = self.effects.back() == Some(&Effect::Go(wish));
        let goes = last && !self.is_arriving(thing);
        if goes {
            self.effects.pop_back();
            self.wishes.get_mut(&wish).into_iter().for_each(|its| its.stage = Stage::Ready);
        }
        goes
    }

    /// Whether a request waits for it, or has not had its answer yet.
    pub fn is_wished(&self, wish: Wish) -> bool {
        self.wishes.contains_key(&wish)
    }

    /// The same, or one that a server before this one was asked will be asked again.
    pub fn may_be_wished(&self, wish: Wish) -> bool {
        self.is_wished(wish) || self.left.contains(&wish)
    }

    /// Whether a server before this one was asked for it, and this one not yet.
    pub(in crate::members) fn was_wished_before(&self, wish: Wish) -> bool {
        !self.is_wished(wish) && self.left.contains(&wish)
    }

    /// No request waits for it any more.
    pub(in crate::members) fn forgets(&mut self, wish: Wish) {
        self.wishes.remove(&wish);
        self.left.remove(&wish);
    }

    /// What a request wants something of.
    pub fn wished(&self, wish: Wish) -> Option<Thing> {
        self.wishes.get(&wish).map(|wished| wished.thing)
    }

    /// How a request looks at what, if it does.
    pub fn look_of(&self, wish: Wish) -> Option<(Thing, Body)> {
        let wished = self.wishes.get(&wish)?;
        Some((wished.thing, wished.look.clone()?))
    }

    /// What a request needs is there.
    pub fn is_ready(&mut self, wish: Wish) {
        self.reaches(wish, Stage::Ready);
    }

    /// What a request wants was done elsewhere, or cannot be.
    pub fn is_over(&mut self, wish: Wish, answer: Answer) {
        self.reaches(wish, Stage::Over(answer));
    }

    /// What a request looks at does not say what it wants to know.
    pub fn misses(&mut self, wish: Wish) {
        self.reaches(wish, Stage::Missed);
    }

    fn reaches(&mut self, wish: Wish, stage: Stage) {
        if let Some(wished) = self.wishes.get_mut(&wish) {
            wished.stage = stage;
            self.go_on();
        }
    }

    /// What it looks at, or opens, is gone where it was born.
    pub fn meets_gone(&mut self) {
        self.gone = true;
    }

    /// Whether that is so. Said once.
    pub fn take_gone(&mut self) -> bool {
        std::mem::take(&mut self.gone)
    }
}
