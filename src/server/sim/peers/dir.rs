//! Several servers with one permanent store: in the end it has what one server would have brought.

use std::collections::BTreeMap;
use std::time::Duration;

use terral_format::wire::message::Kind;

use super::tree::Tree;
use super::walks::act;
use super::{Peers, seeds};
use crate::sim::world::Virtual;

/// All names in the store, and whether they are directories'.
fn there(peers: &Peers) -> BTreeMap<Vec<u8>, bool> {
    let tree = peers.dir.as_ref().expect("a store").tree();
    let own = |path: &[u8]| path.is_empty() || path.starts_with(b".terral");
    let seen = tree.into_iter().filter(|(path, _)| !own(path));
    seen.map(|(path, seen)| (path, seen.found.attributes.kind == Kind::Directory)).collect()
}

/// Whether any of them owes the store something.
fn owes(peers: &mut Peers) -> bool {
    let owes = |sim: &mut crate::sim::Sim| {
        sim.with(|server| {
            let mut state = server.lock();
            state.finishing = true;
            let names = !state.names.owed().is_empty() || !state.names.publishing().is_empty();
            state.debts.iter().next().is_some() || names || state.waits_between()
        })
    };
    peers.sims.iter_mut().any(|sim| owes(sim) != Some(false))
}

fn walk(seed: u64, steps: usize, kills: bool) {
    let mut peers = Peers::with_dir(seed, 3);
    let mut tree = Tree::default();
    let world = Virtual::new(seed);
    let mut draw = |of| world.one_of(of);
    for _ in 0..steps {
        if kills && draw(4) == 0 {
            let at = draw(3) as usize;
            peers.sims[at].kill_at(1 + draw(12) as i64);
        }
        act(&mut peers, &mut tree, &mut draw);
    }
    for _ in 0..200 {
        if !owes(&mut peers) {
            break;
        }
        peers.pass(Duration::from_secs(1));
    }
    assert!(!owes(&mut peers), "they owe it for ever");
    assert_eq!(there(&peers), tree.all());
}

fn all_walk(most: u64, kills: bool) {
    for seed in seeds(most) {
        let walked = std::panic::catch_unwind(|| walk(seed, 120, kills));
        assert!(walked.is_ok(), "seed {seed}");
    }
}

#[test]
fn what_several_machines_change_arrives_as_one_namespace() {
    all_walk(30, false);
}

#[test]
fn so_it_does_when_servers_die() {
    all_walk(30, true);
}
