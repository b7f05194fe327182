//! Users who have servers on several machines: each is to his other ones what members are to each
//! other where there are no users, and a stranger to all else.

use std::collections::BTreeMap;

use terral_format::ErrorKind;
use terral_format::disk::partition::{Standing, Verdict};
use terral_format::wire::message::{Request, Target};

use super::dir::owes_nothing;
use super::users::{
    ALICE, BOB, got, house_for, is_denied, put, rename, set_mode, touches_only_roots,
};
use super::{Peers, member};
use crate::members::roles;

mod leaving;
mod whereabouts;

/// Root's servers of two machines, and alice's; bob's, who is on the second one only.
const ROOT: [usize; 2] = [0, 1];
const HERS: [usize; 2] = [2, 3];
const HIS: usize = 4;
const ALL: [usize; 5] = [0, 1, 2, 3, 4];

fn house(seed: u64) -> Peers {
    house_for(seed, &[None, None, Some(ALICE), Some(ALICE), Some(BOB)])
}

/// Alice lets others in, and makes something on her first machine.
fn made(seed: u64) -> Peers {
    let mut peers = house(seed);
    peers.ask(HERS[0], set_mode(b"alice", 0o755)).expect("her own");
    peers.make_directory(HERS[0], b"alice/d").expect("her own");
    put(&mut peers, HERS[0], b"alice/d/f", b"first");
    peers
}

#[test]
fn a_user_makes_names_in_what_he_made_elsewhere_and_others_see_them() {
    let mut peers = made(1);
    peers.make_directory(HERS[1], b"alice/d/e").expect("her own");
    put(&mut peers, HERS[1], b"alice/d/e/g", b"second");
    put(&mut peers, HERS[1], b"alice/d/h", b"second");
    for at in ALL {
        assert_eq!(got(&mut peers, at, b"alice/d/f"), Ok(b"first".to_vec()), "{at}");
        assert_eq!(got(&mut peers, at, b"alice/d/e/g"), Ok(b"second".to_vec()), "{at}");
        assert_eq!(peers.list(at, b"alice/d").map(|names| names.len()), Ok(3), "{at}");
    }
    assert_eq!(peers.stat(HERS[0], b"alice/d/h").map(|is| is.number.born()), Ok(member(HERS[1])));
    // Her files, wherever they are, she renames, removes and writes to.
    peers.ask(HERS[0], rename(b"alice/d/h", b"alice/d/i")).expect("her own");
    peers.ask(HERS[1], rename(b"alice/d/f", b"alice/d/e/f")).expect("her own");
    peers.ask(HERS[0], Request::Unlink(b"alice/d/e/g")).expect("her own");
    let link = Request::Link { target: Target::Path(b"alice/d/i"), path: b"alice/d/e/i" };
    peers.ask(HERS[0], link).expect("her own");
    put(&mut peers, HERS[0], b"alice/d/e/i", b"over");
    for at in ALL {
        assert_eq!(got(&mut peers, at, b"alice/d/i"), Ok(b"overnd".to_vec()), "{at}");
        assert_eq!(got(&mut peers, at, b"alice/d/e/f"), Ok(b"first".to_vec()), "{at}");
        assert!(peers.stat(at, b"alice/d/e/g").is_err() && peers.stat(at, b"alice/d/f").is_err());
    }
    owes_nothing(&mut peers);
    let tree = peers.dir.as_ref().expect("a store").tree();
    for path in [&b"alice/d/i"[..], b"alice/d/e/i", b"alice/d/e/f", b"alice/d/e"] {
        let is = tree.get(path).map(|seen| seen.found.attributes.uid);
        assert_eq!(is, Some(ALICE), "{path:?}");
    }
    touches_only_roots(&peers);
}

