//! What others do in the permanent store to names that are moved and removed here. Not here: what
//! they do at any moment, in schedules (`schedule/others`).

use std::time::Duration;

use terral_format::local::geometry::CHUNK_BYTES;
use terral_format::wire::message::{Change, OpenHow, RenameHow, Request, Target};
use terral_store::backing::Source;

use super::Sim;
use super::between::{ANEW, Left, left, rename, write};
use super::client::READ;
use super::faults::Fault;
use crate::drain::turns::Doing;

const LONG: Duration = Duration::from_secs(30);

/// A store that has a directory made here, and these files.
fn begun(files: &[(&str, &str)]) -> (Sim, usize) {
    let mut sim = Sim::new(1);
    let one = sim.connect();
    make_directory(&mut sim, one, b"d");
    for (path, bytes) in files {
        write(&mut sim, one, path, ANEW, bytes);
    }
    sim.pass(LONG);
    (sim, one)
}

fn make_directory(sim: &mut Sim, client: usize, path: &[u8]) {
    sim.ask(client, Request::MakeDirectory { path, mode: 0o755 }).expect("a free name");
}

fn others_remove(sim: &Sim, path: &str) {
    sim.dir.remove(path.as_bytes()).expect("it has arrived");
}

fn others_put(sim: &Sim, path: &str) {
    sim.dir.put(path.as_bytes(), b"theirs").expect("the store is there");
}

/// The store has these files in the end.
fn ends_with(mut sim: Sim, files: &[(&str, &str)]) {
    sim.finish();
    let files = files.iter().map(|(path, bytes)| ((*path).into(), (*bytes).into()));
    assert_eq!(left(&sim), files.collect::<Left>());
}

#[test]
fn what_somebody_removed_there_and_is_moved_here_arrives_whole() {
    for dies in [false, true] {
        let (mut sim, one) = begun(&[("old", "of yesterday"), ("new", "of today")]);
        others_remove(&sim, "new");
        rename(&mut sim, one, "new", "old", RenameHow::Replace);
        if dies {
            sim.kill();
        }
        ends_with(sim, &[("old", "of today")]);
    }
}

#[test]
fn so_does_what_was_in_a_directory_that_is_a_file_of_theirs_now() {
    let (mut sim, one) = begun(&[("d/f", "ours")]);
    others_remove(&sim, "d");
    others_put(&sim, "d");
    rename(&mut sim, one, "d/f", "g", RenameHow::Replace);
    ends_with(sim, &[("d", "theirs"), ("g", "ours")]);
}

#[test]
fn what_others_have_made_there_is_no_part_of_a_file_that_was_removed_and_moved() {
    let mut sim = Sim::new(1);
    let whole = vec![7; 2 * CHUNK_BYTES as usize];
    sim.dir.put(b"new", &whole).expect("an empty store");
    let one = sim.connect();
    make_directory(&mut sim, one, b"d");
    write(&mut sim, one, "new", OpenHow { access: 3, ..READ }, "ours");
    sim.pass(LONG);
    others_remove(&sim, "new");
    sim.dir.put(b"d/x", &vec![9; whole.len()]).expect("the store is there");
    rename(&mut sim, one, "new", "d/x", RenameHow::Replace);
    sim.finish();
    let files = left(&sim);
    let theirs = |path: &[u8]| files[path].contains(&9);
    assert!(!theirs(b"d/x") && theirs(b"d/x.theirs-1"), "{:?}", files.keys());
    assert!(files[&b"d/x"[..]].starts_with(b"ours"));
}

#[test]
fn a_file_that_is_moved_to_where_others_have_made_a_directory_arrives_and_theirs_is_kept() {
    let (mut sim, one) = begun(&[("f", "ours")]);
    others_put(&sim, "d/g/x");
    rename(&mut sim, one, "f", "d/g", RenameHow::Replace);
    ends_with(sim, &[("d/g", "ours"), ("d/g.theirs-1/x", "theirs")]);
}

#[test]
fn a_directory_that_is_moved_over_one_in_which_others_have_put_something_arrives() {
    let (mut sim, one) = begun(&[("d/f", "ours")]);
    make_directory(&mut sim, one, b"e");
    sim.pass(LONG);
    others_put(&sim, "e/x");
    let moved = Request::Rename { from: b"d", to: b"e", how: RenameHow::Replace };
    // Where the names of a directory made here are known, what others put there is not looked for.
    sim.ask(one, moved).expect("it is empty here");
    ends_with(sim, &[("e/f", "ours"), ("e.theirs-1/x", "theirs")]);
}

#[test]
fn a_name_goes_though_its_files_other_one_is_below_a_file_there() {
    let (mut sim, one) = begun(&[("f", "old")]);
    sim.ask(one, Request::Link { target: Target::Path(b"f"), path: b"g" }).expect("a free name");
    sim.pass(LONG);
    sim.faults.begin(Fault::Away, LONG);
    sim.ask(one, Request::Unlink(b"f")).expect("it is there");
    write(&mut sim, one, "g", ANEW, "new");
    make_directory(&mut sim, one, b"f");
    rename(&mut sim, one, "g", "f/g", RenameHow::Replace);
    sim.faults.heal();
    ends_with(sim, &[("f/g", "new")]);
}

#[test]
fn a_mode_that_is_set_while_nobody_knows_whether_the_file_has_arrived_arrives() {
    let (mut sim, one) = begun(&[]);
    write(&mut sim, one, "f", ANEW, "bytes");
    sim.drain_until(Doing::publishes);
    sim.faults.begin(Fault::Mute, LONG);
    sim.drain_carries_out();
    let change = Change { mode: Some(0o600), ..Change::default() };
    sim.ask(one, Request::Change { target: Target::Path(b"f"), change }).expect("it is there");
    sim.faults.heal();
    sim.finish();
    assert_eq!(sim.dir.stat(b"f").expect("it has arrived").attributes.mode, 0o600);
}
