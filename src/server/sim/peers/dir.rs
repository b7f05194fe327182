//! Several servers with one permanent store: in the end it has what one server would have brought.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use terral_format::ErrorKind;
use terral_format::wire::message::{Change, Kind, OpenHow, RenameHow, Request, Target, XattrHow};
use terral_partition::effect::Input;
use terral_store::backing::scripted::Seen;

use super::further::{asks, goes_on};
use super::looks::are_true;
use super::tree::Tree;
use super::walks::act;
use super::{Handled, Peers, walk_all};
use crate::core::left_out::Step;
use crate::core::left_out::tests::without;
use crate::sim::Sim;
use crate::sim::client::CREATE;
use crate::sim::world::Virtual;

/// All names in the store, and whether they are directories'.
pub(super) fn there(peers: &Peers) -> BTreeMap<Vec<u8>, bool> {
    let tree = peers.dir.as_ref().expect("a store").tree();
    let own = |path: &[u8]| path.is_empty() || path.starts_with(b".terral");
    let seen = tree.into_iter().filter(|(path, _)| !own(path));
    seen.map(|(path, seen)| (path, seen.found.attributes.kind == Kind::Directory)).collect()
}

/// By path, the one extended attribute that something may have in the store.
fn xattrs_there(peers: &Peers) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let tree = peers.dir.as_ref().expect("a store").tree();
    let value =
        |(path, seen): (Vec<u8>, Seen)| Some((path, seen.xattrs.get(&b"user.a"[..])?.clone()));
    tree.into_iter().filter_map(value).collect()
}

/// Names of one file are links to it in the store, and nothing else is.
pub(super) fn are_links_there<'n>(peers: &Peers, files: impl Iterator<Item = &'n Vec<&'n [u8]>>) {
    let tree = peers.dir.as_ref().expect("a store").tree();
    let mut objects = BTreeSet::new();
    for names in files {
        let of = names.iter().map(|name| tree[*name].found.fingerprint.object());
        let of: BTreeSet<_> = of.collect();
        assert!(of.len() == 1 && of.is_disjoint(&objects), "{names:?}");
        objects.extend(of);
    }
}

/// Whether any of them owes the store something.
pub(super) fn owes(peers: &mut Peers) -> bool {
    peers.sims.iter_mut().any(owes_one)
}

/// In the end none does. None is cut off from the others meanwhile.
pub(super) fn owes_nothing(peers: &mut Peers) {
    peers.sims.iter_mut().for_each(meets_all);
    for _ in 0..200 {
        if !owes(peers) {
            return;
        }
        peers.pass(Duration::from_secs(1));
    }
    panic!("they owe it for ever");
}

/// It has a session with all others.
fn meets_all(sim: &mut Sim) {
    sim.with(|server| {
        let mut state = server.lock();
        let now = state.world.now();
        if let Some(members) = &mut state.members {
            members.others().into_iter().for_each(|with| members.connects(with, true, now));
        }
    });
}

/// Whether one does.
pub(super) fn owes_one(sim: &mut Sim) -> bool {
    let owes = sim.with(|server| {
        let mut state = server.lock();
        state.finishing = true;
        let names = !state.names.owed().is_empty() || !state.names.publishing().is_empty();
        state.debts.iter().next().is_some() || names || state.waits_between()
    });
    owes != Some(false)
}

/// Gives how many directories clients could look at by themselves though others have them, or may.
fn walk(seed: u64, steps: usize, kills: bool) -> usize {
    let mut peers = Peers::with_dir(seed, 3);
    peers.may_have_trouble(seed);
    let mut tree = Tree::default();
    let world = Virtual::new(seed);
    let mut draw = |of| world.one_of(of);
    let mut looks = 0;
    for _ in 0..steps {
        if kills && draw(4) == 0 {
            let at = draw(3) as usize;
            peers.sims[at].kill_at(1 + draw(12) as i64);
        }
        act(&mut peers, &mut tree, &mut draw);
        looks += are_true(&mut peers, &mut tree);
    }
    peers.trouble_ends();
    owes_nothing(&mut peers);
    assert_eq!(there(&peers), tree.all());
    are_links_there(&peers, tree.files().values());
    assert_eq!(xattrs_there(&peers), tree.all_xattrs());
    looks
}

fn all_walk(most: u64, kills: bool) {
    let [looks] = walk_all(most, |seed| [walk(seed, 120, kills) as u64]);
    assert!(looks > 0, "no client could look at what others have");
}

