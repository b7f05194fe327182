//! Transactions that give other machines' files further names, which their homes count, in two
//! phases: whichever server dies, or session is cut, at whatever step, all see all names or none,
//! as many are counted as there are, and never less. Not here: attributes (`preparing`).

use std::collections::BTreeMap;
use std::time::Duration;

use terral_format::disk::partition::Verdict;
use terral_format::ids::SessionSlot;
use terral_format::local::names::{Inode, flag};
use terral_format::wire::message::{Kind, RenameHow, Request, Target};
use terral_format::wire::transactions::Operation;
use terral_format::{ErrorKind, frame};
use terral_transport::requests::Taken;

use super::further::{asks, goes_on, is_sound, link, links, makes, rest, says};
use super::preparing::{
    TROUBLES, Trouble, happens, in_doubt, is_given_up, is_through, nothing_is_kept, resolved, set,
    value,
};
use super::transacting::{Step, moved, names, transact, ways};
use super::{Handled, Peers};

pub(super) const fn given<'a>(from: &'a [u8], to: &'a [u8]) -> Step<'a> {
    Operation::Link { from, to }
}

/// A file of each of three in directories of all, of which the third's has two names.
fn begun(seed: u64) -> Peers {
    let mut peers = Peers::new(seed, 3);
    for (at, path) in [(2, &b"a"[..]), (1, b"b"), (0, b"c")] {
        peers.make_directory(at, path).expect("made");
    }
    for (at, path) in [(0, &b"a/0"[..]), (1, b"c/1"), (2, b"b/2")] {
        makes(&mut peers, at, path, path);
    }
    link(&mut peers, 0, b"b/2", b"a/2").expect("linked");
    peers
}

/// What is done by the first server: the second's file gets one name and loses its other; the
/// third's gets two, one of them by another name, and loses one; the first's gets one.
const STEPS: [Step<'static>; 9] = [
    Operation::MakeDirectory { path: b"c/new", mode: 0o755 },
    given(b"c/1", b"b/1"),
    Operation::Unlink(b"c/1"),
    given(b"b/2", b"c/new/2"),
    given(b"a/2", b"c/2"),
    moved(b"c/2", b"a/3"),
    Operation::Unlink(b"b/2"),
    given(b"a/0", b"b/0"),
    set(b"a/3", b"after"),
];
const BEFORE: [&str; 4] = ["a/0", "a/2", "b/2", "c/1"];
const AFTER: [&str; 7] = ["a/0", "a/2", "a/3", "b/0", "b/1", "c/new", "c/new/2"];

type Asked = (usize, SessionSlot, Taken);

