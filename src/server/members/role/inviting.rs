//! Of the control: which server has come by each invitation, and which nobody has used yet.
//!
//! Invariant: one server uses an invitation; that is written down. How long one has been there
//! unused counts from when this process first saw it.

use std::collections::BTreeMap;
use std::time::Duration;

use terral_format::disk::membership::Membership;
use terral_format::disk::partition::Standing;
use terral_format::ids::Member;

use super::Members;
use crate::core::world::Tick;

/// Nobody comes by one that is older.
const EXPIRES: Duration = Duration::from_secs(3600);
/// Nor who is to have the root: all wait for that, and it comes by itself.
const ROOT_EXPIRES: Duration = Duration::from_secs(120);

/// What is known of them.
#[derive(Default)]
pub(super) struct Inviting {
    bound: BTreeMap<Member, u128>,
    since: BTreeMap<Member, Tick>,
}

impl Inviting {
    pub(super) fn is_bound(&mut self, member: Member, instance: u128) {
        self.bound.insert(member, instance);
    }

    /// The records that lead here.
    pub(super) fn snapshot(&self) -> impl Iterator<Item = Membership> + '_ {
        let bound = self.bound.iter();
        bound.map(|(member, instance)| Membership::Bound { member: *member, instance: *instance })
    }
}

impl Members {
    /// Which server is a member, if one has come.
    pub fn bound(&self, member: Member) -> Option<u128> {
        self.inviting.bound.get(&member).copied()
    }

    /// Those who were invited long ago, and have not come.
    pub fn expired(&mut self, now: Tick) -> Vec<Member> {
        let (me, root, bound) = (self.me(), self.root, &self.inviting.bound);
        let seats = self.roster.seats.iter().filter(|seat| seat.member != me);
        let unused = seats.filter(|seat| {
            let is_in = matches!(seat.standing, Standing::In(_));
            is_in && seat.addresses.is_empty() && !bound.contains_key(&seat.member)
        });
        let since = &mut self.inviting.since;
        let members = unused.map(|seat| seat.member);
        let old = |member: &Member| {
            let expires = if *member == root { ROOT_EXPIRES } else { EXPIRES };
            now.since(*since.entry(*member).or_insert(now)) > expires
        };
        members.filter(old).collect()
    }
}