#[test]
fn what_several_machines_change_arrives_as_one_namespace() {
    all_walk(30, false);
}

#[test]
fn so_it_does_when_servers_die() {
    all_walk(30, true);
}

fn rename(peers: &mut Peers, at: usize, from: &[u8], to: &[u8]) {
    let how = RenameHow::Replace;
    peers.ask(at, Request::Rename { from, to, how }).expect("moved");
}

/// A directory moves twice, by two of them, with what others have in it; the later the more of that
/// is in the store before.
fn move_twice(later: u64) {
    let mut peers = Peers::with_dir(later, 3);
    peers.make_directory(0, b"d").expect("made");
    peers.make_directory(2, b"to").expect("made");
    for (at, path) in [(1, &b"d/f"[..]), (2, b"d/g"), (0, b"d/h")] {
        peers.create(at, path).expect("made");
        peers.pass(Duration::from_millis(later * 50));
    }
    peers.make_directory(2, b"d/sub").expect("made");
    let how = OpenHow { create: false, ..CREATE };
    let open = peers.open(1, b"d/f", how).expect("opened");
    peers.write(open, Some(0), b"what is not there yet").expect("written");
    rename(&mut peers, 0, b"d", b"to/e");
    peers.close(open).expect("closed");
    // Nobody hears of anything meanwhile; the store has it there before the others have a turn, or
    // after.
    for turn in 0..3 {
        let at = if later.is_multiple_of(2) { 2 - turn } else { turn };
        peers.sims[at].pass(Duration::from_secs(2));
    }
    peers.create(1, b"to/e/i").expect("made");
    peers.create(1, b"d").expect("it has no such name any more");
    rename(&mut peers, 2, b"to/e", b"e");
    for at in 0..3 {
        assert!(peers.stat(at, b"e/f").is_ok() && peers.stat(at, b"to/e").is_err());
    }
    (0..30).for_each(|_| peers.pass(Duration::from_secs(1)));
    assert!(!owes(&mut peers));
    let names = ["d", "e", "e/f", "e/g", "e/h", "e/i", "e/sub", "to"];
    assert_eq!(there(&peers).keys().collect::<Vec<_>>(), names.map(str::as_bytes));
}

#[test]
fn a_directory_moves_with_what_others_have_in_it_wherever_that_is_on_its_way() {
    (0..12).for_each(move_twice);
}

#[test]
fn machines_that_lose_each_other_while_a_directory_moves_bring_all_to_where_it_is() {
    for first in 0..3 {
        let mut peers = Peers::with_dir(first, 3);
        peers.make_directory(0, b"d").expect("made");
        for (at, path) in [(1, &b"d/f"[..]), (2, b"d/g"), (0, b"d/h")] {
            peers.create(at, path).expect("made");
        }
        let how = OpenHow { create: false, ..CREATE };
        let open = peers.open(1, b"d/f", how).expect("opened");
        peers.write(open, Some(0), b"what is not there yet").expect("written");
        rename(&mut peers, 0, b"d", b"e");
        peers.close(open).expect("closed");
        for sim in &mut peers.sims {
            sim.with(|server| server.lock().finishing = true);
        }
        for turn in 0..3 {
            let at = (first as usize + turn) % 3;
            for _ in 0..60 {
                peers.sims[at].pass(Duration::from_secs(1));
                // What it says nobody hears.
                peers.tell(at, Input::Tick);
            }
        }
        assert!(!owes(&mut peers));
        let names = ["e", "e/f", "e/g", "e/h"];
        assert_eq!(there(&peers).keys().collect::<Vec<_>>(), names.map(str::as_bytes));
    }
}

#[test]
fn a_server_that_does_not_rest_meanwhile_is_caught() {
    let flawed = |later| without(Step::Rest, || move_twice(later));
    let caught = |later| std::panic::catch_unwind(|| flawed(later)).is_err();
    assert!((0..12).any(caught));
}

