//! What only the permanent store has, looked at by all servers at once: each directory is listed
//! there once, and again as soon as somebody has changed it.

use std::collections::BTreeMap;
use std::time::Duration;

use terral_format::wire::message::Request;

use super::Peers;
use super::further::{asks, goes_on};

const SERVERS: usize = 4;
/// More than are looked for at a time.
const FILES: usize = 300;
const DIRECTORIES: [&[u8]; 2] = [b"d/one", b"d/two"];

/// All list a directory at once, one step after the other.
fn all_list(peers: &mut Peers, path: &[u8]) {
    let request = || Request::List { path, after: b"" };
    let mut waits: Vec<_> = (0..SERVERS).map(|at| (at, asks(peers, at, request()))).collect();
    for _ in 0..1000 {
        waits.retain(|(at, of)| !goes_on(peers, *at, of, 1));
    }
    assert_eq!(waits.len(), 0, "they wait for ever");
}

/// How often each directory was listed in the store since the last time.
fn listed(peers: &Peers, before: &mut BTreeMap<Vec<u8>, u64>) -> Vec<u64> {
    let mut all = BTreeMap::<_, u64>::new();
    for (path, times) in peers.sims.iter().flat_map(|sim| sim.faults.listed()) {
        *all.entry(path).or_default() += times;
    }
    let since = |(path, times): (&Vec<u8>, &u64)| times - before.get(path).unwrap_or(&0);
    let since = all.iter().map(since).filter(|times| *times > 0).collect();
    *before = all;
    since
}

fn look_at(far: bool, seed: u64) {
    let mut peers = Peers::with_dir_that_is(far, seed, SERVERS);
    let dir = peers.dir.clone().expect("a store");
    for path in DIRECTORIES {
        for file in 0..FILES {
            dir.put(&[path, format!("/f{file}").as_bytes()].concat(), b"").expect("made");
        }
    }
    // What has changed just now may change once more and look the same.
    peers.pass(Duration::from_secs(5));
    let mut before = BTreeMap::new();
    listed(&peers, &mut before);
    for path in [&b"d"[..]].iter().chain(&DIRECTORIES) {
        all_list(&mut peers, path);
    }
    assert_eq!(listed(&peers, &mut before), [1; 3], "each once, far: {far}");
    // Whenever somebody changes something there, all see that, and nothing else is read anew.
    for (at, more) in [b"d/one/g", b"d/one/h"].into_iter().enumerate() {
        dir.put(more, b"").expect("made");
        for server in 0..SERVERS {
            for (path, more) in DIRECTORIES.into_iter().zip([1 + at, 0]) {
                let names = peers.list(server, path).expect("listed").len();
                assert_eq!(names, FILES + more, "on {server}");
            }
        }
        assert_eq!(listed(&peers, &mut before), [1], "far: {far}");
    }
}

#[test]
fn a_tree_that_only_the_store_has_is_listed_once_for_all_who_look_at_it_at_once() {
    for far in [false, true] {
        (0..3).for_each(|seed| look_at(far, 71 + seed));
    }
}
