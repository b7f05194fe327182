//! Directories that were made in the run, of which the permanent store is not asked: what somebody
//! else puts there behind the servers' back is not seen in them, as with a server alone, and is in
//! all others; nor is the store asked of what it is owed.

use std::time::Duration;

use terral_format::ErrorKind;
use terral_format::ids::{ROOT, Thing};
use terral_format::wire::message::{RenameHow, Request};

use super::Peers;
use super::dir::{owes_nothing, there};
use super::transacting::{Step, moved, transact};
use crate::naming::elsewhere::thing_of;
use crate::sim::faults::Fault;

fn pass(peers: &mut Peers) {
    (0..6).for_each(|_| peers.pass(Duration::from_secs(1)));
}

/// Somebody else puts a file into a directory. Who sees it.
fn put(peers: &mut Peers, path: &[u8]) -> Vec<bool> {
    let dir = peers.dir.clone().expect("a store");
    dir.put(path, b"theirs").expect("written");
    let seen = |peers: &mut Peers, at| match peers.stat(at, path) {
        Ok(_) => true,
        Err(error) if error.kind == ErrorKind::NotFound => false,
        Err(error) => panic!("{error:?}"),
    };
    (0..peers.sims.len()).map(|at| seen(peers, at)).collect()
}

/// Which servers know that they have all names of this directory.
fn whole(peers: &mut Peers, path: &[u8]) -> Vec<bool> {
    let is = |sim: &mut crate::sim::Sim| {
        sim.with(|server| {
            let state = server.lock();
            let ino = state.names.child_here(ROOT, path);
            let thing: Option<Thing> = ino.and_then(|ino| thing_of(&state, ino));
            let members = state.members.as_ref().zip(thing);
            members.is_some_and(|(members, thing)| members.is_whole(thing))
        })
    };
    peers.sims.iter_mut().map(|sim| is(sim).unwrap_or_default()).collect()
}

#[test]
fn what_is_missing_in_a_directory_of_this_run_is_not_looked_for_in_the_store() {
    let mut peers = Peers::with_dir(61, 3);
    peers.make_directory(0, b"d").expect("made");
    peers.create(0, b"d/own").expect("made");
    for (at, name) in [(1, &b"d/one"[..]), (2, b"d/two"), (1, b"d/more")] {
        peers.create(at, name).expect("made");
    }
    pass(&mut peers);
    assert!(there(&peers).contains_key(&b"d/more"[..]));
    assert_eq!(put(&mut peers, b"d/theirs"), [false; 3]);
    // It goes to who is alone in it, and comes back.
    for at in [1, 0, 2] {
        pass(&mut peers);
        peers.create(at, &[b"d/later", &[b'0' + at as u8][..]].concat()).expect("made");
        assert_eq!(put(&mut peers, b"d/behind"), [false; 3], "{at}");
        assert_eq!(whole(&mut peers, b"d").iter().filter(|is| **is).count(), 1);
    }
    let listed = peers.list(2, b"d").expect("listed");
    assert_eq!(listed.len(), 7);
}

#[test]
fn one_that_was_there_before_is() {
    let mut peers = Peers::with_dir(62, 2);
    let dir = peers.dir.clone().expect("a store");
    dir.put(b"d/old", b"old").expect("written");
    peers.create(1, b"d/new").expect("made");
    assert_eq!(whole(&mut peers, b"d"), [false; 2]);
    for at in [0, 1] {
        assert_eq!(peers.stat(at, b"d/old").expect("it is there").size, 3);
    }
    assert_eq!(put(&mut peers, b"d/theirs"), [true; 2]);
    // Removed, and made again, it is another one.
    for name in [&b"d/old"[..], b"d/new", b"d/theirs"] {
        peers.ask(1, Request::Unlink(name)).expect("removed");
    }
    peers.ask(0, Request::RemoveDirectory(b"d")).expect("removed");
    peers.make_directory(1, b"d").expect("made");
    peers.create(0, b"d/old").expect("made");
    assert_eq!(peers.list(1, b"d").expect("listed").len(), 1);
    pass(&mut peers);
    assert_eq!(there(&peers).into_keys().collect::<Vec<_>>(), [&b"d"[..], b"d/old"]);
    assert_eq!(put(&mut peers, b"d/theirs"), [false; 2]);
}

#[test]
fn who_has_died_looks_again_and_so_do_all_once_a_machine_is_lost() {
    let mut peers = Peers::with_dir(63, 2);
    peers.make_directory(0, b"d").expect("made");
    peers.create(1, b"d/one").expect("made");
    pass(&mut peers);
    assert!(whole(&mut peers, b"d").contains(&true));
    (0..2).for_each(|at| peers.sims[at].kill());
    pass(&mut peers);
    assert_eq!(whole(&mut peers, b"d"), [false; 2]);
    peers.create(1, b"d/two").expect("made");
    peers.create(0, b"d/three").expect("made");
    assert_eq!(peers.list(1, b"d").expect("listed").len(), 3);
}

