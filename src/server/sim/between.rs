//! What clients do to a file while the drain is at it: after it has chosen what to do, after it has
//! done it, before it has noted that; and if the server is killed then. In the end the permanent
//! store has what they left, under these names, and nothing beside.

use std::collections::BTreeMap;
use std::time::Duration;

use terral_format::wire::message::{Change, OpenHow, RenameHow, Request, Target};

use terral_store::backing::scripted::{Body, Seen};

use super::Sim;
use super::client::{CREATE, READ};
use crate::drain::turns::Doing;

pub(super) const ANEW: OpenHow = OpenHow { truncate: true, ..CREATE };
/// How far the drain has come.
const MOMENTS: [Moment; 2] = [Moment::Chosen, Moment::Done];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Moment {
    Chosen,
    Done,
}

/// What is done to a new version, or one in the place of an older one.
const BOTH: &[bool] = &[false, true];

/// Names and bytes.
pub(super) type Left = BTreeMap<Vec<u8>, Vec<u8>>;

/// What somebody does meanwhile to `d/f`, of which `old` was written, and what is there then.
type Act = (&'static str, fn(&mut Sim, usize) -> &'static [(&'static str, &'static str)]);

pub(super) fn write(sim: &mut Sim, client: usize, path: &str, how: OpenHow, bytes: &str) {
    let open = sim.open(client, path.as_bytes(), how).expect("it can be opened");
    sim.write(client, open.file, 0, bytes.as_bytes()).expect("there is room for it");
    sim.close(client, open).expect("it is open");
}

pub(super) fn rename(sim: &mut Sim, client: usize, from: &str, to: &str, how: RenameHow) {
    let (from, to) = (from.as_bytes(), to.as_bytes());
    sim.ask(client, Request::Rename { from, to, how }).expect("it is there");
}

fn truncate(sim: &mut Sim, client: usize, size: u64) {
    let target = Target::Path(b"d/f");
    sim.ask(client, Request::Truncate { target, size, token: 0 }).expect("it is there");
}

const OPEN: OpenHow = OpenHow { access: 3, ..READ };

const ACTS: &[Act] = &[
    ("nothing", |_, _| &[("d/f", "as it was")]),
    ("it is written to", |sim, one| {
        write(sim, one, "d/f", OPEN, "AS");
        &[("d/f", "AS it was")]
    }),
    ("it is written anew", |sim, one| {
        write(sim, one, "d/f", ANEW, "new");
        &[("d/f", "new")]
    }),
    ("it is cut", |sim, one| {
        truncate(sim, one, 4);
        &[("d/f", "as i")]
    }),
    ("it is emptied, and made longer", |sim, one| {
        truncate(sim, one, 0);
        truncate(sim, one, 3);
        &[("d/f", "\0\0\0")]
    }),
    ("it is renamed", |sim, one| {
        rename(sim, one, "d/f", "d/g", RenameHow::Replace);
        &[("d/g", "as it was")]
    }),
    ("it is renamed, and another is made", |sim, one| {
        rename(sim, one, "d/f", "g", RenameHow::Replace);
        write(sim, one, "d/f", ANEW, "another");
        &[("d/f", "another"), ("g", "as it was")]
    }),
    ("it is renamed to and fro", |sim, one| {
        rename(sim, one, "d/f", "d/g", RenameHow::Replace);
        rename(sim, one, "d/g", "d/f", RenameHow::Replace);
        &[("d/f", "as it was")]
    }),
    ("its directory is renamed", |sim, one| {
        rename(sim, one, "d", "e", RenameHow::Replace);
        &[("e/f", "as it was")]
    }),
    ("it takes the name of another", |sim, one| {
        rename(sim, one, "d/f", "there", RenameHow::Replace);
        &[("there", "as it was")]
    }),
    ("another takes its name", |sim, one| {
        rename(sim, one, "there", "d/f", RenameHow::Replace);
        &[("d/f", "there")]
    }),
    ("a new one takes its name", |sim, one| {
        write(sim, one, "d/new", ANEW, "new");
        rename(sim, one, "d/new", "d/f", RenameHow::Replace);
        &[("d/f", "new")]
    }),
    ("it changes places with another", |sim, one| {
        rename(sim, one, "there", "d/f", RenameHow::Exchange);
        &[("d/f", "there"), ("there", "as it was")]
    }),
    ("it gets a further name", |sim, one| {
        let target = Target::Path(b"d/f");
        sim.ask(one, Request::Link { target, path: b"h" }).expect("a free name");
        &[("d/f", "as it was"), ("h", "as it was")]
    }),
    ("it is removed", |sim, one| {
        sim.ask(one, Request::Unlink(b"d/f")).expect("it is there");
        &[]
    }),
    ("it is removed, and made again", |sim, one| {
        sim.ask(one, Request::Unlink(b"d/f")).expect("it is there");
        write(sim, one, "d/f", ANEW, "again");
        &[("d/f", "again")]
    }),
];

