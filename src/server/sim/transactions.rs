//! Transactions of one server, whose operations come to be all or none, wherever it is killed, and
//! what becomes of them in the permanent store. Not here: many of them (`schedule/transacting`).

use std::time::Duration;

use terral_format::wire::message::{OpenHow, RenameHow, Reply, Request, Target, XattrHow};
use terral_format::wire::transactions::{Operation, Version};
use terral_format::{ErrorKind, Result, frame};

use super::client::{CREATE, READ};
use super::{Outcome, Sim};
use crate::requests::handling;

type Step<'a> = Operation<&'a [u8]>;

fn transact(sim: &mut Sim, client: usize, steps: &[Step<'_>]) -> Result<()> {
    let encoded = frame::encode(&steps)?;
    sim.ask(client, Request::Transact(&encoded)).map(drop)
}

fn kind(done: Result<()>) -> Option<ErrorKind> {
    done.err().map(|error| error.kind)
}

fn fill(sim: &mut Sim, client: usize, path: &[u8], bytes: &[u8]) {
    let file = sim.open(client, path, CREATE).expect("a free name");
    sim.write(client, file.file, 0, bytes).expect("there is room for it");
    sim.close(client, file).expect("it is open");
}

const fn moved<'a>(from: &'a [u8], to: &'a [u8]) -> Step<'a> {
    Operation::Rename { from, to, how: RenameHow::Replace }
}

fn stat(sim: &mut Sim, client: usize, path: &[u8]) -> Option<Version> {
    match sim.ask(client, Request::Stat(Target::Path(path))) {
        Ok(Reply::Attributes(seen)) => Some(Version::from(&seen)),
        Ok(other) => panic!("{other:?}"),
        Err(error) => {
            assert_eq!(error.kind, ErrorKind::NotFound, "{error}");
            None
        }
    }
}

fn texts(files: &[(&str, &str)]) -> Vec<(String, String)> {
    files.iter().map(|(path, bytes)| (path.to_string(), bytes.to_string())).collect()
}

/// Short files of the permanent store, and what is in them.
fn arrived(sim: &Sim) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let files = sim.dir.files().into_iter();
    files
        .map(|(path, (found, pages))| {
            let bytes = pages.get(&0).cloned().unwrap_or_default();
            let length = bytes.len().min(found.attributes.size as usize);
            (text(&path), text(&bytes[..length]))
        })
        .collect()
}

/// What a transaction of a bit of everything changes.
const STEPS: &[Step<'static>] = &[
    Operation::MakeDirectory { path: b"new", mode: 0o755 },
    moved(b"work/a", b"new/a"),
    moved(b"work/b", b"old"),
    Operation::Link { from: b"new/a", to: b"new/again" },
    Operation::SetXattr {
        path: b"new/a",
        name: b"user.step",
        value: Some(b"7"),
        how: XattrHow::Create,
    },
    Operation::RemoveDirectory(b"work"),
    moved(b"new", b"done"),
];

fn begun(seed: u64) -> (Sim, usize) {
    let mut sim = Sim::new(seed);
    sim.dir.put(b"old", b"older").expect("an empty store");
    let one = sim.connect();
    let made = Request::MakeDirectory { path: b"work", mode: 0o755 };
    sim.ask(one, made).expect("a free name");
    fill(&mut sim, one, b"work/a", b"first");
    fill(&mut sim, one, b"work/b", b"second");
    (sim, one)
}

/// All names as anybody sees them who looks into shared memory, or asks.
fn names(sim: &mut Sim, client: usize) -> Vec<(&'static str, bool)> {
    let paths = ["work", "work/a", "work/b", "new", "done", "done/a", "done/again"];
    paths.map(|path| (path, stat(sim, client, path.as_bytes()).is_some())).to_vec()
}

