//! A file that is fenced by a holder on one machine: those of others write it with his token or a
//! greater one, and have no chunk of it for themselves.

use std::sync::atomic::Ordering;

use terral_format::wire::far_files::FarFile;
use terral_format::wire::fencing::{Fenced, Fencing};
use terral_format::wire::locks::{LockAsk, LockKind, LockRange, Locker};
use terral_format::wire::message::{Reply, Request, Target};
use terral_format::{ErrorKind, Result};

use super::Peers;
use super::bytes::Open;
use super::locks::WRITE;

fn say(peers: &mut Peers, open: Open, what: Fencing) -> Result<Fenced> {
    let asked = FarFile::Fencing { of: open.handle(), what };
    match peers.ask(open.at, Request::Far(asked))? {
        Reply::Fenced(fenced) => Ok(fenced),
        other => panic!("{other:?}"),
    }
}

/// As a client does that has been given a token.
fn holds(peers: &Peers, open: Open, token: u64) {
    let memory = &peers.sims[open.at].memory;
    memory.description_token(open.description).store(token, Ordering::SeqCst);
}

fn lock(peers: &mut Peers, open: Open, kind: LockKind) -> Result<()> {
    let Open { file, description, nonce, .. } = open;
    let (locker, range) = (Locker::Process, LockRange::ALL);
    let ask = LockAsk { ino: file.ino, description, nonce, locker, range, kind };
    peers.ask(open.at, Request::Far(FarFile::Lock { ask, wait: 0 })).map(drop)
}

/// The same file, born on the first of three, open on the other two.
fn opened(seed: u64) -> (Peers, [Open; 2]) {
    let mut peers = Peers::new(seed, 3);
    peers.create(0, b"a").expect("made");
    let open = [1, 2].map(|at| peers.open(at, b"a", WRITE).expect("opened"));
    (peers, open)
}

fn kind<T>(done: Result<T>) -> Option<ErrorKind> {
    done.err().map(|error| error.kind)
}

#[test]
fn what_another_machine_had_alone_comes_back_and_is_not_lent_again() {
    for kill in 0..10 {
        let (mut peers, [one, other]) = opened(kill + 1);
        let borrow = |peers: &mut Peers| {
            let asked = FarFile::Borrow { of: one.handle(), first: 0, count: 1 };
            peers.ask(1, Request::Far(asked)).expect("answered")
        };
        assert!(matches!(borrow(&mut peers), Reply::Lent(_)), "it is lent");
        peers.sims[0].kill_at(kill as i64);
        say(&mut peers, other, Fencing::Fence { token: 9 }).expect("fenced");
        assert_eq!(borrow(&mut peers), Reply::Again, "it is written where it was born");
        for (token, refused) in [(0, true), (8, true), (9, false), (10, false)] {
            holds(&peers, one, token);
            let written = kind(peers.write(one, Some(0), &[token as u8; 100]));
            assert_eq!(written, refused.then_some(ErrorKind::Stale), "with {token}");
            let target = Target::File(one.file);
            let cut = peers.ask(1, Request::Truncate { target, size: 50, token });
            assert_eq!(kind(cut), refused.then_some(ErrorKind::Stale), "cut with {token}");
        }
        assert_eq!(peers.read(other, 0, 100).expect("read"), [10; 50]);
        let lower = say(&mut peers, one, Fencing::Fence { token: 8 });
        assert_eq!(kind(lower), Some(ErrorKind::Stale));
    }
}

#[test]
fn tokens_of_one_lock_grow_over_all_machines_wherever_its_home_is_killed() {
    for moment in 1..12 {
        let (mut peers, open) = opened(moment);
        let mut last = 0;
        for turn in 0..6 {
            let (one, other) = (open[turn % 2], open[(turn + 1) % 2]);
            lock(&mut peers, one, LockKind::Exclusive).expect("it is free");
            peers.sims[0].kill_at(moment as i64);
            assert_eq!(
                kind(lock(&mut peers, other, LockKind::Exclusive)),
                Some(ErrorKind::WouldBlock)
            );
            let take = Fencing::Take { lease_ms: 1000 };
            let token = say(&mut peers, one, take).expect("it has it").token;
            assert!(token > last, "{token} after {last}");
            last = token;
            assert_eq!(kind(say(&mut peers, other, take)), Some(ErrorKind::Stale));
            lock(&mut peers, one, LockKind::Unlock).expect("given back");
        }
    }
}

#[test]
fn the_lock_of_a_machine_that_is_silent_is_anothers_after_its_lease() {
    let (mut peers, [one, other]) = opened(3);
    lock(&mut peers, one, LockKind::Exclusive).expect("it is free");
    let take = Fencing::Take { lease_ms: 1000 };
    let token = say(&mut peers, one, take).expect("it has it").token;
    peers.pass(std::time::Duration::from_millis(600));
    assert_eq!(kind(lock(&mut peers, other, LockKind::Exclusive)), Some(ErrorKind::WouldBlock));
    peers.pass(std::time::Duration::from_secs(2));
    lock(&mut peers, other, LockKind::Exclusive).expect("it is free now");
    assert!(say(&mut peers, other, take).expect("it has it").token > token);
    let renew = Fencing::Renew { token, lease_ms: 1000 };
    assert_eq!(kind(say(&mut peers, one, renew)), Some(ErrorKind::Stale));
}
