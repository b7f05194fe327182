//! Members that speak for one user alone: whose they are, and what may go to them.
//!
//! Not here: what is heard of them (`sharing/users`, `far/users`).

use std::collections::BTreeMap;

use terral_format::ids::{Member, Number, Operation, Thing};
use terral_format::wire::person::Person;
use terral_format::wire::roster::Certificate;
use terral_partition::effect::Giving;

use super::here::Here;
use super::{Members, Part};

/// `r` and `x` of a directory: its names, and what they stand for.
const LIST_AND_SEARCH: u32 = 5;
/// `w` and `x`: its names may be changed.
const CHANGE: u32 = 3;

/// Those that speak for one user alone, and for whom.
pub(super) fn of(certificates: &[Certificate]) -> BTreeMap<Member, Person> {
    let users = certificates.iter().filter_map(|of| Some((of.member, of.user.clone()?)));
    users.collect()
}

impl Members {
    /// For whom alone a member speaks; `None`: it is trusted with all.
    pub fn user_of(&self, member: Member) -> Option<&Person> {
        self.users.get(&member)
    }

    /// About how many bytes a member was told that it has not taken yet.
    pub fn untaken(&self, member: Member) -> usize {
        match &self.part {
            Part::Runs(machine) => machine.untaken(member),
            Part::Replayed(_) => 0,
        }
    }

    /// What this server has asked another one about by an operation.
    pub fn asked_about(&self, from: Member, operation: Operation) -> Option<Thing> {
        match &self.part {
            Part::Runs(machine) => machine.asked_about(from, operation),
            Part::Replayed(_) => None,
        }
    }

    /// For whom alone this server speaks.
    pub fn speaks_for(&self) -> Option<&Person> {
        self.user_of(self.me())
    }

    /// Whether what has this number is another user's server's, or was.
    pub fn is_users(&self, number: Number) -> bool {
        self.users.contains_key(&number.born())
    }

    /// Whether any member does.
    pub fn has_users(&self) -> bool {
        !self.users.is_empty()
    }
}

impl Here<'_> {
    /// Whether a thing may go to a server of this user. He is lent his own directories; those in
    /// which he may change names, or has files, only for what nobody else can do: of what he says
    /// afterwards that they are, what he may not change is passed over. A copy has all that is in
    /// it.
    pub(super) fn may_have(
        &self,
        (to, user): (Member, &Person),
        thing: Thing,
        how: Giving,
    ) -> bool {
        let place = self.numbers.place(thing.number());
        let inode = place.and_then(|ino| self.state.names.inode(ino));
        // The right to move directories has no place.
        let Some(inode) = inode else { return false };
        if !self.state.names.may_reach(user, inode.ino) {
            return false;
        }
        let is = inode.attributes();
        let number = |ino| self.numbers.of(ino).map_or(to, |number| number.born());
        let has_file = || self.state.names.children(&inode).any(|(_, of)| number(of.ino) == to);
        match (thing, how) {
            (Thing::Directory(_), Giving::Show) => user.may(&is, LIST_AND_SEARCH),
            (Thing::Directory(_), Giving::Lend) => is.uid == user.user,
            (Thing::Directory(_), Giving::Take) => {
                is.uid == user.user || user.may(&is, CHANGE) || has_file()
            }
            (Thing::File(_), Giving::Show) => true,
            (Thing::File(_) | Thing::Chunk(..), _) => false,
        }
    }
}
