//! Quotas of one server: what is let in, what is refused, and that what is counted is what there
//! is, wherever the server is killed. Not here: several machines (`machines_quotas`).

use std::sync::atomic::Ordering;
use std::time::Duration;

use terral_format::ids::Ino;
use terral_format::local::geometry::CHUNK_BYTES;
use terral_format::local::tables::WITHOUT_ASKING;
use terral_format::wire::capability::Principal;
use terral_format::wire::containers::{ContainerName, Quota, Setting, Used};
use terral_format::wire::message::{FileRef, OpenHow, RenameHow, Request, Target};
use terral_format::wire::transactions::Operation;
use terral_format::{ErrorKind, Result, frame};

use super::Sim;
use super::client::{CREATE, Opened, READ};
use super::world::Virtual;
use crate::authority::audit::Who;
use crate::naming::charging;
use crate::seeds::seeds;
use crate::sharing::containers;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn name(of: &str) -> ContainerName {
    ContainerName::new(of).expect("is one")
}

fn bytes(most: u64) -> Quota {
    Quota { bytes: Some(most), files: None }
}

/// The server's user changes containers; `None`: the server has died in it.
pub(super) fn change(sim: &mut Sim, setting: Setting) -> Option<Result<()>> {
    sim.with(|server| {
        let mut state = server.lock();
        let who = Who { pid: 1, user: state.machine.user() };
        let by = Principal::User(who.user);
        containers::change(&mut state, who, by, setting.clone()).map(drop)
    })
}

pub(super) fn create(of: &str, place: &str, quota: Quota) -> Setting {
    let (name, place) = (name(of), place.as_bytes().to_vec());
    Setting::Create { name, place, owner: None, entries: Vec::new(), quota }
}

pub(super) fn bound(of: &str, quota: Quota) -> Setting {
    Setting::Bound(name(of), quota)
}

fn must(sim: &mut Sim, setting: Setting) {
    change(sim, setting).expect("it lives").expect("it may");
}

/// What is used of a container, which is what there is if all files are looked at.
pub(super) fn used(sim: &mut Sim, of: &str) -> Used {
    let of = name(of);
    let both = sim.with(|server| {
        let mut state = server.lock();
        let before = state.quotas.shown();
        charging::recount(&mut state);
        (before, state.quotas.shown())
    });
    let (counted, found) = both.expect("it lives");
    assert_eq!(counted, found, "what is counted is not what there is");
    counted.into_iter().find(|one| one.name == of).expect("it has a quota").used
}

fn kind<T>(done: Result<T>) -> std::result::Result<(), ErrorKind> {
    done.map(drop).map_err(|error| error.kind)
}

fn fill(sim: &mut Sim, client: usize, path: &str, count: u64) -> Result<()> {
    let file = sim.open(client, path.as_bytes(), CREATE)?;
    let done = write(sim, client, file.file, 0, &vec![7; count as usize]);
    sim.close(client, file).expect("it is open");
    done
}

/// Writes chunk by chunk, as programs do: of a write over several the simulated one makes the file
/// as long as all of it at once.
fn write(sim: &mut Sim, client: usize, file: FileRef, mut at: u64, bytes: &[u8]) -> Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let room = (CHUNK_BYTES - at % CHUNK_BYTES) as usize;
        let (piece, after) = rest.split_at(rest.len().min(room));
        sim.write(client, file, at, piece)?;
        (at, rest) = (at + piece.len() as u64, after);
    }
    Ok(())
}

fn make_directory(sim: &mut Sim, client: usize, path: &str) {
    let request = Request::MakeDirectory { path: path.as_bytes(), mode: 0o755 };
    sim.ask(client, request).expect("made");
}

fn rename(sim: &mut Sim, client: usize, from: &str, to: &str) -> Result<()> {
    let (from, to) = (from.as_bytes(), to.as_bytes());
    sim.ask(client, Request::Rename { from, to, how: RenameHow::Replace }).map(drop)
}

fn unlink(sim: &mut Sim, client: usize, path: &str) -> Result<()> {
    sim.ask(client, Request::Unlink(path.as_bytes())).map(drop)
}