fn begins(peers: &mut Peers, at: usize, steps: &[Step<'_>]) -> Asked {
    let encoded = frame::encode(&steps).expect("it is short");
    asks(peers, at, Request::Transact(&encoded))
}

/// Whether all of it is there, as a server sees it; nothing is, else. As many names are counted, or
/// more, as long as it is not known everywhere.
fn is_done(peers: &mut Peers, at: usize, known: bool, when: &str) -> bool {
    let seen = names(peers, at);
    assert!(seen == BEFORE || seen == AFTER, "{when}, on {at}: {seen:?}");
    let done = seen == AFTER;
    let counted: &[(&[u8], u32)] = match done {
        true => &[(b"a/0", 2), (b"b/1", 1), (b"a/2", 3), (b"a/3", 3), (b"c/new/2", 3)],
        false => &[(b"a/0", 1), (b"c/1", 1), (b"a/2", 2), (b"b/2", 2)],
    };
    for (path, expected) in counted {
        let is = peers.stat(at, path).expect("it is there").links;
        let right = is == *expected || (!known && is > *expected);
        assert!(right, "{when}, on {at}: {}: {is}", String::from_utf8_lossy(path));
    }
    done
}

fn is_right(peers: &mut Peers, done: bool, when: &str) {
    for at in 0..3 {
        assert_eq!(is_done(peers, at, false, when), done, "{when}, on {at}");
    }
    rest(peers);
    (0..3).for_each(|at| assert_eq!(is_done(peers, at, true, when), done, "{when}, on {at}"));
    let all: &[&[u8]] = match done {
        true => &[b"a/0", b"a/2", b"a/3", b"b/0", b"b/1", b"c/new/2"],
        false => &[b"a/0", b"a/2", b"b/2", b"c/1"],
    };
    is_sound(peers, all);
    nothing_is_kept(peers);
}

/// In the end each file goes with its last name, and its bytes with it.
fn all_goes(peers: &mut Peers) {
    for (at, path) in [&b"a/0"[..], b"b/0", b"b/1", b"a/2", b"a/3", b"c/new/2"].iter().enumerate() {
        peers.ask(at % 3, Request::Unlink(path)).expect("removed");
    }
    rest(peers);
    nothing_is_kept(peers);
    for at in 0..3 {
        assert_eq!(own_files(peers, at), 0, "on {at}");
    }
}

/// How many files a server has that were made there.
fn own_files(peers: &mut Peers, at: usize) -> usize {
    let others = flag::FAR | flag::PREALLOCATED;
    let is_own = |inode: &Inode| inode.kind == Kind::File && inode.flags & others == 0;
    let count = peers.sims[at].with(|server| server.lock().names.inodes().filter(is_own).count());
    count.expect("it lives")
}

fn interrupted(trouble: Trouble, steps: u64) -> bool {
    let (mut peers, when) = (begun(steps), format!("{trouble:?} after {steps}"));
    let of = begins(&mut peers, 0, &STEPS);
    let through = is_through(&mut peers, 0, &of, steps);
    happens(&mut peers, trouble);
    // Else its names are being given, and who looks waits for the directories.
    for at in (1..3).filter(|_| matches!(trouble, Trouble::Dies(0) | Trouble::AllDie)) {
        let done = is_done(&mut peers, at, false, &when);
        assert!(!through || done, "{when}: it was answered");
    }
    assert!(through || is_through(&mut peers, 0, &of, 2000), "{when}: it waits for ever");
    is_right(&mut peers, true, &when);
    assert_eq!(value(&mut peers, 1, b"c/new/2"), b"after");
    assert_eq!(says(&mut peers, 0, b"b/1"), b"c/1");
    all_goes(&mut peers);
    through
}

#[test]
fn all_names_are_there_or_none_and_counted_whichever_server_dies_or_session_is_cut() {
    for trouble in TROUBLES {
        let all: Vec<bool> = (0..34).map(|at| interrupted(trouble, at)).collect();
        assert!(all.contains(&true) && all.contains(&false), "{trouble:?}: {all:?}");
    }
}

#[test]
fn who_asked_and_died_has_given_all_names_or_none() {
    let mut seen = [0; 2];
    for (steps, dies) in (0..34).flat_map(|steps| [false, true].map(|dies| (steps, dies))) {
        let (mut peers, when) = (begun(steps), format!("after {steps}, {dies}"));
        let of = begins(&mut peers, 0, &STEPS);
        is_given_up(&mut peers, &of, (steps, dies));
        let done = is_done(&mut peers, 1, false, &when);
        seen[usize::from(done)] += 1;
        is_right(&mut peers, done, &when);
    }
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
}

/// Somebody gives, or takes, a name of the same file, as a transaction is after so many steps.
fn beside(steps: u64, by: usize, request: Request<'_>, dies: Option<usize>) -> bool {
    let (mut peers, when) = (begun(steps), format!("{request:?} by {by} after {steps}, {dies:?}"));
    let one = begins(&mut peers, 0, &STEPS);
    let through = is_through(&mut peers, 0, &one, steps);
    let other = asks(&mut peers, by, request);
    let first = goes_on(&mut peers, by, &other, 3);
    if let Some(dies) = dies {
        peers.sims[dies].kill();
        peers.reconnect();
    }
    let mut left = [through, first];
    let mut turns = 0;
    while left != [true, true] {
        for (at, of, done) in [(0, &one, 0), (by, &other, 1)] {
            if !left[done] {
                left[done] = matches!(peers.handle(at, of.1, &of.2), Some(Handled::Answer(_)));
            }
        }
        if !peers.carry() {
            peers.pass(Duration::from_millis(100));
        }
        turns += 1;
        assert!(turns < 4000, "{when}: they wait for ever: {left:?}");
    }
    rest(&mut peers);
    let all: Vec<String> = names(&mut peers, 1);
    let files: Vec<&[u8]> = all.iter().map(|path| path.as_bytes()).collect();
    let files: Vec<&[u8]> = files.into_iter().filter(|path| !path.ends_with(b"new")).collect();
    is_sound(&mut peers, &files);
    nothing_is_kept(&mut peers);
    through
}

#[test]
fn names_that_others_give_and_take_meanwhile_are_counted_too() {
    let linked = Request::Link { target: Target::Path(b"a/2"), path: b"c/other" };
    let taken = Request::Rename { from: b"a/0", to: b"c/1", how: RenameHow::Replace };
    for (by, dies) in (0..3)
        .flat_map(|by| [None, Some(0), Some(1), Some(2)].into_iter().map(move |dies| (by, dies)))
    {
        for request in [linked, taken, Request::Unlink(b"c/1"), Request::Unlink(b"a/2")] {
            let all: Vec<bool> =
                (0..24).step_by(2).map(|at| beside(at, by, request, dies)).collect();
            assert!(dies.is_some() || all.contains(&false), "{request:?}: {all:?}");
        }
    }
}

/// The third takes the only name that a file had before it was given another, of which its home
/// has not heard yet: who decided it cannot reach that, for a while.
fn only_one_goes(seed: u64) {
    let mut peers = begun(seed);
    makes(&mut peers, 1, b"a/1", b"it says");
    let of = begins(&mut peers, 0, &[given(b"a/1", b"c/x")]);
    assert!(is_through(&mut peers, 0, &of, 2000), "it is given");
    peers.unheard.insert((1, 0));
    // Its directory is the third's, which needs nothing of who is not heard.
    let taken = asks(&mut peers, 2, Request::Unlink(b"a/1"));
    let early = goes_on(&mut peers, 2, &taken, 40);
    peers.unheard.clear();
    peers.cut(0, 1);
    assert!(early || goes_on(&mut peers, 2, &taken, 2000), "it waits for ever");
    is_sound(&mut peers, &[b"c/x"]);
    assert_eq!(links(&mut peers, b"c/x"), 1);
    assert_eq!(says(&mut peers, 0, b"c/x"), b"it says");
    nothing_is_kept(&mut peers);
}

#[test]
fn a_file_that_was_given_a_name_stays_though_its_other_one_is_taken_before_its_home_hears_of_it() {
    (0..10).for_each(only_one_goes);
}

#[test]
fn a_name_that_comes_and_goes_in_one_transaction_is_not_counted() {
    let mut peers = begun(7);
    // What it has before and after, what it never has, and what goes for good.
    let steps = [
        given(b"c/1", b"c/x"),
        Operation::Unlink(b"c/1"),
        moved(b"c/x", b"c/1"),
        given(b"b/2", b"c/y"),
        Operation::Unlink(b"c/y"),
        Operation::Unlink(b"b/2"),
    ];
    transact(&mut peers, 0, &steps).expect("they can be done");
    is_sound(&mut peers, &[b"c/1", b"a/2"]);
    assert_eq!((links(&mut peers, b"c/1"), links(&mut peers, b"a/2")), (1, 1));
    let steps = [given(b"a/2", b"c/y"), Operation::Unlink(b"c/y"), Operation::Unlink(b"a/2")];
    transact(&mut peers, 0, &steps).expect("they can be done");
    is_sound(&mut peers, &[b"c/1"]);
    assert!(peers.stat(2, b"a/2").is_err());
    nothing_is_kept(&mut peers);
}

#[test]
fn what_cannot_be_linked_fails_all_of_it() {
    let mut peers = begun(5);
    for (steps, kind) in [
        (vec![given(b"b/2", b"c/x"), given(b"c/1", b"a/0")], ErrorKind::Exists),
        (vec![given(b"b/2", b"c/x"), given(b"c/none", b"c/y")], ErrorKind::NotFound),
    ] {
        let error = transact(&mut peers, 0, &steps).expect_err("it cannot be done");
        assert_eq!(error.kind, kind, "{error}");
        assert!(error.context.starts_with("operation 1: "), "{error}");
        is_right(&mut peers, false, "refused");
    }
}

/// Another machine's file has two names, and its directory is where both were given.
fn given_before() -> Peers {
    let mut peers = begun(1);
    rest(&mut peers);
    let steps = [given(b"c/1", b"c/x"), Operation::MakeDirectory { path: b"c/d", mode: 0o755 }];
    ways(&mut peers, 0, &steps);
    rest(&mut peers);
    peers
}

#[test]
fn a_further_name_of_one_other_home_costs_two_ways() {
    let mut peers = given_before();
    assert_eq!(ways(&mut peers, 0, &[given(b"c/1", b"c/y")]), 2, "it is prepared, and decided");
    is_sound(&mut peers, &[b"c/1", b"c/x", b"c/y"]);
    nothing_is_kept(&mut peers);
}

/// What is given by the second server, which is lost: the first's file a name in the third's
/// directory, and the third's one, for one of its own, in the first's.
const OF_THE_LOST: [Step<'static>; 3] =
    [given(b"d/0", b"a/new"), given(b"a/2", b"d/new"), Operation::Unlink(b"a/2")];

fn begun_to_be_lost(count: usize, seed: u64) -> Peers {
    let mut peers = Peers::new(seed, count);
    for (at, path) in [(2, &b"a"[..]), (0, b"d")] {
        peers.make_directory(at, path).expect("made");
    }
    makes(&mut peers, 0, b"d/0", b"d/0");
    makes(&mut peers, 2, b"a/2", b"a/2");
    peers
}

/// No more names are there than are counted, as those say that are left, and both files are.
fn all_are_counted(peers: &mut Peers, left: &[usize], when: &str) {
    rest(peers);
    for at in left {
        assert!(in_doubt(peers, *at).is_empty(), "{when}: in doubt on {at}");
    }
    let paths = [&b"d/0"[..], b"d/new", b"a/2", b"a/new"];
    let mut seen = BTreeMap::<_, Vec<(&[u8], u32)>>::new();
    for (at, path) in left.iter().flat_map(|at| paths.map(|path| (*at, path))) {
        match peers.stat(at, path) {
            Ok(is) => {
                seen.entry((at, is.ino)).or_default().push((path, is.links));
                assert!(!says(peers, at, path).is_empty(), "{when}: its bytes are gone");
            }
            Err(error) => assert_eq!(error.kind, ErrorKind::NotFound, "{when}: {error}"),
        }
    }
    for ((at, _), names) in &seen {
        let right = names.iter().all(|(_, links)| *links as usize >= names.len());
        assert!(right, "{when}: on {at}: {names:?}");
    }
    assert_eq!(seen.len(), 2 * left.len(), "{when}: {seen:?}");
}

/// What keeps it from being known, and what somebody says then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// It gives names only: nobody waits.
    Names,
    /// It sets attributes, too.
    Said(bool),
    /// Another one knows.
    Copied,
}

/// Who decides it is lost after so many steps. Whether it was answered.
fn lost(steps: u64, known: Known) -> bool {
    let copied = known == Known::Copied;
    let (count, when) = (3 + usize::from(copied), format!("after {steps}, {known:?}"));
    let mut peers = begun_to_be_lost(count, steps);
    let more = match known {
        Known::Names => None,
        Known::Said(_) => Some(set(b"d/0", b"after")),
        Known::Copied => Some(Operation::Copies(2)),
    };
    let all: Vec<Step<'_>> = OF_THE_LOST.into_iter().chain(more).collect();
    let of = begins(&mut peers, 1, &all);
    let through = is_through(&mut peers, 1, &of, steps);
    peers.dies(1);
    peers.remove(1, Verdict::Dead, 2);
    (0..10).for_each(|_| peers.pass(Duration::from_secs(1)));
    let left: &[usize] = if copied { &[0, 2, 3] } else { &[0, 2] };
    for doubt in in_doubt(&mut peers, 0) {
        let Known::Said(is) = known else { panic!("{when}: somebody has to say: {doubt:?}") };
        // Who gives and takes names, and looks how many there are, does not wait.
        link(&mut peers, 0, b"d/0", b"d/x").expect("its home counts it");
        peers.ask(2, Request::Unlink(b"d/x")).expect("it is there");
        assert!(peers.stat(2, b"d/0").expect("it is there").links >= 1, "{when}");
        resolved(&mut peers, 0, (doubt.of, is)).expect("nobody knows");
    }
    all_are_counted(&mut peers, left, &when);
    through
}

#[test]
fn no_name_is_left_out_at_whatever_step_the_machine_that_decides_is_lost() {
    for known in [Known::Names, Known::Said(false), Known::Said(true), Known::Copied] {
        let all: Vec<bool> = (0..30).map(|steps| lost(steps, known)).collect();
        assert!(all.contains(&true) && all.contains(&false), "{known:?}: {all:?}");
    }
}

#[test]
fn where_a_name_takes_anothers_place_its_home_is_not_asked() {
    let mut peers = given_before();
    let steps = [given(b"c/1", b"c/y"), Operation::Unlink(b"c/x")];
    assert_eq!(ways(&mut peers, 0, &steps), 0, "it has as many as before");
    is_sound(&mut peers, &[b"c/1", b"c/y"]);
    nothing_is_kept(&mut peers);
}

/// Names that a home's programs give and take, and ask for the number of, without anybody else.
const AT_HOME: [Request<'static>; 3] = [
    Request::Stat(Target::Path(b"b/y")),
    Request::Link { target: Target::Path(b"b/y"), path: b"b/z" },
    Request::Unlink(b"b/y"),
];

#[test]
fn nobody_waits_for_names_though_who_decides_them_stands_still() {
    let mut prepared = 0;
    for steps in 0..20 {
        let (mut peers, when) = (begun(steps), format!("after {steps}"));
        link(&mut peers, 1, b"c/1", b"b/y").expect("linked");
        rest(&mut peers);
        peers.create(1, b"b/own").expect("it has the directory");
        let of = begins(&mut peers, 0, &[given(b"c/1", b"c/x")]);
        is_through(&mut peers, 0, &of, steps);
        peers.sims[0].kill();
        peers.unheard.extend([(0, 1), (0, 2)]);
        prepared += in_doubt(&mut peers, 1).len();
        for request in AT_HOME {
            let asked = asks(&mut peers, 1, request);
            assert!(goes_on(&mut peers, 1, &asked, 4), "{when}: {request:?}");
        }
        peers.unheard.clear();
        (1..3).for_each(|with| peers.cut(0, with));
        peers.sims[0].end(of.0);
        peers.collect(0);
        is_sound(&mut peers, &[b"c/1", b"c/x", b"b/z"]);
        nothing_is_kept(&mut peers);
    }
    assert!(prepared > 0, "none was in doubt");
}
