//! Transactions whose names are in directories of several machines, one after the other: all see
//! all of one, or nothing, whoever dies, and what is refused has done nothing. Not here: many at
//! the same time (`counting`).

use std::time::Duration;

use terral_format::ids::SessionSlot;
use terral_format::wire::message::{RenameHow, Reply, Request, XattrHow};
use terral_format::wire::transactions::{Operation, Version};
use terral_format::{ErrorKind, Result, frame};
use terral_transport::requests::Taken;

use super::dir::{are_links_there, owes_nothing, there};
use super::further::{asks, is_sound, link, links, makes, rest, says, some};
use super::looks::are_true;
use super::tree::{Node, Outcome, Tree};
use super::walks::{act, some_path};
use super::{Handled, Peers, walk_all};
use crate::sim::world::Virtual;

pub(super) type Step<'a> = Operation<&'a [u8]>;

pub(super) fn transact(peers: &mut Peers, at: usize, steps: &[Step<'_>]) -> Result<()> {
    let encoded = frame::encode(&steps)?;
    peers.ask(at, Request::Transact(&encoded)).map(drop)
}

pub(super) const fn moved<'a>(from: &'a [u8], to: &'a [u8]) -> Step<'a> {
    Operation::Rename { from, to, how: RenameHow::Replace }
}

const fn new(path: &[u8]) -> Step<'_> {
    Operation::MakeDirectory { path, mode: 0o755 }
}

/// What one operation does to what there is.
fn done(tree: &mut Tree, step: &Operation<Vec<u8>>) -> Outcome {
    match step {
        Operation::Rename { from, to, how: RenameHow::Exchange } => tree.exchange(from, to),
        Operation::Rename { from, to, .. } => tree.rename(from, to),
        Operation::Link { from, to } => tree.link(from, to),
        Operation::Unlink(path) => tree.remove(path, false),
        Operation::RemoveDirectory(path) => tree.remove(path, true),
        Operation::MakeDirectory { path, .. } => tree.make(path, Node::DIRECTORY),
        Operation::SetXattr { path, value, .. } => tree.set_xattr(path, value.as_deref()),
        Operation::Exists(path) => tree.node(path).map(drop),
        Operation::Missing(path) => match tree.node(path) {
            Ok(_) => Err(ErrorKind::Exists),
            Err(_) => Ok(()),
        },
        Operation::Copies(_) => Ok(()),
        Operation::Unchanged { .. } | Operation::Holds { .. } => unreachable!("none is drawn"),
    }
}

fn some_step(draw: &mut impl FnMut(u64) -> u64) -> Operation<Vec<u8>> {
    let (path, other) = (some_path(draw), some_path(draw));
    match draw(12) {
        0..=2 => Operation::Rename { from: path, to: other, how: RenameHow::Replace },
        3 => Operation::Rename { from: path, to: other, how: RenameHow::Exchange },
        4 => Operation::Link { from: path, to: other },
        5 | 6 => Operation::Unlink(path),
        7 | 8 => Operation::MakeDirectory { path, mode: 0o755 },
        9 => Operation::RemoveDirectory(path),
        10 => {
            let (name, value) = (b"user.a".to_vec(), Some(vec![draw(256) as u8]));
            Operation::SetXattr { path, name, value, how: XattrHow::Any }
        }
        _ if draw(2) == 0 => Operation::Exists(path),
        _ => Operation::Missing(path),
    }
}

/// Whether an operation may be refused, as it is of what another machine's server alone changes, or
/// a directory moves.
fn may_be_refused(tree: &Tree, step: &Operation<Vec<u8>>) -> bool {
    let is_directory = |path: &Vec<u8>| tree.node(path).is_ok_and(|node| node.directory);
    match step {
        Operation::Rename { from, to, .. } => [from, to].into_iter().any(is_directory),
        _ => false,
    }
}

/// Whether a file has none any more of several names that it had: with a permanent store none of
/// another machine does.
fn loses_all_of_several(before: &Tree, after: &Tree) -> bool {
    let left = after.files();
    before.files().iter().any(|(file, names)| names.len() > 1 && !left.contains_key(file))
}

/// Whether it gives a name to something.
fn names_something(step: &Operation<Vec<u8>>) -> bool {
    matches!(step, Operation::Rename { .. } | Operation::Link { .. })
}

/// Whether it may take one.
fn takes_something(step: &Operation<Vec<u8>>) -> bool {
    matches!(step, Operation::Rename { .. } | Operation::Unlink(_))
}

/// So many operations are drawn for one transaction, of which most cannot be done.
const TRIES: u32 = 60;

