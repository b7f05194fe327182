//! Who touches what in the permanent store: each server what is its user's, whoever has it look
//! there. Root's handle notes what it was to touch that is not root's, or lies where others may
//! rename it; a user's does what the kernel would let him.

use std::collections::{BTreeMap, BTreeSet};

use terral_format::disk::membership::Membership;
use terral_format::wire::message::{Change, Kind, RenameHow, Request, Target};
use terral_format::wire::roster::{Certificate, Key};
use terral_format::{ErrorKind, Result};
use terral_store::backing::{BesideOthers, NameSink};

use super::dir::owes_nothing;
use super::users::{
    ALICE, BOB, gives, got, house, house_for, house_on, is_denied, person, put, rename, roots,
    set_mode, store, touches_only_roots,
};
use super::{Peers, member, walk_all};
use crate::sim::client::CREATE;
use crate::sim::world::Virtual;

/// Who owns what, in the store.
fn owners(peers: &Peers) -> BTreeMap<Vec<u8>, u32> {
    let tree = peers.dir.as_ref().expect("a store").tree();
    let own = |path: &[u8]| path.starts_with(b".terral");
    let seen = tree.into_iter().filter(|(path, _)| !own(path));
    seen.map(|(path, seen)| (path, seen.found.attributes.uid)).collect()
}

fn remove<'p>(path: &'p [u8], directory: bool) -> Request<'p> {
    if directory { Request::RemoveDirectory(path) } else { Request::Unlink(path) }
}

fn symlink(peers: &mut Peers, at: usize, path: &[u8]) -> Result<()> {
    peers.ask(at, Request::MakeLink { path, target: b"there" }).map(drop)
}

#[test]
fn what_only_the_store_has_is_looked_at_by_its_owners_server_alone() {
    let mut peers = house(40);
    let dir = peers.dir.clone().expect("a store");
    for (path, owner, mode) in [
        (&b"alice/secret"[..], ALICE, 0o600),
        (b"alice/d/f", ALICE, 0o644),
        (b"all/hers", ALICE, 0o644),
        (b"all/his", BOB, 0o600),
        (b"all/roots", 0, 0o644),
    ] {
        dir.put(path, path).expect("put");
        gives(&dir, path, (owner, mode));
    }
    gives(&dir, b"alice/d", (ALICE, 0o755));
    // Root, in the order of who is asked.
    for path in [&b"alice/secret"[..], b"alice/d/f", b"all/his", b"all/roots"] {
        assert_eq!(got(&mut peers, 0, path), Ok(path.to_vec()), "root reads all");
    }
    assert_eq!(got(&mut peers, 2, b"all/hers"), Ok(b"all/hers".to_vec()));
    assert!(
        is_denied(got(&mut peers, 1, b"all/his")) && is_denied(got(&mut peers, 2, b"alice/d/f"))
    );
    for (path, home) in [(&b"alice"[..], 1), (b"alice/d/f", 1), (b"all/hers", 1), (b"all/his", 2)] {
        for at in [0, 1] {
            if let Ok(is) = peers.stat(at, path) {
                assert_eq!(is.number.born(), member(home), "{path:?} on {at}");
            }
        }
    }
    assert_eq!(peers.stat(0, b"all/roots").expect("there").number.born(), member(0));
    touches_only_roots(&peers);
}

#[test]
fn what_a_user_makes_arrives_as_his() {
    let mut peers = house(41);
    peers.make_directory(1, b"alice/d").expect("hers");
    put(&mut peers, 1, b"alice/d/f", b"hers");
    symlink(&mut peers, 1, b"alice/link").expect("hers");
    peers.make_directory(2, b"bob/d").expect("his");
    peers.make_directory(0, b"all/roots").expect("root may");
    owes_nothing(&mut peers);
    let all = owners(&peers);
    for (path, owner) in [
        (&b"alice/d"[..], ALICE),
        (b"alice/d/f", ALICE),
        (b"alice/link", ALICE),
        (b"bob/d", BOB),
        (b"all/roots", 0),
    ] {
        assert_eq!(all.get(path), Some(&owner), "{path:?}");
        assert_eq!(peers.stat(0, path).map(|is| is.uid), Ok(owner), "{path:?}");
    }
    peers.ask(1, rename(b"alice/link", b"alice/moved")).expect("hers");
    peers.ask(1, remove(b"alice/moved", false)).expect("hers");
    peers.ask(1, remove(b"alice/d/f", false)).expect("hers");
    peers.ask(1, remove(b"alice/d", true)).expect("hers");
    owes_nothing(&mut peers);
    let left: Vec<Vec<u8>> = owners(&peers).into_keys().collect();
    let expected = [&b"alice"[..], b"all", b"all/roots", b"bob", b"bob/d"];
    assert_eq!(left, expected.map(<[u8]>::to_vec));
    touches_only_roots(&peers);
}

