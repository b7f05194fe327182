//! How many names files have that were born here: of which others say that they were lost, and the
//! times at which names were let go.
//!
//! Not here: what is done about them (`naming/counting`, `sharing/adrift`, `sharing/letting_go`).

use std::collections::{BTreeMap, BTreeSet};

use terral_format::disk::membership::Membership;
use terral_format::ids::{Ino, Member};

use super::Members;
use crate::core::world::Tick;

/// All of it.
#[derive(Default)]
pub(super) struct Counting {
    /// What each has said last of a file, and whether it is counted.
    lost: BTreeMap<(Ino, Member), (u64, bool)>,
    /// When a name was let go last.
    last: u64,
    /// Names of which is known that they have stayed, and which are not counted yet: for whom they
    /// were let go, and when. It is asked for again if it is forgotten.
    stayed: BTreeSet<(Member, u64)>,
}

impl Counting {
    pub(super) fn apply(&mut self, record: &Membership) {
        match record {
            Membership::Lost { ino, by, token, counted } => {
                self.lost.insert((*ino, *by), (*token, *counted));
            }
            Membership::LetGo { by, which, is, .. } => {
                self.last = self.last.max(*which);
                if !is {
                    self.stayed.remove(&(*by, *which));
                }
            }
            _ => {}
        }
    }
}

impl Members {
    /// For a snapshot.
    pub(super) fn counting(&self) -> impl Iterator<Item = Membership> + '_ {
        let lost = self.counting.lost.iter();
        let lost = lost.map(|((ino, by), (token, counted))| Membership::Lost {
            ino: *ino,
            by: *by,
            token: *token,
            counted: *counted,
        });
        lost.chain(self.letting_go.snapshot()).chain(self.inviting.snapshot())
    }

    /// The next time at which a name is let go: nanoseconds by this machine's clock, which goes on
    /// as long as its memory has what the log says.
    pub fn next_let_go(&self, now: Tick) -> u64 {
        now.0.max(self.counting.last.saturating_add(1))
    }

    /// Names that were let go have stayed.
    pub fn have_stayed(&mut self, by: Member, which: &[u64]) {
        self.counting.stayed.extend(which.iter().map(|which| (by, *which)));
    }

    /// Which have, of those that are not counted yet.
    pub fn stayed(&self) -> &BTreeSet<(Member, u64)> {
        &self.counting.stayed
    }

    /// Whether a member has said before that a file has lost a name.
    pub fn has_heard_lost(&self, ino: Ino, by: Member, token: u64) -> bool {
        self.counting.lost.get(&(ino, by)).is_some_and(|(last, _)| *last == token)
    }

    /// What others have said of files that are no more is of no use.
    pub fn forget_lost(&mut self, is_gone: impl Fn(Ino) -> bool) {
        self.counting.lost.retain(|(ino, _), _| !is_gone(*ino));
    }

    /// What is said to be lost, and not counted: the file, by whom, and with which token.
    pub fn uncounted(&self) -> impl Iterator<Item = (Ino, Member, u64)> + '_ {
        let lost = self.counting.lost.iter().filter(|(_, (_, counted))| !counted);
        lost.map(|((ino, by), (token, _))| (*ino, *by, *token))
    }
}
