//! Which files that were born here are striped, and over which members; of which chunks of them
//! something is under way, as far as this process knows. Not here: what is done then (`stripes`).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::time::Duration;

use terral_format::disk::membership::Membership;
use terral_format::ids::{Ino, Member};
use terral_format::wire::placement::Stripe;

use crate::core::world::Tick;

/// For so long nothing is tried that could not be done.
const CALM: Duration = Duration::from_secs(5);
/// Who has taken nothing for longer than that does not pause: it cannot.
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(20);
/// So often it is twice as long.
const SLOWER_MAX: u32 = 4;

/// See the module.
#[derive(Default)]
pub struct Stripes {
    files: BTreeMap<Ino, Stripe>,
    /// Those of which something may not be where it is to be.
    pub(super) unsettled: BTreeSet<Ino>,
    /// Chunks that a member has for itself, and wants to be rid of.
    pub(super) returned: BTreeMap<(Ino, u64), Member>,
    /// Members that are about to leave.
    pub(super) leaving: BTreeSet<Member>,
    /// Members that cannot take anything until then, and since when they have taken nothing.
    full: BTreeMap<Member, (Tick, Tick)>,
    /// Members from which what was to be taken was not, so often one after the other: until then
    /// nothing is.
    slow: BTreeMap<Member, (Tick, u32)>,
    /// The file that was looked at last: the next one is first.
    looked: Ino,
    /// They are to be looked at.
    pub(super) looks: bool,
    /// Somebody waits for memory.
    pub(super) pressed: bool,
    /// What was needed here goes once it was not for a moment.
    pub(super) calms: bool,
}

impl Stripes {
    pub(super) fn apply(&mut self, member: &Membership) {
        match member {
            Membership::Striped { ino, stripe: Some(stripe) } => {
                self.files.insert(*ino, stripe.clone());
                self.is_unsettled(*ino);
            }
            Membership::Striped { ino, stripe: None } => self.forget(*ino),
            _ => {}
        }
    }

    pub(super) fn snapshot(&self) -> impl Iterator<Item = Membership> + '_ {
        let files = self.files.iter();
        files.map(|(ino, stripe)| Membership::Striped { ino: *ino, stripe: Some(stripe.clone()) })
    }

    fn forget(&mut self, ino: Ino) {
        self.files.remove(&ino);
        self.unsettled.remove(&ino);
        self.returned.retain(|(of, _), _| *of != ino);
    }

    /// How a file's parts lie, if over several.
    pub fn of(&self, ino: Ino) -> Option<&Stripe> {
        self.files.get(&ino)
    }

    /// Where a chunk is to be, and where, one after the other, if that cannot be.
    pub(super) fn holders(&self, ino: Ino, index: u64) -> impl Iterator<Item = Member> + '_ {
        self.files.get(&ino).into_iter().flat_map(move |stripe| stripe.holders(index))
    }

    /// Those that are to be looked at, round, from after the last on that was.
    pub(super) fn to_look_at(&self) -> Vec<Ino> {
        let after = self.unsettled.range((Excluded(self.looked), Unbounded));
        after.chain(self.unsettled.range(..=self.looked)).copied().collect()
    }

    /// A file is looked at now.
    pub(super) fn is_looked_at(&mut self, ino: Ino) {
        self.looked = ino;
    }

    /// What members want to be rid of, which is not to go anywhere but home.
    pub(super) fn take_returned(&mut self) -> BTreeMap<(Ino, u64), Member> {
        std::mem::take(&mut self.returned)
    }

    /// A member cannot take anything: it is not asked for a while.
    pub(super) fn is_full(&mut self, member: Member, now: Tick) {
        let (until, _) = self.full.entry(member).or_insert((now, now));
        *until = now + CALM;
    }

    /// Whether there is one that could not just now, and may be able to before long.
    pub(super) fn pauses(&self, now: Tick) -> bool {
        self.full.values().any(|(_, since)| now.since(*since) < PAUSE_MAX)
    }

    /// From a member nothing has come where it was to be: it is left alone for a while, for longer
    /// if it was so before.
    pub(super) fn is_slow(&mut self, member: Member, now: Tick) {
        let (until, times) = self.slow.entry(member).or_default();
        // Of all that were to come at the same time once.
        if *until <= now {
            *until = now + CALM * (1 << (*times).min(SLOWER_MAX));
            *times += 1;
        }
    }

    /// Something has come from one to another.
    pub(super) fn is_quick(&mut self, (from, to): (Member, Member)) {
        self.slow.remove(&from);
        self.full.remove(&to);
    }

    /// Whether something may go from one member to another now, as far as is known.
    pub(super) fn may_go(&self, (from, to): (Member, Member), now: Tick) -> bool {
        let is_full = self.full.get(&to).is_some_and(|(until, _)| *until > now);
        let is_slow = self.slow.get(&from).is_some_and(|(until, _)| *until > now);
        !is_full && !is_slow
    }

    /// A member is none any more: what it has does not come, and it takes nothing.
    pub(super) fn removed(&mut self, member: Member) {
        self.returned.retain(|_, with| *with != member);
        self.leaving.remove(&member);
        self.full.remove(&member);
        self.slow.remove(&member);
        self.looks = true;
    }

    /// A member has a chunk for itself from now on: it has not spoken of that yet.
    pub(super) fn is_lent(&mut self, ino: Ino, index: u64) {
        self.returned.remove(&(ino, index));
    }

    /// Something of a file may not be where it is to be.
    pub fn is_unsettled(&mut self, ino: Ino) {
        if self.files.contains_key(&ino) {
            self.unsettled.insert(ino);
            self.looks = true;
        }
    }
}