#[test]
fn one_made_while_the_store_could_not_be_asked_is_not_known_to_be_new() {
    for is_away in [false, true] {
        let mut peers = Peers::with_dir(64, 2);
        if is_away {
            peers.sims[0].faults.begin(Fault::Away, Duration::from_secs(1));
        }
        peers.make_directory(0, b"d").expect("made");
        assert_eq!(whole(&mut peers, b"d"), [!is_away, false]);
    }
}

/// The store has a file of this name, which is a directory's by now, with a file in it that another
/// machine has looked at: it is owed that.
fn owed(seed: u64, at_once: bool) -> Peers {
    let mut peers = Peers::with_dir(seed, 2);
    peers.create(0, b"d").expect("made");
    peers.create(0, b"f").expect("made");
    peers.stat(1, b"f").expect("it is there");
    pass(&mut peers);
    peers.ask(0, Request::Unlink(b"d")).expect("removed");
    let (path, mode) = (&b"d"[..], 0o755);
    let steps = [Step::MakeDirectory { path, mode }, moved(b"f", b"d/f")];
    for steps in steps.chunks(if at_once { 2 } else { 1 }) {
        transact(&mut peers, 0, steps).expect("they can be done");
    }
    assert!(is_owed(&peers));
    peers
}

/// Whether the store has nothing of it yet.
fn is_owed(peers: &Peers) -> bool {
    !there(peers)[&b"d"[..]]
}

#[test]
fn one_that_the_store_is_owed_has_no_names_there_whoever_dies_meanwhile() {
    for (at_once, dies) in [(true, false), (true, true), (false, true)] {
        let mut peers = owed(65, at_once);
        for at in [1, 0] {
            if dies {
                peers.sims[0].kill();
            }
            assert_eq!(peers.list(at, b"d").expect("listed").len(), 1, "on {at}");
            let refused = peers.stat(at, b"d/none").expect_err("it is not there");
            assert_eq!(refused.kind, ErrorKind::NotFound, "on {at}: {refused}");
            assert!(is_owed(&peers), "nobody waits for the store");
        }
        owes_nothing(&mut peers);
        assert_eq!(there(&peers).into_keys().collect::<Vec<_>>(), [&b"d"[..], b"d/f"]);
    }
}

#[test]
fn what_the_store_has_is_found_though_it_was_moved_into_one_that_is_owed() {
    let mut peers = owed(66, true);
    let dir = peers.dir.clone().expect("a store");
    dir.put(b"b/theirs", b"theirs").expect("written");
    let (from, to, how) = (&b"b"[..], &b"d/b"[..], RenameHow::Replace);
    peers.ask(0, Request::Rename { from, to, how }).expect("moved");
    peers.sims[0].kill();
    for at in [1, 0] {
        assert_eq!(peers.stat(at, b"d/b/theirs").expect("it is there").size, 6);
        assert_eq!(peers.list(at, b"d/b").expect("listed").len(), 1, "on {at}");
        assert_eq!(peers.list(at, b"d").expect("listed").len(), 2, "on {at}");
        assert!(is_owed(&peers), "nobody waits for the store");
    }
    owes_nothing(&mut peers);
    let names = [&b"d"[..], b"d/b", b"d/b/theirs", b"d/f"];
    assert_eq!(there(&peers).into_keys().collect::<Vec<_>>(), names);
    // It has the directory by now: names are looked for in it, and it is gone if somebody takes it.
    assert_eq!(put(&mut peers, b"d/behind"), [true; 2]);
    let taken = [&b"d/behind"[..], b"d/b/theirs", b"d/b", b"d/f", b"d"];
    taken.into_iter().for_each(|path| dir.remove(path).expect("removed"));
    let refused = peers.list(1, b"d").expect_err("somebody else has removed it");
    assert_eq!(refused.kind, ErrorKind::NotFound, "{refused}");
}

#[test]
fn what_was_in_an_older_directory_of_its_name_does_not_come_back() {
    let mut peers = Peers::with_dir(67, 2);
    let dir = peers.dir.clone().expect("a store");
    dir.put(b"d/old", b"old").expect("written");
    peers.create(0, b"f").expect("made");
    peers.stat(1, b"f").expect("it is there");
    pass(&mut peers);
    peers.ask(0, Request::Unlink(b"d/old")).expect("removed");
    peers.ask(0, Request::RemoveDirectory(b"d")).expect("removed");
    peers.make_directory(0, b"d").expect("made");
    transact(&mut peers, 0, &[moved(b"f", b"d/f")]).expect("it can be done");
    peers.sims[0].kill();
    for at in [1, 0] {
        assert_eq!(peers.list(at, b"d").expect("listed").len(), 1, "on {at}");
        let refused = peers.stat(at, b"d/old").expect_err("it was removed");
        assert_eq!(refused.kind, ErrorKind::NotFound, "on {at}: {refused}");
        assert!(there(&peers).contains_key(&b"d/old"[..]), "nobody waits for the store");
    }
    owes_nothing(&mut peers);
    assert_eq!(there(&peers).into_keys().collect::<Vec<_>>(), [&b"d"[..], b"d/f"]);
}