fn truncate(sim: &mut Sim, client: usize, path: &str, size: u64) -> Result<()> {
    let target = Target::Path(path.as_bytes());
    sim.ask(client, Request::Truncate { target, size, token: 0 }).map(drop)
}

/// A directory with a quota, and a client.
fn begun(quota: Quota) -> (Sim, usize) {
    let mut sim = Sim::without_dir(1);
    let client = sim.connect();
    make_directory(&mut sim, client, "a");
    make_directory(&mut sim, client, "b");
    must(&mut sim, create("results", "a", quota));
    (sim, client)
}

/// Writes piece by piece until that is refused. Gives how many bytes were written.
fn write_on(sim: &mut Sim, client: usize, open: Opened, (mut at, piece): (u64, u64)) -> u64 {
    let begin = at;
    while let Ok(()) = write(sim, client, open.file, at, &vec![1; piece as usize]) {
        at += piece;
        assert!(at < 1 << 30, "there is no end");
    }
    at - begin
}

#[test]
fn a_file_grows_until_its_container_is_full_and_goes_on_when_there_is_room_again() {
    for (most, piece) in [(MIB, 64 * KIB), (9 * MIB, 256 * KIB), (100 * KIB, 4 * KIB)] {
        let (mut sim, client) = begun(bytes(most));
        let open = sim.open(client, b"a/x", CREATE).expect("there is room");
        let written = write_on(&mut sim, client, open, (0, piece));
        assert!(written <= most, "{written} of {most}");
        assert!(written + piece > most / 2, "{written} of {most}: it is all but full");
        let refused = write(&mut sim, client, open.file, written, &vec![1; piece as usize]);
        assert_eq!(kind(refused), Err(ErrorKind::Quota));
        // What is there is written over, and read.
        write(&mut sim, client, open.file, 0, &vec![2; piece as usize]).expect("it is no more");
        assert_eq!(kind(truncate(&mut sim, client, "a/x", most + 1)), Err(ErrorKind::Quota));
        assert!(used(&mut sim, "results").bytes <= most);
        // Elsewhere there is room.
        fill(&mut sim, client, "b/y", 3 * MIB).expect("no quota counts there");
        truncate(&mut sim, client, "a/x", 0).expect("it is less");
        assert!(write_on(&mut sim, client, open, (0, piece)) + piece > most / 2);
        must(&mut sim, bound("results", bytes(2 * most)));
        assert!(write_on(&mut sim, client, open, (written, piece)) > most / 2);
        sim.close(client, open).expect("it is open");
        must(&mut sim, bound("results", Quota::NONE));
        let open = sim.open(client, b"a/x", CREATE).expect("it is there");
        write(&mut sim, client, open.file, 4 * most, b"far behind").expect("any number");
    }
}

#[test]
fn once_it_is_closed_a_file_is_counted_as_long_as_it_is() {
    let (mut sim, client) = begun(bytes(8 * MIB));
    let mut all = 0;
    for (at, size) in [1, 100, 5000, 70_000, 3 * MIB].into_iter().enumerate() {
        fill(&mut sim, client, &format!("a/{at}"), size).expect("there is room");
        all += size;
        let now = used(&mut sim, "results");
        assert_eq!((now.bytes, now.files), (all, at as u64 + 1));
    }
    // Holes count: it is that long.
    let sparse = sim.open(client, b"a/sparse", CREATE).expect("there is room");
    let far = write(&mut sim, client, sparse.file, 8 * MIB, b"behind a hole");
    assert_eq!(kind(far), Err(ErrorKind::Quota));
    write(&mut sim, client, sparse.file, 4 * MIB, b"behind a hole").expect("there is room");
    sim.close(client, sparse).expect("it is open");
    assert_eq!(used(&mut sim, "results").bytes, all + 4 * MIB + 13);
    for at in 0..5 {
        unlink(&mut sim, client, &format!("a/{at}")).expect("it is there");
    }
    assert_eq!(used(&mut sim, "results"), Used { bytes: 4 * MIB + 13, files: 1 });
}

