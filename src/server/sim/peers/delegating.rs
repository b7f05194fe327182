//! Transactions that give other machines' files names, or take them, where there is a permanent
//! store: homes delegate the names of their files, and have them back once the store has all of it.
//! Whichever server dies, or session is cut, at whatever step, all see all of it or nothing, and
//! the store has in the end what they see. Not here: where there is no store (`giving`).

use std::collections::BTreeSet;
use std::time::Duration;

use terral_format::disk::partition::Verdict;
use terral_format::wire::message::{Change, RenameHow, Request, Target};
use terral_format::wire::transactions::Operation;
use terral_format::{ErrorKind, frame};
use terral_store::backing::scripted::Body;

use super::dir::{owes_nothing, there};
use super::further::{asks, goes_on, is_sound, link, makes, rest, says};
use super::giving::given;
use super::preparing::{
    Asked, TROUBLES, Trouble, happens, in_doubt, is_given_up, is_through, nothing_is_kept, set,
    value,
};
use super::transacting::{Step, moved, names, transact};
use super::{Handled, Peers};
use crate::sim::client::{CREATE, READ};

const FILES: [(usize, &[u8]); 6] =
    [(0, b"a/0"), (1, b"a/1"), (1, b"c/1"), (2, b"c/2"), (2, b"b/2"), (1, b"b/1")];

/// Files of all three in directories of all; the store has them, or not yet.
pub(super) fn begun(brought: bool, seed: u64) -> Peers {
    let mut peers = Peers::with_dir(seed, 3);
    for (at, path) in [(2, &b"a"[..]), (1, b"b"), (0, b"c")] {
        peers.make_directory(at, path).expect("made");
    }
    FILES.into_iter().for_each(|(at, path)| makes(&mut peers, at, path, path));
    if brought {
        rest(&mut peers);
    }
    peers
}

/// What is done by the first server: names that others' files had are taken by others, and by its
/// own; one takes that of a third one's, and one gets two.
pub(super) const STEPS: [Step<'static>; 8] = [
    Operation::MakeDirectory { path: b"c/new", mode: 0o755 },
    moved(b"a/1", b"c/new/1"),
    moved(b"c/2", b"a/1"),
    moved(b"b/2", b"b/1"),
    given(b"a/1", b"b/9"),
    moved(b"a/0", b"c/2"),
    moved(b"c/1", b"a/0"),
    set(b"c/new/1", b"after"),
];
pub(super) const BEFORE: [&str; 6] = ["a/0", "a/1", "b/1", "b/2", "c/1", "c/2"];
/// With what each says.
pub(super) const AFTER: [(&str, &str); 6] = [
    ("a/0", "c/1"),
    ("a/1", "c/2"),
    ("b/1", "b/2"),
    ("b/9", "c/2"),
    ("c/2", "a/0"),
    ("c/new/1", "a/1"),
];

