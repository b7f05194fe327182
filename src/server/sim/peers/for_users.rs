//! What root's server does for users with the permanent store, and how much and how long it lets
//! their servers have it wait.

use std::time::Duration;

use terral_format::ids::{Operation, Thing};
use terral_format::wire::attributes::Kind;
use terral_format::wire::message::{RenameHow, Request};
use terral_format::wire::peers::{Message, Work};
use terral_format::wire::roster::Control;
use terral_format::wire::things::{By, Child, Look, Outcome};

use super::dir::there;
use super::hostile_user::frame;
use super::users::{BOB, gives, house, person, put, roots, set_mode};
use super::{Peers, member};
use crate::sharing::users;

#[test]
fn a_users_server_that_says_nothing_keeps_no_directory_from_moving() {
    let mut peers = house(32);
    put(&mut peers, 2, b"bob/f", b"his");
    peers.make_directory(0, b"all/d").expect("root may");
    put(&mut peers, 0, b"all/d/f", b"root's");
    super::dir::owes_nothing(&mut peers);
    peers.stopped = Some((2, Duration::from_secs(3600)));
    for (from, to) in [(&b"all/d"[..], &b"all/e"[..]), (b"all/e", b"all/g")] {
        let how = RenameHow::Replace;
        peers.ask(0, Request::Rename { from, to, how }).expect("it does not wait for him");
        peers.pass(Duration::from_secs(15));
    }
    let all = there(&peers);
    assert!(all.contains_key(&b"all/g/f"[..]), "{all:?}");
}

#[test]
fn who_needs_what_his_server_does_not_answer_hears_so_after_a_minute() {
    let mut peers = house(36);
    let dir = peers.dir.clone().expect("a store");
    dir.put(b"all/his", b"his").expect("put");
    gives(&dir, b"all/his", (BOB, 0o644));
    peers.stat(0, b"bob").expect("his server has said what that is");
    // It lives, as far as anybody knows, and says nothing.
    peers.stopped = Some((2, Duration::from_secs(3600)));
    for (at, path) in [(0, &b"all/his"[..]), (1, b"all/his"), (0, b"bob/new"), (1, b"bob/f")] {
        let begin = roots(&mut peers, |state| state.world.now());
        let error = peers.stat(at, path).expect_err("nobody else knows");
        assert_eq!(error.errno, 5, "{at} {path:?}: {error}");
        let took = roots(&mut peers, |state| state.world.now().since(begin));
        assert!(took < Duration::from_secs(70), "{path:?}: {took:?}");
    }
    // Nobody waits for him who needs nothing of his.
    peers.make_directory(0, b"all/d").expect("root may");
    peers.make_directory(1, b"alice/d").expect("she may");
}

#[test]
fn what_he_says_that_a_name_stands_for_is_no_file_of_others() {
    let mut peers = house(33);
    put(&mut peers, 0, b"all/roots", b"root's");
    peers.ask(0, set_mode(b"all/roots", 0o600)).expect("root may");
    let number = peers.stat(0, b"all/roots").expect("there").number;
    let child = Child { name: b"his".to_vec(), number, kind: Kind::File, text: Vec::new() };
    let operation = Operation { by: member(0), number: 1 };
    for outcome in [Outcome::Name(Some(child.clone())), Outcome::Names(vec![child], true)] {
        let answer = Ok(outcome.body().expect("fits"));
        let message = Message::Done { operation, answer };
        let heard = roots(&mut peers, |state| users::admit(state, frame(vec![message])));
        let Message::Done { answer: Ok(body), .. } = heard.expect("heard").messages.remove(0)
        else {
            panic!("another message");
        };
        match Outcome::of(&body).expect("one") {
            Outcome::Name(is) => assert_eq!(is, None),
            Outcome::Names(names, _) => assert!(names.is_empty(), "{names:?}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn he_is_heard_no_more_while_too_much_of_his_waits() {
    let mut peers = house(34);
    let all = Thing::Directory(peers.stat(0, b"all").expect("there").number);
    let look = By { person: person(BOB), what: Look::Attributes }.body().expect("fits");
    let wants = |number: u64| {
        let operation = Operation { by: member(2), number };
        let wants = Message::Want { operation, thing: all, work: Work::Look(look.clone()) };
        frame(vec![wants; 1000])
    };
    let heard = |peers: &mut Peers, number| {
        let heard = roots(peers, |state| users::admit(state, wants(number)));
        heard.expect("no garbage").messages.len()
    };
    let all: Vec<usize> = (0..20).map(|number| heard(&mut peers, number)).collect();
    assert_eq!((all[0], all[15], all[19]), (1000, 1000, 0), "{all:?}");
    // What is done does not count.
    peers.pass(Duration::from_secs(1));
    assert_eq!(heard(&mut peers, 20), 1000);
}

#[test]
fn he_moves_to_another_port_a_few_times_only() {
    let mut peers = house(35);
    let at = |port: u16| Control::Here(vec![([127, 0, 0, 1], port).into()]);
    let moves = |peers: &mut Peers, port| {
        roots(peers, |state| users::says(state, member(2), at(port))).is_ok()
    };
    let all: Vec<bool> = (7001..=7020).map(|port| moves(&mut peers, port)).collect();
    assert!(all[..8].iter().all(|may| *may) && !all[8..].iter().any(|may| *may), "{all:?}");
    peers.pass(Duration::from_secs(61));
    assert!(moves(&mut peers, 7030));
}
