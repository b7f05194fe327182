//! Users' servers that are removed: what that keeps from others, and what it does not.

use std::collections::BTreeMap;

use terral_format::disk::partition::Verdict;
use terral_store::backing::NameSink;

use super::users::{ALICE, BOB, certificates, gives, got, house_of, put, touches_only_roots};
use super::{Peers, member};

const DAVE: u32 = 1003;
/// Somebody who has not come.
const NOBODY: u32 = 1009;

/// Root's server, alice's, bob's, dave's, and one more of bob's, which has not come.
fn house(seed: u64) -> Peers {
    let mut peers = house_of(seed, &[ALICE, BOB, DAVE, BOB]);
    peers.certificates = certificates(&[ALICE, BOB, DAVE, NOBODY]);
    peers.know_certificates();
    peers
}

/// Bob's server has lost its memory, and another one of his comes; dave's was removed before, and
/// may live, or is in. Who had looked at what bob had goes on, with root's server and with bob's,
/// though one of them is killed after so many records of its log.
fn goes_on(is_fenced: bool, killed: Option<(usize, i64)>) {
    let mut peers = house(1);
    peers.make_directory(2, b"bob/d").expect("his own");
    put(&mut peers, 2, b"bob/d/f", b"bob's");
    super::dir::owes_nothing(&mut peers);
    for at in [0, 1, 3] {
        assert_eq!(peers.list(at, b"bob/d").map(|names| names.len()), Ok(1), "{at}");
        assert_eq!(got(&mut peers, at, b"bob/d/f"), Ok(b"bob's".to_vec()), "{at}");
    }
    let mut removed = BTreeMap::new();
    if is_fenced {
        peers.remove(3, Verdict::Fenced, 2);
        removed.insert(3, Verdict::Fenced);
    }
    peers.certificates = certificates(&[ALICE, BOB, DAVE, BOB]);
    if let Some((at, records)) = killed {
        peers.sims[at].kill_at(records);
    }
    peers.remove_too(2, Verdict::Dead, (3, removed));
    peers.make_directory(0, b"all/new").expect("root may");
    assert!(peers.stat(1, b"all/new").is_ok(), "root hears alice's server");
    put(&mut peers, 4, b"bob/d/new", b"his own");
    for at in [4, 0, 1] {
        assert_eq!(peers.list(at, b"bob/d").map(|names| names.len()), Ok(2), "{at}");
        assert_eq!(got(&mut peers, at, b"bob/d/f"), Ok(b"bob's".to_vec()), "{at}");
        assert_eq!(peers.stat(at, b"bob/d/f").map(|is| is.number.born()), Ok(member(4)), "{at}");
    }
    touches_only_roots(&peers);
}

#[test]
fn who_had_looked_at_what_a_lost_users_server_had_goes_on() {
    goes_on(false, None);
}

/// Bob's server has lost its memory, and another one of his comes. What he has lies in a directory
/// of root's that others may search, and not list.
fn is_gone_through(listed: bool) {
    let mut peers = house(1);
    let dir = peers.dir.clone().expect("a store");
    dir.make_directory(b"home", 0o711).expect("put");
    dir.make_directory(b"home/bob", 0o755).expect("put");
    gives(&dir, b"home/bob", (BOB, 0o755));
    put(&mut peers, 2, b"home/bob/f", b"bob's");
    super::dir::owes_nothing(&mut peers);
    if listed {
        assert!(peers.list(0, b"home").is_ok());
    }
    assert_eq!(got(&mut peers, 1, b"home/bob/f"), Ok(b"bob's".to_vec()));
    peers.certificates = certificates(&[ALICE, BOB, DAVE, BOB]);
    peers.remove(2, Verdict::Dead, 2);
    for at in [3, 1, 4, 0] {
        assert_eq!(got(&mut peers, at, b"home/bob/f"), Ok(b"bob's".to_vec()), "{at}");
    }
    touches_only_roots(&peers);
}

#[test]
fn who_may_only_search_a_directory_goes_through_it_to_what_a_lost_users_server_had() {
    for listed in [false, true] {
        is_gone_through(listed);
    }
}

#[test]
fn a_users_server_that_was_fenced_keeps_nothing_of_others_from_them() {
    goes_on(true, None);
}

#[test]
fn so_they_do_whoever_is_killed_as_it_hears_of_it() {
    for at in [0, 1, 4] {
        for records in 1..=16 {
            goes_on(records % 2 == 0, Some((at, records)));
        }
    }
}

#[test]
fn what_a_users_server_had_is_there_as_it_is_fenced_and_as_it_is_said_to_be_dead() {
    for killed in [None, Some((0, 3)), Some((4, 3))] {
        let mut peers = house(1);
        peers.make_directory(2, b"bob/d").expect("his own");
        put(&mut peers, 2, b"bob/d/f", b"bob's");
        super::dir::owes_nothing(&mut peers);
        assert_eq!(got(&mut peers, 1, b"bob/d/f"), Ok(b"bob's".to_vec()));
        peers.remove(3, Verdict::Fenced, 2);
        peers.certificates = certificates(&[ALICE, BOB, DAVE, BOB]);
        peers.remove_too(2, Verdict::Fenced, (3, [(3, Verdict::Fenced)].into()));
        for at in [0, 1, 4] {
            assert_eq!(peers.list(at, b"bob/d").map(|names| names.len()), Ok(1), "{at}");
            assert_eq!(got(&mut peers, at, b"bob/d/f"), Ok(b"bob's".to_vec()), "{at}");
        }
        if let Some((at, records)) = killed {
            peers.sims[at].kill_at(records);
        }
        peers.remove_too(2, Verdict::Dead, (4, [(3, Verdict::Fenced)].into()));
        put(&mut peers, 4, b"bob/d/new", b"his own");
        for at in [4, 0, 1] {
            assert_eq!(peers.list(at, b"bob/d").map(|names| names.len()), Ok(2), "{at}");
            assert_eq!(got(&mut peers, at, b"bob/d/f"), Ok(b"bob's".to_vec()), "{at}");
        }
        touches_only_roots(&peers);
    }
}

/// Root's server itself has not looked at the directory that bob's is in since others have.
#[test]
fn who_was_shown_where_a_lost_users_directory_was_looks_where_it_is() {
    let kills = (0..12).flat_map(|records| [0, 1, 4].map(|at| Some((at, records))));
    for (first, killed) in [None].into_iter().chain(kills).flat_map(|it| [(4, it), (1, it)]) {
        let mut peers = house(1);
        peers.make_directory(2, b"bob/d").expect("his own");
        put(&mut peers, 2, b"bob/d/f", b"bob's");
        super::dir::owes_nothing(&mut peers);
        for path in [&b""[..], b"bob", b"bob/d"] {
            peers.list(1, path).expect("shown");
        }
        peers.certificates = certificates(&[ALICE, BOB, DAVE, BOB]);
        if let Some((at, records)) = killed {
            peers.sims[at].kill_at(records);
        }
        peers.remove_too(2, Verdict::Dead, (2, BTreeMap::new()));
        for at in [first, 4, 1, 0] {
            assert_eq!(peers.list(at, b"bob").map(|names| names.len()), Ok(1), "{at}");
            assert_eq!(got(&mut peers, at, b"bob/d/f"), Ok(b"bob's".to_vec()), "{at}");
        }
        put(&mut peers, 4, b"bob/again", b"his own");
        assert_eq!(got(&mut peers, 1, b"bob/again"), Ok(b"his own".to_vec()));
        touches_only_roots(&peers);
    }
}