/// A directory is removed on one machine, and another one creates a file of its name. What the
/// store has in the end, where the second machine is sooner to bring something.
fn name_again() -> BTreeMap<Vec<u8>, bool> {
    let mut peers = Peers::with_dir(7, 2);
    peers.make_directory(0, b"x").expect("made");
    (0..15).for_each(|_| peers.pass(Duration::from_secs(1)));
    assert_eq!(there(&peers), [(b"x".to_vec(), true)].into());
    peers.ask(0, Request::RemoveDirectory(b"x")).expect("removed");
    assert!(peers.stat(1, b"x").is_err());
    peers.create(1, b"x").expect("created");
    for at in [1, 0] {
        (0..15).for_each(|_| peers.sims[at].pass(Duration::from_secs(1)));
    }
    (0..30).for_each(|_| peers.pass(Duration::from_secs(1)));
    there(&peers)
}

#[test]
fn a_name_that_another_machine_takes_is_free_in_the_store_before() {
    assert_eq!(name_again(), [(b"x".to_vec(), false)].into());
    assert_ne!(without(Step::Settle, name_again), [(b"x".to_vec(), false)].into());
}

#[test]
fn two_machines_that_move_directories_make_no_circle() {
    let mut peers = Peers::new(3, 3);
    peers.make_directory(0, b"a").expect("made");
    peers.make_directory(1, b"b").expect("made");
    peers.make_directory(2, b"b/c").expect("made");
    rename(&mut peers, 1, b"a", b"b/c/a");
    let request = Request::Rename { from: b"b", to: b"b/c/a/b", how: RenameHow::Replace };
    let refused = peers.ask(2, request).map_err(|error| error.kind);
    assert_eq!(refused, Err(ErrorKind::Invalid));
    for at in 0..3 {
        assert!(peers.stat(at, b"b/c/a").is_ok() && peers.stat(at, b"a").is_err());
    }
}

/// Its owed names must arrive before the directory goes, and there would be more and more of them.
#[test]
fn who_goes_on_making_directories_in_what_another_machine_wants_back_waits_until_it_is() {
    let mut peers = Peers::with_dir(5, 2);
    peers.make_directory(1, b"d").expect("made");
    peers.pass(Duration::from_secs(3));
    peers.create(0, b"d/f").expect("it has the directory");
    peers.make_directory(0, b"d/a").expect("made, and owed");
    let wanted = |peers: &mut Peers, at: usize, request| {
        let client = peers.sims[at].connect();
        let taken = peers.sims[at].asking(client, request).expect("encodes");
        (at, peers.sims[at].clients[client].session, taken)
    };
    let (path, how) = (&b"d/g"[..], CREATE);
    let other = wanted(&mut peers, 1, Request::Open { path, how });
    let (path, mode) = (&b"d/b"[..], 0o755);
    let goes_on = wanted(&mut peers, 0, Request::MakeDirectory { path, mode });
    let is_answered = |peers: &mut Peers, (at, session, taken): &(usize, _, _)| {
        matches!(peers.handle(*at, *session, taken), Some(Handled::Answer(_)))
    };
    for _ in 0..8 {
        assert!(!is_answered(&mut peers, &other), "what is owed of it has not arrived");
        peers.settle();
    }
    for _ in 0..8 {
        assert!(!is_answered(&mut peers, &goes_on), "it is to go first");
        peers.settle();
    }
    for one in [&other, &goes_on] {
        let has_turn = (0..20).any(|_| {
            peers.pass(Duration::from_secs(1));
            is_answered(&mut peers, one)
        });
        assert!(has_turn, "each has its turn");
    }
}

#[test]
fn what_is_owed_of_a_file_is_not_done_to_another_machines_that_takes_its_name() {
    let mut peers = Peers::with_dir(8, 2);
    peers.create(1, b"f").expect("made");
    peers.create(0, b"g").expect("it has the directory");
    (0..15).for_each(|_| peers.pass(Duration::from_secs(1)));
    let target = Target::Path(b"f");
    let (name, value, how) = (&b"user.a"[..], Some(&b"of the first"[..]), XattrHow::Any);
    peers.ask(1, Request::SetXattr { target, name, value, how }).expect("set");
    let change = Change { mode: Some(0o600), ..Change::default() };
    peers.ask(1, Request::Change { target, change }).expect("changed");
    rename(&mut peers, 0, b"g", b"f");
    for at in [0, 1] {
        (0..15).for_each(|_| peers.sims[at].pass(Duration::from_secs(1)));
    }
    (0..30).for_each(|_| peers.pass(Duration::from_secs(1)));
    assert!(!owes(&mut peers));
    assert_eq!(xattrs_there(&peers), BTreeMap::new());
    let tree = peers.dir.as_ref().expect("a store").tree();
    assert_eq!(tree[&b"f"[..]].found.attributes.mode & 0o777, 0o644);
}

