//! Transactions that take names of other machines' files which keep others, where there is a
//! permanent store: removed, or taken by a rename. Whichever server dies, or session is cut, at
//! whatever step, all see all of it or nothing, each file has as many names as are counted, and the
//! store has in the end what they see. Not here: names that files get (`delegating`).

use std::collections::BTreeSet;

use terral_format::ErrorKind;
use terral_format::disk::partition::Verdict;
use terral_format::wire::transactions::Operation;

use super::Peers;
use super::delegating::{are_there, begins, begun};
use super::dir::there;
use super::further::{goes_on, is_sound, link, rest, says};
use super::giving::given;
use super::preparing::{
    TROUBLES, Trouble, happens, in_doubt, is_given_up, is_through, nothing_is_kept, set, value,
};
use super::transacting::{Step, moved, names, transact};

/// One file of the third has three names, and one of the second two.
fn several(brought: bool, seed: u64) -> Peers {
    let mut peers = begun(false, seed);
    link(&mut peers, 1, b"b/2", b"a/7").expect("linked");
    link(&mut peers, 0, b"b/2", b"c/7").expect("linked");
    link(&mut peers, 2, b"b/1", b"c/8").expect("linked");
    if brought {
        rest(&mut peers);
    }
    peers
}

type Files = Vec<(&'static str, &'static str)>;

const BEFORE: [(&str, &str); 9] = [
    ("a/0", "a/0"),
    ("a/1", "a/1"),
    ("a/7", "b/2"),
    ("b/1", "b/1"),
    ("b/2", "b/2"),
    ("c/1", "c/1"),
    ("c/2", "c/2"),
    ("c/7", "b/2"),
    ("c/8", "b/1"),
];

/// What a transaction of the first takes, and which of all names then say something else, or are
/// no more.
type Case = (&'static [Step<'static>], &'static [(&'static str, &'static str)]);

/// One of two names, of three, all but one; more than the file gets; names that another file of the
/// one who asks takes, of a third one, and of the same home; one that the other one takes; and with
/// all else.
const CASES: [Case; 10] = [
    (
        &[Operation::Unlink(b"c/8"), moved(b"a/0", b"a/x")],
        &[("a/0", ""), ("a/x", "a/0"), ("c/8", "")],
    ),
    (&[Operation::Unlink(b"b/2"), Operation::Unlink(b"c/1")], &[("b/2", ""), ("c/1", "")]),
    (&[Operation::Unlink(b"a/7"), Operation::Unlink(b"c/7")], &[("a/7", ""), ("c/7", "")]),
    (
        &[Operation::Unlink(b"b/2"), moved(b"a/7", b"b/y"), moved(b"a/1", b"a/7")],
        &[("b/2", ""), ("b/y", "b/2"), ("a/7", "a/1"), ("a/1", "")],
    ),
    (&[moved(b"a/0", b"c/8")], &[("a/0", ""), ("c/8", "a/0")]),
    (&[moved(b"c/2", b"b/1")], &[("c/2", ""), ("b/1", "c/2")]),
    (
        &[moved(b"a/1", b"c/8"), moved(b"c/2", b"c/7")],
        &[("a/1", ""), ("c/2", ""), ("c/8", "a/1"), ("c/7", "c/2")],
    ),
    (&[Operation::Unlink(b"b/1"), moved(b"c/8", b"b/1")], &[("c/8", "")]),
    (
        &[given(b"b/2", b"c/x"), Operation::Unlink(b"c/x"), Operation::Unlink(b"b/2")],
        &[("b/2", "")],
    ),
    (
        &[Operation::Unlink(b"c/8"), Operation::Unlink(b"c/2"), moved(b"a/1", b"a/7")],
        &[("c/8", ""), ("c/2", ""), ("a/1", ""), ("a/7", "a/1")],
    ),
];

fn after(which: usize) -> Files {
    let mut all = BEFORE.to_vec();
    for (path, said) in CASES[which].1 {
        all.retain(|(other, _)| other != path);
        all.extend((!said.is_empty()).then_some((*path, *said)));
    }
    all.sort_unstable();
    all
}

