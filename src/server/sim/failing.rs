//! What fails in the permanent store at one moment, and what must be so all the same. Not here:
//! what schedules have found (`regressions`).

use std::time::Duration;

use terral_format::wire::message::{RenameHow, Request, Target};

use super::Sim;
use super::between::{ANEW, Left, left, rename, write};
use super::faults::Fault;
use crate::debts::owing;
use crate::drain::turns::Doing;

const LONG: Duration = Duration::from_secs(30);

fn files(expected: &[(&str, &str)]) -> Left {
    expected.iter().map(|(path, bytes)| ((*path).into(), (*bytes).into())).collect()
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
    let mut sim = Sim::new(1);
    let one = sim.connect();
    write(&mut sim, one, "f", ANEW, "bytes");
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
