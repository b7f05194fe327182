//! Named locks of one server: tokens that only grow, leases that end, and files in which no byte of
//! an earlier holder comes after a later one has fenced them, wherever who is stopped or killed.
//! Not here: several machines (`peers/fences`).

use std::time::Duration;

use terral_format::wire::far_files::{FarFile, Handle};
use terral_format::wire::fencing::{Fenced, Fencing};
use terral_format::wire::locks::{Lock, LockAsk, LockKind, LockRange, Locker};
use terral_format::wire::message::{OpenHow, Reply, Request, Target};
use terral_format::{ErrorKind, Result};

use super::Sim;
use super::client::{CREATE, Opened};
use super::writing::{Writing, Wrote};
use crate::core::left_out::Step;
use crate::core::left_out::tests::without;

const LEASE_MS: u32 = 1000;
const LEASE: Duration = Duration::from_millis(LEASE_MS as u64);

fn say(sim: &mut Sim, client: usize, open: Opened, what: Fencing) -> Result<Fenced> {
    let of = Handle { description: open.description, nonce: open.nonce };
    match sim.ask(client, Request::Far(FarFile::Fencing { of, what }))? {
        Reply::Fenced(fenced) => Ok(fenced),
        other => panic!("{other:?}"),
    }
}

fn take(sim: &mut Sim, client: usize, open: Opened) -> Result<u64> {
    say(sim, client, open, Fencing::Take { lease_ms: LEASE_MS }).map(|fenced| fenced.token)
}

fn renew(sim: &mut Sim, client: usize, open: Opened, token: u64) -> Result<Fenced> {
    say(sim, client, open, Fencing::Renew { token, lease_ms: LEASE_MS })
}

/// Changes a lock of the whole, in shared memory. False: another is in the way.
fn lock(sim: &mut Sim, client: usize, open: Opened, kind: LockKind) -> bool {
    let owner = sim.locker(client, &open, Locker::Process);
    let lock = Lock { ino: open.file.ino, owner, range: LockRange::ALL, kind };
    sim.lock(client, &open, (Locker::Process, lock))
}

/// The server is told that another one is in the way.
fn wait(sim: &mut Sim, client: usize, open: Opened, waiter: u32) -> Option<ErrorKind> {
    let Opened { file, description, nonce, .. } = open;
    let (locker, range, kind) = (Locker::Process, LockRange::ALL, LockKind::Exclusive);
    let ask = LockAsk { ino: file.ino, description, nonce, locker, range, kind };
    sim.ask(client, Request::LockBlocked { ask, waiter }).err().map(|error| error.kind)
}

/// Two programs that have the same file open.
fn two(seed: u64) -> (Sim, [(usize, Opened); 2]) {
    let mut sim = Sim::new(seed);
    let both = [(); 2].map(|()| {
        let client = sim.connect();
        (client, sim.open(client, b"a", CREATE).expect("opened"))
    });
    (sim, both)
}

#[test]
fn tokens_only_grow_wherever_the_server_is_killed() {
    for moment in 1..12 {
        let (mut sim, both) = two(moment);
        let mut last = 0;
        sim.kill_at(moment as i64);
        for turn in 0..6 {
            let (client, open) = both[turn % 2];
            assert!(lock(&mut sim, client, open, LockKind::Exclusive), "it is free");
            let token = take(&mut sim, client, open).expect("it has it");
            assert!(token > last, "{token} after {last}");
            last = token;
            let said = renew(&mut sim, client, open, token).expect("it has it yet");
            assert_eq!(said.token, token);
            lock(&mut sim, client, open, LockKind::Unlock);
            let kind = renew(&mut sim, client, open, token).map_err(|error| error.kind);
            assert_eq!(kind, Err(ErrorKind::Stale), "it has it no more");
            if turn == 3 {
                sim.with(|server| server.lock().rewrite_log());
            }
        }
        assert!(sim.killed > 0 || moment > 5, "at {moment}");
    }
}

#[test]
fn who_has_no_lock_gets_no_token() {
    let (mut sim, [(one, open), (other, its)]) = two(1);
    let kind = |done: Result<u64>| done.map_err(|error| error.kind);
    assert_eq!(kind(take(&mut sim, one, open)), Err(ErrorKind::Stale));
    assert!(lock(&mut sim, one, open, LockKind::Exclusive));
    assert_eq!(kind(take(&mut sim, other, its)), Err(ErrorKind::Stale));
    assert!(take(&mut sim, one, open).is_ok());
}