#[test]
fn what_was_removed_and_is_open_counts_until_it_is_closed_also_for_the_next_server() {
    let (mut sim, client) = begun(Quota { bytes: Some(MIB), files: Some(2) });
    let open = sim.open(client, b"a/x", CREATE).expect("there is room");
    write(&mut sim, client, open.file, 0, &vec![1; 900 * KIB as usize]).expect("there is room");
    unlink(&mut sim, client, "a/x").expect("it is there");
    let unnamed = OpenHow { unnamed: true, ..CREATE };
    let other = sim.open(client, b"a", unnamed).expect("one more");
    for kills in 0..3 {
        assert_eq!(kind(fill(&mut sim, client, "a/y", 1)), Err(ErrorKind::Quota), "{kills}");
        assert_eq!(kind(sim.open(client, b"a", unnamed)), Err(ErrorKind::Quota), "{kills}");
        let more = write(&mut sim, client, other.file, 0, &vec![1; 300 * KIB as usize]);
        assert_eq!(kind(more), Err(ErrorKind::Quota), "{kills}");
        assert_eq!(used(&mut sim, "results").files, 2);
        if kills == 1 {
            sim.with(|server| server.lock().rewrite_log());
        }
        sim.kill();
    }
    sim.close(client, open).expect("it is open");
    write(&mut sim, client, other.file, 0, &vec![1; 300 * KIB as usize])
        .expect("there is room again");
    sim.close(client, other).expect("it is open");
    assert_eq!(used(&mut sim, "results"), Used::default());
}

#[test]
fn a_rename_takes_what_is_counted_along_and_is_refused_where_it_does_not_fit() {
    let (mut sim, client) = begun(Quota { bytes: Some(MIB), files: Some(4) });
    make_directory(&mut sim, client, "b/d");
    make_directory(&mut sim, client, "b/d/e");
    for (path, size) in [("b/x", 700), ("b/d/y", 300), ("b/d/e/z", 200)] {
        fill(&mut sim, client, path, size * KIB).expect("no quota counts there");
    }
    rename(&mut sim, client, "b/x", "a/x").expect("there is room");
    assert_eq!(used(&mut sim, "results"), Used { bytes: 700 * KIB, files: 1 });
    // All that is below comes along.
    assert_eq!(kind(rename(&mut sim, client, "b/d", "a/d")), Err(ErrorKind::Quota));
    truncate(&mut sim, client, "a/x", 400 * KIB).expect("it is less");
    rename(&mut sim, client, "b/d", "a/d").expect("there is room");
    assert_eq!(used(&mut sim, "results"), Used { bytes: 900 * KIB, files: 3 });
    // What is replaced makes room; what is exchanged goes the other way.
    fill(&mut sim, client, "b/w", 500 * KIB).expect("no quota counts there");
    assert_eq!(kind(rename(&mut sim, client, "b/w", "a/w")), Err(ErrorKind::Quota));
    let exchange = |from: &'static [u8], to: &'static [u8]| Request::Rename {
        from,
        to,
        how: RenameHow::Exchange,
    };
    sim.ask(client, exchange(b"b/w", b"a/x")).expect("100 KiB more");
    assert_eq!(used(&mut sim, "results"), Used { bytes: 1000 * KIB, files: 3 });
    fill(&mut sim, client, "b/v", 520 * KIB).expect("no quota counts there");
    rename(&mut sim, client, "b/v", "a/x").expect("20 KiB more");
    assert_eq!(used(&mut sim, "results"), Used { bytes: 1020 * KIB, files: 3 });
    rename(&mut sim, client, "a/d", "b/d").expect("it goes");
    assert_eq!(used(&mut sim, "results"), Used { bytes: 520 * KIB, files: 1 });
    // Within the container nothing is more.
    rename(&mut sim, client, "a/x", "a/u").expect("it stays");
    assert_eq!(used(&mut sim, "results"), Used { bytes: 520 * KIB, files: 1 });
}

