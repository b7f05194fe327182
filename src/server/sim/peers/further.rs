//! Files with several names, whose home is one server, and whose names others make and take.

use std::collections::BTreeMap;
use std::time::Duration;

use terral_format::ids::SessionSlot;
use terral_format::local::names::flag;
use terral_format::wire::message::{Kind, RenameHow, Request, Target};
use terral_format::{ErrorKind, Result};
use terral_transport::requests::Taken;

use super::{Handled, Peers, dir};
use crate::sim::client::{CREATE, READ};

pub(super) fn some(with_dir: bool, seed: u64) -> Peers {
    if with_dir { Peers::with_dir(seed, 3) } else { Peers::new(seed, 3) }
}

/// Makes a file that says something, born on a server.
pub(super) fn makes(peers: &mut Peers, at: usize, path: &[u8], says: &[u8]) {
    let open = peers.open(at, path, CREATE).expect("made");
    peers.write(open, Some(0), says).expect("written");
    peers.close(open).expect("closed");
}

pub(super) fn link(peers: &mut Peers, at: usize, from: &[u8], to: &[u8]) -> Result<()> {
    peers.ask(at, Request::Link { target: Target::Path(from), path: to }).map(drop)
}

/// How many names a file has, as all say.
pub(super) fn links(peers: &mut Peers, path: &[u8]) -> u32 {
    let all: Vec<u32> = (0..3).map(|at| peers.stat(at, path).expect("it is there").links).collect();
    assert!(all.iter().all(|links| *links == all[0]), "{all:?}");
    all[0]
}

pub(super) fn says(peers: &mut Peers, at: usize, path: &[u8]) -> Vec<u8> {
    let open = peers.open(at, path, READ).expect("it is there");
    let read = peers.read(open, 0, 100).expect("read");
    peers.close(open).expect("closed");
    read
}

/// A program of a server asks something; it is not carried out yet.
pub(super) fn asks(
    peers: &mut Peers,
    at: usize,
    request: Request<'_>,
) -> (usize, SessionSlot, Taken) {
    let client = peers.sims[at].connect();
    let taken = peers.sims[at].asking(client, request).expect("encodes");
    (client, peers.sims[at].clients[client].session, taken)
}

/// It is carried out so far. Whether it is through.
pub(super) fn goes_on(
    peers: &mut Peers,
    at: usize,
    of: &(usize, SessionSlot, Taken),
    steps: u64,
) -> bool {
    for _ in 0..steps {
        if matches!(peers.handle(at, of.1, &of.2), Some(Handled::Answer(_))) {
            return true;
        }
        if !peers.carry() {
            peers.pass(Duration::from_millis(100));
        }
    }
    false
}

/// Files that a server has, and which have no name.
pub(super) fn nameless(peers: &mut Peers, at: usize) -> usize {
    let count = peers.sims[at].with(|server| {
        let state = server.lock();
        let files = state.names.inodes().filter(|inode| inode.kind == Kind::File);
        files.filter(|inode| !inode.is(flag::NAMED) && !inode.is(flag::PREALLOCATED)).count()
    });
    count.unwrap_or_default()
}

pub(super) fn rest(peers: &mut Peers) {
    (0..60).for_each(|_| peers.pass(Duration::from_secs(1)));
}

#[test]
fn a_file_and_its_bytes_are_there_as_long_as_one_of_its_names_wherever_that_was_made() {
    for with_dir in [false, true] {
        for (dies, home) in (0..4).flat_map(|dies| (0..3).map(move |home| (dies, home))) {
            let mut peers = some(with_dir, 31);
            let kill = |peers: &mut Peers| {
                if dies < 3 {
                    peers.sims[dies].kill();
                }
            };
            peers.make_directory(0, b"d").expect("made");
            makes(&mut peers, home, b"d/a", b"what it says");
            link(&mut peers, 2, b"d/a", b"b").expect("linked");
            kill(&mut peers);
            assert_eq!(links(&mut peers, b"b"), 2);
            peers.ask(0, Request::Unlink(b"d/a")).expect("removed");
            kill(&mut peers);
            assert_eq!(links(&mut peers, b"b"), 1);
            link(&mut peers, 1, b"b", b"d/c").expect("linked");
            peers.ask(1, Request::Unlink(b"b")).expect("removed");
            kill(&mut peers);
            rest(&mut peers);
            for at in 0..3 {
                assert_eq!(says(&mut peers, at, b"d/c"), b"what it says");
            }
            let open = peers.open(2, b"d/c", READ).expect("opened");
            peers.ask(0, Request::Unlink(b"d/c")).expect("removed");
            rest(&mut peers);
            assert_eq!(peers.read(open, 0, 100).expect("it is open"), b"what it says");
            peers.close(open).expect("closed");
            rest(&mut peers);
            assert_eq!((0..3).map(|at| nameless(&mut peers, at)).sum::<usize>(), 0);
            assert!(!with_dir || !dir::owes(&mut peers), "they owe it for ever");
        }
    }
}

/// All see the same files under the same names; each says how many it has, and those that are left
/// in the store are links to one another there.
pub(super) fn is_sound(peers: &mut Peers, paths: &[&[u8]]) {
    rest(peers);
    let mut names = BTreeMap::<_, Vec<&[u8]>>::new();
    for path in paths {
        if let Ok(is) = peers.stat(0, path) {
            names.entry(is.ino).or_default().push(path);
        }
    }
    for of in names.values() {
        for path in of {
            assert_eq!(links(peers, path) as usize, of.len(), "{of:?}");
            let said = (0..3).map(|at| says(peers, at, path)).collect::<Vec<_>>();
            assert!(said.iter().all(|it| *it == said[0] && !it.is_empty()), "{said:?}");
        }
    }
    for at in 0..3 {
        assert_eq!(nameless(peers, at), 0, "nothing is left on {at}");
    }
    if peers.dir.is_some() {
        assert!(!dir::owes(peers), "they owe it for ever");
        dir::are_links_there(peers, names.values());
    }
}