#[test]
fn the_lock_of_who_is_silent_is_anothers_after_its_lease_and_of_who_renews_it_is_not() {
    let (mut sim, [(one, open), (other, its)]) = two(1);
    assert!(lock(&mut sim, one, open, LockKind::Exclusive));
    let token = take(&mut sim, one, open).expect("it has it");
    assert!(!lock(&mut sim, other, its, LockKind::Exclusive), "it is had");
    for _ in 0..5 {
        sim.pass(LEASE / 2);
        renew(&mut sim, one, open, token).expect("it has it yet");
        assert_eq!(wait(&mut sim, other, its, 1), Some(ErrorKind::WouldBlock));
    }
    assert!(renew(&mut sim, one, open, token).expect("it has it yet").wanted, "it is said");
    sim.pass(LEASE * 2);
    assert_eq!(wait(&mut sim, other, its, 1), None, "it is free now");
    assert!(lock(&mut sim, other, its, LockKind::Exclusive));
    let later = take(&mut sim, other, its).expect("it has it");
    assert!(later > token);
    let kind = renew(&mut sim, one, open, token).map_err(|error| error.kind);
    assert_eq!(kind, Err(ErrorKind::Stale));
    // A server that has not heard of a holder gives him time.
    sim.kill();
    sim.pass(Duration::from_millis(10));
    assert_eq!(wait(&mut sim, one, open, 1), Some(ErrorKind::WouldBlock));
    sim.pass(LEASE * 2);
    assert_eq!(wait(&mut sim, one, open, 1), Some(ErrorKind::WouldBlock));
    sim.pass(Duration::from_secs(30));
    assert_eq!(wait(&mut sim, one, open, 1), None);
}

#[test]
fn an_ordinary_lock_has_no_lease() {
    let (mut sim, [(one, open), (other, its)]) = two(1);
    assert!(lock(&mut sim, one, open, LockKind::Exclusive));
    for _ in 0..3 {
        sim.pass(Duration::from_secs(3600));
        assert_eq!(wait(&mut sim, other, its, 1), Some(ErrorKind::WouldBlock));
    }
}

/// Steps of the longest write here.
const STEPS: usize = 16;
const BYTES: usize = 3000;

/// An earlier holder is stopped after so many steps, writing or appending; a later one fences the
/// file, and reads it. Then the first goes on. What was read is what is there in the end.
fn stopped(steps: usize, appends: bool, kill: i64) -> bool {
    let (mut sim, [(one, open), (other, its)]) = two(steps as u64 + 1);
    sim.write(one, open.file, 0, &[1; BYTES]).expect("written");
    say(&mut sim, one, open, Fencing::Fence { token: 5 }).expect("fenced");
    let mut writing = match appends {
        true => sim.appending(one, open.file, &[2; BYTES]),
        false => Writing::new(one, open.file, 100, &[2; BYTES]),
    }
    .with(5);
    let mut over = false;
    for _ in 0..steps {
        over = over || sim.go_on_writing(&mut writing).expect("it may") == Wrote::Over;
    }
    sim.kill_at(kill);
    say(&mut sim, other, its, Fencing::Fence { token: 6 }).expect("fenced");
    let read = |sim: &mut Sim| sim.read_whole(other, its);
    let seen = read(&mut sim);
    let mut failed = None;
    while !over && failed.is_none() {
        match sim.go_on_writing(&mut writing) {
            Ok(wrote) => over = wrote == Wrote::Over,
            Err(error) => failed = Some(error.kind),
        }
    }
    let same = read(&mut sim) == seen;
    assert!(failed.is_none_or(|kind| kind == ErrorKind::Stale), "{failed:?}");
    let late = sim.write(one, open.file, 0, &[3; 10]).map_err(|error| error.kind);
    assert_eq!(late, Err(ErrorKind::Stale));
    sim.write_with(other, (its.file, 6), 0, &[4; 10]).expect("the later one's");
    assert_eq!(read(&mut sim)[..10], [4; 10]);
    same
}

#[test]
fn no_byte_of_an_earlier_holder_comes_after_a_later_one_has_fenced_the_file() {
    for (steps, appends) in (0..STEPS).flat_map(|steps| [(steps, false), (steps, true)]) {
        for kill in [0, 1, 2, 3] {
            assert!(stopped(steps, appends, kill), "after {steps} steps, killed at {kill}");
        }
    }
}

#[test]
fn a_server_that_does_not_wait_for_writers_is_caught() {
    let all = || (0..STEPS).all(|steps| stopped(steps, false, 0));
    assert!(all() && !without(Step::WaitForWriters, all));
}

#[test]
fn a_fenced_file_is_neither_cut_nor_mapped_without_the_token_also_after_a_kill() {
    let (mut sim, [(one, open), (other, its)]) = two(1);
    sim.write(one, open.file, 0, &[1; BYTES]).expect("written");
    say(&mut sim, one, open, Fencing::Fence { token: 7 }).expect("fenced");
    for kills in 0..3 {
        let lower = say(&mut sim, other, its, Fencing::Fence { token: 6 });
        assert_eq!(lower.map_err(|error| error.kind), Err(ErrorKind::Stale));
        let target = Target::Path(b"a");
        let mut cut = |token| {
            let done = sim.ask(other, Request::Truncate { target, size: 10, token });
            done.map(drop).map_err(|error| error.kind)
        };
        assert_eq!(
            [cut(0), cut(6), cut(7)],
            [Err(ErrorKind::Stale), Err(ErrorKind::Stale), Ok(())]
        );
        let empty = OpenHow { truncate: true, ..CREATE };
        let opened = sim.open(other, b"a", empty).map_err(|error| error.kind);
        assert_eq!(opened.err(), Some(ErrorKind::Stale));
        let map = Request::Map { file: its.file, first: 0, count: 1, stores: true };
        assert_eq!(sim.ask(other, map).map_err(|error| error.kind), Err(ErrorKind::Unsupported));
        match kills {
            0 => sim.kill(),
            _ => drop(sim.with(|server| server.lock().rewrite_log())),
        }
        if kills == 1 {
            sim.kill();
        }
    }
}
