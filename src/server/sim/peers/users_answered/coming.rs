//! Which users' servers come in: how often, and by which name and key.

use std::collections::BTreeMap;

use terral_format::disk::partition::{Standing, Verdict};
use terral_format::ids::{Member, Number};
use terral_format::wire::answering::{Answers, Newcomer};
use terral_format::wire::person::Person;
use terral_format::wire::roster::{Certificate, Key, Roster};
use terral_format::{ErrorKind, frame};

use super::super::users::{ALICE, BOB, certificates_for, person};
use super::super::{Peers, fencing, member};
use super::{house, of, removes, roster};
use crate::members::role::Matter;
use crate::members::{control, newcomers};
use crate::sharing;

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
    roster.authorities = vec![member(0), member(1), member(2)];
    roster.placement.storage = Some(vec![member(1), member(2)]);
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
    // Nor has it become what that one was to be.
    assert_eq!(roster.authorities, [0, 1].map(member));
    assert_eq!(roster.placement.storage, Some(vec![member(1)]));
}

#[test]
fn who_is_asked_for_again_speaks_for_him_as_he_is() {
    let mut peers = house();
    let in_groups = |groups: &[u32]| Newcomer {
        user: Person { groups: groups.to_vec(), ..person(BOB) },
        login: "3".into(),
    };
    let key = Key([91; 32]);
    let mut came = |groups: &[u32]| {
        let whom = in_groups(groups);
        of(&mut peers, |state| newcomers::let_in(state, member(0), &whom, key)).expect("he may").me
    };
    let (first, again) = (came(&[5, 6]), came(&[5]));
    assert_eq!(first, again);
    let user = roster(&mut peers).certificate(first).and_then(|it| it.user.clone());
    assert_eq!(user.map(|user| user.groups), Some(vec![5]), "none that was taken from him");
}

#[test]
fn who_comes_to_a_machine_that_was_removed_before_goes_as_that_is_heard() {
    let mut peers = house();
    let whom = Newcomer { user: person(BOB), login: "3".into() };
    let late = of(&mut peers, |state| {
        newcomers::let_in(state, member(1), &whom, Key([92; 32])).expect("he may").me
    });
    let heir = member(0);
    // A control before this one, which died, had said so to somebody.
    for verdict in [Verdict::Fenced, Verdict::Dead] {
        let gone = vec![(member(1), Standing::Removed { heir, verdict })];
        of(&mut peers, |state| control::were_removed(state, member(0), gone)).expect("the control");
        let standing = roster(&mut peers).seat(late).map(|seat| seat.standing);
        let is = matches!(standing, Some(Standing::Removed { verdict: is, .. }) if is == verdict);
        assert!(is, "{standing:?}");
    }
    let now = roster(&mut peers);
    assert_eq!([2, 3, 4].map(|at| now.is_in(member(at))), [false, false, true]);
}

#[test]
fn whom_no_server_speaks_for_is_refused_where_he_knocks() {
    let mut peers = house();
    let groups = (0..5000).collect();
    let whom = Newcomer { user: Person { groups, ..person(BOB) }, login: "3".into() };
    let asked = frame::encode(&(whom, Key([93; 32]))).expect("it fits");
    let why = peers.sims[1].with(|server| {
        let mut state = server.lock();
        let invited = sharing::newcomers::invite(&mut state, &asked);
        let matter = Matter::Comes(Key([93; 32]));
        let asks = state.members.as_mut().is_some_and(|members| members.asks_no_more(matter));
        (invited.map_err(|error| error.kind).err(), asks)
    });
    assert_eq!(why, Some((Some(ErrorKind::Invalid), false)), "and the control is not asked");
}
