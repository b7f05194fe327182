//! Users' servers that leave in order: what one had his other ones go on with, and where there is
//! none, it is what the permanent directory has.

use std::collections::BTreeMap;

use terral_format::ErrorKind;

use super::super::dir::owes_nothing;
use super::super::fencing::roster;
use super::super::users::{ALICE, BOB, got, house_for, put, rename, set_mode, touches_only_roots};
use super::super::{Peers, walk_all};
use crate::sim::world::Virtual;

/// Root's servers of two machines, and alice's; bob's, who is on the second one only.
const ROOT: [usize; 2] = [0, 1];
const HERS: [usize; 2] = [2, 3];
const HIS: usize = 4;

/// All are in, and each has made something.
fn made(seed: u64) -> Peers {
    let users = [None, None, Some(ALICE), Some(ALICE), Some(BOB)];
    let mut peers = house_for(seed, &users);
    let mut roster = roster(users.len(), 2, &BTreeMap::new());
    roster.certificates.clone_from(&peers.certificates);
    (0..users.len()).for_each(|at| peers.hears_roster(at, &roster));
    peers.settle();
    peers.ask(HERS[0], set_mode(b"alice", 0o755)).expect("her own");
    peers.make_directory(HERS[0], b"alice/d").expect("her own");
    put(&mut peers, HERS[0], b"alice/d/f", b"first");
    peers.make_directory(HERS[1], b"alice/d/e").expect("her own");
    put(&mut peers, HERS[1], b"alice/d/e/g", b"second");
    put(&mut peers, HERS[1], b"alice/d/h", b"second");
    put(&mut peers, HIS, b"bob/f", b"his");
    for at in [ROOT[0], ROOT[1], HERS[0]] {
        peers.list(at, b"alice/d/e").expect("listed");
        assert_eq!(got(&mut peers, at, b"bob/f"), Ok(b"his".to_vec()), "{at}");
    }
    peers
}

/// What alice has is there for these, and she goes on with it.
fn she_goes_on(peers: &mut Peers, at: usize, others: &[usize]) {
    for of in [&[at], others].concat() {
        assert_eq!(got(peers, of, b"alice/d/f"), Ok(b"first".to_vec()), "{of}");
        assert_eq!(got(peers, of, b"alice/d/e/g"), Ok(b"second".to_vec()), "{of}");
        assert_eq!(peers.list(of, b"alice/d").map(|names| names.len()), Ok(3), "{of}");
    }
    put(peers, at, b"alice/d/e/new", b"third");
    peers.ask(at, rename(b"alice/d/h", b"alice/d/e/h")).expect("her own");
    for of in others {
        assert_eq!(got(peers, *of, b"alice/d/e/new"), Ok(b"third".to_vec()), "{of}");
        assert_eq!(got(peers, *of, b"alice/d/e/h"), Ok(b"second".to_vec()), "{of}");
        assert!(peers.stat(*of, b"alice/d/h").is_err(), "{of}");
    }
    owes_nothing(peers);
    let tree = peers.dir.as_ref().expect("a store").tree();
    assert!([&b"alice/d/e/new"[..], b"alice/d/e/h"].iter().all(|path| tree.contains_key(*path)));
    touches_only_roots(peers);
}

#[test]
fn who_leaves_one_machine_goes_on_with_all_of_it_on_another() {
    for left in [1, 0] {
        let mut peers = made(1);
        peers.leaves(HERS[left], |_| ());
        she_goes_on(&mut peers, HERS[1 - left], &[ROOT[0], ROOT[1], HIS]);
    }
}

#[test]
fn who_leaves_his_last_machine_leaves_it_and_all_is_in_the_directory() {
    let mut peers = made(2);
    peers.leaves(HIS, |_| ());
    for at in ROOT {
        // What it is his next server says, which nobody starts here.
        let names = peers.list(at, b"").expect("root's");
        assert!(names.iter().any(|(name, _)| name == b"bob"), "{at}");
        let looked = peers.list(at, b"bob").map_err(|error| error.kind);
        assert_eq!(looked.map(drop), Err(ErrorKind::Unauthorized), "{at}");
    }
    she_goes_on(&mut peers, HERS[1], &[ROOT[0], ROOT[1], HERS[0]]);
    let tree = peers.dir.as_ref().expect("a store").tree();
    assert!(tree.contains_key(&b"bob/f"[..]));
}

#[test]
fn a_machine_goes_after_its_users() {
    let mut peers = made(3);
    peers.make_directory(ROOT[1], b"roots").expect("root may");
    put(&mut peers, ROOT[1], b"roots/f", b"root's");
    for out in [HIS, HERS[1], ROOT[1]] {
        peers.leaves(out, |_| ());
    }
    assert_eq!(got(&mut peers, ROOT[0], b"roots/f"), Ok(b"root's".to_vec()));
    she_goes_on(&mut peers, HERS[0], &[ROOT[0]]);
}

#[test]
fn so_it_is_when_servers_die() {
    let [killed] = walk_all(20, |seed| {
        let (mut peers, mut killed) = (made(seed), 0);
        let (world, out) = (Virtual::new(seed), [HERS[1], HIS, HERS[0]][seed as usize % 3]);
        peers.leaves(out, |peers| {
            if world.one_of(3) == 0 {
                let at = world.one_of(5) as usize;
                killed += 1;
                peers.sims[at].kill_at(1 + world.one_of(12) as i64);
            }
        });
        let at = if out == HERS[1] { HERS[0] } else { HERS[1] };
        she_goes_on(&mut peers, at, &ROOT);
        [killed]
    });
    assert!(killed > 0);
}
