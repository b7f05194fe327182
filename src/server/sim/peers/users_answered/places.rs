//! Where users' servers are, as they say, and all are told.

use std::net::SocketAddr;
use std::time::Duration;

use terral_format::wire::roster::Control;

use super::super::{Peers, member};
use super::{house, of};
use crate::members::{control, places};
use crate::sharing::users;

fn at(of: &[&str]) -> Vec<SocketAddr> {
    of.iter().map(|one| one.parse().expect("an address")).collect()
}

/// A user's server says to the control that it is there. Whether it may.
fn says(peers: &mut Peers, from: usize, places: &[&str]) -> bool {
    of(peers, |state| {
        let said = users::says(state, member(from), Control::Here(at(places)));
        let members = state.members.as_mut().expect("a member");
        match said {
            Ok(Control::Here(at)) => members.says_where(member(from), at),
            Ok(other) => panic!("{other:?}"),
            Err(_) => return false,
        }
        true
    })
}

fn is_root_at(peers: &mut Peers, root: usize, of_it: &[&str]) {
    of(peers, |state| control::is_at(state, member(root), at(of_it)).expect("the control"));
}

/// Time passes. Where a member is then, as all are told, and the version of that.
fn told(peers: &mut Peers, of_it: usize, after: Duration) -> (Vec<SocketAddr>, u64) {
    peers.sims[0].world.pass(after);
    of(peers, |state| {
        places::tick(state);
        let roster = state.members.as_ref().expect("a member").roster();
        (roster.seat(member(of_it)).expect("in").addresses.clone(), roster.version)
    })
}

const TICK: Duration = Duration::from_millis(250);
const LONG: Duration = Duration::from_secs(10);

#[test]
fn he_is_where_his_machine_is() {
    let mut peers = house();
    is_root_at(&mut peers, 1, &["10.0.0.2:500", "[fd00::2]:500"]);
    for elsewhere in [
        &["10.0.0.3:7000"][..],
        &["127.0.0.1:7000"],
        &["10.0.0.2:22"],
        &["10.0.0.2:7000", "10.0.0.2:1023"],
        &[],
    ] {
        assert!(!says(&mut peers, 2, elsewhere), "{elsewhere:?}");
    }
    assert!(says(&mut peers, 2, &["10.0.0.2:7000", "192.0.2.1:7000", "[fd00::2]:7000"]));
    let (is, _) = told(&mut peers, 2, TICK);
    assert_eq!(is, at(&["10.0.0.2:7000", "[fd00::2]:7000"]), "and nowhere else");
    // Where a machine has nothing but that, the same is so of its users.
    is_root_at(&mut peers, 0, &["127.0.0.1:500"]);
    assert!(says(&mut peers, 4, &["127.0.0.1:7000"]) && !says(&mut peers, 4, &["10.0.0.2:7000"]));
    assert_eq!(told(&mut peers, 4, TICK).0, at(&["127.0.0.1:7000"]));
}

#[test]
fn who_comes_before_it_is_known_where_his_machine_is_comes_in_once_it_is() {
    let mut peers = house();
    is_root_at(&mut peers, 1, &[]);
    let (before, _) = told(&mut peers, 2, TICK);
    assert!(says(&mut peers, 2, &["10.0.0.2:7000"]) && says(&mut peers, 3, &["10.0.0.3:7000"]));
    assert_eq!(told(&mut peers, 2, TICK).0, before, "nobody knows yet");
    is_root_at(&mut peers, 1, &["10.0.0.2:500"]);
    assert_eq!(told(&mut peers, 2, TICK).0, at(&["10.0.0.2:7000"]));
    assert_eq!(told(&mut peers, 3, LONG).0, before, "it is not there");
}

#[test]
fn however_often_he_moves_all_are_told_seldom() {
    let mut peers = house();
    is_root_at(&mut peers, 1, &["10.0.0.2:500"]);
    let (_, before) = told(&mut peers, 2, TICK);
    for port in 0..4 {
        assert!(says(&mut peers, 2, &[&format!("10.0.0.2:700{port}")]));
    }
    assert_eq!(told(&mut peers, 2, TICK), (at(&["10.0.0.2:7003"]), before + 1));
    for port in 4..8 {
        assert!(says(&mut peers, 2, &[&format!("10.0.0.2:700{port}")]));
        assert_eq!(told(&mut peers, 2, TICK).1, before + 1, "{port}");
    }
    assert_eq!(told(&mut peers, 2, LONG), (at(&["10.0.0.2:7007"]), before + 2), "the last");
    assert_eq!(told(&mut peers, 2, LONG).1, before + 2, "it stays there");
}
