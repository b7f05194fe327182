//! What waits for memory, which the drain frees. Not here: memory that is smaller than what is
//! written, in schedules (`seeds`).

use std::time::Duration;

use terral_format::ids::{Ino, ROOT, SessionSlot};
use terral_format::local::changes::Deferred;
use terral_format::local::geometry::{CHUNK_BYTES, CHUNK_PAGES};
use terral_format::local::size::SizeWord;
use terral_format::wire::message::{FileRef, Reply, Request};
use terral_format::{Error, ErrorKind, frame};

use super::Sim;
use super::between::{ANEW, write};
use super::client::{CREATE, READ};
use super::faults::Fault;
use super::writing::{Writing, Wrote};
use crate::core::world::World;
use crate::deferred::waiting::Waiting;
use crate::drain::turns::Doing;
use crate::requests::handling;
use crate::requests::handling::Outcome;
use crate::storage::reclaim;

const LONG: Duration = Duration::from_secs(30);

fn grant(file: FileRef, first: u64) -> Request<'static> {
    Request::Grant { file, first, count: 1, pages: CHUNK_PAGES }
}

/// What becomes of a request at first.
fn asked(sim: &mut Sim, client: usize, request: Request<'_>) -> Outcome {
    let session = sim.clients[client].session;
    let taken = sim.asking(client, request).expect("it fits");
    let handled = sim.with(|server| handling::handle(&mut server.lock(), session, &taken));
    handled.expect("nobody kills it")
}

/// Writes to a file's chunks until somebody would have to wait for another.
fn fill(sim: &mut Sim, client: usize, file: FileRef) -> u64 {
    for index in 0.. {
        match asked(sim, client, grant(file, index)) {
            Outcome::Answer(reply) => {
                assert_eq!(frame::decode::<Reply>(&reply), Ok(Reply::Done), "chunk {index}");
            }
            _ => return index,
        }
        sim.write(client, file, index * CHUNK_BYTES, b"bytes").expect("it is granted");
    }
    unreachable!("memory has an end")
}

/// A file that is open for writing, of two pages, that only a version without a name has.
fn evicted(sim: &mut Sim, client: usize, byte: u8) -> FileRef {
    let file = sim.open(client, b"file", CREATE).expect("a free name").file;
    for at in [0, 4096] {
        sim.write(client, file, at, &[byte; 4096]).expect("there is room");
    }
    evict(sim, client, file, b"large");
    file
}

/// Has a file's first chunk, which is drained first, driven out by another file; then that arrives.
fn evict(sim: &mut Sim, client: usize, file: FileRef, by: &[u8]) {
    sim.pass(LONG);
    drive_out(sim, client, by);
    assert!(sim.memory.entry(file.slot, 0).is_absent(), "it is not evicted");
}

/// Has what was drained driven out by another file.
pub(super) fn drive_out(sim: &mut Sim, client: usize, by: &[u8]) {
    let large = sim.open(client, by, CREATE).expect("a free name").file;
    sim.faults.begin(Fault::Full, LONG);
    fill(sim, client, large);
}

/// Whether deferred changes that wait for this are tried again as soon as a file was copied.
fn is_tried_again(kind: ErrorKind) -> bool {
    let mut sim = Sim::new(1);
    let one = sim.connect();
    write(&mut sim, one, "f", ANEW, "bytes");
    sim.drain_until(Doing::copies);
    sim.with(|server| {
        let mut state = server.lock();
        let mut waiting = Waiting::after(&Waiting::default(), state.world.now() + LONG);
        let change = Deferred::Unlink { parent: ROOT, name: b"open", ino: Ino(99), time_ns: 0 };
        let why = Error::new(kind, "it waits");
        waiting.add((SessionSlot(0), 1), &change, Some(why));
        state.waiting = waiting;
    });
    // Once that begins, the copy has ended; nothing else has.
    sim.drain_until(Doing::publishes);
    let due = sim.with(|server| {
        let state = server.lock();
        state.waiting.is_due(state.world.now())
    });
    due.expect("nobody kills it")
}

#[test]
fn a_removal_that_waits_for_memory_is_tried_again_once_the_drain_has_copied_something() {
    assert!(is_tried_again(ErrorKind::NoSpace));
    assert!(!is_tried_again(ErrorKind::Backing), "that does not help");
}