fn is_right(peers: &mut Peers, files: &[(&str, &str)], when: &str) {
    for at in 0..3 {
        let seen = names(peers, at);
        let expected: Vec<&str> = files.iter().map(|(path, _)| *path).collect();
        assert_eq!(seen, expected, "{when}, on {at}");
    }
    for (path, said) in files {
        let names = files.iter().filter(|(_, other)| other == said).count();
        for at in 0..3 {
            let is = peers.stat(at, path.as_bytes()).expect("it is there");
            assert_eq!(is.links as usize, names, "{when}: {path} on {at}, at once");
        }
    }
    for (at, (path, said)) in (0..3).flat_map(|at| files.iter().map(move |file| (at, *file))) {
        assert_eq!(says(peers, at, path.as_bytes()), said.as_bytes(), "{when}: {path}");
    }
    let paths: Vec<&[u8]> = files.iter().map(|(path, _)| path.as_bytes()).collect();
    is_sound(peers, &paths);
    nothing_is_kept(peers);
    are_there(peers, files, when);
}

/// Whether it was answered by then.
fn interrupted(which: usize, brought: bool, trouble: Option<Trouble>, steps: u64) -> bool {
    let when = format!("{which}, {brought}, {trouble:?} after {steps}");
    let mut peers = several(brought, steps);
    let of = begins(&mut peers, 0, CASES[which].0);
    let through = is_through(&mut peers, 0, &of, steps);
    trouble.into_iter().for_each(|trouble| happens(&mut peers, trouble));
    assert!(through || is_through(&mut peers, 0, &of, 2000), "{when}: it waits for ever");
    is_right(&mut peers, &after(which), &when);
    through
}

#[test]
fn names_of_files_that_keep_others_are_gone_or_taken_as_soon_as_it_is_answered() {
    for (which, brought) in (0..CASES.len()).flat_map(|it| [false, true].map(|is| (it, is))) {
        interrupted(which, brought, None, 0);
    }
}

#[test]
fn so_they_are_whichever_server_dies_or_session_is_cut() {
    for (which, brought) in (0..CASES.len()).flat_map(|it| [false, true].map(|is| (it, is))) {
        for trouble in TROUBLES {
            let steps = (which as u64 % 2..50).step_by(3);
            let all: Vec<bool> =
                steps.map(|at| interrupted(which, brought, Some(trouble), at)).collect();
            assert!(all.contains(&true) && all.contains(&false), "{which}, {trouble:?}: {all:?}");
        }
    }
}

#[test]
fn who_asked_and_died_has_taken_all_names_or_none_also_in_the_store() {
    for which in 0..CASES.len() {
        let mut seen = BTreeSet::new();
        for (steps, dies) in (0..36).flat_map(|steps| [false, true].map(|dies| (steps, dies))) {
            let (mut peers, when) = (several(steps % 2 == 0, steps), format!("{which}, {steps}"));
            let of = begins(&mut peers, 0, CASES[which].0);
            is_given_up(&mut peers, &of, (steps, dies));
            let after = after(which);
            let is = names(&mut peers, 1);
            let done = is.iter().map(String::as_str).eq(after.iter().map(|(path, _)| *path));
            // Some have the same names before and after, and say something else.
            let done = done
                && after
                    .iter()
                    .all(|(path, said)| says(&mut peers, 1, path.as_bytes()) == said.as_bytes());
            seen.insert(done);
            // What was prepared is found out by and by.
            rest(&mut peers);
            is_right(&mut peers, if done { &after } else { &BEFORE }, &when);
        }
        assert_eq!(seen.len(), 2, "{which}: {seen:?}");
    }
}

