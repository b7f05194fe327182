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

/// Whether a member may be the control once this one is none any more. Of others it is said who is
/// there: of an authority that is lost, too, nobody waits for a word.
///
/// # Errors
/// [`ErrorKind::Invalid`] if there is somebody who is to be it.
pub fn may_be_control(
    roster: &Roster,
    (member, before): (Member, Member),
    is_there: impl Fn(Member) -> bool,
) -> Result<()> {
    match other_authorities(roster, before).into_iter().find(|other| is_there(*other)) {
        Some(other) if !is_authority(roster, member) => {
            let context = format!("{other} is of this pool's authority: say so on that machine");
            Err(Error::new(ErrorKind::Invalid, context))
        }
        _ => Ok(()),
    }
}

/// Whether a member is believed that it is the control without a word of the registry: where there
/// is an authority, only that; no user's server is.
pub fn is_believed(roster: &Roster, member: Member) -> bool {
    let has_authority = roster.authorities.iter().any(|other| roster.is_in(*other));
    !roster.is_users(member) && (is_authority(roster, member) || !has_authority)
}

/// Who goes as a member is removed: itself, and all for whom it answers, as they are where it is.
pub fn goes_with(roster: &Roster, member: Member) -> Vec<Member> {
    let its = roster.answers.iter().filter(|it| it.by == member).map(|it| it.member);
    std::iter::once(member).chain(its).collect()
}

/// Who decides what one of those that are `gone` has decided, where `control` says who is in: that
/// itself, or, if it is of the authority, the first one that keeps files and has come.
pub fn heir(roster: &Roster, (one, gone): (Member, &[Member]), control: Member) -> Member {
    heirs(roster, (one, gone), control).first().copied().unwrap_or(control)
}

/// All who might, in this order; the control last. What a user's server has decided his others go
/// on with, if there are any: for the control it is what nobody has decided.
pub fn heirs(roster: &Roster, (one, gone): (Member, &[Member]), control: Member) -> Vec<Member> {
    let mut all = Vec::new();
    if let Some(user) = roster.user_of(one) {
        let is_his = |member: &Member| roster.user_of(*member) == Some(user);
        all.extend(have_come(roster, gone).filter(is_his));
    } else if is_authority(roster, control) {
        all.extend(others(roster, gone));
        all.sort_by_key(|member| !roster.placement.stores(*member));
    }
    all.push(control);
    all
}

/// Whether a member is the last that keeps files, where others need that: in a pool whose control
/// keeps none.
pub fn is_last_storage(roster: &Roster, member: Member, control: Member) -> bool {
    let others = others(roster, &[member]);
    let stores = |member: &Member| roster.placement.stores(*member);
    is_authority(roster, control)
        && stores(&member)
        && !others.is_empty()
        && !others.iter().any(stores)
}

/// Members that have come, are trusted with all, and are not of the authority.
fn others(roster: &Roster, gone: &[Member]) -> Vec<Member> {
    let may = |member: &Member| !is_authority(roster, *member) && !roster.is_users(*member);
    have_come(roster, gone).filter(may).collect()
}

/// Members that are in, and have come, but for these.
fn have_come(roster: &Roster, gone: &[Member]) -> impl Iterator<Item = Member> {
    let is_in = roster.seats.iter().filter(|seat| roster.is_in(seat.member));
    let others = is_in.filter(|seat| !gone.contains(&seat.member) && !seat.addresses.is_empty());
    others.map(|seat| seat.member)
}

#[cfg(test)]
mod tests {
    use terral_format::ids::{Member, ServerId};
    use terral_format::wire::answering::Answers;
    use terral_format::wire::person::Person;
    use terral_format::wire::roster::{Certificate, Key, Roster, Seat, Standing, Verdict};

    use super::{goes_with, heir, is_believed, may_be_control};

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
            heir(of, (gone[0], &gone), member(0)).number()
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
    fn a_users_heir_is_his_and_none_of_a_machine_that_goes() {
        let mut of = roster(6, &[], &[]);
        let user = |user: u32| Some(Person { user, ..Person::default() });
        let users = [None, None, user(7), user(7), user(8), user(7)];
        let certificate = |(at, user): (usize, &Option<Person>)| Certificate {
            member: member(at as u16),
            key: Key([at as u8; 32]),
            user: user.clone(),
        };
        of.certificates = users.iter().enumerate().map(certificate).collect();
        let answers = |(its, by): (u16, u16)| Answers {
            member: member(its),
            by: member(by),
            login: "a".into(),
        };
        of.answers = [(2, 1), (3, 1), (4, 1), (5, 0)].into_iter().map(answers).collect();
        let gone = goes_with(&of, member(1));
        assert_eq!(gone, [1, 2, 3, 4].map(member));
        let heirs = gone.iter().map(|one| heir(&of, (*one, &gone), member(0)));
        assert_eq!(heirs.collect::<Vec<_>>(), [0, 5, 5, 0].map(member));
        assert_eq!(goes_with(&of, member(5)), [member(5)]);
    }

    #[test]
    fn only_an_authority_is_the_control_as_long_as_one_is_in() {
        let mut of = roster(4, &[0, 3], &[1, 2]);
        let may = |of: &Roster, next, there: &[u16]| {
            let is_there = |member: Member| there.contains(&member.number());
            may_be_control(of, (member(next), member(0)), is_there).is_ok()
        };
        assert!(!may(&of, 1, &[3]), "3 is there");
        assert!(may(&of, 3, &[3]) && may(&of, 1, &[]), "both are lost");
        let dead = Standing::Removed { heir: member(1), verdict: Verdict::Dead };
        of.seats[3].standing = dead;
        assert!(may(&of, 1, &[3]), "there is no other one");
        assert!(!is_believed(&of, member(1)), "not by its own word");
        of.seats[0].standing = dead;
        assert!(is_believed(&of, member(1)));
    }
}