/// Somebody does several things at once. How many were done, and how many could not be.
fn act_at_once(
    peers: &mut Peers,
    tree: &mut Tree,
    draw: &mut impl FnMut(u64) -> u64,
) -> (u64, u64) {
    let (at, count, bold) = (draw(3) as usize, 1 + draw(5) as usize, draw(4) == 0);
    let (mut after, mut steps) = (tree.clone(), Vec::new());
    let (mut fails, mut refused, mut moves) = (None, false, 0);
    let with_dir = peers.dir.is_some();
    let several = tree.files().values().any(|all| all.len() > 1);
    for _ in 0..TRIES {
        if steps.len() == count {
            break;
        }
        let step = some_step(draw);
        let mut next = after.clone();
        let does = done(&mut next, &step);
        let refusable = may_be_refused(&after, &step);
        // The last one may be such that it cannot be done.
        let may_fail = bold && steps.len() + 1 == count;
        if (does.is_err() && !may_fail) || (refusable && draw(4) > 0) {
            continue;
        }
        if fails.is_none() {
            moves += u32::from(refusable && matches!(step, Operation::Rename { .. }));
            // The only directory that moves is not.
            let only = matches!(step, Operation::Rename { .. }) && moves == 1 && !with_dir;
            let is_new = |step: &Operation<_>| matches!(step, Operation::MakeDirectory { .. });
            // Nor one that changes places with what has come there by the same transaction.
            let swaps = matches!(step, Operation::Rename { how: RenameHow::Exchange, .. });
            let after_others = steps.iter().any(is_new) || (swaps && !steps.is_empty());
            refused |= refusable && (!only || after_others);
            // Where a directory moves, homes prepare nothing.
            let sets = |step: &Operation<_>| {
                matches!(step, Operation::SetXattr { .. } | Operation::Link { .. })
            };
            refused |= moves > 0 && (sets(&step) || steps.iter().any(sets));
            match does {
                Ok(()) => after = next,
                Err(kind) => fails = Some((steps.len(), kind)),
            }
        }
        steps.push(step);
    }
    let copied = draw(3) == 0;
    if with_dir {
        refused |= loses_all_of_several(tree, &after);
        refused |= (copied || moves > 0) && several && steps.iter().any(takes_something);
        refused |= copied && steps.iter().any(names_something);
    }
    steps.extend(copied.then_some(Operation::Copies(2)));
    let encoded = frame::encode(&steps).expect("it is short");
    match (peers.ask(at, Request::Transact(&encoded)), fails) {
        (Ok(_), None) => *tree = after,
        (Err(error), _) if error.kind == ErrorKind::Unsupported => {
            assert!(refused, "{at}: {steps:?}: {error}");
            return (0, 1);
        }
        (Err(error), Some((which, kind))) => {
            // Of two things that are wrong with a move either may be said.
            let same = error.kind == kind || matches!(steps[which], Operation::Rename { .. });
            let says = error.context.starts_with(&format!("operation {which}: "));
            assert!(same && says, "{at}: {steps:?}: {error}, not {which}: {kind:?}");
            return (0, 0);
        }
        (answer, fails) => panic!("{at}: {steps:?}: {answer:?}, not {fails:?}"),
    }
    (u64::from(steps.len() > 1), 0)
}

/// Gives how many transactions came to be, of several operations, and how many were refused.
fn walk(seed: u64, with_dir: bool, kills: bool) -> [u64; 2] {
    let mut peers = some(with_dir, seed);
    peers.may_have_trouble(seed);
    let mut tree = Tree::default();
    let world = Virtual::new(seed);
    let mut draw = |of| world.one_of(of);
    let mut all = [0; 2];
    for _ in 0..if with_dir { 120 } else { 200 } {
        if kills && draw(4) == 0 {
            peers.sims[draw(3) as usize].kill_at(1 + draw(12) as i64);
        }
        if draw(3) == 0 {
            let (came, refused) = act_at_once(&mut peers, &mut tree, &mut draw);
            all = [all[0] + came, all[1] + refused];
        } else {
            act(&mut peers, &mut tree, &mut draw);
        }
        are_true(&mut peers, &mut tree);
    }
    if with_dir {
        peers.trouble_ends();
        owes_nothing(&mut peers);
        assert_eq!(there(&peers), tree.all());
        are_links_there(&peers, tree.files().values());
    }
    all
}

fn all_walk(most: u64, with_dir: bool, kills: bool) {
    let [came, refused] = walk_all(most, |seed| walk(seed, with_dir, kills));
    eprintln!("{came} came to be, {refused} were refused");
    assert!(came > refused, "{came} came to be, {refused} were refused");
}