#[test]
fn strangers_have_what_bits_let_them_on_whichever_machine_they_are() {
    let mut peers = made(2);
    put(&mut peers, HERS[1], b"alice/d/own", b"secret");
    peers.ask(HERS[1], set_mode(b"alice/d/own", 0o600)).expect("her own");
    peers.ask(HERS[0], set_mode(b"alice/d", 0o777)).expect("her own");
    for path in [&b"alice/d/own"[..], b"alice/d/f"] {
        assert!(is_denied(peers.ask(HIS, Request::Unlink(path))), "{path:?}");
        assert!(is_denied(peers.ask(HIS, rename(path, b"bob/it"))), "{path:?}");
        assert!(is_denied(peers.ask(HIS, set_mode(path, 0o666))), "{path:?}");
    }
    assert!(is_denied(got(&mut peers, HIS, b"alice/d/own")));
    assert!(is_denied(peers.create(HIS, b"alice/d/new")));
    for at in HERS {
        assert!(is_denied(peers.create(at, b"bob/new")) && is_denied(peers.create(at, b"new")));
        assert_eq!(got(&mut peers, at, b"alice/d/own"), Ok(b"secret".to_vec()), "{at}");
    }
    // Root's servers have root's names, each of them.
    for (at, path) in [(ROOT[0], &b"one"[..]), (ROOT[1], b"two")] {
        peers.make_directory(at, path).expect("root may");
        put(&mut peers, at, &[path, b"/f"].concat(), b"root's");
    }
    peers.ask(ROOT[0], rename(b"two/f", b"one/g")).expect("root may");
    for at in ALL {
        assert_eq!(got(&mut peers, at, b"one/g"), Ok(b"root's".to_vec()), "{at}");
    }
    owes_nothing(&mut peers);
    touches_only_roots(&peers);
}

#[test]
fn what_one_has_in_a_directory_of_roots_has_one_home_whichever_root_asks() {
    let mut peers = house(3);
    let dir = peers.dir.clone().expect("a store");
    for path in [&b"all/one"[..], b"all/two"] {
        dir.put(path, b"hers").expect("put");
        super::users::gives(&dir, path, (ALICE, 0o644));
    }
    for (at, path) in [(ROOT[1], &b"all/one"[..]), (HIS, b"all/two"), (HERS[1], b"all/one")] {
        assert_eq!(got(&mut peers, at, path), Ok(b"hers".to_vec()), "{at}");
        assert_eq!(peers.stat(at, path).map(|is| is.number.born()), Ok(member(HERS[1])), "{at}");
    }
    touches_only_roots(&peers);
}

#[test]
fn a_directory_of_several_of_her_servers_gets_no_other_path() {
    let mut peers = made(6);
    peers.make_directory(HERS[1], b"alice/d/e").expect("her own");
    put(&mut peers, HERS[1], b"alice/d/e/g", b"second");
    peers.make_directory(HERS[0], b"alice/own").expect("her own");
    put(&mut peers, HERS[0], b"alice/own/f", b"mine");
    let moves = |peers: &mut Peers, at, from: &[u8], to: &[u8]| {
        peers.ask(at, rename(from, to)).map_err(|error| error.kind)
    };
    let not = Err(ErrorKind::CrossDevice);
    assert_eq!(moves(&mut peers, HERS[0], b"alice/d", b"alice/g").map(drop), not);
    // Two that go into each other would make a circle.
    for (at, from, to) in [
        (HERS[0], &b"alice/own"[..], &b"alice/d/e/own"[..]),
        (HERS[1], b"alice/d/e", b"alice/own/e"),
    ] {
        assert_eq!(moves(&mut peers, at, from, to).map(drop), not, "{at}");
    }
    // What is one's alone is called otherwise, and all find it.
    peers.make_directory(HERS[0], b"alice/new").expect("her own");
    put(&mut peers, HERS[0], b"alice/new/f", b"mine");
    moves(&mut peers, HERS[0], b"alice/new", b"alice/mine").expect("its own");
    for at in ALL {
        assert_eq!(got(&mut peers, at, b"alice/mine/f"), Ok(b"mine".to_vec()), "{at}");
        assert!(peers.stat(at, b"alice/new").is_err(), "{at}");
    }
    owes_nothing(&mut peers);
    touches_only_roots(&peers);
}