#[test]
fn all_or_none_are_there_whenever_the_server_is_killed_and_also_in_the_permanent_store() {
    let (mut sim, other) = begun(1);
    let before = names(&mut sim, other);
    transact(&mut sim, other, STEPS).expect("all can be done");
    let after = names(&mut sim, other);
    let mut seen = [0, 0];
    for (seed, moment) in (1..=2).flat_map(|seed| (1..60).map(move |moment| (seed, moment))) {
        let (mut sim, one) = begun(seed);
        let other = sim.connect();
        if moment % 3 == 0 {
            // What it replaces, and what it moves, has arrived.
            sim.pass(Duration::from_secs(20));
        }
        let encoded = frame::encode(&STEPS).expect("it is short");
        let taken = sim.asking(one, Request::Transact(&encoded)).expect("it is short");
        let session = sim.clients[one].session;
        let killed = sim.killed;
        sim.kill_at(moment);
        sim.with(|server| {
            let outcome = handling::handle(&mut server.lock(), session, &taken);
            assert!(!matches!(outcome, Outcome::Park), "there is room for it");
        });
        if sim.killed > killed {
            let now = names(&mut sim, other);
            assert!(now == before || now == after, "seed {seed}, moment {moment}: {now:?}");
            seen[usize::from(now == after)] += 1;
        }
        let reply: Reply = frame::decode(&sim.answered(one, &taken)).expect("an answer");
        assert_eq!(reply, Reply::Done, "seed {seed}, moment {moment}");
        assert_eq!(names(&mut sim, other), after, "seed {seed}, moment {moment}");
        sim.finish();
        let must = [("done/a", "first"), ("done/again", "first"), ("old", "second")];
        assert_eq!(arrived(&sim), texts(&must), "seed {seed}, moment {moment}");
    }
    assert!(seen[0] > 0, "it was killed before: {seen:?}");
}