#[test]
fn all_machines_see_all_of_a_transaction_or_nothing_whoever_asks_for_it() {
    all_walk(30, false, false);
}

#[test]
fn so_they_do_if_servers_die_anywhere() {
    all_walk(30, false, true);
}

#[test]
fn what_can_be_done_at_once_with_a_permanent_store_arrives_there() {
    all_walk(20, true, false);
}

#[test]
fn so_it_does_if_servers_die_anywhere() {
    all_walk(20, true, true);
}

/// Names in directories of all three, files of all three, and one of them has two names.
fn begun(seed: u64) -> Peers {
    let mut peers = Peers::new(seed, 3);
    for (at, path) in [(2, &b"a"[..]), (1, b"b"), (0, b"c"), (1, b"b/old")] {
        peers.make_directory(at, path).expect("made");
    }
    for (at, path) in [(0, &b"a/0"[..]), (1, b"a/1"), (2, b"b/2"), (1, b"c/1"), (2, b"c/2")] {
        makes(&mut peers, at, path, path);
    }
    link(&mut peers, 2, b"c/1", b"b/1").expect("linked");
    link(&mut peers, 0, b"b/2", b"a/2").expect("linked");
    peers
}

/// What is done to them.
const STEPS: [Step<'static>; 8] = [
    new(b"c/new"),
    moved(b"a/0", b"c/new/0"),
    moved(b"a/1", b"b/2"),
    Operation::Unlink(b"c/1"),
    Operation::Unlink(b"c/2"),
    Operation::RemoveDirectory(b"b/old"),
    Operation::Missing(b"b/none"),
    Operation::Exists(b"b/1"),
];
const BEFORE: [&str; 8] = ["a/0", "a/1", "a/2", "b/1", "b/2", "b/old", "c/1", "c/2"];
const AFTER: [&str; 5] = ["a/2", "b/1", "b/2", "c/new", "c/new/0"];

/// All names that there may be, as a server sees them.
pub(super) fn names(peers: &mut Peers, at: usize) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for directory in ["a", "b", "c", "c/new"] {
        let listed = peers.list(at, directory.as_bytes()).unwrap_or_default().into_iter();
        all.extend(
            listed.map(|(name, _)| format!("{directory}/{}", String::from_utf8_lossy(&name))),
        );
    }
    all.sort();
    all
}

/// It is carried out so far, by the first server. Whether it was done.
fn is_through(peers: &mut Peers, of: &(usize, SessionSlot, Taken), steps: u64) -> bool {
    for _ in 0..steps {
        if let Some(Handled::Answer(reply)) = peers.handle(0, of.1, &of.2) {
            assert_eq!(frame::decode::<Reply>(&reply).expect("an answer"), Reply::Done);
            return true;
        }
        if !peers.carry() {
            peers.pass(Duration::from_millis(100));
        }
    }
    false
}

/// Who asks is interrupted after so many steps: by the death of one of them, or by a cut.
fn interrupted(by: usize, steps: u64) -> bool {
    let mut peers = begun(by as u64 * 100 + steps);
    let encoded = frame::encode(&&STEPS[..]).expect("it is short");
    let of = asks(&mut peers, 0, Request::Transact(&encoded));
    let through = is_through(&mut peers, &of, steps);
    match by {
        0..=2 => peers.sims[by].kill(),
        _ => peers.cut(0, by - 2),
    }
    peers.reconnect();
    let seen = (1..3).map(|at| names(&mut peers, at)).collect::<Vec<_>>();
    for names in &seen {
        assert!(*names == BEFORE || *names == AFTER, "{by} after {steps}: {names:?}");
        assert!(!through || *names == AFTER, "{by} after {steps}: it was answered");
    }
    assert!(through || is_through(&mut peers, &of, 2000), "{by} after {steps}: it waits for ever");
    for at in 0..3 {
        assert_eq!(names(&mut peers, at), AFTER, "{by} after {steps}, on {at}");
    }
    let paths = [&b"a/2"[..], b"b/1", b"b/2", b"c/new/0"];
    is_sound(&mut peers, &paths);
    for (path, said) in paths.into_iter().zip([&b"b/2"[..], b"c/1", b"a/1", b"a/0"]) {
        assert_eq!(says(&mut peers, 1, path), said);
        assert_eq!(links(&mut peers, path), 1);
    }
    through
}

#[test]
fn all_of_it_or_nothing_is_there_whichever_server_dies_or_session_is_cut() {
    for by in 0..5 {
        let through = (0..40).map(|steps| interrupted(by, steps)).collect::<Vec<_>>();
        assert!(through.contains(&true) && through.contains(&false), "{by}: {through:?}");
    }
}