#[test]
fn what_is_roots_or_a_users_stays_his() {
    let mut peers = house(42);
    put(&mut peers, 0, b"all/roots", b"root's");
    put(&mut peers, 1, b"alice/hers", b"hers");
    let change = Change { uid: Some(BOB), ..Change::default() };
    for path in [&b"all/roots"[..], b"all", b"alice/hers"] {
        let change = Request::Change { target: Target::Path(path), change };
        assert!(is_denied(peers.ask(0, change)), "{path:?}");
    }
    owes_nothing(&mut peers);
    touches_only_roots(&peers);
}

#[test]
fn what_another_owns_in_a_users_directory_is_listed_and_nobody_has_it() {
    let mut peers = house(46);
    let dir = peers.dir.clone().expect("a store");
    dir.put(b"bob/hers", b"hers").expect("put");
    gives(&dir, b"bob/hers", (ALICE, 0o666));
    dir.put(b"bob/d/f", b"hers").expect("put");
    gives(&dir, b"bob/d", (ALICE, 0o777));
    for at in 0..3 {
        assert_eq!(peers.list(at, b"bob").expect("open to all").len(), 2, "{at}");
        for path in [&b"bob/hers"[..], b"bob/d", b"bob/d/f"] {
            assert!(is_denied(peers.stat(at, path)), "{at}: {path:?}");
        }
        for request in [remove(b"bob/hers", false), rename(b"bob/hers", b"bob/his")] {
            assert!(is_denied(peers.ask(at, request)), "{at}: {request:?}");
        }
        assert!(peers.create(at, b"bob/d/new").is_err(), "{at}");
    }
    touches_only_roots(&peers);
}

#[test]
fn his_server_is_told_no_way_that_he_may_not_search() {
    let mut peers = house(48);
    let dir = peers.dir.clone().expect("a store");
    dir.put(b"save/hers", b"hers").expect("put");
    gives(&dir, b"save/hers", (ALICE, 0o644));
    gives(&dir, b"save", (0, 0o700));
    assert_eq!(peers.list(0, b"save").expect("root's").len(), 1);
    assert!(is_denied(peers.stat(0, b"save/hers")));
}

#[test]
fn where_others_may_rename_what_is_roots_nothing_is_served() {
    let mut peers = house(43);
    let dir = peers.dir.clone().expect("a store");
    for path in [&b"open/roots"[..], b"open/his"] {
        dir.put(path, path).expect("put");
    }
    gives(&dir, b"open/his", (BOB, 0o644));
    gives(&dir, b"open", (0, 0o777));
    for at in 0..3 {
        assert!(is_denied(peers.stat(at, b"open/roots")), "{at}");
        assert!(is_denied(peers.stat(at, b"open/his")), "{at}");
        assert!(peers.create(at, b"open/new").is_err(), "{at}");
    }
    let change = Change { mode: Some(0o1777), ..Change::default() };
    dir.change(b"open", change).expect("there");
    assert_eq!(got(&mut peers, 0, b"open/roots"), Ok(b"open/roots".to_vec()));
    assert_eq!(got(&mut peers, 1, b"open/his"), Ok(b"open/his".to_vec()));
}

