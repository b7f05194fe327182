//! Names of files of which their home was asked to let them go, and which are there all the same,
//! and are moved before the home has looked: none is counted too few.

use std::time::Duration;

use terral_format::frame;
use terral_format::wire::message::{RenameHow, Request, XattrHow};
use terral_format::wire::transactions::Operation;

use super::Peers;
use super::further::{asks, goes_on, link, links, makes, nameless, rest, says};
use super::giving::given;
use super::named_again::{ONE, mv, some};
use super::transacting::{moved, transact};

/// These are its names, and its bytes go with the last of them.
fn has(peers: &mut Peers, names: &[&[u8]], when: &str) {
    loses_all(peers, names, when);
    // Who has only seen it may have its place for longer.
    let left = [0, 1].map(|at| nameless(peers, at));
    assert_eq!(left, [0, 0], "{when}");
}

/// These are its names; it loses them, one after the other.
pub(super) fn loses_all(peers: &mut Peers, names: &[&[u8]], when: &str) {
    rest(peers);
    for left in (1..=names.len()).rev() {
        for name in &names[..left] {
            assert_eq!(links(peers, name) as usize, left, "{when}");
            assert_eq!(says(peers, 2, name), ONE, "{when}");
        }
        peers.ask(0, Request::Unlink(names[left - 1])).expect("removed");
        rest(peers);
    }
}

#[test]
fn a_name_that_is_given_to_the_same_file_again_at_once_is_not_let_go() {
    let (a, b, c) = (b"d/a", b"d/b", b"d/c");
    for steps in [
        [Operation::Unlink(&b[..]), given(a, b)].as_slice(),
        &[given(a, c), Operation::Unlink(a), moved(c, a)],
    ] {
        let mut peers = some();
        transact(&mut peers, 0, steps).expect("done");
        mv(&mut peers, b, b"d/z", RenameHow::Replace);
        has(&mut peers, &[a, b"d/z"], "given again");
    }
}

/// A transaction that lets a name go fails, or who asked for that gives up, and moves it.
#[test]
fn a_name_that_stayed_and_is_moved_before_its_home_has_looked_is_counted() {
    for at_once in [false, true] {
        let mut peers = some();
        makes(&mut peers, 2, b"d/2", b"two");
        peers.create(0, b"d/more").expect("it has the directory");
        let create = Operation::SetXattr {
            path: &b"d/2"[..],
            name: b"user.a",
            value: Some(b"it"),
            how: XattrHow::Replace,
        };
        let error = transact(&mut peers, 0, &[Operation::Unlink(b"d/b"), create]);
        error.expect_err("there is none to replace");
        match at_once {
            true => transact(&mut peers, 0, &[moved(b"d/b", b"d/z")]).expect("done"),
            false => mv(&mut peers, b"d/b", b"d/z", RenameHow::Replace),
        }
        has(&mut peers, &[b"d/a", b"d/z"], &format!("{at_once}"));
    }
}

#[test]
fn who_gives_up_removing_a_name_of_which_its_home_hears_late_may_move_it() {
    for steps in 0..6 {
        let mut peers = some();
        peers.unheard.insert((0, 1));
        let asked = asks(&mut peers, 0, Request::Unlink(b"d/b"));
        assert!(!goes_on(&mut peers, 0, &asked, steps), "its home has not heard of it");
        peers.sims[0].end(asked.0);
        peers.collect(0);
        let moves = Request::Rename { from: b"d/b", to: b"d/z", how: RenameHow::Replace };
        let moves = asks(&mut peers, 0, moves);
        let early = goes_on(&mut peers, 0, &moves, 10);
        peers.unheard.clear();
        peers.cut(0, 1);
        assert!(early || goes_on(&mut peers, 0, &moves, 1000), "it waits for ever");
        has(&mut peers, &[b"d/a", b"d/z"], &format!("{steps}"));
    }
}

#[test]
fn a_name_that_stayed_may_be_removed_or_moved_by_the_home() {
    for moves in [false, true] {
        for steps in 0..10 {
            let mut peers = some();
            let asked = asks(&mut peers, 0, Request::Unlink(b"d/b"));
            if goes_on(&mut peers, 0, &asked, steps) {
                continue;
            }
            peers.sims[0].kill();
            peers.sims[0].end(asked.0);
            let (from, to, how) = (b"d/b", b"d/z", RenameHow::Replace);
            let done = match moves {
                true => peers.ask(1, Request::Rename { from, to, how }),
                false => peers.ask(1, Request::Unlink(from)),
            };
            let names: &[&[u8]] = match (moves, done.is_ok()) {
                (true, true) => &[b"d/a", b"d/z"],
                _ => &[b"d/a"],
            };
            has(&mut peers, names, &format!("{moves} {steps}"));
        }
    }
}