#[test]
fn who_asked_and_died_has_done_all_of_it_or_nothing_and_no_name_is_miscounted() {
    let mut seen = [0; 2];
    for steps in 0..40 {
        let mut peers = begun(steps);
        let encoded = frame::encode(&&STEPS[..]).expect("it is short");
        let of = asks(&mut peers, 0, Request::Transact(&encoded));
        is_through(&mut peers, &of, steps);
        peers.sims[0].end(of.0);
        peers.collect(0);
        let all = names(&mut peers, 1);
        assert!(all == BEFORE || all == AFTER, "after {steps}: {all:?}");
        seen[usize::from(all == AFTER)] += 1;
        let paths: Vec<&[u8]> = all.iter().map(|path| path.as_bytes()).collect();
        let is_file = |path: &&[u8]| !path.ends_with(b"old") && !path.ends_with(b"new");
        let files: Vec<&[u8]> = paths.into_iter().filter(is_file).collect();
        is_sound(&mut peers, &files);
    }
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
}

#[test]
fn a_directory_that_is_removed_meanwhile_gets_no_name() {
    let mut removed = [0; 2];
    for (steps, by, forgets) in (0..16).flat_map(|steps| {
        [1, 2].into_iter().flat_map(move |by| [false, true].map(|forgets| (steps, by, forgets)))
    }) {
        let mut peers = begun(steps);
        let encoded = frame::encode(&&[new(b"b/old/new"), new(b"a/new")][..]).expect("encodes");
        let (_, session, taken) = asks(&mut peers, 0, Request::Transact(&encoded));
        for _ in 0..steps {
            let handled = peers.handle(0, session, &taken);
            assert!(!matches!(handled, Some(Handled::Park)));
            peers.carry();
        }
        let gone = peers.ask(by, Request::RemoveDirectory(b"b/old")).is_ok();
        if forgets {
            rest(&mut peers);
        }
        let made = loop {
            if let Some(Handled::Answer(reply)) = peers.handle(0, session, &taken) {
                break frame::decode::<Reply>(&reply).expect("an answer") == Reply::Done;
            }
            if !peers.carry() {
                peers.pass(Duration::from_millis(100));
            }
        };
        assert_ne!(gone, made, "after {steps}, by {by}");
        for at in 0..3 {
            assert_eq!(peers.stat(at, b"b/old/new").is_ok(), made, "after {steps}, by {by}");
            assert_eq!(peers.stat(at, b"a/new").is_ok(), made, "after {steps}, by {by}");
        }
        removed[usize::from(gone)] += 1;
    }
    assert!(removed[0] > 0 && removed[1] > 0, "{removed:?}");
}

#[test]
fn several_names_of_another_machines_file_go_at_once_and_its_bytes_with_the_last() {
    for left in [false, true] {
        let mut peers = Peers::new(5, 3);
        for (at, path) in [(2, &b"a"[..]), (1, b"b")] {
            peers.make_directory(at, path).expect("made");
        }
        makes(&mut peers, 1, b"a/x", b"what it says");
        link(&mut peers, 0, b"a/x", b"b/y").expect("linked");
        link(&mut peers, 0, b"a/x", b"z").expect("linked");
        let mut steps = vec![Operation::Unlink(&b"a/x"[..]), moved(b"z", b"b/z")];
        steps.push(Operation::Unlink(b"b/y"));
        if !left {
            steps.push(Operation::Unlink(b"b/z"));
        }
        transact(&mut peers, 2, &steps).expect("they can be done");
        is_sound(&mut peers, &[b"a/x", b"b/y", b"z", b"b/z"]);
        assert_eq!(peers.stat(0, b"b/z").is_ok(), left);
    }
}