#[test]
fn a_file_with_several_names_counts_once_and_where_any_of_them_is() {
    let (mut sim, client) = begun(bytes(MIB));
    fill(&mut sim, client, "b/x", 700 * KIB).expect("no quota counts there");
    let link =
        |to: &'static str| Request::Link { target: Target::Path(b"b/x"), path: to.as_bytes() };
    for to in ["a/x", "a/y"] {
        sim.ask(client, link(to)).expect("there is room");
        assert_eq!(used(&mut sim, "results"), Used { bytes: 700 * KIB, files: 1 });
    }
    fill(&mut sim, client, "b/z", 400 * KIB).expect("no quota counts there");
    let more = Request::Link { target: Target::Path(b"b/z"), path: b"a/z" };
    assert_eq!(kind(sim.ask(client, more)), Err(ErrorKind::Quota));
    unlink(&mut sim, client, "b/x").expect("it is there");
    unlink(&mut sim, client, "a/x").expect("it is there");
    assert_eq!(used(&mut sim, "results"), Used { bytes: 700 * KIB, files: 1 });
    rename(&mut sim, client, "a/y", "b/y").expect("it goes");
    assert_eq!(used(&mut sim, "results"), Used::default());
}

#[test]
fn a_quota_below_what_is_used_takes_nothing_away() {
    let (mut sim, client) = begun(bytes(5 * MIB));
    let open = sim.open(client, b"a/x", CREATE).expect("there is room");
    write(&mut sim, client, open.file, 0, &vec![1; 3 * MIB as usize]).expect("there is room");
    fill(&mut sim, client, "a/y", 100).expect("there is room");
    must(&mut sim, bound("results", Quota { bytes: Some(MIB), files: Some(1) }));
    write(&mut sim, client, open.file, 0, &vec![2; 3 * MIB as usize]).expect("it is no more");
    assert_eq!(sim.read(client, open.file, 0, 1).expect("it is there"), [2]);
    assert_eq!(kind(sim.open(client, b"a/z", CREATE)), Err(ErrorKind::Quota));
    let beyond = write(&mut sim, client, open.file, 4 * MIB, b"more");
    assert_eq!(kind(beyond), Err(ErrorKind::Quota));
    rename(&mut sim, client, "a/y", "a/w").expect("it stays");
    let other = sim.open(client, b"a/w", CREATE).expect("it is there");
    write(&mut sim, client, other.file, 0, b"over").expect("it is no more");
    sim.close(client, other).expect("it is open");
    truncate(&mut sim, client, "a/x", 10).expect("it is less");
    unlink(&mut sim, client, "a/w").expect("it is there");
    sim.close(client, open).expect("it is open");
    assert_eq!(used(&mut sim, "results"), Used { bytes: 10, files: 1 });
}

#[test]
fn two_at_the_edge_have_no_more_than_there_is_together() {
    for piece in [16 * KIB, 100 * KIB, CHUNK_BYTES] {
        let most = 20 * MIB;
        let (mut sim, one) = begun(bytes(most));
        let other = sim.connect();
        let files = [(one, b"a/x"), (other, b"a/y")]
            .map(|(client, path)| (client, sim.open(client, path, CREATE).expect("there is room")));
        let mut at = [0; 2];
        let mut refused = [false; 2];
        while !(refused[0] && refused[1]) {
            for which in 0..2 {
                let (client, open) = files[which];
                if refused[which] {
                    continue;
                }
                match write(&mut sim, client, open.file, at[which], &vec![1; piece as usize]) {
                    Ok(()) => at[which] += piece,
                    Err(error) => {
                        assert_eq!(error.kind, ErrorKind::Quota);
                        refused[which] = true;
                    }
                }
            }
        }
        assert!(at[0] + at[1] <= most, "{at:?}");
        assert!(at[0] + at[1] + 2 * piece + 2 * CHUNK_BYTES > most, "{at:?}: it is all but full");
        for (client, open) in files {
            sim.close(client, open).expect("it is open");
        }
        // Of what was refused, what lay in the chunk before was written.
        let found = used(&mut sim, "results").bytes;
        assert!(found >= at[0] + at[1] && found <= most, "{found}");
    }
}

