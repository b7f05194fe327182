//! A machine is lost where a user's server had adopted what is hers in root's directories: her
//! other one, which goes on with that, has never heard of it. Whoever asks first, root's servers
//! know where it is.

use std::time::Duration;

use terral_format::ErrorKind;
use terral_format::disk::membership::Membership;
use terral_format::disk::partition::{Record, Standing, Verdict};
use terral_format::ids::{Number, ServerId, Thing};
use terral_format::wire::peers::Frame;

use super::super::dir::owes_nothing;
use super::super::users::{
    ALICE, BOB, certificates_for, got, house_for, put, set_mode, touches_only_roots,
};
use super::super::{Peers, fencing, hostile_user, member};

/// Root's server and alice's of one machine, those of another one, which is lost, and bob's there;
/// and bob's on the first, who comes after that.
const ROOT: usize = 0;
const HERS: usize = 1;
const LOST: [usize; 3] = [2, 3, 4];
const HIS: usize = 5;
const LEFT: [usize; 3] = [ROOT, HERS, HIS];
/// Somebody who has not come.
const NOBODY: u32 = 1009;

/// What alice has there, which nobody has looked at elsewhere; the permanent directory has it.
fn made(seed: u64) -> Peers {
    let users = [None, Some(ALICE), None, Some(ALICE), Some(BOB), Some(BOB)];
    let mut peers = house_for(seed, &users);
    let before = [None, Some(ALICE), None, Some(ALICE), Some(BOB), Some(NOBODY)];
    peers.certificates = certificates_for(&before);
    peers.know_certificates();
    peers.ask(LOST[1], set_mode(b"alice", 0o755)).expect("her own");
    peers.make_directory(LOST[1], b"alice/d").expect("her own");
    put(&mut peers, LOST[1], b"alice/d/f", b"first");
    assert_eq!(got(&mut peers, LOST[2], b"alice/d/f"), Ok(b"first".to_vec()));
    assert_eq!(peers.stat(LOST[2], b"alice").map(|is| is.number.born()), Ok(member(LOST[1])));
    owes_nothing(&mut peers);
    peers.certificates = certificates_for(&users);
    peers
}

/// All of it is removed, in one roster.
fn loses(peers: &mut Peers, verdict: Verdict, version: u64) {
    let lost = LOST.map(|at| (at, verdict)).into();
    let mut roster = fencing::roster(6, version, &lost);
    roster.certificates.clone_from(&peers.certificates);
    for (of, heir) in [(LOST[1], HERS), (LOST[2], HIS)] {
        roster.seats[of].standing = Standing::Removed { heir: member(heir), verdict };
    }
    LEFT.into_iter().for_each(|at| peers.hears_roster(at, &roster));
    peers.settle();
}

#[test]
fn whoever_asks_first_finds_it() {
    let kills = (0..12).flat_map(|records| LEFT.map(|at| Some((at, records))));
    let all = [None].into_iter().chain(kills);
    for (first, killed) in all.flat_map(|killed| LEFT.map(|at| (at, killed))) {
        let mut peers = made(8);
        if let Some((at, records)) = killed {
            peers.sims[at].kill_at(records);
        }
        loses(&mut peers, Verdict::Dead, 2);
        for at in [first].into_iter().chain(LEFT) {
            let is = got(&mut peers, at, b"alice/d/f");
            assert_eq!(is, Ok(b"first".to_vec()), "{at}, {first} first, killed: {killed:?}");
        }
        put(&mut peers, HERS, b"alice/d/new", b"second");
        assert_eq!(got(&mut peers, HIS, b"alice/d/new"), Ok(b"second".to_vec()));
        owes_nothing(&mut peers);
        touches_only_roots(&peers);
    }
}

#[test]
fn it_is_an_error_and_is_not_missing_as_long_as_that_machine_may_live() {
    for first in LEFT {
        let mut peers = made(9);
        loses(&mut peers, Verdict::Fenced, 2);
        for at in [first].into_iter().chain(LEFT) {
            for path in [&b"alice"[..], b"alice/d", b"alice/d/f"] {
                let is = peers.stat(at, path).map(drop).map_err(|error| error.kind);
                assert_eq!(is, Err(ErrorKind::Backing), "{at}: {}", String::from_utf8_lossy(path));
            }
        }
        loses(&mut peers, Verdict::Dead, 3);
        for at in [first].into_iter().chain(LEFT) {
            assert_eq!(got(&mut peers, at, b"alice/d/f"), Ok(b"first".to_vec()), "{at}");
        }
        touches_only_roots(&peers);
    }
}

/// What is kept at a server: inodes, and records of who has what.
fn kept(peers: &mut Peers, at: usize) -> (usize, usize) {
    let kept = peers.sims[at].with(|server| {
        let state = server.lock();
        let records = state.members.as_ref().map_or(0, |members| members.snapshot().count());
        (state.names.inodes().count(), records)
    });
    kept.expect("it lives")
}

/// Bob's server wants directories that it makes up, which were born there, in one frame.
fn makes_up(peers: &mut Peers, at: usize, born: usize) {
    let made_up = |count: u64| {
        let number = Number::new(member(born), 1 << 40 | count).expect("one");
        hostile_user::want(1000 + count, member(HIS), Thing::Directory(number))
    };
    let messages = (0..1000).map(made_up).collect();
    // Behind what it has said so far.
    let before = peers.sims[at].with(|server| {
        let state = server.lock();
        let taken = |record| match record {
            Membership::Protocol(Record::Taken(of, count)) if of == member(HIS) => Some(count),
            _ => None,
        };
        state.members.iter().flat_map(|members| members.snapshot()).find_map(taken)
    });
    let before = before.flatten().unwrap_or(0);
    let (from, server) = (member(HIS), ServerId(HIS as u64));
    let frame = Frame { from, server, before, ..hostile_user::frame(messages) };
    let mut bytes = Vec::new();
    frame.write(&mut bytes).expect("encodes");
    peers.send(HIS, member(at), bytes);
    peers.settle();
    peers.pass(Duration::from_secs(1));
}

#[test]
fn nothing_is_kept_of_what_another_user_makes_up_of_it() {
    for verdict in [Verdict::Dead, Verdict::Fenced] {
        // Hers, which her other one goes on with; and what root's has inherited, of root's and of
        // one who has nobody else.
        for (at, born) in [(HERS, LOST[1]), (ROOT, LOST[0]), (ROOT, LOST[2])] {
            let mut peers = made(10);
            loses(&mut peers, verdict, 2);
            makes_up(&mut peers, at, born);
            let before = kept(&mut peers, at);
            for _ in 0..5 {
                makes_up(&mut peers, at, born);
            }
            let after = kept(&mut peers, at);
            assert_eq!(after, before, "{verdict:?} {born}");
        }
    }
}

#[test]
fn few_are_looked_for_at_a_time_for_each_who_asks() {
    let mut peers = made(11);
    loses(&mut peers, Verdict::Dead, 2);
    // Root's server says nothing meanwhile.
    peers.stopped = Some((ROOT, Duration::from_secs(10)));
    makes_up(&mut peers, HERS, LOST[1]);
    let restoring = peers.sims[HERS].with(|server| {
        server.lock().members.as_mut().map_or(0, |members| members.restoring().len())
    });
    assert!((1..=8).contains(&restoring.expect("it lives")), "{restoring:?}");
    peers.stopped = None;
    peers.settle();
    assert_eq!(got(&mut peers, ROOT, b"alice/d/f"), Ok(b"first".to_vec()));
    assert_eq!(got(&mut peers, HERS, b"alice/d/f"), Ok(b"first".to_vec()));
}