pub(super) fn begins(peers: &mut Peers, at: usize, steps: &[Step<'_>]) -> Asked {
    let encoded = frame::encode(&steps).expect("it is short");
    asks(peers, at, Request::Transact(&encoded))
}

/// Names of files, and what each says.
fn expected(done: bool) -> Vec<(&'static str, &'static str)> {
    if done { AFTER.to_vec() } else { BEFORE.map(|path| (path, path)).to_vec() }
}

/// Whether all of it is there, as a server sees it; nothing is, else.
fn is_done(peers: &mut Peers, at: usize, when: &str) -> bool {
    let seen = names(peers, at);
    let files = |done| expected(done).into_iter().map(|(path, _)| path.to_owned());
    let mut after: Vec<String> = files(true).chain(["c/new".to_owned()]).collect();
    after.sort();
    let done = seen == after;
    assert!(done || seen.iter().cloned().eq(files(false)), "{when}, on {at}: {seen:?}");
    done
}

/// The store has these files, with what they say.
pub(super) fn are_there(peers: &mut Peers, files: &[(&str, &str)], when: &str) {
    owes_nothing(peers);
    let tree = peers.dir.as_ref().expect("a store").tree();
    let seen = there(peers).into_iter().filter(|(_, directory)| !directory);
    let seen: Vec<(String, String)> = seen
        .map(|(path, _)| {
            let Body::File(bytes) = &tree[&path].body else { panic!("{when}: no file") };
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            (text(&path), text(bytes))
        })
        .collect();
    let files: Vec<(String, String)> =
        files.iter().map(|(path, says)| (path.to_string(), says.to_string())).collect();
    assert_eq!(seen, files, "{when}: in the store");
    for (path, _) in &files {
        let is = peers.stat(0, path.as_bytes()).expect("it is there");
        let there = tree[path.as_bytes()].found.attributes.mode;
        assert_eq!(there & 0o7777, is.mode & 0o7777, "{when}: {path}");
    }
}

fn is_right(peers: &mut Peers, done: bool, when: &str) {
    for at in 0..3 {
        assert_eq!(is_done(peers, at, when), done, "{when}, on {at}");
    }
    rest(peers);
    let files = expected(done);
    for (at, (path, said)) in (0..3).flat_map(|at| files.iter().map(move |file| (at, *file))) {
        assert_eq!(says(peers, at, path.as_bytes()), said.as_bytes(), "{when}: {path}");
    }
    let paths: Vec<&[u8]> = files.iter().map(|(path, _)| path.as_bytes()).collect();
    is_sound(peers, &paths);
    nothing_is_kept(peers);
    are_there(peers, &files, when);
}

fn interrupted(brought: bool, trouble: Trouble, steps: u64) -> bool {
    let when = format!("{brought}, {trouble:?} after {steps}");
    let mut peers = begun(brought, steps);
    let of = begins(&mut peers, 0, &STEPS);
    let through = is_through(&mut peers, 0, &of, steps);
    happens(&mut peers, trouble);
    assert!(through || is_through(&mut peers, 0, &of, 2000), "{when}: it waits for ever");
    is_right(&mut peers, true, &when);
    assert_eq!(value(&mut peers, 2, b"c/new/1"), b"after");
    through
}

fn all_interrupted(brought: bool) {
    for trouble in TROUBLES {
        let all: Vec<bool> =
            (0..70).step_by(2).map(|at| interrupted(brought, trouble, at)).collect();
        assert!(all.contains(&true) && all.contains(&false), "{trouble:?}: {all:?}");
    }
}

#[test]
fn all_names_are_there_and_in_the_store_whichever_server_dies_or_session_is_cut() {
    all_interrupted(true);
}

#[test]
fn so_they_are_of_files_that_the_store_does_not_have_yet() {
    all_interrupted(false);
}

#[test]
fn who_asked_and_died_has_given_all_names_or_none_also_in_the_store() {
    let mut seen = [0; 2];
    for (steps, dies) in (0..60).flat_map(|steps| [false, true].map(|dies| (steps, dies))) {
        let brought = steps % 2 == 0;
        let (mut peers, when) = (begun(brought, steps), format!("after {steps}, {dies}"));
        let of = begins(&mut peers, 0, &STEPS);
        is_given_up(&mut peers, &of, (steps, dies));
        let done = is_done(&mut peers, 1, &when);
        seen[usize::from(done)] += 1;
        is_right(&mut peers, done, &when);
    }
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
}

/// Somebody changes the same file, or its name, as a transaction is after so many steps.
fn beside(brought: bool, steps: u64, by: usize, request: Request<'_>) -> bool {
    let when = format!("{brought}: {request:?} by {by} after {steps}");
    let mut peers = begun(brought, steps);
    let one = begins(&mut peers, 0, &STEPS);
    let through = is_through(&mut peers, 0, &one, steps);
    let other = asks(&mut peers, by, request);
    let mut left = [through, goes_on(&mut peers, by, &other, 3)];
    for turns in 0.. {
        for (at, of, done) in [(0, &one, 0), (by, &other, 1)] {
            if !left[done] {
                left[done] = matches!(peers.handle(at, of.1, &of.2), Some(Handled::Answer(_)));
            }
        }
        if left == [true, true] {
            break;
        }
        if !peers.carry() {
            peers.pass(Duration::from_millis(100));
        }
        assert!(turns < 4000, "{when}: they wait for ever: {left:?}");
    }
    rest(&mut peers);
    let all = names(&mut peers, 1);
    let paths: Vec<&str> = all.iter().map(String::as_str).filter(|it| *it != "c/new").collect();
    let bytes: Vec<&[u8]> = paths.iter().map(|path| path.as_bytes()).collect();
    is_sound(&mut peers, &bytes);
    nothing_is_kept(&mut peers);
    let said = |peers: &mut Peers, path: &str| {
        String::from_utf8_lossy(&says(peers, 2, path.as_bytes())).into_owned()
    };
    let files: Vec<(&str, String)> =
        paths.iter().map(|path| (*path, said(&mut peers, path))).collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(path, said)| (*path, &said[..])).collect();
    are_there(&mut peers, &files, &when);
    through
}

