//! One request after the other, on any server: each is answered as if there were only one.

use std::time::Duration;

use terral_format::wire::message::{
    Attributes, Change, Kind, Name, RenameHow, Reply, Request, Target, XattrHow,
};

use super::looks::are_true;
use super::tree::{Node, Tree};
use super::{Peers, Result, walk_all};
use crate::core::left_out::Step;
use crate::core::left_out::tests::without;
use crate::core::state::State;
use crate::sim::world::Virtual;

/// What somebody does, on which server.
pub(super) fn act(peers: &mut Peers, tree: &mut Tree, draw: &mut impl FnMut(u64) -> u64) {
    let at = draw(peers.sims.len() as u64) as usize;
    let path = some_path(draw);
    let done = |result: Result<()>| result.map_err(|error| error.kind);
    let (what, says) = (draw(17), String::from_utf8_lossy(&path).into_owned());
    match what {
        0..=2 => {
            let made = done(peers.make_directory(at, &path));
            assert_eq!(made, tree.make(&path, Node::DIRECTORY), "{at}: mkdir {says}");
        }
        3 | 4 => {
            let made = done(peers.create(at, &path));
            assert_eq!(made, tree.make(&path, Node::FILE), "{at}: create {says}");
        }
        5 | 6 => {
            let gone = match what {
                5 => peers.ask(at, Request::Unlink(&path)),
                _ => peers.ask(at, Request::RemoveDirectory(&path)),
            };
            assert_eq!(done(gone.map(drop)), tree.remove(&path, what == 6), "{at}: rm {says}");
        }
        7 => {
            let seen = peers.stat(at, &path).map_err(|error| error.kind);
            assert_eq!(seen.map(|is| looks_like(*is)), tree.node(&path), "{at}: stat {says}");
            seen.into_iter().for_each(|is| tree.has_number(&path, is.number));
        }
        8 => {
            let listed = peers.listing(at, &path).map_err(|error| error.kind);
            let is_directory = |name: &Name| (name.name.clone(), name.kind == Kind::Directory);
            let seen = listed.as_ref().map(|names| names.iter().map(is_directory).collect());
            assert_eq!(seen.map_err(|kind| *kind), tree.names(&path), "{at}: ls {says}");
            for Name { name, number, .. } in listed.into_iter().flatten() {
                // What only the store has has none yet.
                let below = [&path[..], b"/", &name].concat();
                number.into_iter().for_each(|number| tree.has_number(&below, number));
            }
        }
        9 => {
            let to = some_path(draw);
            let moved =
                peers.ask(at, Request::Rename { from: &path, to: &to, how: RenameHow::Replace });
            let to_says = String::from_utf8_lossy(&to).into_owned();
            let moved = done(moved.map(drop));
            assert_eq!(moved, tree.rename(&path, &to), "{at}: mv {says} {to_says}");
        }
        10 => {
            let mode = 0o700 + draw(64) as u32;
            let change = Change { mode: Some(mode), ..Change::default() };
            let target = Target::Path(&path);
            let changed = peers.ask(at, Request::Change { target, change });
            assert_eq!(done(changed.map(drop)), tree.change(&path, mode), "{at}: chmod {says}");
        }
        11 | 12 => {
            let to = some_path(draw);
            let linked = peers.ask(at, Request::Link { target: Target::Path(&path), path: &to });
            let (linked, to_says) = (done(linked.map(drop)), String::from_utf8_lossy(&to));
            assert_eq!(linked, tree.link(&path, &to), "{at}: ln {says} {to_says}");
        }
        13 | 14 => of_xattrs(peers, tree, (at, &path), draw),
        15 => {
            let (to, how) = (some_path(draw), RenameHow::Exchange);
            let done = done(peers.ask(at, Request::Rename { from: &path, to: &to, how }).map(drop));
            let to_says = String::from_utf8_lossy(&to);
            assert_eq!(done, tree.exchange(&path, &to), "{at}: exchange {says} {to_says}");
        }
        _ => peers.pass(Duration::from_millis(draw(3000))),
    }
}

