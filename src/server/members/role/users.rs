//! Members that speak for one user alone: whose they are, and what may go to them.
//!
//! Not here: what is heard of them (`sharing/users`, `far/users`).

use std::collections::BTreeMap;

use terral_format::ids::{Member, Number, Thing};
use terral_format::wire::person::Person;
use terral_format::wire::roster::Certificate;
use terral_partition::effect::Giving;
#[cfg(test)]
use terral_partition::effect::Local;

use super::here::Here;
use super::{Members, Part};
#[cfg(test)]
use crate::core::state::State;

/// `r` and `x` of a directory: its names, and what they stand for.
const LIST_AND_SEARCH: u32 = 5;

/// Those that speak for one user alone, and for whom.
pub(super) fn of(certificates: &[Certificate]) -> BTreeMap<Member, Person> {
    let users = certificates.iter().filter_map(|of| Some((of.member, of.user.clone()?)));
    users.collect()
}

/// Whether two members speak for the same user, or for nobody alone.
pub(super) fn are_for_one(of: &BTreeMap<Member, Person>, one: Member, other: Member) -> bool {
    let user_of = |member: Member| of.get(&member).map(|person| person.user);
    user_of(one) == user_of(other)
}

impl Members {
    /// Whether a member is in, as far as this server knows.
    pub fn is_in(&self, member: Member) -> bool {
        match &self.part {
            Part::Runs(machine) => machine.durable().members().any(|is| is == member),
            Part::Replayed(_) => true,
        }
    }

    /// Whether another one may have a thing to change it.
    #[cfg(test)]
    pub fn may_lend(&self, thing: Thing, to: Member, state: &State) -> bool {
        let Members { numbers, users, changed, roster, .. } = self;
        let here = Here { state, numbers, users, changed, placement: &roster.placement };
        [Giving::Lend, Giving::Take].into_iter().any(|how| here.may_go(thing, to, how))
    }

    /// For whom alone a member speaks; `None`: it is trusted with all.
    pub fn user_of(&self, member: Member) -> Option<&Person> {
        self.users.get(&member)
    }

    /// Whether a member speaks for whom this one does: for the same user, or as this one for nobody
    /// alone. To each other these are what members are where there are no users.
    pub fn is_ours(&self, member: Member) -> bool {
        self.are_for_one(member, self.me())
    }

    /// Whether two members speak for the same.
    pub fn are_for_one(&self, one: Member, other: Member) -> bool {
        are_for_one(&self.users, one, other)
    }

    /// For whom alone a member speaks, if this one does not: what it wants and says is looked at.
    /// Who speaks for nobody alone is nobody's stranger.
    pub fn stranger(&self, member: Member) -> Option<&Person> {
        self.user_of(member).filter(|_| !self.is_ours(member))
    }

    /// Whether a member may say that something is its user's: it was born at it, or at one of his
    /// that is in, or one of his goes on with what that decided.
    pub fn may_say(&self, from: Member, number: Number) -> bool {
        let decider = || self.decider(Thing::File(number));
        let decides = || decider().is_some_and(|decider| self.are_for_one(decider, from));
        number.born() == from || (self.are_for_one(number.born(), from) && decides())
    }

    /// Those that are in of a user's.
    pub(super) fn servers_of(&self, user: u32) -> Vec<Member> {
        let Part::Runs(machine) = &self.part else { return Vec::new() };
        let is_his = |member: &Member| self.users.get(member).is_some_and(|of| of.user == user);
        machine.durable().members().filter(is_his).collect()
    }

    /// Whether a user's server does not take what it is told: his were told more than so many bytes
    /// that they have not taken, about, and this one its share of that.
    pub fn is_told_enough(&self, member: Member, most: usize) -> bool {
        let (Part::Runs(machine), Some(user)) = (&self.part, self.user_of(member)) else {
            return false;
        };
        let own = machine.untaken(member);
        let his = self.servers_of(user.user);
        let share = most / his.len().max(1);
        own >= share && his.into_iter().map(|its| machine.untaken(its)).sum::<usize>() > most
    }
}

impl Here<'_> {
    /// Whether a thing may go to a server of this user: as a copy, which has all that is in it, and
    /// not to be changed.
    pub(super) fn may_have(&self, user: &Person, thing: Thing, how: Giving) -> bool {
        let place = self.numbers.place(thing.number());
        let inode = place.and_then(|ino| self.state.names.inode(ino));
        // The right to move directories has no place.
        let Some(inode) = inode else { return false };
        let wants = match thing {
            Thing::Directory(_) => LIST_AND_SEARCH,
            Thing::File(_) => 0,
            Thing::Chunk(..) => return false,
        };
        how == Giving::Show
            && user.may(&inode.attributes(), wants)
            && self.state.names.may_reach(user, inode.ino)
    }
}
