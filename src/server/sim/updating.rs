//! Update ids of one server: a write on condition is done if nobody has changed the file since, and
//! is whole or nothing, wherever who is stopped or killed. Not here: several machines
//! (`peers/updating`).

use std::sync::atomic::{AtomicU64, Ordering};

use terral_format::local::batch::Head;
use terral_format::local::geometry::{CHUNK_BYTES, FILE_BYTES_MAX, PAGE_BYTES};
use terral_format::wire::far_files::{FarFile, Handle};
use terral_format::wire::message::{Reply, Request, Target, XattrHow};
use terral_format::wire::updates::{RECORDS_MAX, Update};
use terral_format::{ErrorKind, Result};

use super::Sim;
use super::client::{CREATE, Opened};
use super::writing::{Writing, Wrote};
use crate::core::left_out::Step;
use crate::core::left_out::tests::without;

const END: u64 = CHUNK_BYTES;

/// A number that no other call has.
pub(super) fn next_call() -> u64 {
    static CALLS: AtomicU64 = AtomicU64::new(1);
    CALLS.fetch_add(1, Ordering::Relaxed)
}

pub(super) fn records(writes: &[(u64, &[u8])]) -> Vec<u8> {
    let record = |(at, bytes): &(u64, &[u8])| {
        let head = Head { at: *at, bytes: bytes.len() as u32 };
        [&head.write()[..], bytes].concat()
    };
    writes.iter().flat_map(record).collect()
}

fn say(sim: &mut Sim, client: usize, open: Opened, asked: (Update, &[u8])) -> Result<u64> {
    let of = Handle { description: open.description, nonce: open.nonce };
    let (what, records) = asked;
    match sim.ask(client, Request::Far(FarFile::Update { of, what, records }))? {
        Reply::Updated(id) => Ok(id),
        other => panic!("{other:?}"),
    }
}

fn look(sim: &mut Sim, client: usize, open: Opened) -> u64 {
    say(sim, client, open, (Update::Look, &[])).expect("it has one")
}

fn write(
    sim: &mut Sim,
    (client, open): (usize, Opened),
    seen: u64,
    writes: &[(u64, &[u8])],
) -> std::result::Result<u64, ErrorKind> {
    let what = Update::Write { seen, strips: true, token: 0, call: next_call() };
    say(sim, client, open, (what, &records(writes))).map_err(|error| error.kind)
}

/// Two programs that have the same file open, in which something is.
fn two(seed: u64) -> (Sim, [(usize, Opened); 2]) {
    let mut sim = Sim::new(seed);
    let both = [(); 2].map(|()| {
        let client = sim.connect();
        (client, sim.open(client, b"a", CREATE).expect("opened"))
    });
    sim.write(both[0].0, both[0].1.file, 0, &[1; 100]).expect("written");
    (sim, both)
}

/// Bytes here and there in two chunks, some of them twice.
const PARTS: &[(u64, &[u8])] = &[
    (50, &[2; 100]),
    (PAGE_BYTES as u64 * 3 - 10, &[3; 20]),
    (END - 5, &[4; 10]),
    (END + PAGE_BYTES as u64 * 7, &[5; 1]),
    (60, &[6; 4]),
];

/// What is there then.
fn with_parts(before: &[u8]) -> Vec<u8> {
    let mut all = before.to_vec();
    for (at, bytes) in PARTS {
        let (from, to) = (*at as usize, *at as usize + bytes.len());
        all.resize(all.len().max(to), 0);
        all[from..to].copy_from_slice(bytes);
    }
    all
}

/// A write of several parts, of which the server dies as `kills` says. Whether all is there, once,
/// and who asks is told so.
fn survives(seed: u64, kills: impl Fn(&Sim)) -> bool {
    let (mut sim, [mine, other]) = two(seed);
    let before = sim.read_whole(other.0, other.1);
    let id = look(&mut sim, mine.0, mine.1);
    kills(&sim);
    let done = write(&mut sim, mine, id, PARTS);
    let after = sim.read_whole(other.0, other.1);
    // A server that has begun anew does not know how the file was.
    match done {
        Ok(later) => {
            assert!(later > id, "{later} after {id}");
            after == with_parts(&before)
        }
        Err(kind) => kind == ErrorKind::Changed && sim.killed > 0 && after == before,
    }
}

#[test]
fn a_write_on_condition_is_whole_or_nothing_wherever_the_server_is_killed() {
    for moment in 0..16 {
        assert!(survives(moment, |sim| sim.kill_at(moment as i64)), "at record {moment}");
        assert!(survives(moment, |sim| sim.kill_at_bytes(moment as i64)), "at bytes {moment}");
    }
    // Twice: also who does again what is not there is killed.
    for (first, again) in (1..8).flat_map(|first| (1..8).map(move |again| (first, again))) {
        let kills = |sim: &Sim| {
            sim.kill_at_bytes(first);
            sim.kill_at(again);
        };
        assert!(survives(3, kills), "at bytes {first}, record {again}");
    }
}

#[test]
fn a_server_that_writes_before_it_records_is_caught() {
    let all = || (0..16).all(|moment| survives(moment, |sim| sim.kill_at_bytes(moment as i64)));
    assert!(all() && !without(Step::RecordFirst, all));
}

/// Steps of the longest write here.
const STEPS: usize = 16;