#[test]
fn what_another_machine_alone_changes_is_refused_and_nothing_is_done() {
    let mut peers = begun(9);
    let xattr = |path| {
        let (name, value, how) = (&b"user.a"[..], Some(&b"1"[..]), XattrHow::Any);
        Operation::SetXattr { path, name, value, how }
    };
    let born = peers.stat(0, b"b/old").expect("it is there").number.born();
    assert_ne!(born, super::member(0));
    let refused = [
        vec![Operation::Link { from: &b"a/1"[..], to: b"a/more" }, moved(b"b", b"e")],
        vec![moved(b"b", b"e"), Operation::Link { from: &b"a/1"[..], to: b"a/more" }],
        vec![moved(b"b", b"e"), xattr(b"e/2")],
        vec![xattr(b"b/old"), moved(b"b", b"e")],
        vec![moved(b"c", b"d"), moved(b"b", b"e")],
        vec![new(b"d"), moved(b"c", b"d/c")],
    ];
    for steps in refused {
        let all: Vec<_> = [new(b"c/new"), moved(b"a/0", b"c/0")].into_iter().chain(steps).collect();
        let error = transact(&mut peers, 0, &all).expect_err("it cannot be done");
        assert_eq!((error.kind, error.to_errno()), (ErrorKind::Unsupported, 95), "{error}");
        assert!(error.context.starts_with("operation "), "{error}");
        assert_eq!(names(&mut peers, 1), BEFORE, "{all:?}");
    }
    // Its own are changed.
    let own = [new(b"d"), xattr(b"a/0"), Operation::Link { from: b"a/0", to: b"d/0" }];
    transact(&mut peers, 0, &own).expect("they can be done");
    assert_eq!(links(&mut peers, b"d/0"), 2);
}

#[test]
fn one_directory_moves_with_all_that_machines_have_in_it() {
    for with_dir in [false, true] {
        let mut peers = some(with_dir, 11);
        peers.make_directory(1, b"d").expect("made");
        peers.make_directory(2, b"to").expect("made");
        for (at, path) in [(0, &b"d/0"[..]), (1, b"d/1"), (2, b"d/2")] {
            makes(&mut peers, at, path, path);
        }
        let steps = [moved(b"d", b"to/d"), new(b"to/d/said"), new(b"said")];
        transact(&mut peers, 0, &steps).expect("they can be done");
        for at in 0..3 {
            assert_eq!(says(&mut peers, at, b"to/d/2"), b"d/2");
            assert!(peers.stat(at, b"d").is_err() && peers.stat(at, b"to/d/said").is_ok());
        }
        if with_dir {
            owes_nothing(&mut peers);
            let names = ["said", "to", "to/d", "to/d/0", "to/d/1", "to/d/2", "to/d/said"];
            assert_eq!(there(&peers).keys().collect::<Vec<_>>(), names.map(str::as_bytes));
        }
    }
}

#[test]
fn another_machines_file_that_was_written_to_is_not_as_it_was_seen() {
    let mut peers = begun(3);
    let seen = peers.stat(0, b"b/2").expect("it is there");
    let same = Operation::Unchanged { path: &b"b/2"[..], version: Version::from(&seen) };
    transact(&mut peers, 0, &[same, moved(b"a/0", b"a/3")]).expect("it is as it was");
    let open = peers.open(1, b"b/2", super::CREATE).expect("opened");
    peers.write(open, Some(0), b"longer than before").expect("written");
    peers.close(open).expect("closed");
    let error = transact(&mut peers, 0, &[same, moved(b"a/3", b"a/0")]).expect_err("it changed");
    assert_eq!(error.kind, ErrorKind::Changed, "{error}");
    assert!(peers.stat(1, b"a/3").is_ok());
}

/// How often what is said goes from one to another, one way, until all is done.
pub(super) fn ways(peers: &mut Peers, at: usize, steps: &[Step<'_>]) -> usize {
    let encoded = frame::encode(&steps).expect("it is short");
    let (_, session, taken) = asks(peers, at, Request::Transact(&encoded));
    let (mut ways, mut turns) = (0, 0);
    while !matches!(peers.handle(at, session, &taken), Some(Handled::Answer(_))) {
        let links = peers.links.iter().filter(|(_, link)| !link.is_empty());
        let now: Vec<_> = links.map(|(way, link)| (*way, link.len())).collect();
        turns += 1;
        assert!(turns < 100, "it waits for time to pass");
        ways += usize::from(!now.is_empty());
        for (way, count) in now {
            for _ in 0..count {
                let bytes = peers.links.get_mut(&way).and_then(|link| link.pop_front());
                peers.arrive(way, &bytes.expect("it was there"));
            }
        }
    }
    ways
}

#[test]
fn with_one_other_machine_a_commit_takes_less_than_five_round_trips() {
    let mut peers = begun(1);
    rest(&mut peers);
    // Nobody has used the other's directory here: its path, itself, and a file of its that goes.
    let first = [moved(b"c/2", b"c/3"), moved(b"b/1", b"c/4"), Operation::Unlink(b"b/2")];
    let first = ways(&mut peers, 0, &first);
    let later = [moved(b"c/3", b"b/3"), moved(b"c/4", b"b/4")];
    let later = ways(&mut peers, 0, &later);
    eprintln!("{first} ways the first time, {later} later");
    assert!(first < 10, "{first} ways");
    assert_eq!(later, 0, "what it has been lent it has");
}
