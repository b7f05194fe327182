//! Names that a home has let go, while others move what they stand for, or take it away too: each
//! time is known for what it was, whatever is called so by now. So none is counted too few, or too
//! many.

use std::time::Duration;

use terral_format::disk::partition::Verdict;
use terral_format::frame;
use terral_format::ids::{Number, SessionSlot};
use terral_format::local::names::{Inode, flag};
use terral_format::wire::message::{Kind, RenameHow, Request, XattrHow};
use terral_format::wire::transactions::Operation;
use terral_transport::requests::Taken;

use super::further::{asks, goes_on, link, makes, rest, says};
use super::giving::given;
use super::kept_names::loses_all;
use super::named_again::{ONE, some};
use super::transacting::transact;
use super::{Handled, Peers, walk_all};
use crate::sim::world::Virtual;

const NAMES: [&[u8]; 5] = [b"d/a", b"d/b", b"d/c", b"d/y", b"d/z"];

/// Which names the file has now, as the first server sees it: as many are counted.
fn is_sound(peers: &mut Peers, file: Number, when: &str) {
    rest(peers);
    let is_there = |name: &&&[u8]| peers.stat(0, name).is_ok_and(|is| is.number == file);
    let names: Vec<&[u8]> = NAMES.iter().filter(is_there).copied().collect();
    loses_all(peers, &names, when);
    let left = peers.sims[1].with(|server| {
        let state = server.lock();
        let own = |inode: &Inode| inode.kind == Kind::File && !inode.is(flag::FAR);
        let nameless = |inode: &Inode| !inode.is(flag::NAMED) && !inode.is(flag::PREALLOCATED);
        let left = state.names.inodes().filter(|inode| own(inode) && nameless(inode));
        left.map(|inode| (inode.ino, inode.links, inode.flags)).collect::<Vec<_>>()
    });
    assert_eq!(left, Some(Vec::new()), "{when}: its home keeps it");
}

/// The file of which `d/a` is a name.
fn file(peers: &mut Peers) -> Number {
    peers.stat(0, b"d/a").expect("it is there").number
}

fn mv<'a>(from: &'a [u8], to: &'a [u8]) -> Request<'a> {
    Request::Rename { from, to, how: RenameHow::Replace }
}

/// What a program of a server has asked.
type Asked = (usize, SessionSlot, Taken);

/// They are carried out by turns, by these servers, so far. Whether all are through.
fn are_done(peers: &mut Peers, all: &[(usize, &Asked)], steps: u64) -> bool {
    let mut left = all.to_vec();
    for _ in 0..steps {
        left.retain(|(at, of)| !matches!(peers.handle(*at, of.1, &of.2), Some(Handled::Answer(_))));
        if left.is_empty() {
            break;
        }
        if !peers.carry() {
            peers.pass(Duration::from_millis(100));
        }
    }
    left.is_empty()
}

/// One program removes a name, another one moves it, or has something else take it, on the same
/// machine or another one.
#[test]
fn who_removes_a_name_while_another_program_moves_it_miscounts_none() {
    let all = [
        [Request::Unlink(b"d/b"), mv(b"d/b", b"d/z")],
        [Request::Unlink(b"d/b"), mv(b"d/a", b"d/b")],
        [mv(b"d/own", b"d/b"), mv(b"d/b", b"d/z")],
        [Request::Unlink(b"d/b"), Request::Unlink(b"d/b")],
    ];
    for (which, both) in all.into_iter().enumerate() {
        for (first, other, gap) in (0..2)
            .flat_map(|first| (0..3).flat_map(move |at| (0..12).map(move |gap| (first, at, gap))))
        {
            let when = format!("{which}: {first} first, the other by {other}, {gap} later");
            let mut peers = some();
            let file = file(&mut peers);
            let mut both = both;
            both.rotate_left(first);
            let one = asks(&mut peers, 0, both[0]);
            goes_on(&mut peers, 0, &one, gap);
            let next = asks(&mut peers, other, both[1]);
            let done = are_done(&mut peers, &[(0, &one), (other, &next)], 2000);
            assert!(done, "{when}: it waits for ever");
            is_sound(&mut peers, file, &when);
        }
    }
}

