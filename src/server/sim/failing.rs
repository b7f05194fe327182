//! What fails in the permanent store at one moment, and what must be so all the same. Not here:
//! what schedules have found (`regressions`).

use std::time::Duration;

use terral_format::wire::message::{RenameHow, Request, Target};
use terral_format::{Error, ErrorKind};

use super::Sim;
use super::between::{ANEW, Left, left, rename, write};
use super::client::{CREATE, Opened};
use super::faults::Fault;
use crate::core::workers::Trade;
use crate::debts::failures::Work;
use crate::debts::owing;
use crate::drain::turns::Doing;

const LONG: Duration = Duration::from_secs(30);

fn files(expected: &[(&str, &str)]) -> Left {
    expected.iter().map(|(path, bytes)| ((*path).into(), (*bytes).into())).collect()
}

/// Somebody has written a file, which is owed.
fn written() -> (Sim, usize) {
    let mut sim = Sim::new(1);
    let one = sim.connect();
    write(&mut sim, one, "f", ANEW, "bytes");
    (sim, one)
}

/// Somebody has it open still, and it is staged.
fn staged() -> (Sim, usize, Opened) {
    let mut sim = Sim::new(1);
    let one = sim.connect();
    let open = sim.open(one, b"f", CREATE).expect("an empty store");
    sim.write(one, open.file, 0, b"bytes").expect("there is room for it");
    sim.pass(LONG);
    assert_eq!(sim.dir.staged().len(), 1, "an open file is staged");
    (sim, one, open)
}

/// Whether users are told that all is brought, and safe.
fn is_settled(sim: &mut Sim) -> bool {
    let status = sim.with(|server| {
        let mut state = server.lock();
        let drain = owing::drain_status(&mut state);
        assert!(!drain.settled || drain.owed_names == 0, "{drain:?}");
        drain.settled
    });
    status.expect("nobody kills it")
}

#[test]
fn a_file_that_was_removed_while_nobody_knew_whether_it_had_its_name_is_not_there_in_the_end() {
    let (mut sim, one) = written();
    sim.drain_until(Doing::publishes);
    // It gets its name, and the answer is lost, as are all that say so.
    sim.faults.begin(Fault::Mute, LONG);
    sim.drain_carries_out();
    sim.pass(LONG);
    sim.ask(one, Request::Unlink(b"f")).expect("it is there");
    sim.end(one);
    sim.with(|server| server.lock().finishing = true);
    assert_eq!(left(&sim), files(&[("f", "bytes")]));
    let mut passed = Duration::ZERO;
    while !is_settled(&mut sim) {
        assert!(passed < LONG, "it is never settled");
        sim.pass(Duration::from_millis(100));
        passed += Duration::from_millis(100);
    }
    assert_eq!(left(&sim), Left::new());
}

/// Gives a file a name in a directory that somebody has removed, which cannot be made anew for a
/// while.
fn names_without_room(act: fn(&mut Sim, usize)) -> Left {
    let mut sim = Sim::new(1);
    let one = sim.connect();
    for path in [b"d", b"e"] {
        sim.ask(one, Request::MakeDirectory { path, mode: 0o755 }).expect("a free name");
    }
    write(&mut sim, one, "d/f", ANEW, "bytes");
    sim.pass(LONG);
    sim.dir.remove(b"e").expect("it has arrived");
    sim.faults.begin(Fault::NoDirectories, Duration::from_secs(5));
    act(&mut sim, one);
    sim.pass(LONG);
    sim.finish();
    left(&sim)
}

#[test]
fn a_rename_into_a_directory_that_cannot_be_made_anew_yet_is_done_later() {
    let there = names_without_room(|sim, one| {
        rename(sim, one, "d/f", "e/f", RenameHow::Replace);
    });
    assert_eq!(there, files(&[("e/f", "bytes")]));
}

#[test]
fn a_link_in_a_directory_that_cannot_be_made_anew_yet_is_made_later() {
    let there = names_without_room(|sim, one| {
        let link = Request::Link { target: Target::Path(b"d/f"), path: b"e/f" };
        sim.ask(one, link).expect("a free name");
    });
    assert_eq!(there, files(&[("d/f", "bytes"), ("e/f", "bytes")]));
}

#[test]
fn what_was_staged_of_a_file_goes_with_its_last_name_though_it_is_open() {
    for dies in [false, true] {
        let (mut sim, one, open) = staged();
        if dies {
            sim.kill();
        }
        sim.ask(one, Request::Unlink(b"f")).expect("it is there");
        sim.pass(LONG);
        assert_eq!(sim.dir.staged().len(), 0, "dies: {dies}");
        assert_eq!(sim.read(one, open.file, 0, 5).expect("it is open"), b"bytes");
    }
}

#[test]
fn what_was_staged_of_a_file_that_could_not_get_its_name_goes_with_it() {
    for away in [Duration::from_millis(1), LONG] {
        let (mut sim, one) = written();
        sim.drain_until(Doing::publishes);
        sim.faults.begin(Fault::Away, away);
        sim.drain_carries_out();
        sim.ask(one, Request::Unlink(b"f")).expect("it is there");
        assert_eq!(sim.dir.staged().len(), 1);
        sim.pass(2 * LONG);
        assert_eq!((sim.dir.staged().len(), left(&sim)), (0, Left::new()));
    }
}