/// The files in the permanent store, and what is in them.
pub(super) fn left(sim: &Sim) -> Left {
    let file = |(path, seen): (Vec<u8>, Seen)| match seen.body {
        Body::File(bytes) => Some((path, bytes)),
        _ => None,
    };
    sim.dir.tree().into_iter().filter_map(file).collect()
}

/// Has the drain come to that moment of what `at` says, and something done then.
fn between(
    (seed, rewrites): (u64, bool),
    (moment, dies): (Moment, bool),
    at: fn(&Doing) -> bool,
    begin: fn(&mut Sim, usize),
    act: &Act,
) {
    let mut sim = Sim::new(seed);
    sim.dir.put(b"there", b"there").expect("an empty store");
    let one = sim.connect();
    sim.ask(one, Request::MakeDirectory { path: b"d", mode: 0o755 }).expect("a free name");
    if rewrites {
        write(&mut sim, one, "d/f", ANEW, "what was there before");
        sim.pass(Duration::from_secs(30));
    }
    begin(&mut sim, one);
    sim.drain_until(at);
    if moment == Moment::Done {
        sim.drain_carries_out();
    }
    let expected = act.1(&mut sim, one);
    if dies {
        sim.kill();
    }
    sim.finish();
    let mut must: Left =
        expected.iter().map(|(path, bytes)| ((*path).into(), (*bytes).into())).collect();
    if act.0 != "another takes its name" {
        must.entry(b"there".to_vec()).or_insert_with(|| b"there".to_vec());
    }
    let how = format!("{}, {moment:?}, rewrites: {rewrites}, dies: {dies}", act.0);
    assert_eq!(left(&sim), must, "{how}");
}

fn all(at: fn(&Doing) -> bool, rewriting: &[bool], begin: fn(&mut Sim, usize)) {
    for act in ACTS {
        for seed in [1, 2] {
            for rewrites in rewriting {
                for moment in MOMENTS {
                    for dies in [false, true] {
                        between((seed, *rewrites), (moment, dies), at, begin, act);
                    }
                }
            }
        }
    }
}

#[test]
fn whatever_happens_to_a_file_that_just_gets_its_name_it_arrives_as_it_is_left() {
    all(Doing::publishes, BOTH, |sim, one| {
        write(sim, one, "d/f", ANEW, "as it was");
    });
}

#[test]
fn whatever_happens_to_a_file_that_is_just_copied_it_arrives_as_it_is_left() {
    all(Doing::copies, BOTH, |sim, one| {
        write(sim, one, "d/f", ANEW, "as it was");
    });
}

#[test]
fn whatever_happens_to_a_file_whose_name_just_moves_it_arrives_as_it_is_left() {
    all(Doing::moves_a_name, &[true], |sim, one| {
        write(sim, one, "d/x", ANEW, "as it was");
        sim.pass(Duration::from_secs(30));
        rename(sim, one, "d/x", "d/f", RenameHow::Replace);
    });
}

#[test]
fn who_reads_what_is_only_there_under_a_name_that_just_moves_reads_that() {
    for (moment, seed) in MOMENTS.into_iter().zip([1, 2]) {
        let mut sim = Sim::new(seed);
        for (path, bytes) in [(b"d/f", &b"as it was"[..]), (b"d/g", b"another")] {
            sim.dir.put(path, bytes).expect("an empty store");
        }
        let one = sim.connect();
        let open = sim.open(one, b"d/f", READ).expect("it is there");
        rename(&mut sim, one, "d", "e", RenameHow::Replace);
        sim.drain_until(Doing::moves_a_name);
        if moment == Moment::Done {
            sim.drain_carries_out();
        }
        assert_eq!(sim.read(one, open.file, 0, 100).expect("it can be read"), b"as it was");
        // Nobody has looked for this one before.
        let other = sim.open(one, b"e/g", READ).expect("it is there");
        assert_eq!(sim.read(one, other.file, 0, 100).expect("it can be read"), b"another");
        let change = Change { mode: Some(0o600), ..Change::default() };
        let target = Target::Path(b"e/g");
        sim.ask(one, Request::Change { target, change }).expect("it is there");
        sim.finish();
        let found = left(&sim).into_keys().collect::<Vec<_>>();
        assert_eq!(found, [b"e/f".to_vec(), b"e/g".to_vec()]);
    }
}

#[test]
fn bits_that_change_while_a_file_just_gets_its_name_arrive_too() {
    for (moment, dies) in [(MOMENTS[0], false), (MOMENTS[1], false), (MOMENTS[0], true)] {
        let mut sim = Sim::new(1);
        let one = sim.connect();
        write(&mut sim, one, "f", ANEW, "bytes");
        sim.drain_until(Doing::publishes);
        if moment == Moment::Done {
            sim.drain_carries_out();
        }
        let change = Change { mode: Some(0o600), ..Change::default() };
        let target = Target::Path(b"f");
        sim.ask(one, Request::Change { target, change }).expect("it is there");
        if dies {
            sim.kill();
        }
        sim.finish();
        let found = sim.dir.tree()[&b"f"[..]].found;
        assert_eq!(found.attributes.mode, 0o600, "{moment:?}");
    }
}
