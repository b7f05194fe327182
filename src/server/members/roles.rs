//! What follows from what members are for: who may be the control, and who goes on with what a
//! member that is removed has decided. Where a pool has members that are its authority alone, only
//! these say who is in, and they decide no names: who keeps files inherits.
//!
//! Invariants: nothing is changed here; who is removed is nobody's heir. Not here: who keeps bytes
//! (`placement`), and what the control does (`control`).

use terral_format::ids::Member;
use terral_format::wire::roster::Roster;
use terral_format::{Error, ErrorKind, Result};

use crate::core::state::State;

/// Whether a member is of the authority, and nothing else.
pub fn is_authority(roster: &Roster, member: Member) -> bool {
    roster.authorities.contains(&member)
}

/// Whether this server is.
pub fn is_own_authority(state: &State) -> bool {
    state.members.as_ref().is_some_and(|it| is_authority(it.roster(), it.me()))
}

/// Members of the authority that are in, but for this one.
pub fn other_authorities(roster: &Roster, member: Member) -> Vec<Member> {
    let others = roster.authorities.iter().copied().filter(|other| *other != member);
    others.filter(|other| roster.is_in(*other)).collect()
}

/// Whether a member may be the control once this one is none any more.
///
/// # Errors
/// [`ErrorKind::Invalid`] if there is somebody who is to be it.
pub fn may_be_control(roster: &Roster, member: Member, before: Member) -> Result<()> {
    match other_authorities(roster, before).first() {
        Some(other) if !is_authority(roster, member) => {
            let context = format!("{other} is of this pool's authority: say so on that machine");
            Err(Error::new(ErrorKind::Invalid, context))
        }
        _ => Ok(()),
    }
}

/// Whether a member is believed that it is the control without a word of the registry: where there
/// is an authority, only that.
pub fn is_believed(roster: &Roster, member: Member) -> bool {
    is_authority(roster, member) || !roster.authorities.iter().any(|other| roster.is_in(*other))
}

/// Who decides what `gone` have decided, where `control` says who is in: that itself, or, if it is
/// of the authority, the first one that keeps files and has come.
pub fn heir(roster: &Roster, gone: &[Member], control: Member) -> Member {
    if !is_authority(roster, control) {
        return control;
    }
    let is_in = roster.seats.iter().filter(|seat| roster.is_in(seat.member));
    let others = is_in.filter(|seat| !gone.contains(&seat.member) && !seat.addresses.is_empty());
    let others = others.map(|seat| seat.member);
    let may = |member: &Member| !is_authority(roster, *member) && !roster.is_users(*member);
    let may: Vec<Member> = others.filter(may).collect();
    let stores = may.iter().find(|member| roster.placement.stores(**member));
    stores.or(may.first()).copied().unwrap_or(control)
}

#[cfg(test)]
mod tests {
    use terral_format::ids::{Member, ServerId};
    use terral_format::wire::roster::{Roster, Seat, Standing, Verdict};

    use super::{heir, is_believed, may_be_control};

    fn member(number: u16) -> Member {
        Member::new(number).expect("14 bits")
    }

    fn roster(count: u16, authorities: &[u16], storage: &[u16]) -> Roster {
        let seat = |number| Seat {
            member: member(number),
            standing: Standing::In(ServerId(number.into())),
            addresses: vec![([127, 0, 0, 1], 9).into()],
        };
        let mut roster = Roster { seats: (0..count).map(seat).collect(), ..Roster::default() };
        roster.authorities = authorities.iter().copied().map(member).collect();
        roster.placement.storage = Some(storage.iter().copied().map(member).collect());
        roster
    }

    #[test]
    fn who_keeps_files_inherits_and_never_who_is_gone_or_of_the_authority() {
        let mut of = roster(5, &[0, 3], &[2, 4]);
        let heir = |of: &Roster, gone: &[u16]| {
            let gone: Vec<Member> = gone.iter().copied().map(member).collect();
            heir(of, &gone, member(0)).number()
        };
        assert_eq!([heir(&of, &[1]), heir(&of, &[2]), heir(&of, &[2, 4])], [2, 4, 1]);
        of.seats[2].addresses.clear();
        assert_eq!(heir(&of, &[1]), 4, "2 has not come");
        let dead = Standing::Removed { heir: member(2), verdict: Verdict::Dead };
        of.seats[4].standing = dead;
        assert_eq!([heir(&of, &[3]), heir(&of, &[1])], [1, 0], "there is nobody else");
        assert_eq!(heir(&roster(3, &[], &[2]), &[2]), 0, "without an authority the control");
    }

    #[test]
    fn only_an_authority_is_the_control_as_long_as_one_is_in() {
        let mut of = roster(4, &[0, 3], &[1, 2]);
        assert!(may_be_control(&of, member(1), member(0)).is_err(), "3 is there");
        assert!(may_be_control(&of, member(3), member(0)).is_ok());
        let dead = Standing::Removed { heir: member(1), verdict: Verdict::Dead };
        of.seats[3].standing = dead;
        assert!(may_be_control(&of, member(1), member(0)).is_ok(), "there is no other one");
        assert!(!is_believed(&of, member(1)), "not by its own word");
        of.seats[0].standing = dead;
        assert!(is_believed(&of, member(1)));
    }
}