#[test]
fn a_transaction_fits_as_a_whole_or_is_refused() {
    let (mut sim, client) = begun(bytes(MIB));
    for (path, size) in [("a/x", 500), ("b/y", 400), ("b/z", 300)] {
        fill(&mut sim, client, path, size * KIB).expect("there is room");
    }
    let moved = |from: &'static [u8], to: &'static [u8]| Operation::Rename {
        from,
        to,
        how: RenameHow::Replace,
    };
    let both = [moved(b"b/y", b"a/y"), moved(b"b/z", b"a/z")];
    let transact = |sim: &mut Sim, steps: &[Operation<&[u8]>]| {
        let encoded = frame::encode(&steps).expect("short");
        kind(sim.ask(client, Request::Transact(&encoded)))
    };
    assert_eq!(transact(&mut sim, &both), Err(ErrorKind::Quota));
    assert_eq!(used(&mut sim, "results"), Used { bytes: 500 * KIB, files: 1 });
    let out = [both[0], both[1], moved(b"a/x", b"b/x")];
    assert_eq!(transact(&mut sim, &out), Ok(()));
    assert_eq!(used(&mut sim, "results"), Used { bytes: 700 * KIB, files: 2 });
}

#[test]
fn what_the_permanent_store_has_from_before_counts_once_it_is_written_to() {
    let mut sim = Sim::new(1);
    let client = sim.connect();
    fill(&mut sim, client, "old", 50 * KIB).expect("there is room");
    sim.pass(Duration::from_secs(60));
    let mut sim = Sim::sharing(2, &sim.dir);
    let client = sim.connect();
    must(&mut sim, bound("default", bytes(100 * KIB)));
    let open = sim.open(client, b"old", READ).expect("it is there");
    sim.close(client, open).expect("it is open");
    assert_eq!(used(&mut sim, "default"), Used::default());
    let open = sim.open(client, b"old", OpenHow { create: false, ..CREATE }).expect("it is there");
    sim.close(client, open).expect("it is open");
    assert_eq!(used(&mut sim, "default"), Used { bytes: 50 * KIB, files: 1 });
    // It is, also once that is brought, and for the next server.
    fill(&mut sim, client, "new", 20 * KIB).expect("there is room");
    sim.pass(Duration::from_secs(60));
    for _ in 0..2 {
        assert_eq!(used(&mut sim, "default"), Used { bytes: 70 * KIB, files: 2 });
        sim.with(|server| server.lock().rewrite_log());
        sim.kill();
    }
    assert_eq!(kind(truncate(&mut sim, client, "old", 90 * KIB)), Err(ErrorKind::Quota));
    assert_eq!(used(&mut sim, "default"), Used { bytes: 70 * KIB, files: 2 });
}

#[test]
fn names_are_asked_for_as_long_as_there_are_quotas() {
    let (mut sim, client) = begun(bytes(MIB));
    let asks = |sim: &Sim, client: usize| {
        let page = sim.clients[client].page.page();
        page.operations.load(Ordering::SeqCst) & WITHOUT_ASKING == 0
    };
    let other = sim.connect();
    assert!(asks(&sim, client) && asks(&sim, other));
    sim.kill();
    used(&mut sim, "results");
    assert!(asks(&sim, client), "the next server knows it");
    must(&mut sim, Setting::Remove(name("results")));
    assert!(!asks(&sim, client) && !asks(&sim, other));
    assert_eq!(kind(fill(&mut sim, client, "a/x", 3 * MIB)), Ok(()));
}

#[test]
fn a_change_of_a_quota_has_happened_or_not_wherever_the_server_is_killed() {
    let mut died = 0;
    for moment in 1..16 {
        let (mut sim, client) = begun(bytes(MIB));
        fill(&mut sim, client, "a/x", 500 * KIB).expect("there is room");
        sim.kill_at(moment);
        let done = change(&mut sim, bound("results", bytes(600 * KIB)));
        sim.kill_at(0);
        died += u64::from(done.is_none());
        let more = kind(fill(&mut sim, client, "a/y", 200 * KIB));
        assert!(done.is_none() || more == Err(ErrorKind::Quota), "{moment}: it was answered");
        let now = used(&mut sim, "results");
        assert!(now.bytes <= if more.is_ok() { MIB } else { 600 * KIB }, "{moment}: {now:?}");
    }
    assert!(died > 0, "it never died in a change");
}

/// Many things at random, in and out of two containers, one in the other.
struct Walk {
    sim: Sim,
    client: usize,
    open: Vec<Opened>,
    world: Virtual,
    refused: u64,
    /// What is opened for writing while there is little room may grow by the rest of its chunk.
    slack: u64,
    /// What was done last.
    last: String,
}

const PLACES: [&str; 4] = ["a", "a/in", "b", "b/d"];

