//! Which users' servers come in: how often, and by which name and key.

use std::collections::BTreeMap;

use terral_format::ErrorKind;
use terral_format::disk::partition::Verdict;
use terral_format::ids::{Member, Number};
use terral_format::wire::answering::{Answers, Newcomer};
use terral_format::wire::roster::{Certificate, Key, Roster};

use super::super::users::{ALICE, BOB, certificates_for, person};
use super::super::{Peers, fencing, member};
use super::{house, of, removes};
use crate::members::{control, newcomers};

/// One more comes, of this user, at the word of that one.
fn comes(
    peers: &mut Peers,
    by: usize,
    user: u32,
    login: &str,
    key: u8,
) -> Result<Member, ErrorKind> {
    let whom = Newcomer { user: person(user), login: login.into() };
    let came = of(peers, |state| newcomers::let_in(state, member(by), &whom, Key([key; 32])));
    came.map(|invitation| invitation.me).map_err(|error| error.kind)
}

#[test]
fn a_uid_has_one_login_name() {
    let mut peers = house();
    // As the first house has it: "2" and "4" are both alice.
    of(&mut peers, |state| {
        let roster = state.members.as_ref().expect("a member").roster().clone();
        let mut answers = roster.answers.clone();
        answers.iter_mut().for_each(|one| one.login = format!("of{}", one.member.number() == 3));
        let version = roster.version + 1;
        control::heard(state, Roster { version, answers, ..roster }, member(0));
    });
    assert_eq!(comes(&mut peers, 0, BOB, "alice", 50), Err(ErrorKind::Invalid));
    assert_eq!(comes(&mut peers, 0, ALICE, "oftrue", 50), Err(ErrorKind::Invalid));
    let five = member(5);
    assert_eq!(comes(&mut peers, 0, BOB, "oftrue", 50), Ok(five));
    // Who is not known by a name there is who he is by his number.
    assert_eq!(comes(&mut peers, 0, ALICE, "", 51), Ok(member(6)));
    // So he is once he is gone.
    assert!(removes(&mut peers, 5, Verdict::Dead) && removes(&mut peers, 3, Verdict::Dead));
    assert_eq!(comes(&mut peers, 1, BOB, "bobby", 52), Err(ErrorKind::Invalid));
}

#[test]
fn a_user_begins_a_few_times_with_nothing_on_each_machine() {
    let mut peers = house();
    let mut came = vec![member(3)];
    for key in 50..54 {
        let last = came.last().expect("one").number().into();
        assert!(removes(&mut peers, last, Verdict::Dead));
        came.push(comes(&mut peers, 1, BOB, "3", key).expect("five in all"));
    }
    let last = came.last().expect("one").number().into();
    assert!(removes(&mut peers, last, Verdict::Dead));
    assert_eq!(comes(&mut peers, 1, BOB, "3", 60), Err(ErrorKind::TooMany));
    let other = comes(&mut peers, 0, BOB, "3", 61).expect("on another machine");
    // Who asks by a key that was used is told so, and nobody gets another's.
    assert_eq!(comes(&mut peers, 1, BOB, "3", 50), Err(ErrorKind::Exists));
    assert_eq!(comes(&mut peers, 1, BOB, "3", 61), Err(ErrorKind::Invalid), "another answers");
    assert_eq!(comes(&mut peers, 0, ALICE, "4", 61), Err(ErrorKind::Invalid), "another user's");
    assert_eq!(comes(&mut peers, 0, BOB, "3", 61), Ok(other));
}

#[test]
fn a_new_server_of_a_user_does_not_name_what_a_removed_one_had() {
    let mut peers = house();
    let may = |peers: &mut Peers, from: Member, born: usize| {
        let number = Number::new(member(born), 7).expect("few");
        of(peers, |state| state.members.as_ref().expect("a member").may_say(from, number))
    };
    // Bob's only one is lost: what it had is nobody's until it is found anew.
    assert!(may(&mut peers, member(3), 3));
    assert!(removes(&mut peers, 3, Verdict::Dead));
    let new = comes(&mut peers, 1, BOB, "3", 50).expect("there is room");
    assert!(!may(&mut peers, new, 3) && may(&mut peers, new, usize::from(new.number())));
    // Alice's other one goes on with hers, and none of bob's does.
    assert!(removes(&mut peers, 2, Verdict::Dead));
    assert!(may(&mut peers, member(4), 2) && !may(&mut peers, new, 2));
    // Once that is gone, too, nobody does.
    assert!(removes(&mut peers, 4, Verdict::Dead));
    let hers = comes(&mut peers, 0, ALICE, "2", 51).expect_err("she had two names");
    assert_eq!(hers, ErrorKind::Invalid);
    let hers = comes(&mut peers, 0, ALICE, "", 51).expect("there is room");
    assert!(!may(&mut peers, hers, 2) && !may(&mut peers, hers, 4));
}

#[test]
fn who_was_to_come_as_the_control_was_lost_is_nobody_for_the_next_one() {
    let mut peers = Peers::new(4, 2);
    let mut roster = fencing::roster(2, 2, &BTreeMap::new());
    roster.certificates = certificates_for(&[None, None, Some(ALICE)]);
    roster.answers = vec![Answers { member: member(2), by: member(0), login: "a".into() }];
    let came = peers.sims[1].with(|server| {
        let mut state = server.lock();
        control::heard(&mut state, roster, member(0));
        control::take_over(&mut state, &[(member(0), Verdict::Dead)]).expect("it may");
        let came = control::let_in(&mut state, Key([70; 32]), None).expect("there is room").me;
        state.commit().expect("there is room");
        let roster = state.members.as_ref().expect("a member").roster().clone();
        (came, roster)
    });
    let (came, roster) = came.expect("it lives");
    assert_eq!((came, roster.answers_for(came)), (member(2), None));
    let own: Vec<_> = roster.certificates.iter().filter(|it| it.member == came).collect();
    assert!(matches!(own[..], [Certificate { key: Key([70, ..]), user: None, .. }]), "{own:?}");
}
