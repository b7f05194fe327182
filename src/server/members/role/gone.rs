//! Members that are gone, under whose numbers nobody finds any more what they had: it has others
//! now, or the permanent store says what they are.
//!
//! Not here: who goes on with what was lost (`members/roles`), and what is done with the names of
//! it in the tables (`sharing/departing`, `naming/adopting`).

use std::collections::BTreeSet;

use terral_format::disk::partition::{Standing, Verdict};
use terral_format::ids::{Member, Number, Thing};
use terral_format::wire::message::Kind;
use terral_format::wire::things::Child;

use super::Members;

/// Such members.
#[derive(Default)]
pub struct Gone {
    /// They have left in order, and what they had was brought.
    brought: BTreeSet<Member>,
    /// They were users', and none of theirs goes on with what they decided.
    orphaned: BTreeSet<Member>,
    /// They were other users': of their files whoever has the directory says what they are now.
    strangers: BTreeSet<Member>,
}

impl Gone {
    /// Whether a name that was shown is to be asked for anew. A directory keeps the number that it
    /// had with who left in order.
    pub fn had(&self, child: &Child) -> bool {
        let home = child.number.born();
        let is_found = self.brought.contains(&home) || self.strangers.contains(&home);
        (child.kind != Kind::Directory && is_found) || self.orphaned.contains(&home)
    }
}

impl Members {
    /// Whether a member was a user's, and is in no more, and none of his goes on with what it
    /// decided: that is found anew in the permanent store.
    pub fn is_orphaned(&self, home: Member) -> bool {
        let decider = Number::new(home, 0).and_then(|of| self.decider(Thing::Directory(of)));
        let is_his = decider.is_some_and(|decider| self.are_for_one(home, decider));
        self.user_of(home).is_some() && !is_his
    }

    /// All such members; there is a permanent store.
    pub fn gone_homes(&self) -> Gone {
        let mut gone = Gone::default();
        for seat in &self.roster().seats {
            let Standing::Removed { verdict, .. } = seat.standing else { continue };
            if verdict == Verdict::Left {
                gone.brought.insert(seat.member);
            }
            if self.is_orphaned(seat.member) {
                gone.orphaned.insert(seat.member);
            }
            if self.user_of(seat.member).is_some() && !self.is_ours(seat.member) {
                gone.strangers.insert(seat.member);
            }
        }
        gone
    }
}