impl Walk {
    fn new(seed: u64) -> Self {
        let mut sim = if seed.is_multiple_of(2) { Sim::new(seed) } else { Sim::without_dir(seed) };
        let client = sim.connect();
        PLACES.iter().for_each(|place| make_directory(&mut sim, client, place));
        must(&mut sim, create("outer", "a", Quota { bytes: Some(6 * MIB), files: Some(9) }));
        must(&mut sim, create("inner", "a/in", bytes(3 * MIB)));
        let (open, world) = (Vec::new(), Virtual::new(seed));
        Walk { sim, client, open, world, refused: 0, slack: 0, last: String::new() }
    }

    fn path(&self) -> String {
        format!("{}/{}", PLACES[self.world.one_of(4) as usize], self.world.one_of(4))
    }

    fn step(&mut self) {
        let (client, path, other) = (self.client, self.path(), self.path());
        let size = 1 << self.world.one_of(23);
        let sim = &mut self.sim;
        let what = self.world.one_of(12);
        self.last = format!("{what}: {path}, {other}, {size}");
        let room = (6 * MIB).saturating_sub(used(sim, "outer").bytes);
        if what < 3 && room.min((3 * MIB).saturating_sub(used(sim, "inner").bytes)) < CHUNK_BYTES {
            self.slack += CHUNK_BYTES;
        }
        let done = match what {
            0 | 1 => fill(sim, client, &path, size),
            2 => sim.open(client, path.as_bytes(), CREATE).map(|open| self.open.push(open)),
            3 => match self.open.last().copied() {
                Some(open) => write(sim, client, open.file, size, b"a few bytes"),
                None => Ok(()),
            },
            4 => match self.open.pop() {
                Some(open) => sim.close(client, open),
                None => Ok(()),
            },
            5 => truncate(sim, client, &path, size),
            6 => rename(sim, client, &path, &other),
            7 => {
                let target = Target::Path(path.as_bytes());
                sim.ask(client, Request::Link { target, path: other.as_bytes() }).map(drop)
            }
            8 => unlink(sim, client, &path),
            9 => {
                let (from, to) = (path.as_bytes(), other.as_bytes());
                let how = RenameHow::Exchange;
                sim.ask(client, Request::Rename { from, to, how }).map(drop)
            }
            10 => rename(sim, client, "b/d", "a/d").or_else(|_| rename(sim, client, "a/d", "b/d")),
            _ => {
                match self.world.one_of(3) {
                    0 => sim.kill(),
                    1 => sim.kill_at(1 + self.world.one_of(4) as i64),
                    _ => sim.with(|server| server.lock().rewrite_log()).unwrap_or_default(),
                }
                Ok(())
            }
        };
        self.refused += u64::from(done.is_err_and(|error| error.kind == ErrorKind::Quota));
    }

    /// What is counted is what there is, and no more than there may be, but for what is open.
    fn check(&mut self) {
        let slack = self.slack;
        let (outer, inner) = (used(&mut self.sim, "outer"), used(&mut self.sim, "inner"));
        assert!(
            outer.bytes <= 6 * MIB + slack && outer.files <= 9,
            "{outer:?} after {}",
            self.last
        );
        assert!(inner.bytes <= 3 * MIB + slack, "{inner:?} after {}", self.last);
        let sizes = self.sim.with(|server| {
            let state = server.lock();
            let inodes: Vec<Ino> = state.quotas.all().map(|(ino, _)| ino).collect();
            inodes.iter().filter_map(|ino| state.attributes(*ino)).map(|is| is.size).sum::<u64>()
        });
        assert!(sizes.expect("it lives") <= outer.bytes, "as long as they are: {sizes:?}");
    }
}

#[test]
fn what_is_counted_is_what_there_is_whatever_happens() {
    let mut refused = 0;
    for seed in seeds(60) {
        let walked = std::panic::catch_unwind(|| {
            let mut walk = Walk::new(seed);
            for _ in 0..150 {
                walk.step();
                walk.sim.kill_at(0);
                walk.check();
            }
            walk.refused
        });
        refused += walked.unwrap_or_else(|_| panic!("TERRAL_SEED={seed}"));
    }
    println!("{refused} were refused");
    assert!(refused > 60, "{refused}");
}
