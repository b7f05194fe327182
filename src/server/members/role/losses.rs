//! Who was removed, and directories that such members had, as they are put together anew.
//!
//! Not here: how that is done (`sharing/restoring`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use terral_format::disk::partition::{Standing, Verdict};
use terral_format::ids::{Epoch, Ino, Member, Thing};
use terral_format::wire::remembered::{Memory, Remembered};
use terral_format::wire::roster::Seat;

use super::Members;
use crate::core::world::Tick;

/// A directory that is just being put together.
#[derive(Clone)]
pub struct Restoring {
    /// Who had it; nobody, if only its place is wanted, or how its files were last seen.
    pub of: Option<Member>,
    pub since: Tick,
    /// When others were asked last.
    pub asked: Tick,
    /// Who has not said all, and after which name he is to go on.
    pub waits: BTreeMap<Member, Vec<u8>>,
    /// Who is asked beside them where it is, and nothing else, until somebody has said it.
    pub places: BTreeSet<Member>,
    /// What they know, and who says it.
    pub known: Vec<(Member, Remembered)>,
}

impl Restoring {
    /// Whether nobody is to say anything more.
    pub fn is_heard(&self) -> bool {
        let is_placed = || self.known.iter().any(|(_, said)| !said.way.is_empty());
        self.waits.is_empty() && (self.places.is_empty() || is_placed())
    }
}

/// So many directories that nobody here knows are looked for at a time for one user.
const SOUGHT_EACH: usize = 8;
/// Nobody waits longer for one of them.
const SOUGHT: Duration = Duration::from_secs(60);

/// What went with dead members.
#[derive(Default)]
pub(super) struct Losses {
    restoring: BTreeMap<Thing, Restoring>,
    restored: BTreeMap<Ino, Member>,
    says: Vec<(Member, Memory)>,
    /// Directories of which others are to be asked what they know.
    wanted: BTreeSet<Thing>,
    /// Those of which all have said it since the last member was removed; and those of which one
    /// did not for long.
    heard: BTreeSet<Thing>,
    silent: BTreeSet<Thing>,
    /// Directories that another user wants, and nobody here knows: whom it is, and since when.
    sought: BTreeMap<Thing, (u32, Tick)>,
    /// This server was removed before this process began: it is here to bring what is left.
    pub(super) began_put_out: bool,
}

impl Losses {
    /// Somebody was removed: who was asked before may have spoken before that one's last word.
    pub(super) fn begins_anew(&mut self) {
        self.heard.clear();
    }

    pub(super) fn was_restored(&mut self, ino: Ino, of: Member) {
        self.restored.insert(ino, of);
    }

    pub(super) fn restored(&self) -> impl Iterator<Item = (Ino, Member)> + '_ {
        self.restored.iter().map(|(ino, of)| (*ino, *of))
    }

    pub(super) fn says(&self) -> bool {
        !self.says.is_empty()
    }
}

impl Members {
    /// What is being put together now.
    pub fn restoring(&mut self) -> &mut BTreeMap<Thing, Restoring> {
        &mut self.losses.restoring
    }

    /// Whether something is.
    pub fn is_restoring(&self) -> bool {
        !self.losses.restoring.is_empty()
    }

    /// Whether a directory that nobody here knows is looked for now, as this user wants it: a few
    /// of each are.
    pub fn may_seek(&mut self, user: u32, thing: Thing, now: Tick) -> bool {
        let sought = &mut self.losses.sought;
        sought.retain(|_, (_, since)| now.since(*since) < SOUGHT);
        let his = sought.values().filter(|(of, _)| *of == user).count();
        let may = sought.contains_key(&thing) || his < SOUGHT_EACH;
        if may {
            sought.entry(thing).or_insert((user, now));
        }
        may
    }

    /// It is not any more.
    pub fn is_sought_no_more(&mut self, thing: Thing) {
        self.losses.sought.remove(&thing);
    }

