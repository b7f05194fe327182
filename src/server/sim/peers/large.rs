//! Directories with more names than are given from one machine to another: two are too many to be
//! lent, and who has borrowed one with three gives it back.

use std::time::Duration;

use terral_format::ids::{Number, Thing};
use terral_format::wire::message::{OpenHow, RenameHow, Request};
use terral_format::{ErrorKind, Result};
use terral_partition::effect::Access;

use super::{Peers, crowd, member, walks};
use crate::core::limits::Limits;
use crate::core::limits::tests::with;
use crate::sim::client::CREATE;

const FEW: Limits = Limits { given: 1 << 20, lent: 20, borrowed: 40 };

#[test]
fn all_machines_see_one_namespace_where_directories_stay_where_they_are() {
    with(FEW, || walks::all_walk(30, false));
}

#[test]
fn of_many_who_make_or_move_a_name_one_does_where_directories_stay_where_they_are() {
    with(FEW, || crowd::crowds(20, false, false));
    with(FEW, || crowd::crowds(20, true, false));
}

#[test]
fn so_it_is_whoever_dies() {
    with(FEW, || walks::all_walk(20, true));
    with(FEW, || crowd::crowds(20, false, true));
}

#[test]
fn who_was_lent_a_directory_that_has_grown_since_gives_it_back() {
    with(FEW, || {
        let mut peers = Peers::new(11, 2);
        peers.make_directory(1, b"d").expect("made");
        let ino = peers.stat(1, b"d").expect("it is there").ino;
        let access = |peers: &mut Peers, at: usize| {
            let thing = Thing::Directory(Number::new(member(1), ino.0).expect("few"));
            peers.sims[at].with(|server| {
                let state = server.lock();
                state.members.as_ref().map(|members| members.access(thing, &state))
            })
        };
        peers.pass(Duration::from_secs(3));
        for (name, lent) in [(b"d/a", true), (b"d/b", true), (b"d/c", false), (b"d/e", false)] {
            peers.create(0, name).expect("made");
            peers.pass(Duration::from_millis(1500));
            let expected = if lent { Access::Change } else { Access::Nothing };
            assert_eq!(access(&mut peers, 0), Some(Some(expected)), "{name:?}");
            assert_eq!(access(&mut peers, 1), Some(Some(Access::Nothing)), "{name:?}");
        }
        let names = peers.list(1, b"d").expect("listed");
        assert_eq!(names.len(), 4);
    });
}

#[test]
fn what_is_too_large_to_be_given_away_is_used_by_asking() {
    with(Limits { given: 40, ..FEW }, || {
        let mut peers = Peers::new(12, 2);
        peers.make_directory(1, b"d").expect("made");
        peers.make_directory(0, b"e").expect("made");
        for name in [b"d/a", b"d/b", b"d/c"] {
            peers.create(1, name).expect("made");
        }
        let said = |done: Result<()>| done.map_err(|error| (error.kind, error.errno));
        let open = |peers: &mut Peers, how| peers.open(0, b"d/a", how);
        let opened = open(&mut peers, CREATE).expect("it is there");
        peers.close(opened).expect("closed");
        let refused = open(&mut peers, OpenHow { exclusive: true, ..CREATE }).map(drop);
        assert_eq!(said(refused), Err((ErrorKind::Exists, 0)));
        peers.create(0, b"d/g").expect("made by asking");
        let (from, to, how) = (&b"d/a"[..], &b"e/a"[..], RenameHow::Replace);
        let moved = peers.ask(0, Request::Rename { from, to, how }).map(drop);
        assert_eq!(said(moved), Err((ErrorKind::Unsupported, 18)));
        peers.make_directory(0, b"d/f").expect("made by asking");
        peers.ask(0, Request::Unlink(b"d/a")).expect("removed by asking");
        peers.create(1, b"d/e").expect("made where it is");
        assert_eq!(peers.list(0, b"d").expect("listed").len(), 5);
    });
}

/// It has what it knew of, and finds a directory in it that it must have before: else it would look
/// at it as it was for ever.
#[test]
fn who_finds_that_he_needs_more_than_he_has_seen_looks_anew() {
    with(FEW, || assert!(crowd::crowd(2239, false, false) > 0));
}
