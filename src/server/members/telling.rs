//! Whom the control has told which roster. Each member that comes changes it: while some that were
//! invited have not come yet, those that know one are told of all changes together, each tick; so a
//! partition forms with a few frames for each member, and not with one for each two.
//!
//! Invariant: nobody waits for long: a member without a roster in this session, or which asks as it
//! has met a later epoch, is told at once, and all are when the last one has come. Not here: how it
//! is said (`shell/links`).

use std::collections::BTreeMap;

use terral_format::disk::partition::Standing;
use terral_format::ids::Member;
use terral_format::wire::roster::{Roster, Seat};

/// See the module.
#[derive(Default)]
pub struct Telling {
    /// Which version each has been told, in its session.
    told: BTreeMap<Member, u64>,
    /// A tick has passed since all were told.
    ticked: bool,
}

impl Telling {
    /// A member has a new session, or asks for the roster.
    pub fn forget(&mut self, member: Member) {
        self.told.remove(&member);
    }

    /// Time has passed.
    pub fn tick(&mut self) {
        self.ticked = true;
    }

    /// Who is to be told this roster now, of those that have sessions; they are.
    pub fn tell<'m>(
        &mut self,
        roster: &Roster,
        sessions: impl Iterator<Item = &'m Member>,
    ) -> Vec<Member> {
        let behind = |with: &&Member| self.told.get(*with) != Some(&roster.version);
        let mut behind: Vec<Member> = sessions.filter(behind).copied().collect();
        // This is asked all the time, and seldom is anybody.
        if behind.is_empty() {
            return behind;
        }
        if !std::mem::take(&mut self.ticked) && roster.seats.iter().any(is_to_come) {
            behind.retain(|with| !self.told.contains_key(with));
        }
        self.told.extend(behind.iter().map(|with| (*with, roster.version)));
        behind
    }
}

/// Whether a member was invited, and has not said yet where it is.
fn is_to_come(seat: &Seat) -> bool {
    matches!(seat.standing, Standing::In(_)) && seat.addresses.is_empty()
}

#[cfg(test)]
mod tests {
    use terral_format::disk::partition::Standing;
    use terral_format::ids::{Epoch, Member, ServerId};
    use terral_format::wire::roster::{Roster, Seat};

    use super::Telling;

    fn member(at: u16) -> Member {
        Member::new(at).expect("few")
    }

    /// A roster of three, of which so many have come.
    fn roster(version: u64, come: u16) -> Roster {
        let address = || "10.0.0.1:7".parse().expect("an address");
        let seat = |at| Seat {
            member: member(at),
            standing: Standing::In(ServerId(at.into())),
            addresses: (at < come).then(address).into_iter().collect(),
        };
        let seats = (0..3).map(seat).collect();
        Roster { version, epoch: Epoch(3), seats, ..Roster::default() }
    }

    #[test]
    fn while_some_are_to_come_who_knows_a_roster_is_told_each_tick_and_others_at_once() {
        let (one, two) = (member(1), member(2));
        let mut telling = Telling::default();
        assert_eq!(telling.tell(&roster(1, 1), [one].iter()), [one], "it knows none");
        assert_eq!(telling.tell(&roster(2, 2), [one, two].iter()), [two]);
        telling.tick();
        assert_eq!(telling.tell(&roster(2, 2), [one, two].iter()), [one]);
        telling.forget(one);
        assert_eq!(telling.tell(&roster(3, 2), [one, two].iter()), [one], "it has asked");
        assert_eq!(telling.tell(&roster(4, 3), [one, two].iter()), [one, two], "all have come");
        assert_eq!(telling.tell(&roster(5, 3), [one, two].iter()), [one, two]);
        assert!(telling.tell(&roster(5, 3), [one, two].iter()).is_empty());
    }
}
