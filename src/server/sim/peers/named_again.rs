//! Files with several names, one of which goes, or was to go, and stands for the file all the same:
//! as another of its names is moved there, or as nobody carried out what was asked. It is counted
//! once, and stays.

use std::time::Duration;

use terral_format::wire::message::{RenameHow, Request};
use terral_format::wire::transactions::Operation;

use super::further::{asks, goes_on, is_sound, link, links, makes, nameless, rest, says};
use super::transacting::{Step, moved, transact};
use super::{Peers, dir};

pub(super) const ONE: &[u8] = b"one";

/// A file of one server that has two names in a directory of another one.
pub(super) fn some() -> Peers {
    let mut peers = Peers::new(41, 3);
    peers.make_directory(0, b"d").expect("made");
    makes(&mut peers, 1, b"d/a", ONE);
    link(&mut peers, 1, b"d/a", b"d/b").expect("linked");
    peers.pass(Duration::from_secs(3));
    peers.create(0, b"d/own").expect("it has the directory");
    peers
}

/// Its only name is this one; once it has none its bytes go.
fn has_one(peers: &mut Peers, path: &[u8]) {
    rest(peers);
    assert_eq!(links(peers, path), 1);
    assert_eq!(says(peers, 2, path), ONE);
    peers.ask(0, Request::Unlink(path)).expect("removed");
    rest(peers);
    assert_eq!((0..3).map(|at| nameless(peers, at)).sum::<usize>(), 0);
}

const EXCHANGE: RenameHow = RenameHow::Exchange;

#[test]
fn a_name_that_another_one_takes_in_the_same_transaction_is_counted_once() {
    let (a, b, own): (&[u8], &[u8], &[u8]) = (b"d/a", b"d/b", b"d/own");
    let swap = Operation::Rename { from: b, to: own, how: EXCHANGE };
    let all: [(&[Step<'_>], &[u8]); 4] = [
        (&[Operation::Unlink(b), moved(a, b)], b),
        (&[moved(own, b), moved(a, own)], own),
        (&[moved(a, b"d/c"), Operation::Unlink(b), moved(b"d/c", b)], b),
        (&[Operation::Unlink(b), moved(a, b), swap], own),
    ];
    for (steps, left) in all {
        let mut peers = some();
        transact(&mut peers, 0, steps).expect("done");
        has_one(&mut peers, left);
    }
}

pub(super) fn mv(peers: &mut Peers, from: &[u8], to: &[u8], how: RenameHow) {
    peers.ask(0, Request::Rename { from, to, how }).expect("moved");
}

#[test]
fn a_name_that_another_one_takes_before_its_home_has_looked_is_counted_once() {
    type Moves = fn(&mut Peers);
    let all: [(Moves, &[u8]); 5] = [
        (|peers| mv(peers, b"d/a", b"d/b", RenameHow::Replace), b"d/b"),
        (|peers| transact(peers, 0, &[moved(b"d/a", b"d/b")]).expect("done"), b"d/b"),
        (
            |peers| {
                mv(peers, b"d/own", b"d/b", RenameHow::Replace);
                mv(peers, b"d/a", b"d/b", EXCHANGE);
            },
            b"d/b",
        ),
        (
            |peers| {
                mv(peers, b"d/a", b"d/b", RenameHow::Replace);
                mv(peers, b"d/b", b"d/a", RenameHow::Replace);
            },
            b"d/a",
        ),
        (
            |peers| {
                rest(peers);
                mv(peers, b"d/a", b"d/b", RenameHow::Replace);
            },
            b"d/b",
        ),
    ];
    for (moves, left) in all {
        let mut peers = some();
        peers.ask(0, Request::Unlink(b"d/b")).expect("removed");
        moves(&mut peers);
        has_one(&mut peers, left);
    }
}

/// Who removes a name, or has another file take it, is killed after so many steps; another name is
/// removed before the home has looked, by who was killed or by the home.
fn last_but(by_home: bool, steps: u64) {
    let mut peers = Peers::new(42, 3);
    for at in 0..2 {
        peers.make_directory(at, [&b"d"[..], b"e"][at]).expect("made");
    }
    makes(&mut peers, 1, b"d/a", ONE);
    let other: &[u8] = if by_home { b"e/b" } else { b"d/b" };
    link(&mut peers, 1, b"d/a", other).expect("linked");
    peers.pass(Duration::from_secs(3));
    peers.create(0, b"d/own").expect("it has the directory");
    let asked = asks(&mut peers, 0, Request::Unlink(b"d/a"));
    if goes_on(&mut peers, 0, &asked, steps) {
        return;
    }
    peers.sims[0].kill();
    let by = usize::from(by_home);
    peers.create(by, b"d/c").expect("it has the directory");
    let seen = peers.stat(by, b"d/a").is_ok();
    peers.ask(by, Request::Unlink(other)).expect("removed");
    rest(&mut peers);
    if seen {
        assert_eq!(links(&mut peers, b"d/a"), 1);
        assert_eq!(says(&mut peers, 2, b"d/a"), ONE, "nobody has removed it");
        peers.ask(0, Request::Unlink(b"d/a")).expect("removed");
    }
    is_sound(&mut peers, &[]);
}

#[test]
fn a_name_that_was_to_go_and_stayed_is_there_though_the_others_are_removed() {
    for (by_home, steps) in (0..16).flat_map(|steps| [(false, steps), (true, steps)]) {
        let done = || last_but(by_home, steps);
        std::panic::catch_unwind(done).unwrap_or_else(|_| panic!("{by_home} {steps}"));
    }
}

#[test]
fn who_knows_no_name_of_a_file_any_more_keeps_nothing_of_it() {
    for (with_dir, at_once) in [(false, false), (false, true), (true, false)] {
        let mut peers = super::further::some(with_dir, 43);
        peers.make_directory(0, b"d").expect("made");
        peers.make_directory(2, b"e").expect("made");
        makes(&mut peers, 1, b"d/a", ONE);
        link(&mut peers, 1, b"d/a", b"e/b").expect("linked");
        peers.create(0, b"d/own").expect("it has the directory");
        peers.create(2, b"e/own").expect("it has the directory");
        match at_once {
            true => transact(&mut peers, 0, &[Operation::Unlink(b"d/a")]).expect("removed"),
            false => peers.ask(0, Request::Unlink(b"d/a")).map(drop).expect("removed"),
        }
        rest(&mut peers);
        assert_eq!((0..3).map(|at| nameless(&mut peers, at)).sum::<usize>(), 0);
        assert_eq!(says(&mut peers, 2, b"e/b"), ONE);
        assert!(!with_dir || !dir::owes(&mut peers), "they owe it for ever");
    }
}