#[test]
fn what_was_staged_is_gone_on_with_if_its_file_gets_a_name_again() {
    let (mut sim, one, open) = staged();
    sim.kill();
    sim.faults.begin(Fault::Away, LONG);
    sim.ask(one, Request::Unlink(b"f")).expect("it is there");
    // What was staged cannot be thrown away yet.
    sim.pass(LONG / 2);
    sim.faults.heal();
    let again = Request::Link { target: Target::File(open.file), path: b"again" };
    sim.ask(one, again).expect("it is open");
    sim.pass(LONG);
    assert_eq!(sim.dir.staged().len(), 1, "the file that has a name again needs it");
    sim.close(one, open).expect("it is open");
    sim.finish();
    assert_eq!(left(&sim), files(&[("again", "bytes")]));
}

#[test]
fn a_store_that_cannot_say_what_is_safe_is_asked_less_and_less_often() {
    let (mut sim, one) = written();
    sim.faults.begin(Fault::NoSync, 4 * LONG);
    sim.end(one);
    sim.with(|server| server.lock().finishing = true);
    sim.pass(4 * LONG);
    assert!((10..30).contains(&sim.faults.injected()), "{}", sim.faults.injected());
    sim.pass(LONG);
    assert!(is_settled(&mut sim));
}

#[test]
fn what_fails_beside_the_drain_keeps_no_name_from_arriving() {
    let (mut sim, one) = written();
    sim.pass(LONG);
    rename(&mut sim, one, "f", "g", RenameHow::Replace);
    for _ in 0..100 {
        sim.with(|server| {
            let error = Error::new(ErrorKind::NoSpace, "memory tier");
            owing::was_looked_after(&mut server.lock(), Err(error));
        });
        sim.pass(Duration::from_millis(50));
    }
    assert_eq!(left(&sim), files(&[("g", "bytes")]));
}

#[test]
fn what_failed_is_shown_until_all_is_looked_after_again() {
    let mut sim = Sim::new(1);
    sim.connect();
    let shown = |sim: &mut Sim| {
        let shown = sim.with(|server| owing::drain_status(&mut server.lock()).failures);
        shown.expect("nobody kills it")
    };
    let error = Error::new(ErrorKind::NoSpace, "memory tier");
    let what = error.to_string();
    sim.with(|server| owing::was_looked_after(&mut server.lock(), Err(error)));
    assert_eq!(shown(&mut sim), [what]);
    sim.pass(LONG);
    assert!(shown(&mut sim).is_empty());
}

#[test]
fn the_drain_is_not_woken_for_names_while_they_cannot_be_moved() {
    let (mut sim, one) = written();
    sim.pass(LONG);
    sim.faults.begin(Fault::Away, LONG);
    rename(&mut sim, one, "f", "g", RenameHow::Replace);
    sim.pass(LONG / 2);
    sim.with(|server| {
        let mut state = server.lock();
        let now = state.world.now();
        let until = state.debts.paused(Work::Names, now);
        assert!(until.is_some(), "they fail");
        state.sleepers.lies_down(Trade::Draining, until);
        assert!(!owing::must_wake_drain(&state));
    });
}

#[test]
fn the_store_is_changed_only_once_the_log_says_so() {
    let (mut sim, one) = written();
    sim.pass(LONG);
    sim.faults.fill_log(true);
    let how = RenameHow::Replace;
    let moved = sim.ask(one, Request::Rename { from: b"f", to: b"g", how });
    assert_eq!(moved.map_err(|error| error.kind).err(), Some(ErrorKind::NoSpace));
    sim.pass(LONG);
    assert_eq!(left(&sim), files(&[("f", "bytes")]));
    sim.faults.fill_log(false);
    sim.kill();
    sim.finish();
    assert_eq!(left(&sim), files(&[("f", "bytes")]));
}

#[test]
fn a_rename_waits_for_what_was_closed_before_it_though_that_cannot_be_copied_yet() {
    let mut sim = Sim::new(1);
    let one = sim.connect();
    write(&mut sim, one, "a", ANEW, "old");
    sim.pass(LONG);
    write(&mut sim, one, "p", ANEW, "other");
    sim.drain_until(Doing::publishes);
    // The other one moves out of the way meanwhile, and this one below where it was.
    write(&mut sim, one, "a", CREATE, "new");
    rename(&mut sim, one, "a", "b", RenameHow::Replace);
    rename(&mut sim, one, "p", "q", RenameHow::Replace);
    sim.ask(one, Request::MakeDirectory { path: b"p", mode: 0o755 }).expect("a free name");
    rename(&mut sim, one, "b", "p/c", RenameHow::Replace);
    // Whether the other one had got its name nobody knows.
    sim.faults.begin(Fault::Mute, LONG);
    sim.drain_carries_out();
    sim.faults.begin(Fault::Unseen(b"p"), LONG);
    sim.pass(LONG / 2);
    assert_eq!(left(&sim), files(&[("a", "old"), ("p", "other")]));
    sim.finish();
    assert_eq!(left(&sim), files(&[("p/c", "new"), ("q", "other")]));
}
