//! The control's table: who is a member, who was removed, and who decides then. Everybody computes
//! from it who decides a thing; nobody is asked.
//!
//! Not here: the control, and what proves that a member is dead.

use std::collections::BTreeMap;

pub use terral_format::disk::partition::{Standing, Verdict};
use terral_format::ids::{Epoch, Member, Number, ServerId};

/// Who is in, as the control says. Members are added and removed, never forgotten.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Table {
    /// Grows with every change.
    pub epoch: Epoch,
    /// By member.
    pub members: BTreeMap<Member, Standing>,
}

impl Table {
    /// The server of a member that is in.
    pub fn server(&self, member: Member) -> Option<ServerId> {
        match self.members.get(&member) {
            Some(Standing::In(server)) => Some(*server),
            _ => None,
        }
    }

    /// Whether a member was removed.
    pub fn is_removed(&self, member: Member) -> bool {
        matches!(self.members.get(&member), Some(Standing::Removed { .. }))
    }

    /// Whether a member may still do something: it is in, or was removed and nobody has proven that
    /// it is dead.
    pub fn may_live(&self, member: Member) -> bool {
        match self.members.get(&member) {
            Some(Standing::In(_)) => true,
            Some(Standing::Removed { verdict, .. }) => *verdict == Verdict::Fenced,
            None => false,
        }
    }

    /// Whether a member has left in order: what it was asked for and has not answered it has not
    /// done.
    pub fn has_left(&self, member: Member) -> bool {
        let standing = self.members.get(&member);
        matches!(standing, Some(Standing::Removed { verdict: Verdict::Left, .. }))
    }

    /// All who were removed.
    pub fn removed(&self) -> impl Iterator<Item = Member> + '_ {
        self.members.keys().copied().filter(|member| self.is_removed(*member))
    }

    /// Who was removed and may live.
    pub fn fenced(&self) -> impl Iterator<Item = Member> + '_ {
        self.removed().filter(|member| self.may_live(*member))
    }

    /// All who are in.
    pub fn present(&self) -> impl Iterator<Item = Member> + '_ {
        self.members.keys().copied().filter(|member| self.server(*member).is_some())
    }

    /// Who decides what `member` decided first, and the last of those that were removed since. None
    /// if the table has no such member, or its heirs are a circle, which no control makes.
    pub fn successor(&self, member: Member) -> Option<(Member, Option<Member>)> {
        let (mut at, mut before) = (member, None);
        for _ in 0..=self.members.len() {
            match self.members.get(&at)? {
                Standing::In(_) => return Some((at, before)),
                Standing::Removed { heir, .. } => (at, before) = (*heir, Some(at)),
            }
        }
        None
    }

    /// Who decides the things of a number.
    pub fn decider(&self, number: Number) -> Option<Member> {
        self.successor(number.born()).map(|(member, _)| member)
    }
}

#[cfg(test)]
mod tests {
    use super::{Standing, Table, Verdict};
    use terral_format::ids::{Epoch, Member, ServerId};

    fn member(number: u16) -> Member {
        Member::new(number).expect("14 bits")
    }

    #[test]
    fn heirs_of_heirs_decide_and_a_circle_ends() {
        let removed = |heir: u16, verdict| Standing::Removed { heir: member(heir), verdict };
        let rows = [
            (member(1), removed(2, Verdict::Dead)),
            (member(2), removed(3, Verdict::Fenced)),
            (member(3), Standing::In(ServerId(3))),
        ];
        let mut table = Table { epoch: Epoch(3), members: rows.into() };
        assert_eq!(table.successor(member(1)), Some((member(3), Some(member(2)))));
        assert_eq!(table.successor(member(3)), Some((member(3), None)));
        assert_eq!(table.successor(member(4)), None);
        let may_live = |number| table.may_live(member(number));
        assert_eq!([1, 2, 3, 4].map(may_live), [false, true, true, false]);
        table.members.insert(member(3), removed(1, Verdict::Dead));
        assert_eq!(table.successor(member(1)), None);
        table.members.insert(member(2), removed(3, Verdict::Left));
        let has_left = |number| table.has_left(member(number));
        assert_eq!([1, 2, 3, 4].map(has_left), [false, true, false, false]);
        assert!(!table.may_live(member(2)));
    }
}