#[test]
fn a_server_that_has_not_come_is_asked_for_and_waited_for() {
    let mut peers = house(44);
    let dir = peers.dir.clone().expect("a store");
    dir.put(b"all/carols", b"hers").expect("put");
    gives(&dir, b"all/carols", (1003, 0o644));
    // Who lists needs nobody.
    assert_eq!(peers.list(1, b"all").expect("she may"), [(b"carols".to_vec(), Kind::File)]);
    let awaited = roots(&mut peers, |state| state.members.as_ref().expect("one").awaited_servers());
    assert!(awaited.is_empty());
    // It cannot be started.
    peers.starts = Some(|state, needed| {
        let (now, why) = (state.world.now(), "no such user".into());
        state.members.as_mut().expect("one").comes_not(needed, (why, false), now);
    });
    let error = peers.stat(1, b"all/carols").expect_err("nobody has it");
    assert_eq!(error.kind, ErrorKind::Unauthorized);
    assert!(error.to_string().contains("1003") && error.to_string().contains("no such user"));
    // It is tried again after a while, and comes: here it is bob's, with another user.
    peers.starts = Some(|state, needed| {
        let of = |(at, user)| Certificate { member: member(at), key: Key([0; 32]), user };
        let users = [None, Some(person(ALICE)), Some(person(needed.owner))];
        let certificates = users.into_iter().enumerate().map(of).collect();
        state.record(Membership::Certificates(certificates));
        state.commit().expect("there is room");
    });
    peers.pass(std::time::Duration::from_secs(2));
    let error =
        peers.stat(1, b"all/carols").expect_err("that one does not believe that it is hers");
    assert_eq!(error.kind, ErrorKind::Denied);
    // Of one that never comes it is said, too.
    peers.starts = None;
    gives(&dir, b"all/carols", (1004, 0o644));
    let error = peers.stat(1, b"all/carols").expect_err("nobody has it");
    assert!(error.to_string().contains("1004"), "{error}");
    touches_only_roots(&peers);
}

/// What one of them does at random, with files, directories and links of all of them.
fn act(peers: &mut Peers, draw: &mut impl FnMut(u64) -> u64) {
    let at = draw(peers.sims.len() as u64) as usize;
    let mut path = || {
        let top = [&b"alice"[..], b"bob", b"all", b"roots"][draw(4) as usize].to_vec();
        let names = (0..draw(3)).map(|_| vec![b'a' + draw(3) as u8]);
        std::iter::once(top).chain(names.collect::<Vec<_>>()).collect::<Vec<_>>().join(&b'/')
    };
    let (path, to) = (path(), path());
    let done = match draw(14) {
        0 | 1 => peers.make_directory(at, &path).map(drop),
        2 | 3 => peers.open(at, &path, CREATE).and_then(|open| {
            let written = peers.write(open, Some(0), b"bytes").map(drop);
            peers.close(open).and(written)
        }),
        4 => symlink(peers, at, &path),
        5 => peers.ask(at, remove(&path, false)).map(drop),
        6 => peers.ask(at, remove(&path, true)).map(drop),
        7 => peers.ask(at, rename(&path, &to)).map(drop),
        8 => peers.list(at, &path).map(drop),
        9 => peers.ask(at, set_mode(&path, 0o700 + draw(64) as u32)).map(drop),
        10 if peers.stat(at, &path).is_ok_and(|is| is.kind == Kind::File) => {
            got(peers, at, &path).map(drop)
        }
        11 => {
            let target = Target::Path(&path);
            peers.ask(at, Request::Link { target, path: &to }).map(drop)
        }
        12 => {
            let how = RenameHow::Exchange;
            peers.ask(at, Request::Rename { from: &path, to: &to, how }).map(drop)
        }
        _ => peers.stat(at, &path).map(drop),
    };
    // Most of it one or the other may not; nothing waits for ever.
    drop(done);
}

/// What somebody does in the store itself, as one of them: the names that he does it to.
fn pranks(peers: &Peers, draw: &mut impl FnMut(u64) -> u64) -> [Vec<u8>; 2] {
    let user = [ALICE, BOB][draw(2) as usize];
    let dir = peers.dir.clone().expect("a store").of_program(user);
    let mut path = || {
        let top = [&b"alice"[..], b"bob", b"all"][draw(3) as usize];
        [top, &[b'/', b'a' + draw(3) as u8]].concat()
    };
    let (path, to) = (path(), path());
    let _ = match draw(5) {
        0 => dir.rename(&path, &to).map(drop),
        1 => dir.exchange(&path, &to),
        2 => dir.unlink(&path),
        3 => dir.make_link(&path, b"/etc"),
        _ => dir.make_directory(&path, 0o777),
    };
    [path, to]
}