    /// Whether a member of the group of this one was removed, and may live.
    pub fn may_one_live(&self, group_of: Member) -> bool {
        let fenced =
            |standing| matches!(standing, Standing::Removed { verdict: Verdict::Fenced, .. });
        let mut seats = self.roster().seats.iter().filter(|seat| fenced(seat.standing));
        seats.any(|seat| self.are_for_one(seat.member, group_of))
    }

    /// Whether what only a member had may be put together: it has died with it.
    pub fn has_died(&self, member: Member) -> bool {
        let is = self.standing(member);
        matches!(is, Some(Standing::Removed { verdict: Verdict::Dead, .. }))
    }

    /// Others are to be asked what they know of a directory: its place in the tree, and how its
    /// files were last seen.
    pub fn wants_memory(&mut self, thing: Thing) {
        self.losses.wanted.insert(thing);
    }

    /// Such directories. Said once.
    pub fn take_wanted_memory(&mut self) -> BTreeSet<Thing> {
        std::mem::take(&mut self.losses.wanted)
    }

    /// All have said what they know of a directory.
    pub fn heard_all(&mut self, thing: Thing) {
        self.losses.heard.insert(thing);
    }

    /// Whether they have, since the last member was removed.
    pub fn has_heard_all(&self, thing: Thing) -> bool {
        self.losses.heard.contains(&thing)
    }

    /// Somebody does not say what he knows of a directory.
    pub fn is_silent_on(&mut self, thing: Thing) {
        self.losses.silent.insert(thing);
    }

    /// Whether that is so. Said once: who asks next begins anew.
    pub fn take_silent_on(&mut self, thing: Thing) -> bool {
        self.losses.silent.remove(&thing)
    }

    /// Directories that were put together, and who had them.
    pub fn restored(&self) -> impl Iterator<Item = (Ino, Member)> + '_ {
        self.losses.restored()
    }

    /// Whether a directory was put together after this member, which had it, was removed.
    pub fn had(&self, directory: Ino, member: Member) -> bool {
        self.losses.restored.get(&directory) == Some(&member)
    }

    /// This is to be said to a member once the log has it.
    pub fn says_of_memory(&mut self, to: Member, memory: Memory) {
        self.losses.says.push((to, memory));
    }

    /// What is to be said now.
    pub fn take_memories(&mut self) -> Vec<(Member, Memory)> {
        std::mem::take(&mut self.losses.says)
    }

    fn standing(&self, member: Member) -> Option<Standing> {
        self.roster().seat(member).map(|seat| seat.standing)
    }

    /// The changes of who is in that this server knows of.
    pub fn epoch(&self) -> Epoch {
        self.roster().epoch
    }

    /// Whether a member was removed.
    pub fn is_removed(&self, member: Member) -> bool {
        matches!(self.standing(member), Some(Standing::Removed { .. }))
    }

    /// Whether it was, and does nothing any more.
    pub fn is_dead(&self, member: Member) -> bool {
        let ended = |verdict: Verdict| verdict != Verdict::Fenced;
        let standing = self.standing(member);
        matches!(standing, Some(Standing::Removed { verdict, .. }) if ended(verdict))
    }

    /// Whether it has left in order.
    pub fn has_left(&self, member: Member) -> bool {
        let standing = self.standing(member);
        matches!(standing, Some(Standing::Removed { verdict: Verdict::Left, .. }))
    }

    /// Whether this server itself was removed, and still does something beside others.
    pub fn is_put_out(&self) -> bool {
        self.is_removed(self.me())
    }

    /// Whether it was before this process began.
    pub fn began_put_out(&self) -> bool {
        self.losses.began_put_out
    }

    /// Whether it is to bring nothing: another member may be about to bring the same.
    pub fn rests_for_good(&self) -> bool {
        self.is_put_out() && !self.abandoned
    }

    /// Whether anybody was removed that had come.
    pub fn has_lost(&self) -> bool {
        let had_come = |seat: &Seat| match seat.standing {
            Standing::In(_) => false,
            Standing::Removed { verdict, .. } => {
                verdict != Verdict::Left || !seat.addresses.is_empty()
            }
        };
        self.roster().seats.iter().any(had_come)
    }
}
