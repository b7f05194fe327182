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
/// Who is to have the root comes sooner: all wait for that.
const ROOT_IS_MISSED: Duration = Duration::from_secs(120);

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
        let root = self.root;
        let unused = self.unused().into_iter().filter(|member| *member != root);
        let since = &mut self.inviting.since;
        unused.filter(|it| now.since(*since.entry(*it).or_insert(now)) > EXPIRES).collect()
    }

    /// Who is to have the root, if it was let in some time ago, and has not come.
    pub fn missed_root(&mut self, now: Tick) -> Option<Member> {
        let root = self.unused().into_iter().find(|member| *member == self.root)?;
        let since = *self.inviting.since.entry(root).or_insert(now);
        (now.since(since) > ROOT_IS_MISSED).then_some(root)
    }

    /// Those who are in, and have not come.
    fn unused(&self) -> Vec<Member> {
        let (me, bound) = (self.me(), &self.inviting.bound);
        let seats = self.roster.seats.iter().filter(|seat| seat.member != me);
        let unused = seats.filter(|seat| {
            let is_in = matches!(seat.standing, Standing::In(_));
            is_in && seat.addresses.is_empty() && !bound.contains_key(&seat.member)
        });
        unused.map(|seat| seat.member).collect()
    }
}