/// One of them is lost, and who goes on with what it decided is as the control says.
fn loses(peers: &mut Peers, lost: usize) {
    let mut roster = super::fencing::roster(ALL.len(), 1, &BTreeMap::new());
    roster.certificates.clone_from(&peers.certificates);
    let heir = roles::heir(&roster, (member(lost), &[member(lost)]), member(0));
    peers.heir = ALL.into_iter().find(|at| member(*at) == heir);
    peers.remove(lost, Verdict::Dead, 2);
    assert!(matches!(roster.seats[lost].standing, Standing::In(_)));
}

#[test]
fn what_a_lost_server_of_hers_decided_her_other_one_goes_on_with() {
    let mut peers = made(4);
    put(&mut peers, HERS[1], b"alice/d/h", b"second");
    owes_nothing(&mut peers);
    for at in ALL {
        assert_eq!(peers.list(at, b"alice/d").map(|names| names.len()), Ok(2), "{at}");
    }
    // Her other one has seen it as the permanent directory has it.
    assert_eq!(got(&mut peers, HERS[1], b"alice/d/f"), Ok(b"first".to_vec()));
    loses(&mut peers, HERS[0]);
    assert_eq!(peers.heir, Some(HERS[1]));
    for at in [ROOT[0], HIS, HERS[1], ROOT[1]] {
        assert_eq!(got(&mut peers, at, b"alice/d/h"), Ok(b"second".to_vec()), "{at}");
        assert_eq!(got(&mut peers, at, b"alice/d/f"), Ok(b"first".to_vec()), "{at}");
    }
    put(&mut peers, HERS[1], b"alice/d/new", b"third");
    peers.ask(HERS[1], Request::Unlink(b"alice/d/f")).expect("her own");
    for at in [ROOT[0], ROOT[1], HIS] {
        assert_eq!(got(&mut peers, at, b"alice/d/new"), Ok(b"third".to_vec()), "{at}");
        assert!(peers.stat(at, b"alice/d/f").is_err(), "{at}");
    }
    owes_nothing(&mut peers);
    touches_only_roots(&peers);
}

/// Her other server has never looked at what the lost one decided. It is killed, or who asks first,
/// after so many records of its log.
#[test]
fn she_goes_on_with_what_she_never_looked_at_whoever_is_killed() {
    let kills = (0..16).flat_map(|records| [HERS[1], HIS].map(|at| Some((at, records))));
    for (first, killed) in [None].into_iter().chain(kills).flat_map(|it| [(HIS, it), (HERS[1], it)])
    {
        let mut peers = made(6);
        peers.make_directory(HERS[0], b"alice/d/e").expect("her own");
        put(&mut peers, HERS[0], b"alice/d/e/g", b"first");
        owes_nothing(&mut peers);
        for path in [&b"alice"[..], b"alice/d", b"alice/d/e"] {
            assert!(peers.list(HIS, path).is_ok());
        }
        if let Some((at, records)) = killed {
            peers.sims[at].kill_at(records);
        }
        loses(&mut peers, HERS[0]);
        for at in [first, HERS[1], ROOT[0], HIS] {
            let names = peers.list(at, b"alice/d/e").map(|names| names.len());
            assert_eq!(names, Ok(1), "{at}, {first} first, killed: {killed:?}");
        }
        put(&mut peers, HERS[1], b"alice/d/e/new", b"second");
        for at in [ROOT[1], HIS] {
            assert_eq!(got(&mut peers, at, b"alice/d/e/new"), Ok(b"second".to_vec()), "{at}");
            assert_eq!(got(&mut peers, at, b"alice/d/e/g"), Ok(b"first".to_vec()), "{at}");
        }
        owes_nothing(&mut peers);
        touches_only_roots(&peers);
    }
}

#[test]
fn what_the_last_server_of_his_decided_is_found_anew() {
    let mut peers = house(5);
    put(&mut peers, HIS, b"bob/f", b"his");
    owes_nothing(&mut peers);
    assert_eq!(got(&mut peers, HERS[0], b"bob/f"), Ok(b"his".to_vec()));
    loses(&mut peers, HIS);
    assert_eq!(peers.heir, Some(ROOT[0]));
    // What it is root's servers say, and nobody opens it until he comes.
    assert!(peers.list(ROOT[1], b"").is_ok());
    touches_only_roots(&peers);
}