/// An extended attribute is set, removed, or looked at.
fn of_xattrs(
    peers: &mut Peers,
    tree: &mut Tree,
    (at, path): (usize, &[u8]),
    draw: &mut impl FnMut(u64) -> u64,
) {
    let (target, name, says) = (Target::Path(path), &b"user.a"[..], String::from_utf8_lossy(path));
    let value = match draw(4) {
        0 | 1 => {
            let seen = peers.ask(at, Request::Xattr { target, name });
            let seen = seen.map_err(|error| error.kind).map(|reply| match reply {
                Reply::Xattr(value) => value,
                other => panic!("{other:?}"),
            });
            assert_eq!(seen, tree.xattr(path), "{at}: getfattr {says}");
            return;
        }
        2 => Some(vec![draw(256) as u8]),
        _ => None,
    };
    let (how, value) = (XattrHow::Any, value.as_deref());
    let set = peers.ask(at, Request::SetXattr { target, name, value, how });
    let set = set.map(drop).map_err(|error| error.kind);
    assert_eq!(set, tree.set_xattr(path, value), "{at}: setfattr {says} {value:?}");
}

/// The log becomes a snapshot, if it has all that was done.
fn rewrite(state: &mut State) {
    if state.is_logged() {
        state.rewrite_log();
    }
}

fn looks_like(is: Attributes) -> Node {
    let directory = is.kind == Kind::Directory;
    Node { directory, mode: is.mode, links: if directory { 0 } else { is.links } }
}

pub(super) fn some_path(draw: &mut impl FnMut(u64) -> u64) -> Vec<u8> {
    let depth = 1 + draw(3);
    let names: Vec<Vec<u8>> = (0..depth).map(|_| vec![b'a' + draw(3) as u8]).collect();
    names.join(&b'/')
}

/// Gives how many directories clients could look at by themselves though others have them, or may.
fn walk(seed: u64, steps: usize, kills: bool) -> usize {
    walk_with(seed, steps, kills, |peers| peers.may_have_trouble(seed))
}

/// The same, where something is begun with the servers before.
pub(super) fn walk_with(
    seed: u64,
    steps: usize,
    kills: bool,
    begin: impl FnOnce(&mut Peers),
) -> usize {
    let mut peers = Peers::new(seed, 3);
    begin(&mut peers);
    let mut tree = Tree::default();
    let world = Virtual::new(seed);
    let mut draw = |of| world.one_of(of);
    let mut looks = 0;
    for _ in 0..steps {
        if kills && draw(4) == 0 {
            let at = draw(3) as usize;
            if draw(4) == 0 {
                peers.sims[at].with(|server| rewrite(&mut server.lock()));
            }
            peers.sims[at].kill_at(1 + draw(12) as i64);
        }
        act(&mut peers, &mut tree, &mut draw);
        looks += are_true(&mut peers, &mut tree);
    }
    looks
}

pub(super) fn all_walk(most: u64, kills: bool) {
    let [looks] = walk_all(most, |seed| [walk(seed, 200, kills) as u64]);
    assert!(looks > 0, "no client could look at what others have");
}

#[test]
fn clients_that_go_on_to_look_at_what_is_shown_no_more_are_caught() {
    is_caught(Step::EndLooks);
}

#[test]
fn clients_that_look_at_what_was_seen_before_the_copy_came_are_caught() {
    is_caught(Step::CompareCopies);
}

#[test]
fn servers_that_remove_one_of_several_names_as_if_it_were_the_last_are_caught() {
    is_caught(Step::LetGo);
}

#[test]
fn servers_that_know_one_name_of_each_file_are_caught() {
    is_caught(Step::KeepNames);
}

#[test]
fn servers_that_show_their_own_numbers_of_what_was_born_elsewhere_are_caught() {
    is_caught(Step::ShowNumbers);
}

fn is_caught(step: Step) {
    let flawed = |seed| without(step, || walk(seed, 200, false));
    let caught = |seed| std::panic::catch_unwind(|| flawed(seed)).is_err();
    assert!((0..100).any(caught));
}

#[test]
fn all_machines_see_one_namespace_whoever_changes_it() {
    all_walk(30, false);
}

#[test]
fn a_server_that_dies_anywhere_forgets_no_name_and_does_nothing_twice() {
    all_walk(30, true);
}
