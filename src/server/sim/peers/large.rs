//! Directories with more names than are given from one machine to another: two are too many to be
//! lent, and who has borrowed one with three gives it back.

use std::time::Duration;

use terral_format::ids::{Number, Thing};
use terral_partition::effect::Access;

use super::{Peers, crowd, member, walks};
use crate::core::limits::Limits;
use crate::core::limits::tests::with;

const FEW: Limits = Limits { lent: 20, borrowed: 40 };

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