#[test]
fn who_waits_for_memory_does_not_have_what_fails_tried_more_often() {
    let mut sim = Sim::new(1);
    let one = sim.connect();
    let large = sim.open(one, b"large", CREATE).expect("a free name").file;
    sim.faults.begin(Fault::Away, 2 * LONG);
    let chunks = fill(&mut sim, one, large);
    sim.ask(one, grant(large, chunks)).expect("there is room once it is back");
    assert!(sim.parked > 100, "he waited");
    assert!(sim.faults.injected() < 20, "{}", sim.faults.injected());
}

#[test]
fn who_goes_on_waiting_for_memory_hastens_nothing() {
    let mut sim = Sim::new(1);
    let one = sim.connect();
    write(&mut sim, one, "other", ANEW, "bytes");
    let large = sim.open(one, b"large", CREATE).expect("a free name").file;
    let other = sim.open(one, b"other", CREATE).expect("it is there").file;
    let chunks = fill(&mut sim, one, large);
    let session = sim.clients[one].session;
    let taken = sim.asking(one, grant(large, chunks)).expect("it fits");
    sim.with(|server| {
        let mut state = server.lock();
        let now = state.world.now();
        assert!(matches!(handling::handle(&mut state, session, &taken), Outcome::Park));
        assert_eq!(state.debts.due(other.ino), Some(now));
        state.debts.not_before(other.ino, now + LONG);
        assert!(matches!(handling::handle_again(&mut state, session, &taken), Outcome::Park));
        assert_eq!(state.debts.due(other.ino), Some(now + LONG));
    });
}

#[test]
fn who_reads_what_memory_has_no_room_for_gets_the_bytes() {
    let mut sim = Sim::new(1);
    let whole: Vec<u8> = (0..CHUNK_BYTES + 5000).map(|at| (at % 251) as u8).collect();
    sim.dir.put(b"model", &whole).expect("an empty store");
    let one = sim.connect();
    let large = sim.open(one, b"large", CREATE).expect("a free name").file;
    let model = sim.open(one, b"model", READ).expect("it is there").file;
    sim.faults.begin(Fault::Full, LONG);
    fill(&mut sim, one, large);
    // The last piece reaches beyond what the store has.
    for at in [0, 4096, CHUNK_BYTES - 4096, CHUNK_BYTES, CHUNK_BYTES + 4096] {
        let seen = sim.read(one, model, at, 4096).expect("it is there");
        let end = whole.len().min(at as usize + 4096);
        assert_eq!(seen, whole[at as usize..end], "from {at} on");
    }
    let brought = sim.memory.entry(model.slot, 0);
    assert!(brought.is_absent() && sim.parked == 0, "{brought:?}, {} waited", sim.parked);
    // The chunk itself waits for room.
    sim.ask(one, grant(model, 0)).expect_err("for reading only");
    let whole_chunk = Request::Stage { file: model, first: 0, count: 1, within: 0, bytes: 0 };
    sim.ask(one, whole_chunk).expect("there is room once it is back");
    assert!(sim.parked > 0 && sim.memory.entry(model.slot, 0).is_here());
}

#[test]
fn a_cut_for_which_there_is_no_room_changes_nothing() {
    let mut sim = Sim::new(1);
    let (one, two) = (sim.connect(), sim.connect());
    let file = sim.open(one, b"file", CREATE).expect("a free name").file;
    sim.ask(one, grant(file, 0)).expect("there is room");
    sim.write(one, file, 0, &[7; 200]).expect("it is granted");
    // Who is stopped in it may store into it whenever he goes on.
    let mut half = Writing::new(two, file, 0, &[8; 100]);
    while sim.go_on_writing(&mut half).expect("it is granted") != Wrote::Holds {}
    let large = sim.open(one, b"large", CREATE).expect("a free name").file;
    sim.faults.begin(Fault::Full, LONG);
    fill(&mut sim, one, large);
    let cut = |sim: &mut Sim| {
        let cut = sim.with(|server| reclaim::truncate(&mut server.lock(), file.ino, 100));
        cut.expect("nobody kills it").map_err(|error| error.kind)
    };
    let size = |sim: &Sim| SizeWord::load(sim.memory.header(file.slot).size()).size();
    assert_eq!((cut(&mut sim), size(&sim)), (Err(ErrorKind::NoSpace), 200));
    assert!(!sim.memory.entry(file.slot, 0).is_recalled(), "nobody can use it");
    sim.faults.heal();
    sim.pass(LONG);
    assert_eq!((cut(&mut sim), size(&sim)), (Ok(()), 100));
    assert_eq!(sim.read(one, file, 50, 100).expect("it is there"), [7; 50]);
}

