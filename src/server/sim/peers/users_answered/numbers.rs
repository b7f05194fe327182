//! How many users' servers come in, and which numbers are left for root's.

use std::collections::BTreeMap;

use terral_format::ErrorKind;
use terral_format::wire::answering::Newcomer;
use terral_format::wire::roster::{Certificate, Key, Roster};

use super::super::users::{ALICE, person};
use super::super::{Peers, fencing, member};
use super::of;
use crate::members::{control, newcomers};

#[test]
fn the_last_numbers_are_roots() {
    let mut peers = Peers::new(2, 1);
    let of_all = |count: usize| {
        let roster = fencing::roster(count, count as u64, &BTreeMap::new());
        let certificate = |at: usize| Certificate {
            member: member(at),
            key: Key([(at % 256) as u8; 32]),
            user: (at > 1).then(|| person(2000 + at as u32)),
        };
        let certificates = (0..count).map(certificate).collect();
        Roster { certificates, ..roster }
    };
    let seats = |peers: &mut Peers, count: usize| {
        of(peers, |state| control::heard(state, of_all(count), member(0)));
    };
    seats(&mut peers, control::MEMBERS_MAX - 65);
    let whom = |user| Newcomer { user: person(user), login: String::new() };
    let user = |peers: &mut Peers, key| {
        let came = of(peers, |state| newcomers::let_in(state, member(0), &whom(ALICE), key));
        came.map(|it| it.me).map_err(|error| error.kind)
    };
    let key = |of: u8| {
        let mut key = [of; 32];
        key[0] = !of;
        Key(key)
    };
    let last = control::MEMBERS_MAX - 65;
    assert_eq!(user(&mut peers, key(1)), Ok(member(last)));
    assert_eq!(user(&mut peers, key(2)), Err(ErrorKind::TooMany));
    let roots = of(&mut peers, |state| control::let_in(state, key(3), None));
    assert_eq!(roots.map(|it| it.me), Ok(member(last + 1)));
    // In a pool so many are in at a time.
    let mut peers = Peers::new(3, 1);
    seats(&mut peers, 127);
    of(&mut peers, |state| {
        let members = state.members.as_mut().expect("a member");
        members.is_of_pool(("p".into(), "r".into()), 1);
    });
    assert_eq!(user(&mut peers, key(1)), Ok(member(127)));
    assert_eq!(user(&mut peers, key(2)), Err(ErrorKind::TooMany));
    assert_eq!(user(&mut peers, key(1)), Ok(member(127)), "it is in");
    let roots = of(&mut peers, |state| control::let_in(state, key(3), None));
    assert_eq!(roots.map(|it| it.me), Ok(member(128)), "root's machines come");
}