fn walk(seed: u64, kills: bool, bends: bool) -> u64 {
    walks(seed, house(seed), (kills, bends))
}

/// The same where nothing keeps what others have just made from being replaced.
fn walk_without_flags(seed: u64, kills: bool, bends: bool) -> u64 {
    let beside = [BesideOthers::Made, BesideOthers::NoFiles][usize::from(seed.is_multiple_of(5))];
    let store = store(seed).beside(beside);
    walks(seed, house_on(store, seed, &[None, Some(ALICE), Some(BOB)]), (kills, bends))
}

/// The same where root and alice have two servers each.
fn walk_of_machines(seed: u64, kills: bool) -> u64 {
    let users = [None, Some(ALICE), Some(BOB), None, Some(ALICE)];
    walks(seed, house_for(seed, &users), (kills, false))
}

fn walks(seed: u64, mut peers: Peers, (kills, bends): (bool, bool)) -> u64 {
    peers.make_directory(0, b"roots").expect("root may");
    let world = Virtual::new(seed);
    let mut draw = |of| world.one_of(of);
    let mut bent = BTreeSet::new();
    for _ in 0..100 {
        if kills && draw(5) == 0 {
            let at = draw(peers.sims.len() as u64) as usize;
            peers.sims[at].kill_at(1 + draw(12) as i64);
        }
        if bends && draw(2) == 0 {
            bent.extend(pranks(&peers, &mut draw));
        }
        act(&mut peers, &mut draw);
        if draw(4) == 0 {
            peers.pass(std::time::Duration::from_millis(draw(3000)));
        }
    }
    if !bends {
        owes_nothing(&mut peers);
        for (path, owner) in owners(&peers) {
            let is = peers.stat(0, &path).expect("root sees all");
            assert_eq!(is.uid, owner, "{}", String::from_utf8_lossy(&path));
        }
        touches_only_roots(&peers);
    }
    // What somebody has put where root's was to be is seen, and stays; what root's was about to do
    // below is refused.
    let touched = peers.dir.as_ref().expect("a store").touched();
    let is_bent = |what: &str| {
        // What it is in may have another name since.
        let below = |path: &Vec<u8>| format!("/{}/", char::from(path[path.len() - 1]));
        bent.iter().any(|path| what.contains(&below(path)))
    };
    let below = touched.iter().find(|touch| !touch.in_the_way && !is_bent(&touch.what));
    assert!(below.is_none(), "{below:?}");
    owners(&peers).len() as u64
}

#[test]
fn whatever_all_of_them_do_each_touches_what_is_his_and_it_arrives_as_his() {
    walk_all(30, |seed| [walk(seed, false, false)]);
}

#[test]
fn so_it_is_when_servers_die() {
    walk_all(20, |seed| [walk(seed, true, false)]);
}

#[test]
fn and_when_users_rename_in_the_store_itself() {
    walk_all(30, |seed| [walk(seed, seed % 2 == 0, true)]);
}

#[test]
fn so_it_is_where_the_store_cannot_keep_what_others_make() {
    walk_all(30, |seed| [walk_without_flags(seed, seed % 2 == 0, seed % 3 == 0)]);
}

#[test]
fn so_it_is_on_several_machines() {
    walk_all(30, |seed| [walk_of_machines(seed, false)]);
}

#[test]
fn so_it_is_on_several_machines_when_servers_die() {
    walk_all(20, |seed| [walk_of_machines(seed, true)]);
}

#[test]
fn a_member_more_of_a_user_counts_from_then_on() {
    let mut peers = house(45);
    let server_of = |peers: &mut Peers, user| {
        roots(peers, |state| state.members.as_ref().expect("one").server_of(user))
    };
    assert_eq!(server_of(&mut peers, ALICE), Some(member(1)));
    assert_eq!(server_of(&mut peers, 1003), None);
    roots(&mut peers, |state| {
        let of = |(at, user)| Certificate { member: member(at), key: Key([0; 32]), user };
        let users = [None, Some(person(BOB)), Some(person(BOB))];
        let certificates = users.into_iter().enumerate().map(of).collect();
        state.record(Membership::Certificates(certificates));
        state.commit().expect("there is room");
    });
    assert_eq!(server_of(&mut peers, BOB), Some(member(2)), "the same for all who ask");
}
