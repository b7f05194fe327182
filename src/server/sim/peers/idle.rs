//! What servers say to each other while nobody does anything: leases are renewed of those that hold
//! something, and nothing else is said.

use std::collections::BTreeMap;
use std::time::Duration;

use terral_format::ids::ROOT;
use terral_format::wire::message::Kind;
use terral_partition::effect::{Access, Input};
use terral_partition::terms::Terms;

use super::Peers;
use crate::far::linking;
use crate::naming::elsewhere::thing_of;

const SERVERS: usize = 4;
/// How often a server looks after its leases.
const TICK: Duration = Duration::from_millis(250);
/// So many terms are counted.
const TERMS: u32 = 12;

/// Time passes, for all at once, and each has its tick within it when its turn comes, or all have
/// theirs at the end.
fn pass(peers: &mut Peers, in_turn: bool) {
    let parts = if in_turn { SERVERS as u32 } else { 1 };
    for part in 0..parts as usize {
        peers.sims.iter().for_each(|sim| sim.world.pass(TICK / parts));
        for at in (0..SERVERS).filter(|at| !in_turn || *at == part) {
            peers.tell(at, Input::Tick);
            peers.sims[at].with(|server| linking::tick(&mut server.lock()));
        }
        peers.settle();
    }
}

/// A file's name in the directory of a server.
fn path(of: usize) -> Vec<u8> {
    format!("d{of}/f").into_bytes()
}

/// How many of the others' directories a server has been shown, and may look at still.
fn holds(peers: &mut Peers, at: usize) -> usize {
    let held = peers.sims[at].with(|server| {
        let state = server.lock();
        let root = state.names.inode(ROOT).expect("the root");
        let directories = state.names.children(&root).filter(|(_, it)| it.kind == Kind::Directory);
        let things = directories.filter_map(|(_, directory)| thing_of(&state, directory.ino));
        let members = state.members.as_ref().expect("several");
        things.filter(|thing| members.access(*thing, &state) == Access::Leased).count()
    });
    held.expect("it lives")
}

/// Servers of which each has been shown something of those that `looks` says, and frames between
/// each two in so many terms after that.
fn idle(in_turn: bool, looks: impl Fn(usize, usize) -> bool) -> BTreeMap<(usize, usize), u64> {
    let mut peers = Peers::new(91, SERVERS);
    for at in 0..SERVERS {
        // What is at rest is lent, and made where it was lent to.
        (0..20).for_each(|_| peers.pass(TICK));
        peers.make_directory(at, format!("d{at}").as_bytes()).expect("made");
        peers.create(at, &path(at)).expect("made");
    }
    // What is at rest is shown.
    (0..40).for_each(|_| peers.pass(TICK));
    for at in 0..SERVERS {
        for other in (0..SERVERS).filter(|other| *other != at && looks(at, *other)) {
            peers.list(at, &path(other)[..2]).expect("listed");
            peers.stat(at, &path(other)).expect("it is there");
        }
    }
    let of = |at| (0..SERVERS).filter(|other| *other != at && looks(at, *other)).count();
    let terms = Terms::USUAL.lease.as_millis() / TICK.as_millis();
    (0..terms).for_each(|_| pass(&mut peers, in_turn));
    peers.came.clear();
    for _ in 0..terms * u128::from(TERMS) {
        pass(&mut peers, in_turn);
        for at in 0..SERVERS {
            assert_eq!(holds(&mut peers, at), of(at), "{at} may look all the time");
        }
    }
    let mut pairs = BTreeMap::new();
    for ((from, to), frames) in &peers.came {
        *pairs.entry((*from.min(to), *from.max(to))).or_default() += frames;
    }
    pairs
}

/// Frames that a term takes at most, in both directions: who has been shown something asks when
/// half of the term is over, and is answered.
const ONE_WAY: u64 = 4;

#[test]
fn in_an_idle_partition_only_those_say_anything_that_hold_something_of_each_other() {
    for in_turn in [false, true] {
        let all = idle(in_turn, |_, _| true);
        let one_way = idle(in_turn, |at, other| at > other);
        let one = idle(in_turn, |at, other| (at, other) == (2, 0));
        println!("in turn: {in_turn}; {TERMS} terms: {all:?}; {one_way:?}; {one:?}");
        let most = |ways| ways * ONE_WAY * u64::from(TERMS);
        let pairs = SERVERS * (SERVERS - 1) / 2;
        assert!(all.len() == pairs && all.values().all(|frames| *frames <= most(2)), "{all:?}");
        let few = one_way.values().all(|frames| *frames <= most(1));
        assert!(one_way.len() == pairs && few, "{one_way:?}");
        assert!(one.len() == 1 && one[&(0, 2)] <= most(1), "{one:?}");
        assert_eq!(idle(in_turn, |_, _| false), BTreeMap::new(), "nothing is held");
    }
}