#[test]
fn what_others_do_meanwhile_to_the_same_files_is_done_before_or_after() {
    let mode = Change { mode: Some(0o600), ..Change::default() };
    let requests = [
        Request::Link { target: Target::Path(b"a/1"), path: b"c/other" },
        Request::Rename { from: b"a/0", to: b"c/1", how: RenameHow::Replace },
        Request::Rename { from: b"c/2", to: b"a/9", how: RenameHow::Replace },
        Request::Unlink(b"a/1"),
        Request::Change { target: Target::Path(b"a/1"), change: mode },
        Request::Truncate { target: Target::Path(b"c/2"), size: 1, token: 0 },
    ];
    for (by, request) in (0..3).flat_map(|by| requests.map(|request| (by, request))) {
        for brought in [false, true] {
            let all: Vec<bool> =
                (0..40).step_by(3).map(|at| beside(brought, at, by, request)).collect();
            assert!(all.contains(&false), "{request:?}: {all:?}");
        }
    }
}

/// What one transaction makes of these files.
type Small = (&'static [Step<'static>], [(&'static str, &'static str); 6]);

pub(super) const fn exchanged<'a>(from: &'a [u8], to: &'a [u8]) -> Step<'a> {
    Operation::Rename { from, to, how: RenameHow::Exchange }
}

/// Names change places, of files of two homes, and of one; by way of another name; a file takes the
/// place of one of its own home, of one of who asks, and of one that goes.
const SMALL: [Small; 7] = [
    (
        &[
            moved(b"c/2", b"a/x"),
            Operation::Unlink(b"a/x"),
            given(b"a/1", b"c/y"),
            moved(b"c/y", b"c/2"),
        ],
        [
            ("a/0", "a/0"),
            ("a/1", "a/1"),
            ("b/1", "b/1"),
            ("b/2", "b/2"),
            ("c/1", "c/1"),
            ("c/2", "a/1"),
        ],
    ),
    (
        &[exchanged(b"a/1", b"c/2")],
        [
            ("a/0", "a/0"),
            ("a/1", "c/2"),
            ("b/1", "b/1"),
            ("b/2", "b/2"),
            ("c/1", "c/1"),
            ("c/2", "a/1"),
        ],
    ),
    (
        &[exchanged(b"b/1", b"c/1")],
        [
            ("a/0", "a/0"),
            ("a/1", "a/1"),
            ("b/1", "c/1"),
            ("b/2", "b/2"),
            ("c/1", "b/1"),
            ("c/2", "c/2"),
        ],
    ),
    (
        &[moved(b"b/1", b"b/x"), moved(b"c/1", b"b/1"), moved(b"b/x", b"c/1")],
        [
            ("a/0", "a/0"),
            ("a/1", "a/1"),
            ("b/1", "c/1"),
            ("b/2", "b/2"),
            ("c/1", "b/1"),
            ("c/2", "c/2"),
        ],
    ),
    (
        &[moved(b"a/1", b"c/1"), given(b"a/0", b"a/1")],
        [
            ("a/0", "a/0"),
            ("a/1", "a/0"),
            ("b/1", "b/1"),
            ("b/2", "b/2"),
            ("c/1", "a/1"),
            ("c/2", "c/2"),
        ],
    ),
    (
        &[moved(b"c/2", b"a/0"), given(b"a/0", b"c/9")],
        [
            ("a/0", "c/2"),
            ("a/1", "a/1"),
            ("b/1", "b/1"),
            ("b/2", "b/2"),
            ("c/1", "c/1"),
            ("c/9", "c/2"),
        ],
    ),
    (
        &[Operation::Unlink(b"c/2"), moved(b"c/1", b"c/2"), given(b"c/2", b"c/1")],
        [
            ("a/0", "a/0"),
            ("a/1", "a/1"),
            ("b/1", "b/1"),
            ("b/2", "b/2"),
            ("c/1", "c/1"),
            ("c/2", "c/1"),
        ],
    ),
];

fn small(which: usize, brought: bool, dies: Option<usize>, steps: u64) {
    let when = format!("{which}, {brought}, {dies:?} after {steps}");
    let (operations, files) = SMALL[which];
    let mut peers = begun(brought, steps);
    let of = begins(&mut peers, 0, operations);
    let through = is_through(&mut peers, 0, &of, steps);
    dies.into_iter().for_each(|at| happens(&mut peers, Trouble::Dies(at)));
    assert!(through || is_through(&mut peers, 0, &of, 2000), "{when}: it waits for ever");
    rest(&mut peers);
    for (at, (path, said)) in (0..3).flat_map(|at| files.map(|file| (at, file))) {
        assert_eq!(says(&mut peers, at, path.as_bytes()), said.as_bytes(), "{when}: {path}");
    }
    is_sound(&mut peers, &files.map(|(path, _)| path.as_bytes()));
    nothing_is_kept(&mut peers);
    are_there(&mut peers, &files, &when);
}

