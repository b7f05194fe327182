//! What is done after a change that waits for the permanent store: it comes after that, and whoever
//! ends or dies meanwhile, what was answered is there.

use std::time::Duration;

use terral_format::local::tables::access;
use terral_format::wire::message::Request;

use super::Sim;
use super::between::{ANEW, write};
use super::client::{CREATE, Opened, READ};
use super::deferring::{Progress, Wish};
use super::short_memory::drive_out;

/// Long enough for a file to be brought, and to lose its memory.
const LONG: Duration = Duration::from_secs(60);

/// Does something without waiting for the server, who hears of it.
fn defers(sim: &mut Sim, client: usize, wish: Wish) -> Option<Opened> {
    let mut begun = sim.begin(client, wish).expect("it may");
    loop {
        match sim.go_on(&mut begun) {
            Progress::Going | Progress::Happened => {}
            Progress::Over => break,
            Progress::Refused => panic!("{:?} is not deferred", begun.wish),
        }
    }
    sim.hear();
    begun.opened
}

/// A name is taken from a file that is open, of which only the permanent store has the bytes; that
/// waits. Another file is made in its place.
fn another_in_its_place() -> (Sim, usize, Opened) {
    // A store that is far: nobody has it asked while he waits.
    let mut sim = Sim::new(2);
    let one = sim.connect();
    sim.fetch(one).expect("there is room for it");
    sim.ask(one, Request::MakeDirectory { path: b"d", mode: 0o755 }).expect("a free name");
    // More than what a file at rest may keep.
    write(&mut sim, one, "d/name", ANEW, &"before".repeat(1 << 14));
    sim.pass(LONG);
    drive_out(&mut sim, one, b"large");
    let old = sim.open(one, b"d/name", READ).expect("it is there");
    sim.close(one, old).expect("it is open");
    sim.pass(LONG);
    defers(&mut sim, one, Wish::Open(b"d/name".to_vec(), access::READ as u8));
    defers(&mut sim, one, Wish::Unlink(b"d/name".to_vec()));
    let new = defers(&mut sim, one, Wish::Create(b"d/name".to_vec())).expect("a new file");
    let waits = sim.with(|server| server.lock().waiting.count());
    assert_eq!(waits, Some(2), "the removal, and what comes after it");
    (sim, one, new)
}

fn is_there(sim: &mut Sim) {
    sim.fetch_needed(Duration::ZERO);
    let other = sim.connect();
    let there = sim.open(other, b"d/name", READ).expect("it was made");
    assert_eq!(sim.read_whole(other, there), b"");
    sim.close(other, there).expect("it is open");
    sim.pass(LONG);
    // That of the old file, and that of the one that drove it out.
    let open = sim.with(|server| server.lock().descriptions.iter().count()).expect("it lives");
    let in_hand: usize = sim.clients.iter().map(|client| client.preallocated.len()).sum();
    assert!(open <= in_hand + 2, "{open} descriptions, {in_hand} in hand");
    sim.finish();
    assert!(sim.dir.files().contains_key(&b"d/name"[..]));
}

#[test]
fn what_is_made_and_closed_behind_a_change_that_waits_is_there() {
    let (mut sim, one, new) = another_in_its_place();
    defers(&mut sim, one, Wish::Close(new));
    is_there(&mut sim);
}

#[test]
fn it_is_there_if_its_close_is_asked_for() {
    let (mut sim, one, Opened { description, nonce, .. }) = another_in_its_place();
    sim.ask(one, Request::Close { description, nonce }).expect("it is open");
    is_there(&mut sim);
}

#[test]
fn it_is_there_if_who_made_it_ends() {
    let (mut sim, one, _) = another_in_its_place();
    sim.end(one);
    is_there(&mut sim);
}

#[test]
fn it_is_there_if_the_server_dies() {
    let (mut sim, one, new) = another_in_its_place();
    defers(&mut sim, one, Wish::Close(new));
    sim.kill();
    is_there(&mut sim);
}

/// A file of its own, so that what is created is behind nothing.
#[test]
fn what_is_made_behind_nothing_is_closed_at_once() {
    let mut sim = Sim::new(1);
    let one = sim.connect();
    sim.fetch(one).expect("there is room for it");
    sim.ask(one, Request::MakeDirectory { path: b"d", mode: 0o755 }).expect("a free name");
    let open = sim.open(one, b"d/name", CREATE).expect("a free name");
    defers(&mut sim, one, Wish::Close(open));
    is_there(&mut sim);
}