/// Who was about to remove a name dies, or gives up; before its home has heard of anything a third
/// machine, the home, or his next process moves it, or has another of its names take it.
#[test]
fn a_name_of_one_who_died_may_be_moved_by_whoever_comes_next() {
    for (next, from, dies) in (0..3).flat_map(|next| {
        [NAMES[0], NAMES[1]]
            .into_iter()
            .flat_map(move |from| [(next, from, true), (next, from, false)])
    }) {
        for steps in 0..14 {
            let when = format!("by {next}, {from:?}, {dies}, after {steps}");
            let mut peers = some();
            let file = file(&mut peers);
            let asked = asks(&mut peers, 0, Request::Unlink(b"d/b"));
            goes_on(&mut peers, 0, &asked, steps);
            if dies {
                peers.sims[0].kill();
            }
            peers.sims[0].end(asked.0);
            peers.collect(0);
            let to: &[u8] = if from == NAMES[0] { b"d/b" } else { b"d/z" };
            let _ = peers.ask(next, mv(from, to));
            is_sound(&mut peers, file, &when);
        }
    }
}

#[test]
fn a_home_that_hears_late_of_a_name_that_was_to_go_counts_it_where_it_is() {
    for (next, steps) in [0, 2].into_iter().flat_map(|next| (0..8).map(move |steps| (next, steps)))
    {
        let mut peers = some();
        let file = file(&mut peers);
        peers.unheard.insert((1, 0));
        let asked = asks(&mut peers, 0, Request::Unlink(b"d/b"));
        assert!(!goes_on(&mut peers, 0, &asked, steps), "its home has not heard of it");
        peers.sims[0].end(asked.0);
        peers.collect(0);
        let moves = asks(&mut peers, next, mv(b"d/b", b"d/z"));
        let early = goes_on(&mut peers, next, &moves, 20);
        peers.unheard.clear();
        peers.cut(0, 1);
        assert!(early || goes_on(&mut peers, next, &moves, 1000), "it waits for ever");
        is_sound(&mut peers, file, &format!("by {next}, after {steps}"));
    }
}

/// A transaction that fails was to give a name which went just before.
#[test]
fn a_name_that_went_and_was_to_come_again_and_does_not_is_gone() {
    for kills in [false, true] {
        let mut peers = some();
        let file = file(&mut peers);
        makes(&mut peers, 2, b"d/2", b"two");
        peers.create(0, b"d/more").expect("it has the directory");
        peers.ask(0, Request::Unlink(b"d/b")).expect("removed");
        let (path, name, how) = (&b"d/2"[..], &b"user.a"[..], XattrHow::Replace);
        let create = Operation::SetXattr { path, name, value: Some(&b"it"[..]), how };
        transact(&mut peers, 0, &[given(b"d/a", b"d/b"), create]).expect_err("nothing to replace");
        if kills {
            peers.sims[0].kill();
        }
        is_sound(&mut peers, file, "it is not given");
    }
}

const AT_HOME: [&[u8]; 3] = [b"h/k", b"d/b", b"d/c"];

/// A file of the second server, with one name in a directory of its own, and two in one of the
/// third's.
fn with_one_at_home() -> Peers {
    let mut peers = Peers::new(51, 3);
    peers.make_directory(1, b"h").expect("made");
    peers.make_directory(2, b"d").expect("made");
    makes(&mut peers, 1, AT_HOME[0], ONE);
    for name in &AT_HOME[1..] {
        link(&mut peers, 1, AT_HOME[0], name).expect("linked");
    }
    peers.pass(Duration::from_secs(3));
    peers.create(1, b"h/own").expect("it has the directory");
    peers.create(2, b"d/own").expect("it has the directory");
    peers
}

/// Two programs remove the same name, and one of them another one, after so many steps; the machine
/// may be lost after more.
fn let_go_twice(gap: u64, lost: Option<u64>) {
    let when = format!("{gap} {lost:?}");
    let mut peers = with_one_at_home();
    let one = asks(&mut peers, 2, Request::Unlink(AT_HOME[1]));
    goes_on(&mut peers, 2, &one, gap);
    let other = asks(&mut peers, 2, Request::Unlink(AT_HOME[1]));
    let next = asks(&mut peers, 2, Request::Unlink(AT_HOME[2]));
    let all = [(2, &one), (2, &other), (2, &next)];
    let done = are_done(&mut peers, &all, lost.unwrap_or(2000));
    assert!(done || lost.is_some(), "{when}: it waits for ever");
    if lost.is_some() {
        peers.dies(2);
        peers.remove(2, Verdict::Dead, 2);
    }
    rest(&mut peers);
    let is_there = |name: &&&[u8]| peers.stat(0, name).is_ok();
    let names: Vec<&[u8]> = AT_HOME.iter().filter(is_there).copied().collect();
    assert!(names.contains(&AT_HOME[0]), "{when}: nobody has removed it");
    for at in 0..2 {
        let counted = peers.stat(at, AT_HOME[0]).expect("it is there").links as usize;
        let exact = lost.is_some() || counted == names.len();
        assert!(exact && counted >= names.len(), "{when}: {counted}, {names:?}");
        assert_eq!(says(&mut peers, at, AT_HOME[0]), ONE, "{when}");
    }
}