#[test]
fn whatever_takes_whose_place_is_there_with_its_bytes() {
    for (which, brought) in (0..SMALL.len()).flat_map(|it| [false, true].map(|is| (it, is))) {
        small(which, brought, None, 0);
        for (dies, steps) in (0..3).flat_map(|at| (8..44).step_by(4).map(move |it| (at, it))) {
            small(which, brought, Some(dies), steps);
        }
    }
}

/// A file of the third, with a name in each of three directories.
fn of_three_names(brought: bool, dies: Option<usize>, steps: u64) {
    let when = format!("{brought}, {dies:?} after {steps}");
    let mut peers = begun(false, steps);
    link(&mut peers, 1, b"b/2", b"a/7").expect("linked");
    link(&mut peers, 0, b"b/2", b"c/7").expect("linked");
    if brought {
        rest(&mut peers);
    }
    let operations = [
        moved(b"a/7", b"c/1"),
        Operation::Unlink(b"b/2"),
        given(b"c/7", b"b/8"),
        given(b"c/1", b"b/9"),
        moved(b"a/0", b"a/7"),
    ];
    let of = begins(&mut peers, 0, &operations);
    let through = is_through(&mut peers, 0, &of, steps);
    dies.into_iter().for_each(|at| happens(&mut peers, Trouble::Dies(at)));
    assert!(through || is_through(&mut peers, 0, &of, 2000), "{when}: it waits for ever");
    let files = [
        ("a/1", "a/1"),
        ("a/7", "a/0"),
        ("b/1", "b/1"),
        ("b/8", "b/2"),
        ("b/9", "b/2"),
        ("c/1", "b/2"),
        ("c/2", "c/2"),
        ("c/7", "b/2"),
    ];
    for (at, (path, said)) in (0..3).flat_map(|at| files.map(|file| (at, file))) {
        assert_eq!(says(&mut peers, at, path.as_bytes()), said.as_bytes(), "{when}: {path}");
    }
    is_sound(&mut peers, &files.map(|(path, _)| path.as_bytes()));
    nothing_is_kept(&mut peers);
    are_there(&mut peers, &files, &when);
}

#[test]
fn a_file_of_several_names_has_others_then_which_are_links_in_the_store() {
    for brought in [false, true] {
        of_three_names(brought, None, 0);
        for (dies, steps) in (0..3).flat_map(|at| (6..60).step_by(6).map(move |it| (at, it))) {
            of_three_names(brought, Some(dies), steps);
        }
    }
}

/// Which of these bytes files have that can be read.
fn said_by(peers: &mut Peers, at: usize) -> BTreeSet<Vec<u8>> {
    let mut all = BTreeSet::new();
    for path in names(peers, at).into_iter().filter(|path| path != "c/new") {
        let Ok(open) = peers.open(at, path.as_bytes(), READ) else { continue };
        all.extend(peers.read(open, 0, 100));
        peers.close(open).expect("closed");
    }
    all
}

/// Who decides it, or a home, is lost after so many steps. Whether it was answered.
fn lost(brought: bool, (by, out): (usize, usize), steps: u64) -> bool {
    let when = format!("{brought}: {out} after {steps}, of {by}");
    let mut peers = begun(brought, steps);
    let of = begins(&mut peers, by, &STEPS);
    let through = is_through(&mut peers, by, &of, steps);
    peers.dies(out);
    peers.remove(out, Verdict::Dead, 2);
    if by != out && !through {
        // It may have come to be, or not.
        goes_on(&mut peers, by, &of, 2000);
    }
    (0..10).for_each(|_| peers.pass(Duration::from_secs(1)));
    rest(&mut peers);
    for at in (0..3).filter(|at| *at != out) {
        assert!(in_doubt(&mut peers, at).is_empty(), "{when}: in doubt on {at}");
        let left = said_by(&mut peers, at);
        for (home, path) in FILES.into_iter().filter(|(home, path)| *home != out && *path != b"b/1")
        {
            assert!(left.contains(path), "{when}: {at} misses {path:?} of {home}: {left:?}");
        }
    }
    through
}

#[test]
fn no_file_of_those_that_are_left_is_lost_with_who_decides_it_or_a_home() {
    for brought in [false, true] {
        for of in [(1, 1), (0, 2), (0, 1)] {
            let all: Vec<bool> = (0..48).step_by(3).map(|it| lost(brought, of, it)).collect();
            assert!(all.contains(&true) && all.contains(&false), "{of:?}: {all:?}");
        }
    }
}

