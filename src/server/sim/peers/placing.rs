//! Members that keep no files: where what they create is to be, and that no directory is theirs.
//! Not here: that it is created there (the relay of these tests has no library; real machines).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use terral_format::disk::membership::Membership;
use terral_format::disk::partition::Verdict;
use terral_format::ids::{Member, Thing};
use terral_format::wire::message::{OpenHow, RenameHow, Reply, Request};
use terral_format::wire::placement::{Layout, LayoutPolicy, Placement};
use terral_partition::effect::Access;

use super::fencing::roster;
use super::{Peers, member};
use crate::sim::client::CREATE;

/// Three members, of which the last keeps no files, and one of which may be removed.
fn house(seed: u64, layouts: Vec<LayoutPolicy>, removed: &BTreeMap<usize, Verdict>) -> Peers {
    let mut peers = Peers::new(seed, 3);
    let placement = Placement { storage: Some(vec![member(0), member(1)]), layouts };
    for sim in &mut peers.sims {
        sim.with(|server| {
            let mut state = server.lock();
            state.record(Membership::Roster(roster(3, 1, removed)));
            state.record(Membership::Placement(placement.clone()));
            state.commit().expect("there is room");
        });
    }
    peers
}

/// Where a new file is to be.
fn told(peers: &mut Peers, at: usize, path: &[u8], how: OpenHow) -> Option<Member> {
    match peers.ask(at, Request::Open { path, how }).expect("it is told") {
        Reply::Elsewhere(on) => Some(on),
        Reply::Opened { .. } => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn who_keeps_no_files_is_told_where_they_are_to_be_and_has_no_directory() {
    let mut peers = house(1, Vec::new(), &BTreeMap::new());
    peers.make_directory(2, b"d").expect("made");
    peers.make_directory(2, b"d/e").expect("made");
    for (path, exclusive) in [(&b"d/a"[..], false), (b"d/e/a", true), (b"a", true)] {
        let how = OpenHow { exclusive, ..CREATE };
        let on = told(&mut peers, 2, path, how).expect("not here");
        assert!([member(0), member(1)].contains(&on), "{on}");
    }
    assert!(peers.stat(0, b"d/a").is_err(), "nothing was created");
    // What there is, it opens, renames and removes.
    peers.create(0, b"d/b").expect("created");
    assert_eq!(told(&mut peers, 2, b"d/b", CREATE), None);
    let rename = |from, to| Request::Rename { from, to, how: RenameHow::Replace };
    peers.ask(2, rename(&b"d/b"[..], &b"d/e/c"[..])).expect("renamed");
    peers.ask(2, rename(&b"d/e/c"[..], &b"c"[..])).expect("renamed");
    for path in [&b""[..], b"d", b"d/e"] {
        let number = peers.stat(0, path).expect("there").number;
        assert_ne!(number.born(), member(2), "it would decide it");
        let has = peers.sims[2].with(|server| {
            let state = server.lock();
            let members = state.members.as_ref().expect("one");
            members.access(Thing::Directory(number), &state) == Access::Change
        });
        assert_eq!(has, Some(false), "{path:?}");
    }
    assert!(peers.stat(1, b"c").is_ok());
}

#[test]
fn a_pattern_says_where_files_are_for_those_who_keep_some_too() {
    let one = |pattern: &str, layout| LayoutPolicy { pattern: pattern.into(), layout };
    let layouts = vec![
        one("*", Layout::One(member(1))),
        one("here*", Layout::Here),
        one("gone*", Layout::One(member(2))),
        one("near*", Layout::LeastLoaded),
    ];
    let mut peers = house(2, layouts, &BTreeMap::new());
    for at in 0..3 {
        assert_eq!(told(&mut peers, at, b"a", CREATE), Some(member(1)), "{at}");
    }
    assert_eq!(told(&mut peers, 0, b"here", CREATE), None);
    // Where a creator keeps none, or who is named does not, others do.
    for (at, path) in [(2, &b"here-too"[..]), (0, b"gone"), (1, b"near")] {
        let on = told(&mut peers, at, path, CREATE).expect("somewhere");
        assert!([member(0), member(1)].contains(&on), "{on}");
    }
    // Who is told himself creates it once he says so.
    let how = OpenHow { on: Some(member(1)), ..CREATE };
    assert_eq!(told(&mut peers, 1, b"a", how), None);
    assert!(peers.stat(0, b"a").is_ok());
}

#[test]
fn who_chooses_asks_two_at_most_and_once_a_second() {
    let mut peers = house(3, Vec::new(), &BTreeMap::new());
    // Opens what will be full.
    let open = peers.open(0, b"large", CREATE).expect("created");
    peers.write(open, Some(0), &[7; 4096]).expect("written");
    let frames = |peers: &mut Peers| {
        let count = |server: &crate::shared::Shared| {
            let state = server.lock();
            state.members.as_ref().expect("one").traffic().so_far().operations
        };
        peers.sims[2].with(count).expect("it lives")
    };
    let mut chosen = BTreeSet::new();
    let before = frames(&mut peers);
    for _ in 0..20 {
        match peers.ask(2, Request::Choose).expect("chosen") {
            Reply::Elsewhere(on) => chosen.insert(on),
            other => panic!("{other:?}"),
        };
    }
    assert!(frames(&mut peers) - before <= 2, "both have said how they are");
    assert_eq!(chosen, [member(0), member(1)].into(), "each choice counts");
    peers.pass(Duration::from_secs(2));
    let quiet = frames(&mut peers);
    peers.pass(Duration::from_secs(20));
    assert_eq!(frames(&mut peers), quiet, "nobody asks by himself");
}

#[test]
fn where_nobody_keeps_files_any_more_creating_fails_at_once() {
    let dead = BTreeMap::from([(0, Verdict::Dead), (1, Verdict::Dead)]);
    let mut peers = house(4, Vec::new(), &dead);
    let error = peers.ask(2, Request::Choose).expect_err("nobody is left");
    assert!(error.errno == 28 && error.to_string().contains("keeps files any more"), "{error}");
}