/// Somebody removes a file's only name while another request of the same server gives it one.
#[test]
fn a_file_that_is_given_a_name_as_its_only_one_is_removed_has_that() {
    for (first, gap) in (0..2).flat_map(|first| (0..12).map(move |gap| (first, gap))) {
        let when = format!("{first} {gap}");
        let mut peers = some();
        peers.ask(0, Request::Unlink(b"d/b")).expect("removed");
        rest(&mut peers);
        makes(&mut peers, 2, b"d/2", b"two");
        peers.create(0, b"d/more").expect("it has the directory");
        let steps = [given(b"d/a", b"d/n"), given(b"d/2", b"d/3")];
        let encoded = frame::encode(&&steps[..]).expect("it is short");
        let mut requests = [Request::Transact(&encoded), Request::Unlink(b"d/a")];
        requests.rotate_left(first);
        let one = asks(&mut peers, 0, requests[0]);
        let mut done = [goes_on(&mut peers, 0, &one, gap), false];
        let other = asks(&mut peers, 0, requests[1]);
        for _ in 0..2000 {
            for (at, of) in [&one, &other].into_iter().enumerate() {
                if !done[at] {
                    let handled = peers.handle(0, of.1, &of.2);
                    done[at] = matches!(handled, Some(super::Handled::Answer(_)));
                }
            }
            if done == [true, true] {
                break;
            }
            if !peers.carry() {
                peers.pass(Duration::from_millis(100));
            }
        }
        assert_eq!(done, [true, true], "{when}: it waits for ever");
        let was_given = peers.stat(1, b"d/n").is_ok();
        let names: &[&[u8]] = if was_given { &[b"d/n"] } else { &[] };
        has(&mut peers, names, &when);
        assert_eq!(links(&mut peers, b"d/2"), 1 + u32::from(was_given), "{when}");
    }
}

#[test]
fn a_file_of_which_an_old_name_is_known_goes_with_its_last_one() {
    let mut peers = some();
    peers.make_directory(0, b"e").expect("made");
    peers.ask(0, Request::Unlink(b"d/b")).expect("removed");
    rest(&mut peers);
    link(&mut peers, 1, b"d/a", b"e/s").expect("linked");
    peers.create(0, b"e/own").expect("it has the directory");
    peers.create(0, b"d/own2").expect("it has the directory");
    peers.create(2, b"e/more").expect("it has the directory");
    peers.ask(2, Request::Unlink(b"e/s")).expect("removed");
    rest(&mut peers);
    transact(&mut peers, 0, &[Operation::Unlink(b"d/a")]).expect("removed");
    has(&mut peers, &[], "all are gone");
}

#[test]
fn so_it_is_of_each_of_many_names_that_a_transaction_was_to_take() {
    let mut peers = some();
    makes(&mut peers, 2, b"d/2", b"two");
    let names: Vec<[Vec<u8>; 2]> =
        (0..300).map(|at| ["a", "b"].map(|of| format!("d/{of}{at}").into_bytes())).collect();
    for [one, other] in &names {
        makes(&mut peers, 1, one, ONE);
        link(&mut peers, 1, one, other).expect("linked");
    }
    peers.create(0, b"d/more").expect("it has the directory");
    let (path, name, how) = (&b"d/2"[..], &b"user.a"[..], XattrHow::Replace);
    let create = Operation::SetXattr { path, name, value: Some(&b"it"[..]), how };
    let all = names.iter().map(|[_, other]| Operation::Unlink(&other[..]));
    let all: Vec<_> = all.chain([create]).collect();
    transact(&mut peers, 0, &all).expect_err("there is none to replace");
    mv(&mut peers, &names[0][1], b"d/y", RenameHow::Replace);
    mv(&mut peers, &names[299][1], b"d/z", RenameHow::Replace);
    has(&mut peers, &[&names[0][0], b"d/y"], "the first");
    has(&mut peers, &[&names[299][0], b"d/z"], "the last");
}