#[test]
fn what_was_fetched_of_a_chunk_that_came_otherwise_is_not_read_after_a_write() {
    let mut sim = Sim::new(2);
    let (one, two) = (sim.connect(), sim.connect());
    let file = evicted(&mut sim, one, 1);
    // Others wait for what is fetched all the time.
    sim.with(|server| server.lock().fetches.are_asked(true));
    let wanted = Request::Stage { file, first: 0, count: 1, within: 0, bytes: 4096 };
    assert!(matches!(asked(&mut sim, two, wanted), Outcome::Fetch), "the store is far");
    sim.fetch_needed(Duration::ZERO);
    // There is room before he is asked again, who has then no use for the bytes alone.
    sim.faults.heal();
    sim.pass(LONG);
    assert_eq!(sim.ask(two, wanted), Ok(Reply::Done));
    sim.write(one, file, 0, &[2; 4096]).expect("it is there");
    evict(&mut sim, one, file, b"second");
    // As much as was asked for then: it is the same question.
    assert_eq!(sim.read(two, file, 0, 4096).expect("it is there")[..8], [2; 8]);
}

#[test]
fn a_cut_that_the_log_does_not_take_changes_nothing() {
    let mut sim = Sim::new(1);
    sim.dir.put(b"model", &[7; 5000]).expect("an empty store");
    let one = sim.connect();
    let model = sim.open(one, b"model", CREATE).expect("it is there").file;
    let file = evicted(&mut sim, one, 1);
    sim.faults.heal();
    sim.pass(LONG);
    for file in [model, file] {
        sim.faults.fill_log(true);
        let cut = sim.with(|server| reclaim::truncate(&mut server.lock(), file.ino, 0));
        assert!(cut.expect("nobody kills it").is_err());
        sim.faults.fill_log(false);
    }
    sim.write(one, file, 3 * CHUNK_BYTES, b"x").expect("there is room");
    sim.pass(LONG);
    assert_eq!(sim.read(one, model, 0, 8).expect("it is there"), [7; 8]);
    assert_eq!(sim.read(one, file, 4096, 8).expect("it is there"), [1; 8]);
}

#[test]
fn who_is_stopped_as_he_is_about_to_write_holds_up_nobody_who_needs_memory() {
    let mut sim = Sim::new(1);
    sim.dir.put(b"model", &vec![7; 2 * CHUNK_BYTES as usize]).expect("an empty store");
    let (one, two) = (sim.connect(), sim.connect());
    let model = sim.open(one, b"model", CREATE).expect("it is there").file;
    for at in [0, CHUNK_BYTES] {
        sim.read(one, model, at, 8).expect("there is room");
    }
    let mut stopped = Writing::new(two, model, 0, &[8; 100]);
    let entry = sim.memory.entry(model.slot, 0);
    let is_in_it = |sim: &mut Sim| {
        sim.with(|server| {
            let state = server.lock();
            !state.storage.owners_in(&state.sessions, entry).is_empty()
        })
    };
    while is_in_it(&mut sim) == Some(false) {
        sim.go_on_writing(&mut stopped).expect("it is there");
    }
    let large = sim.open(one, b"large", CREATE).expect("a free name").file;
    sim.faults.begin(Fault::Full, LONG);
    let begin = sim.world.now();
    fill(&mut sim, one, large);
    assert!(sim.world.now().since(begin) < Duration::from_millis(100), "he was waited for");
    assert_eq!(sim.memory.entry(model.slot, 0), entry, "his chunk stays");
    assert!(sim.memory.entry(model.slot, 1).is_absent(), "the other one goes");
    while sim.go_on_writing(&mut stopped).expect("it is there") != Wrote::Over {}
    assert_eq!(sim.read(one, model, 0, 8).expect("it is there"), [8; 8]);
}