/// Two take names of the same files at the same time, after so many steps of the first one.
fn two_at_once(steps: u64, brought: bool) {
    let when = format!("{brought}, after {steps}");
    let mut peers = several(brought, steps);
    let one = begins(&mut peers, 0, &[Operation::Unlink(b"b/1"), Operation::Unlink(b"a/7")]);
    let through = is_through(&mut peers, 0, &one, steps);
    let other = begins(&mut peers, 1, &[Operation::Unlink(b"b/2"), Operation::Unlink(b"c/8")]);
    let mut left = [through, false];
    for turns in 0.. {
        left[0] = left[0] || is_through(&mut peers, 0, &one, 1);
        left[1] = left[1] || goes_on(&mut peers, 1, &other, 1);
        if left == [true, true] {
            break;
        }
        assert!(turns < 4000, "{when}: they wait for ever: {left:?}");
    }
    let gone = ["b/1", "c/8", "a/7", "b/2"];
    let files: Files = BEFORE.into_iter().filter(|(path, _)| !gone.contains(path)).collect();
    is_right(&mut peers, &files, &when);
}

#[test]
fn of_two_that_take_names_of_the_same_files_the_later_one_takes_the_last() {
    for (steps, brought) in (0..40).flat_map(|steps| [(steps, false), (steps, true)]) {
        two_at_once(steps, brought);
    }
}

/// Who decides it is lost after so many steps.
fn lost(which: usize, brought: bool, steps: u64) {
    let when = format!("{which}, {brought}, after {steps}");
    let mut peers = several(brought, steps);
    let of = begins(&mut peers, 0, CASES[which].0);
    is_through(&mut peers, 0, &of, steps);
    peers.dies(0);
    peers.remove(0, Verdict::Dead, 2);
    (0..10).for_each(|_| peers.pass(std::time::Duration::from_secs(1)));
    rest(&mut peers);
    assert!((1..3).all(|at| in_doubt(&mut peers, at).is_empty()), "{when}: in doubt");
    let seen = names(&mut peers, 1);
    let said: BTreeSet<Vec<u8>> =
        seen.iter().map(|path| says(&mut peers, 1, path.as_bytes())).collect();
    for file in [&b"b/2"[..], b"b/1", b"a/1", b"c/1"] {
        assert!(said.contains(file), "{when}: {file:?} is lost: {seen:?}");
    }
    let in_store = there(&peers);
    for path in seen.iter().filter(|path| !says(&mut peers, 1, path.as_bytes()).starts_with(b"a/0"))
    {
        assert!(in_store.contains_key(path.as_bytes()), "{when}: {path}: {in_store:?}");
    }
}

#[test]
fn no_file_that_keeps_names_is_lost_with_who_decides_it() {
    for (which, brought) in (0..CASES.len()).flat_map(|it| [false, true].map(|is| (it, is))) {
        (0..44).step_by(3).for_each(|steps| lost(which, brought, steps));
    }
}

#[test]
fn attributes_of_a_file_are_set_that_loses_a_name_by_the_same_transaction() {
    for brought in [false, true] {
        let mut peers = several(brought, 5);
        let steps = [set(b"c/8", b"after"), Operation::Unlink(b"c/8"), Operation::Unlink(b"a/0")];
        transact(&mut peers, 0, &steps).expect("done");
        assert_eq!(value(&mut peers, 2, b"b/1"), b"after");
        transact(&mut peers, 0, &[set(b"b/1", b"more"), Operation::Unlink(b"b/1")]).expect("done");
        let gone = ["a/0", "b/1", "c/8"];
        let files: Files = BEFORE.into_iter().filter(|(path, _)| !gone.contains(path)).collect();
        is_right(&mut peers, &files, "attributes");
    }
}

#[test]
fn who_would_lose_all_of_several_names_keeps_them() {
    let mut peers = several(true, 4);
    let all: [Vec<Step<'_>>; 5] = [
        vec![Operation::Unlink(b"b/1"), Operation::Unlink(b"c/8")],
        vec![moved(b"c/2", b"c/3"), moved(b"a/0", b"b/1"), Operation::Unlink(b"c/8")],
        vec![Operation::Unlink(b"c/8"), Operation::Copies(2)],
        vec![Operation::Unlink(b"c/8"), moved(b"b", b"e")],
        vec![moved(b"b", b"e"), moved(b"a/0", b"c/8")],
    ];
    for steps in all {
        let error = transact(&mut peers, 0, &steps).expect_err("it is refused");
        assert_eq!(error.kind, ErrorKind::Unsupported, "{steps:?}: {error}");
    }
    is_right(&mut peers, &BEFORE, "refused");
}