/// Somebody is stopped after so many steps, writing or appending; another one looks, the first goes
/// on for so many, and the other one writes on condition. Then the first comes to his end.
fn stopped((before, between): (usize, usize), appends: bool) -> bool {
    let (mut sim, [one, other]) = two(before as u64 + 1);
    let mut writing = match appends {
        true => sim.appending(one.0, one.1.file, &[7; 3000]),
        false => Writing::new(one.0, one.1.file, 40, &[7; 3000]),
    };
    let mut over = false;
    let go_on = |sim: &mut Sim, writing: &mut Writing, steps: usize, over: &mut bool| {
        for _ in 0..steps {
            *over = *over || sim.go_on_writing(writing).expect("it may") == Wrote::Over;
        }
    };
    go_on(&mut sim, &mut writing, before, &mut over);
    let id = look(&mut sim, other.0, other.1);
    let seen = sim.read_whole(other.0, other.1);
    go_on(&mut sim, &mut writing, between, &mut over);
    let now = sim.read_whole(other.0, other.1);
    let done = write(&mut sim, other, id, &[(10, &[8; 10])]);
    let after = sim.read_whole(other.0, other.1);
    let mut expected = now.clone();
    let fits = match done {
        Ok(_) => {
            expected[10..20].fill(8);
            now == seen && after == expected
        }
        Err(kind) => kind == ErrorKind::Changed && after == now && between > 0,
    };
    go_on(&mut sim, &mut writing, 1000, &mut over);
    let end = sim.read_whole(other.0, other.1);
    let at = if appends { end.len() - 3000 } else { 40 };
    let ours = end[10..20] == [if done.is_ok() { 8 } else { 1 }; 10];
    fits && over && ours && end[at..at + 3000] == [7; 3000]
}

#[test]
fn a_plain_write_in_between_makes_it_fail_wherever_its_writer_is_stopped() {
    for (before, between) in (0..STEPS).flat_map(|before| (0..STEPS).map(move |at| (before, at))) {
        for appends in [false, true] {
            let both = (before, between);
            assert!(stopped(both, appends), "after {before} and {between}, appends: {appends}");
        }
    }
}

#[test]
fn a_server_that_gives_ids_without_waiting_for_writers_is_caught() {
    let all = || (0..STEPS).all(|steps| (0..STEPS).all(|at| stopped((steps, at), false)));
    assert!(all() && !without(Step::WaitForWriters, all));
}

/// Something that changes the file, or makes it count as changed.
type Change<'c> = &'c dyn Fn(&mut Sim);

#[test]
fn each_change_gives_another_id_and_without_one_it_stays() {
    let (mut sim, [one, other]) = two(5);
    let mut last = look(&mut sim, one.0, one.1);
    let changes: [Change<'_>; 5] = [
        &|sim| sim.write(other.0, other.1.file, 3, &[9]).expect("written"),
        &|sim| {
            let (target, size) = (Target::Path(b"a"), 20);
            sim.ask(other.0, Request::Truncate { target, size, token: 0 }).expect("cut");
        },
        &|sim| {
            let (target, how) = (Target::Path(b"a"), XattrHow::default());
            let set = Request::SetXattr { target, name: b"user.x", value: Some(b"y"), how };
            sim.ask(other.0, set).expect("set");
        },
        &|sim| {
            let id = look(sim, other.0, other.1);
            write(sim, other, id, &[]).expect("nothing has changed");
        },
        &Sim::kill,
    ];
    for change in changes {
        assert_eq!(look(&mut sim, other.0, other.1), last, "nothing has changed");
        sim.read_whole(other.0, other.1);
        change(&mut sim);
        assert_eq!(write(&mut sim, one, last, &[(0, &[1])]), Err(ErrorKind::Changed));
        let now = look(&mut sim, one.0, one.1);
        assert!(now > last, "{now} after {last}");
        last = write(&mut sim, one, now, &[(0, &[1])]).expect("nothing has changed");
        assert!(last > now, "{last} after {now}");
        sim.with(|server| server.lock().rewrite_log());
    }
}

#[test]
fn what_is_no_write_changes_nothing() {
    let (mut sim, [one, other]) = two(6);
    let before = sim.read_whole(one.0, one.1);
    let good = records(PARTS);
    for at in 0..good.len() - 1 {
        let seen = look(&mut sim, one.0, one.1);
        let what = Update::Write { seen, strips: true, token: 0, call: next_call() };
        let cut = say(&mut sim, one.0, one.1, (what, &good[..at])).map_err(|error| error.kind);
        // So many bytes are records, too.
        let whole = [0, 116, 152, 178, 195].contains(&at);
        if whole {
            assert!(cut.is_ok(), "{at}: {cut:?}");
            return_to(&mut sim, one, &before);
            continue;
        }
        assert_eq!(cut, Err(ErrorKind::Malformed), "{at}");
        assert_eq!(sim.read_whole(one.0, one.1), before, "{at}");
    }
    let long = vec![1; RECORDS_MAX - 15];
    let far = [(FILE_BYTES_MAX - 1, &[1u8, 2][..])];
    let id = look(&mut sim, one.0, one.1);
    assert_eq!(write(&mut sim, one, id, &far), Err(ErrorKind::Malformed));
    assert_eq!(write(&mut sim, one, id, &[(0, &long)]), Err(ErrorKind::TooBig));
    assert_eq!(write(&mut sim, one, id + 1, &[(0, &[1])]), Err(ErrorKind::Changed));
    assert_eq!(write(&mut sim, one, 0, &[(0, &[1])]), Err(ErrorKind::Changed));
    assert_eq!(sim.read_whole(other.0, other.1), before);
    assert!(write(&mut sim, one, id, &[(FILE_BYTES_MAX - 1, &[1])]).is_ok(), "the last byte");
}

/// The file is as it was.
fn return_to(sim: &mut Sim, (client, open): (usize, Opened), before: &[u8]) {
    let (target, size) = (Target::Path(b"a"), before.len() as u64);
    sim.ask(client, Request::Truncate { target, size, token: 0 }).expect("cut");
    sim.write(client, open.file, 0, before).expect("written");
}