#[test]
fn a_name_at_the_home_stays_though_another_one_was_let_go_twice() {
    (0..16).for_each(|gap| let_go_twice(gap, None));
    for (gap, steps) in (0..10).flat_map(|gap| (0..24).map(move |steps| (gap, steps))) {
        let_go_twice(gap, Some(steps));
    }
}

/// Who was about to remove a name is lost after so many steps; before, another one has removed it.
fn removed_by_another(next: usize, steps: u64) {
    let when = format!("by {next}, after {steps}");
    let mut peers = with_one_at_home();
    let asked = asks(&mut peers, 2, Request::Unlink(AT_HOME[1]));
    let early = goes_on(&mut peers, 2, &asked, steps);
    peers.sims[2].end(asked.0);
    peers.collect(2);
    peers.create(next, b"d/more").expect("it has the directory");
    let gone = peers.ask(next, Request::Unlink(AT_HOME[1])).is_ok();
    assert!(early || gone, "{when}: nobody has removed it");
    peers.dies(2);
    peers.remove(2, Verdict::Dead, 2);
    rest(&mut peers);
    for left in [AT_HOME[0], AT_HOME[2]] {
        assert_eq!(says(&mut peers, 1, AT_HOME[0]), ONE, "{when}");
        assert_eq!(says(&mut peers, 0, AT_HOME[2]), ONE, "{when}");
        let counted = peers.stat(0, left).expect("it is there").links;
        assert!(counted >= 2, "{when}: {counted}");
    }
    peers.ask(0, Request::Unlink(AT_HOME[0])).expect("removed");
    rest(&mut peers);
    assert_eq!(says(&mut peers, 0, AT_HOME[2]), ONE, "{when}: its bytes go under it");
}

#[test]
fn a_name_that_another_one_removed_is_not_counted_for_a_lost_machine_too() {
    for (next, steps) in (0..2).flat_map(|next| (0..16).map(move |steps| (next, steps))) {
        removed_by_another(next, steps);
    }
}

/// A transaction takes names of files of two homes, of which one does not answer for long.
#[test]
fn what_one_home_has_let_go_stays_so_while_another_one_is_waited_for() {
    let mut peers = some();
    makes(&mut peers, 2, b"d/x", b"two");
    link(&mut peers, 2, b"d/x", b"d/w").expect("linked");
    peers.pass(Duration::from_secs(3));
    peers.create(0, b"d/more").expect("it has the directory");
    let file = peers.stat(1, b"d/a").expect("it is there").ino;
    let steps = [Operation::Unlink(&b"d/b"[..]), Operation::Unlink(b"d/w")];
    let encoded = frame::encode(&&steps[..]).expect("it is short");
    peers.unheard.insert((2, 0));
    let asked = asks(&mut peers, 0, Request::Transact(&encoded));
    // Some seconds.
    assert!(!goes_on(&mut peers, 0, &asked, 40), "one has not heard of it");
    let in_doubt = peers.sims[1].with(|server| server.lock().names.in_doubt(file));
    assert_eq!(in_doubt, Some(1));
    peers.unheard.clear();
    peers.cut(0, 2);
    assert!(goes_on(&mut peers, 0, &asked, 1000), "it waits for ever");
    loses_all(&mut peers, &[b"d/a"], "it has one");
}

/// Something is done to names of the file by one of the servers, which may die, or give up.
fn something_is_done(peers: &mut Peers, world: &Virtual) {
    let at = world.one_of(3) as usize;
    if world.one_of(3) == 0 {
        peers.sims[world.one_of(3) as usize].kill_at(1 + world.one_of(8) as i64);
    }
    let [from, to] = [0, 0].map(|_| NAMES[world.one_of(5) as usize]);
    if world.one_of(4) == 0 {
        let _ = link(peers, at, from, to);
        return;
    }
    let request = if world.one_of(2) == 0 { Request::Unlink(from) } else { mv(from, to) };
    let asked = asks(peers, at, request);
    if !goes_on(peers, at, &asked, world.one_of(16)) {
        peers.reconnect();
        if world.one_of(2) == 0 {
            goes_on(peers, at, &asked, 300);
        }
        peers.sims[at].end(asked.0);
        peers.collect(at);
    }
}

#[test]
fn as_many_names_are_counted_as_there_are_whoever_dies_as_they_go() {
    walk_all(40, |seed| {
        let world = Virtual::new(seed);
        let mut peers = some();
        let file = file(&mut peers);
        (0..30).for_each(|_| something_is_done(&mut peers, &world));
        peers.reconnect();
        is_sound(&mut peers, file, "after all");
        [1]
    });
}