#[test]
fn one_that_cannot_be_done_does_nothing_and_says_which_it_is() {
    let (mut sim, one) = begun(1);
    let failing: [(Step<'_>, ErrorKind); 9] = [
        (moved(b"work/c", b"c"), ErrorKind::NotFound),
        (Operation::Unlink(b"new"), ErrorKind::IsDirectory),
        (Operation::RemoveDirectory(b"new"), ErrorKind::NotEmpty),
        (Operation::MakeDirectory { path: b"new/a", mode: 0o755 }, ErrorKind::Exists),
        (moved(b"new", b"new/below"), ErrorKind::Invalid),
        (Operation::Link { from: b"new/a", to: b"old" }, ErrorKind::Exists),
        (Operation::Exists(b"work/a"), ErrorKind::NotFound),
        (Operation::Missing(b"new/a"), ErrorKind::Exists),
        (
            Operation::SetXattr { path: b"old", name: b"user.x", value: None, how: XattrHow::Any },
            ErrorKind::NoData,
        ),
    ];
    assert!(stat(&mut sim, one, b"old").is_some());
    let (before, free) = (names(&mut sim, one), sim.with(|server| server.lock().names.left()));
    for (step, refused) in failing {
        let steps = [STEPS[0], STEPS[1], step];
        let error = transact(&mut sim, one, &steps).expect_err("it cannot be done");
        assert_eq!(error.kind, refused, "{step:?}: {error}");
        assert!(error.context.starts_with("operation 2: "), "{error}");
        assert_eq!(names(&mut sim, one), before, "{step:?}");
        assert_eq!(sim.with(|server| server.lock().names.left()), free, "{step:?}");
    }
    transact(&mut sim, one, &[]).expect("nothing can be done");
}

#[test]
fn what_was_looked_at_is_as_it_was_or_nothing_is_done() {
    let (mut sim, one) = begun(1);
    let version = stat(&mut sim, one, b"work/a").expect("it is there");
    let same = Operation::Unchanged { path: &b"work/a"[..], version };
    transact(&mut sim, one, &[same, moved(b"work/b", b"b")]).expect("it is as it was");
    let file = sim.open(one, b"work/a", CREATE).expect("it is there");
    sim.write(one, file.file, 0, b"changed").expect("there is room for it");
    let late = transact(&mut sim, one, &[moved(b"b", b"c"), same]);
    assert_eq!(kind(late), Some(ErrorKind::Changed));
    assert!(stat(&mut sim, one, b"b").is_some() && stat(&mut sim, one, b"c").is_none());
    // Another file of that name is not the one that was looked at.
    transact(&mut sim, one, &[moved(b"b", b"work/a")]).expect("it can be done");
    let other = stat(&mut sim, one, b"work/a").expect("it is there");
    let version = Version { number: version.number, ..other };
    let other = Operation::Unchanged { path: &b"work/a"[..], version };
    assert_eq!(kind(transact(&mut sim, one, &[other])), Some(ErrorKind::Changed));
}

#[test]
fn a_user_does_what_he_may_alone_and_no_more_at_once() {
    let (mut sim, one) = begun(1);
    let user = sim.connect();
    sim.become_user(user, 1000);
    let own = terral_format::wire::message::Change {
        uid: Some(1000),
        gid: Some(1000),
        ..Default::default()
    };
    sim.ask(one, Request::MakeDirectory { path: b"his", mode: 0o755 }).expect("a free name");
    let given = Request::Change { target: Target::Path(b"his"), change: own };
    sim.ask(one, given).expect("root may");
    let makes = Operation::MakeDirectory { path: &b"his/new"[..], mode: 0o755 };
    for step in [
        moved(b"work/a", b"his/a"),
        Operation::Unlink(b"work/a"),
        Operation::Link { from: b"his/new", to: b"work/new" },
        Operation::MakeDirectory { path: b"work/new", mode: 0o755 },
        Operation::SetXattr {
            path: b"work/a",
            name: b"user.x",
            value: Some(b"x"),
            how: XattrHow::Any,
        },
    ] {
        let refused = kind(transact(&mut sim, user, &[makes, step]));
        let may_not = [Some(ErrorKind::Denied), Some(ErrorKind::Unauthorized)];
        assert!(may_not.contains(&refused), "{step:?}: {refused:?}");
        assert!(stat(&mut sim, one, b"his/new").is_none(), "{step:?}");
    }
    let inner = Operation::MakeDirectory { path: &b"his/new/inner"[..], mode: 0o755 };
    let closed = Operation::MakeDirectory { path: &b"his/new"[..], mode: 0o400 };
    assert_eq!(kind(transact(&mut sim, user, &[closed, inner])), Some(ErrorKind::Denied));
    transact(&mut sim, user, &[makes, inner, moved(b"his/new", b"his/done")]).expect("he may");
    assert!(stat(&mut sim, user, b"his/done/inner").is_some());
}

#[test]
fn who_has_a_file_open_that_loses_all_its_names_at_once_goes_on_reading_it() {
    let mut sim = Sim::new(2);
    sim.dir.put(b"one", b"of the store").expect("an empty store");
    sim.dir.put(b"two", b"also there").expect("a free name");
    let (one, other) = (sim.connect(), sim.connect());
    sim.ask(one, Request::Link { target: Target::Path(b"one"), path: b"more" })
        .expect("it is there");
    let open = [b"one", b"two"].map(|path| {
        sim.open(other, path, OpenHow { access: 1, ..READ }).expect("it is there").file
    });
    fill(&mut sim, one, b"new", b"new");
    let steps = [Operation::Unlink(&b"one"[..]), moved(b"new", b"two"), Operation::Unlink(b"more")];
    transact(&mut sim, one, &steps).expect("they can be done");
    sim.pass(Duration::from_secs(20));
    assert_eq!(sim.read(other, open[0], 0, 12).expect("it is open"), b"of the store");
    assert_eq!(sim.read(other, open[1], 0, 10).expect("it is open"), b"also there");
    sim.finish();
    assert_eq!(arrived(&sim), texts(&[("two", "new")]));
}

#[test]
fn one_that_is_garbled_is_answered_and_what_is_there_stays_sound() {
    let (mut sim, one) = begun(3);
    let whole = frame::encode(&STEPS).expect("it is short");
    let mut refused = 0;
    for _ in 0..2000 {
        let mut garbled = whole.clone();
        for _ in 0..=sim.world.one_of(3) {
            let at = sim.world.one_of(garbled.len() as u64) as usize;
            garbled[at] = sim.world.one_of(256) as u8;
        }
        garbled.truncate(1 + sim.world.one_of(2 * whole.len() as u64) as usize);
        let answer = sim.ask(one, Request::Transact(&garbled));
        refused += u32::from(answer.is_err_and(|error| error.kind == ErrorKind::Malformed));
    }
    assert!(refused > 100, "{refused} are no transactions");
    sim.ask(one, Request::MakeDirectory { path: b"still-here", mode: 0o755 }).expect("a free name");
    sim.finish();
    assert!(sim.dir.directories().iter().any(|path| path == b"still-here"));
}