/// Something is asked of a server, which is killed, or another one is, or loses who asks it, after
/// so many steps.
fn interrupted(with_dir: bool, request: Request<'_>, (steps, dies): (u64, usize)) {
    let mut peers = some(with_dir, 32);
    for at in 0..2 {
        peers.make_directory(at, [&b"d"[..], b"e"][at]).expect("made");
    }
    makes(&mut peers, 1, b"d/a", b"one");
    link(&mut peers, 1, b"d/a", b"e/b").expect("linked");
    makes(&mut peers, 0, b"c", b"another");
    peers.pass(Duration::from_secs(3));
    let asked = asks(&mut peers, 0, request);
    goes_on(&mut peers, 0, &asked, steps);
    match dies {
        0..3 => peers.sims[dies].kill(),
        3 => peers.cut(0, 1),
        _ => {}
    }
    if dies < 4 && steps % 2 == 0 {
        assert!(goes_on(&mut peers, 0, &asked, 1000), "it waits for ever");
    }
    peers.sims[0].end(asked.0);
    peers.collect(0);
    is_sound(&mut peers, &[b"d/a", b"e/b", b"c", b"d/f"]);
    peers.stat(2, b"e/b").expect("nobody has removed it");
}

fn all_interrupted(request: Request<'_>) {
    for with_dir in [false, true] {
        for at in (0..16).flat_map(|steps| (0..5).map(move |dies| (steps, dies))) {
            let done = || interrupted(with_dir, request, at);
            std::panic::catch_unwind(done).unwrap_or_else(|_| panic!("{with_dir} {at:?}"));
        }
    }
}

#[test]
fn who_dies_as_a_name_is_given_leaves_as_many_as_are_counted() {
    all_interrupted(Request::Link { target: Target::Path(b"d/a"), path: b"d/f" });
}

#[test]
fn who_dies_as_a_name_is_removed_leaves_as_many_as_are_counted() {
    all_interrupted(Request::Unlink(b"d/a"));
}

#[test]
fn who_dies_as_another_machines_file_takes_a_name_leaves_as_many_as_are_counted() {
    all_interrupted(Request::Rename { from: b"c", to: b"d/a", how: RenameHow::Replace });
}

/// Who removes a name has seen that it is the only one, and then the file gets another.
fn linked_while_it_is_removed(steps: u64, dies: bool) {
    let mut peers = Peers::new(33, 3);
    peers.make_directory(0, b"d").expect("made");
    makes(&mut peers, 1, b"d/a", b"one");
    peers.pass(Duration::from_secs(3));
    peers.create(0, b"d/own").expect("it has the directory");
    let asked = asks(&mut peers, 0, Request::Unlink(b"d/a"));
    let done = goes_on(&mut peers, 0, &asked, steps);
    let linked = link(&mut peers, 2, b"d/a", b"b").map_err(|error| error.kind);
    assert!(done || goes_on(&mut peers, 0, &asked, 1000), "it waits for ever");
    for _ in 0..10 {
        if dies {
            peers.sims[1].kill();
        }
        peers.carry();
    }
    rest(&mut peers);
    let missing = peers.stat(2, b"d/a").map(drop).map_err(|error| error.kind);
    assert_eq!(missing, Err(ErrorKind::NotFound));
    match linked {
        Ok(()) => {
            assert_eq!(links(&mut peers, b"b"), 1, "after {steps}");
            assert_eq!(says(&mut peers, 0, b"b"), b"one");
        }
        other => assert_eq!(other, Err(ErrorKind::NotFound)),
    }
}

#[test]
fn a_file_that_gets_a_name_as_it_loses_its_only_one_has_one() {
    for (steps, dies) in (0..30).flat_map(|steps| [(steps, false), (steps, true)]) {
        linked_while_it_is_removed(steps, dies);
    }
}

/// A name is removed, and before its home has looked the file gets it again: by a link of another
/// machine, or as the home moves another of its names there.
fn named_again(with_dir: bool, moves: bool) {
    let mut peers = some(with_dir, 34);
    peers.make_directory(0, b"d").expect("made");
    makes(&mut peers, 1, b"d/a", b"one");
    link(&mut peers, 1, b"d/a", b"b").expect("linked");
    peers.pass(Duration::from_secs(3));
    peers.create(0, b"own").expect("it has the directory");
    peers.ask(0, Request::Unlink(b"b")).expect("removed");
    let leaves = peers.sims[1].with(|server| {
        let state = server.lock();
        state.names.is_any_leaving()
    });
    assert!(with_dir || leaves == Some(true), "it is not looked at yet");
    let (from, to, how) = (&b"d/a"[..], &b"b"[..], RenameHow::Replace);
    match moves {
        true => peers.ask(1, Request::Rename { from, to, how }).map(drop).expect("moved"),
        false => link(&mut peers, 2, from, to).expect("linked"),
    }
    rest(&mut peers);
    assert_eq!(links(&mut peers, b"b"), 2 - u32::from(moves));
    if !moves {
        peers.ask(0, Request::Unlink(b"b")).expect("removed");
        link(&mut peers, 2, from, to).expect("linked");
        peers.ask(0, Request::Unlink(b"b")).expect("removed");
        rest(&mut peers);
        assert_eq!(links(&mut peers, from), 1);
    }
}

#[test]
fn a_name_that_goes_and_comes_again_is_counted_once() {
    for (with_dir, moves) in [(false, false), (false, true), (true, false), (true, true)] {
        named_again(with_dir, moves);
    }
}
