//! Who was removed, and directories that such members had, as they are put together anew.
//!
//! Not here: how that is done (`sharing/restoring`).

use std::collections::{BTreeMap, BTreeSet};

use terral_format::disk::partition::{Standing, Verdict};
use terral_format::ids::{Epoch, Ino, Member, Thing};
use terral_format::wire::remembered::{Memory, Remembered};

use super::Members;
use crate::core::world::Tick;

/// A directory that is just being put together.
pub struct Restoring {
    /// Who had it; nobody, if only its place is wanted.
    pub of: Option<Member>,
    pub since: Tick,
    /// When others were asked last.
    pub asked: Tick,
    /// Who has not said all, and after which name he is to go on.
    pub waits: BTreeMap<Member, Vec<u8>>,
    /// What they know, and who says it.
    pub known: Vec<(Member, Remembered)>,
}

/// What went with dead members.
#[derive(Default)]
pub(super) struct Losses {
    restoring: BTreeMap<Thing, Restoring>,
    restored: BTreeMap<Ino, Member>,
    says: Vec<(Member, Memory)>,
    /// Directories that have come here, and whose place in the tree is not known here.
    pathless: BTreeSet<Thing>,
    /// This server was removed before this process began: it is here to bring what is left.
    pub(super) began_put_out: bool,
}

impl Losses {
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

    /// A directory has come here whose place in the tree is not known.
    pub fn is_pathless(&mut self, thing: Thing) {
        self.losses.pathless.insert(thing);
    }

    /// Such directories. Said once.
    pub fn take_pathless(&mut self) -> BTreeSet<Thing> {
        std::mem::take(&mut self.losses.pathless)
    }

    /// Directories that were put together, and who had them.
    pub fn restored(&self) -> impl Iterator<Item = (Ino, Member)> + '_ {
        self.losses.restored()
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

    /// Whether it was, and is dead.
    pub fn is_dead(&self, member: Member) -> bool {
        let standing = self.standing(member);
        matches!(standing, Some(Standing::Removed { verdict: Verdict::Dead, .. }))
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

    /// Whether anybody was removed.
    pub fn has_lost(&self) -> bool {
        self.roster().seats.iter().any(|seat| matches!(seat.standing, Standing::Removed { .. }))
    }
}