/// A file that only the store has is read, and another one is written, as their names are changed.
fn used(steps: u64) {
    let mut peers = Peers::with_dir(steps, 3);
    for (at, path) in [(2, &b"a"[..]), (1, b"b"), (0, b"c")] {
        peers.make_directory(at, path).expect("made");
    }
    peers.dir.as_ref().expect("a store").put(b"s/x", b"only there").expect("written");
    let reads = peers.open(0, b"s/x", READ).expect("it is there");
    makes(&mut peers, 0, b"s/y", b"one");
    rest(&mut peers);
    let writes = peers.open(0, b"s/y", CREATE).expect("it is there");
    let of = begins(&mut peers, 1, &[moved(b"s/x", b"b/x"), moved(b"s/y", b"a/y")]);
    let through = is_through(&mut peers, 1, &of, steps);
    let (first, count, within, bytes) = (0, 1, 0, 10);
    let staged = Request::Stage { file: reads.file, first, count, within, bytes };
    let read = asks(&mut peers, 0, staged);
    peers.write(writes, Some(3), b" more").expect("it is open");
    let mut left = [through, false];
    for turns in 0.. {
        if left == [true, true] {
            break;
        }
        left[0] |= is_through(&mut peers, 1, &of, u64::from(!left[0]));
        left[1] |= goes_on(&mut peers, 0, &read, u64::from(!left[1]));
        assert!(turns < 4000, "after {steps}: they wait for ever: {left:?}");
    }
    assert_eq!(peers.read(reads, 0, 100).expect("it is there"), b"only there", "after {steps}");
    peers.close(reads).expect("closed");
    peers.close(writes).expect("closed");
    assert_eq!(says(&mut peers, 2, b"a/y"), b"one more");
    are_there(&mut peers, &[("a/y", "one more"), ("b/x", "only there")], &format!("after {steps}"));
}

#[test]
fn who_reads_and_writes_meanwhile_does_so() {
    (0..40).for_each(used);
}

/// Who decides it stands still after so many steps. Whether names were delegated then.
fn stopped(steps: u64) -> bool {
    let mut peers = begun(true, steps);
    let writes = peers.open(1, b"a/1", CREATE).expect("it is there");
    let of = begins(&mut peers, 0, &[moved(b"a/1", b"c/x")]);
    is_through(&mut peers, 0, &of, steps);
    let delegated = !in_doubt(&mut peers, 1).is_empty();
    peers.stopped = Some((0, Duration::from_secs(200)));
    peers.write(writes, Some(3), b" more").expect("its own programs go on");
    peers.close(writes).expect("closed");
    (0..40).for_each(|_| peers.pass(Duration::from_secs(5)));
    peers.stopped = None;
    let through = is_through(&mut peers, 0, &of, 2000);
    assert!(through, "after {steps}: it waits for ever");
    assert_eq!(says(&mut peers, 2, b"c/x"), b"a/1 more");
    nothing_is_kept(&mut peers);
    let mut files = BEFORE.map(|path| (path, path)).to_vec();
    files.retain(|(path, _)| *path != "a/1");
    files.push(("c/x", "a/1 more"));
    are_there(&mut peers, &files, &format!("after {steps}"));
    delegated
}

#[test]
fn who_decides_and_stands_still_keeps_the_homes_programs_from_no_bytes_in_memory() {
    let all: Vec<bool> = (0..40).step_by(2).map(stopped).collect();
    assert!(all.contains(&true) && all.contains(&false), "{all:?}");
}

#[test]
fn what_is_refused_has_changed_nothing() {
    let mut peers = begun(true, 3);
    link(&mut peers, 0, b"b/2", b"c/9").expect("linked");
    let all = [
        vec![moved(b"c/2", b"c/3"), Operation::Unlink(b"b/2"), Operation::Unlink(b"c/9")],
        vec![moved(b"c/2", b"c/3"), Operation::Copies(2)],
        vec![moved(b"c/2", b"c/3"), moved(b"b", b"e")],
        vec![moved(b"b", b"e"), moved(b"c/2", b"c/3")],
    ];
    for steps in all {
        let error = transact(&mut peers, 0, &steps).expect_err("it is refused");
        assert_eq!(error.kind, ErrorKind::Unsupported, "{steps:?}: {error}");
        assert!(peers.stat(1, b"c/2").is_ok() && peers.stat(1, b"c/3").is_err());
    }
    nothing_is_kept(&mut peers);
    let files = BEFORE.map(|path| (path, path));
    let files: Vec<_> = files.into_iter().chain([("c/9", "b/2")]).collect();
    are_there(&mut peers, &files, "refused");
}