/// It lets go of what it has taken, as what is on its way may need that, and takes it anew when it
/// is woken.
#[test]
fn who_waits_for_what_his_server_moves_is_not_woken_by_himself() {
    let mut peers = Peers::new(9, 3);
    for name in ["a", "b", "c", "d", "a/x", "c/x"] {
        peers.make_directory(0, name.as_bytes()).expect("made");
    }
    (0..5).for_each(|_| peers.pass(Duration::from_secs(1)));
    let how = RenameHow::Replace;
    let [one, other] = [[&b"a/x"[..], b"b/x"], [b"c/x", b"d/x"]]
        .map(|[from, to]| asks(&mut peers, 0, Request::Rename { from, to, how }));
    let waits = |peers: &mut Peers, of: &(usize, _, _)| {
        (0..9).all(|_| !matches!(peers.handle(0, of.1, &of.2), Some(Handled::Answer(_))))
    };
    assert!(waits(&mut peers, &one) && waits(&mut peers, &other));
    let is_woken = |peers: &mut Peers| {
        peers.sims[0]
            .with(|server| server.lock().members.as_mut().map(|members| members.take_news()))
    };
    is_woken(&mut peers);
    assert!(waits(&mut peers, &other));
    assert_eq!(is_woken(&mut peers), Some(Some(false)));
    assert!(goes_on(&mut peers, 0, &one, 1000) && goes_on(&mut peers, 0, &other, 1000));
}

/// Another machine moves a directory of the first one's, who rests: what comes up there meanwhile
/// is brought once it is told. Its server dies before, or after.
#[test]
fn who_rests_brings_nothing_also_if_it_has_begun_anew() {
    for (before, after) in [(false, true), (true, false), (true, true)] {
        let mut peers = Peers::with_dir(10, 2);
        peers.make_directory(0, b"d").expect("made");
        peers.create(0, b"d/f").expect("made");
        peers.make_directory(1, b"x").expect("made");
        (0..15).for_each(|_| peers.pass(Duration::from_secs(1)));
        if before {
            peers.sims[0].kill();
        }
        rename(&mut peers, 1, b"d", b"e");
        let (target, name) = (Target::Path(b"e"), &b"user.a"[..]);
        let (value, how) = (Some(&b"it"[..]), XattrHow::Any);
        peers.ask(1, Request::SetXattr { target, name, value, how }).expect("set");
        assert!(there(&peers).contains_key(&b"d"[..]), "it has not moved there");
        if after {
            peers.sims[0].kill();
        }
        (0..5).for_each(|_| peers.sims[0].pass(Duration::from_secs(1)));
        owes_nothing(&mut peers);
        assert_eq!(xattrs_there(&peers), [(b"e".to_vec(), b"it".to_vec())].into());
    }
}

/// What it owes from there is not there any more, before it is told; and what is in its place is
/// somebody else's.
#[test]
fn who_rests_and_dies_does_not_take_what_is_missing_for_what_it_has_moved() {
    let mut peers = Peers::with_dir(11, 2);
    for path in [&b"d"[..], b"c"] {
        peers.make_directory(0, path).expect("made");
    }
    peers.create(0, b"d/f").expect("made");
    peers.make_directory(1, b"x").expect("made");
    (0..15).for_each(|_| peers.pass(Duration::from_secs(1)));
    rename(&mut peers, 1, b"x", b"y");
    rename(&mut peers, 0, b"d/f", b"c/g");
    let dir = peers.dir.clone().expect("a store");
    dir.put(b"c/g", b"theirs").expect("written");
    rename(&mut peers, 1, b"d", b"e");
    (0..5).for_each(|_| peers.sims[1].pass(Duration::from_secs(1)));
    assert!(
        there(&peers).contains_key(&b"e/f"[..]),
        "it has moved there, and what is owed has not"
    );
    peers.sims[0].kill();
    (0..5).for_each(|_| peers.sims[0].pass(Duration::from_secs(1)));
    owes_nothing(&mut peers);
    let names = there(&peers);
    assert!(!names.contains_key(&b"e/f"[..]), "it was moved");
    assert_eq!(names.keys().filter(|path| path.starts_with(b"c/")).count(), 2, "both are kept");
    assert_eq!(dir.tree()[&b"c/g"[..]].found.attributes.size, 0, "ours has the name");
}
