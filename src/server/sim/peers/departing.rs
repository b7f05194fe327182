//! Members that leave in order, while others work: nothing is lost, and nobody waits for them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use terral_format::disk::partition::Verdict;
use terral_format::wire::message::{Kind, OpenHow, RenameHow, Request};
use terral_format::wire::roster::{Control, HANDED_MAX, Roster, Said};

use super::dir::{owes_one, there};
use super::fencing::roster;
use super::tree::Tree;
use super::walks::act;
use super::{Peers, member, walk_all};
use crate::core::limits::Limits;
use crate::core::limits::tests::with;
use crate::far::linking;
use crate::members::control;
use crate::shared::Shared;
use crate::sharing::{carrying, departing};
use crate::sim::client::CREATE;
use crate::sim::world::Virtual;

/// Longer than any member takes to leave.
const ROUNDS: usize = 400;

impl Peers {
    /// The control hears what a member says that leaves, and tells all who is in.
    pub(super) fn hears_of_departure(&mut self, (from, to): (usize, usize), bytes: &[u8]) {
        let Ok(Said::Control(said)) = Said::read(bytes) else { panic!("nothing else is said") };
        let heard = |server: &Shared| {
            let mut state = server.lock();
            match said.clone() {
                Control::Hands(directories) => {
                    departing::hands(&mut state, member(from), directories);
                }
                Control::Leaves => {
                    control::has_left(&mut state, member(from)).expect("it is the control");
                }
                other => panic!("{other:?}"),
            }
            carrying::resume(&mut state).expect("it is logged");
            state.members.as_ref().map(|members| members.roster().clone())
        };
        let Some(Some(roster)) = self.sims[to].with(heard) else { return };
        self.collect(to);
        if matches!(said, Control::Leaves) {
            let others = (0..self.sims.len()).filter(|at| *at != from && !self.is_dead(*at));
            others.collect::<Vec<_>>().into_iter().for_each(|at| self.hears_roster(at, &roster));
            self.is_let_go(from, &roster);
        }
    }

    /// Who has left hears that this is known.
    fn is_let_go(&mut self, out: usize, roster: &Roster) {
        let by = member(self.control);
        self.sims[out].with(|server| {
            let mut state = server.lock();
            control::heard(&mut state, roster.clone(), by);
            carrying::resume(&mut state).expect("it is logged");
        });
        self.reconnect();
    }

    /// All are in by the control's word.
    pub(super) fn are_in(&mut self) {
        self.are_in_with(&[]);
    }

    /// The same, where these are of the authority.
    fn are_in_with(&mut self, authorities: &[usize]) {
        let authorities = authorities.iter().copied().map(member).collect();
        let roster = roster(self.sims.len(), 2, &BTreeMap::new());
        let roster = Roster { authorities, ..roster };
        (0..self.sims.len()).for_each(|at| self.hears_roster(at, &roster));
        self.settle();
    }

    /// A member leaves, and others do something `meanwhile`.
    pub(super) fn leaves(&mut self, out: usize, meanwhile: impl FnMut(&mut Self)) {
        self.leave_together(&[out], meanwhile);
    }

    /// These do, at the same time.
    fn leave_together(&mut self, out: &[usize], mut meanwhile: impl FnMut(&mut Self)) {
        out.iter().for_each(|out| self.sims[*out].end(self.clients[*out]));
        for _ in 0..ROUNDS {
            for out in out {
                if self.is_dead(*out) {
                    continue;
                }
                let is_over = self.sims[*out].with(|server| {
                    let mut state = server.lock();
                    (state.departs, state.finishing) = (true, true);
                    departing::is_over(&state)
                });
                if is_over == Some(true) {
                    self.dies(*out);
                }
            }
            if out.iter().all(|out| self.is_dead(*out)) {
                return;
            }
            meanwhile(self);
            self.pass(Duration::from_millis(500));
        }
        panic!("they never leave");
    }

    /// What all that are in see of the tree is this.
    fn is_seen_as(&mut self, tree: &BTreeMap<Vec<u8>, bool>, others: &[usize]) {
        let mut directories: BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>> = BTreeMap::new();
        directories.insert(Vec::new(), BTreeSet::new());
        for (path, is_directory) in tree {
            let end = path.iter().rposition(|byte| *byte == b'/');
            let above = path[..end.unwrap_or(0)].to_vec();
            let name = path[end.map_or(0, |end| end + 1)..].to_vec();
            directories.entry(above).or_default().insert(name);
            if *is_directory {
                directories.entry(path.clone()).or_default();
            }
        }
        for at in others {
            for (path, is_directory) in tree {
                let shown = String::from_utf8_lossy(path);
                let seen = self.stat(*at, path).unwrap_or_else(|why| panic!("{at} {shown}: {why}"));
                assert_eq!(seen.kind == Kind::Directory, *is_directory, "{at} {shown}");
            }
            for (path, names) in &directories {
                let listed = self.list(*at, path).expect("listed").into_iter();
                let listed: BTreeSet<Vec<u8>> = listed.map(|(name, _)| name).collect();
                assert_eq!(listed, *names, "{at} {}", String::from_utf8_lossy(path));
            }
        }
    }

    /// Those that are in owe the store nothing, after a while.
    fn bring_all(&mut self, others: &[usize]) {
        for _ in 0..200 {
            if !others.iter().any(|at| owes_one(&mut self.sims[*at])) {
                return;
            }
            self.pass(Duration::from_secs(1));
        }
        panic!("they owe it for ever");
    }

    fn losses(&mut self, at: usize) -> u64 {
        let losses = |server: &Shared| crate::naming::lost::losses(&server.lock());
        let losses = self.sims[at].with(losses).expect("it lives");
        losses.count + losses.restored.len() as u64
    }
}

/// Three machines; the second has the root, and made most of what there is.
fn three(seed: u64) -> Peers {
    let mut peers = Peers::with_dir(seed, 3);
    peers.are_in();
    peers.make_directory(0, b"d").expect("made");
    peers.create(2, b"d/of2").expect("made");
    peers.pass(Duration::from_secs(3));
    peers.make_directory(1, b"own").expect("made");
    peers.make_directory(1, b"own/gone").expect("made");
    for path in [&b"r"[..], b"d/x", b"own/y", b"own/z"] {
        let open = peers.open(1, path, CREATE).expect("made");
        peers.write(open, Some(0), path).expect("written");
        peers.close(open).expect("closed");
    }
    peers.create(2, b"own/of2").expect("made");
    for at in [0, 2] {
        peers.list(at, b"own").expect("listed");
        for path in [&b"own/z"[..], b"own/gone", b"r"] {
            peers.stat(at, path).expect("there");
        }
    }
    peers.ask(1, Request::Unlink(b"own/z")).expect("removed");
    peers.ask(1, Request::RemoveDirectory(b"own/gone")).expect("removed");
    peers
}

fn have_all(peers: &mut Peers) {
    let files = [&b"r"[..], b"d/x", b"own/y", b"own/of2", b"d/of2"];
    let mut tree: BTreeMap<Vec<u8>, bool> =
        files.into_iter().map(|path| (path.to_vec(), false)).collect();
    tree.extend([&b"d"[..], b"own"].map(|path| (path.to_vec(), true)));
    peers.is_seen_as(&tree, &[2, 0]);
    for at in [0, 2] {
        for path in [&b"r"[..], b"d/x", b"own/y"] {
            let how = OpenHow { create: false, ..CREATE };
            peers.open(at, path, how).map(drop).expect("opened");
            assert_eq!(peers.stat(at, path).expect("there").size, path.len() as u64);
        }
        assert_eq!(peers.losses(at), 0, "nothing is lost");
        for name in [&b"new"[..], b"d/new", b"own/new"] {
            peers.create(at, &[name, &[b'0' + at as u8]].concat()).expect("made");
        }
    }
    let (from, to, how) = (&b"own/y"[..], &b"moved"[..], RenameHow::Replace);
    peers.ask(2, Request::Rename { from, to, how }).expect("moved");
    peers.ask(0, Request::Unlink(b"d/x")).expect("removed");
    peers.bring_all(&[0, 2]);
    let there = there(peers);
    let is = |path: &[u8]| there.contains_key(path);
    assert!(is(b"moved") && is(b"own/new2") && is(b"r") && !is(b"d/x") && !is(b"own/y"));
}

#[test]
fn what_a_member_that_left_had_is_there_and_used_on() {
    let mut peers = three(1);
    peers.leaves(1, |_| ());
    have_all(&mut peers);
}

/// Four machines; the first is of the authority, and the next two, of which one has the root, have
/// made all that there is, more than one message hands over.
fn leave_at_once(seed: u64, kills: bool) {
    let mut peers = Peers::with_dir(seed, 4);
    peers.are_in_with(&[0]);
    let mut tree = BTreeMap::new();
    for at in [1, 2] {
        for number in 0..HANDED_MAX / 50 + 2 {
            let above = format!("d{at}.{number}").into_bytes();
            let paths = (0..50).map(|of| [&above[..], format!("/{of}").as_bytes()].concat());
            for path in std::iter::once(above.clone()).chain(paths) {
                peers.make_directory(at, &path).expect("made");
                tree.insert(path, true);
            }
        }
        let path = format!("d{at}.3/f").into_bytes();
        peers.create(3 - at, &path).expect("made");
        tree.insert(path, false);
    }
    let world = Virtual::new(seed);
    peers.leave_together(&[1, 2], |peers| {
        if kills && world.one_of(3) == 0 {
            let at = world.one_of(4) as usize;
            peers.sims[at].kill_at(1 + world.one_of(12) as i64);
        }
    });
    peers.is_seen_as(&tree, &[3]);
    assert_eq!(peers.losses(3), 0);
    peers.create(3, b"d1.5/new").expect("made");
    peers.create(3, b"new").expect("made");
    peers.bring_all(&[3]);
}

#[test]
fn two_that_leave_at_once_both_leave_and_all_they_had_is_there() {
    leave_at_once(6, false);
}

#[test]
fn so_they_do_when_servers_die() {
    (7..10).for_each(|seed| leave_at_once(seed, true));
}

#[test]
fn a_directory_that_is_too_large_to_be_handed_over_is_there_too() {
    let mut peers = three(2);
    let limits = Limits { given: 0, lent: 0, borrowed: u64::MAX };
    with(limits, || {
        peers.leaves(1, |_| ());
        for at in [2, 0] {
            let names = peers.list(at, b"own").expect("listed");
            assert!(names.iter().any(|(name, _)| name == b"y"), "{at} {names:?}");
            peers.stat(at, b"own/y").expect("there");
            assert!(peers.stat(at, b"own/z").is_err(), "it was removed before");
        }
    });
}

#[test]
fn a_member_that_lost_its_bytes_on_purpose_leaves_errors_that_name_it() {
    let mut peers = Peers::new(3, 3);
    peers.are_in();
    peers.make_directory(1, b"own").expect("made");
    peers.create(1, b"own/f").expect("made");
    peers.create(2, b"own/of2").expect("made");
    let refused = peers.sims[1].with(|server| departing::may_end(&server.lock(), false));
    let said = refused.expect("it lives").expect_err("it has a file").to_string();
    assert!(said.contains("nowhere else: 1"), "{said}");
    peers.leaves(1, |_| ());
    for at in [2, 0] {
        peers.stat(at, b"own/of2").expect("there");
        let how = OpenHow { create: false, ..CREATE };
        let said = peers.open(at, b"own/f", how).map(drop).expect_err("it is lost").to_string();
        assert!(said.contains("member 1"), "{said}");
        peers.create(at, format!("own/new{at}").as_bytes()).expect("made");
    }
    assert_eq!(peers.losses(0), 1);
}

#[test]
fn the_control_does_not_end_while_others_are_in_and_does_when_they_have_left() {
    let mut peers = three(4);
    let may_end =
        |peers: &mut Peers| peers.sims[0].with(|server| departing::may_end(&server.lock(), true));
    let said = may_end(&mut peers).expect("it lives").expect_err("others are in").to_string();
    assert!(said.contains("member 1, member 2 still in"), "{said}");
    peers.leaves(1, |_| ());
    assert!(may_end(&mut peers).expect("it lives").is_err());
    peers.leaves(2, |_| ());
    assert!(may_end(&mut peers).expect("it lives").is_ok());
}

/// Random requests; then one leaves while the others work, and is killed, or the control is; then
/// the next one leaves. Gives how many names the last one has.
fn walk(seed: u64, steps: usize, kills: bool) -> usize {
    let mut peers = Peers::with_dir(seed, 3);
    // Who says who is in goes on with what they had, or, as long as there is one, another does.
    peers.are_in_with(if seed.is_multiple_of(2) { &[0] } else { &[] });
    let mut tree = Tree::default();
    let world = Virtual::new(seed);
    let mut draw = |of| world.one_of(of);
    (0..steps).for_each(|_| act(&mut peers, &mut tree, &mut draw));
    let mut tree = tree.all();
    let out = 1 + draw(2) as usize;
    let mut others = vec![0, 3 - out];
    for out in [out, 3 - out] {
        let mut made = 0;
        peers.leaves(out, |peers| {
            if kills && draw(2) == 0 {
                let at = [0, out][draw(2) as usize];
                peers.sims[at].kill_at(1 + draw(12) as i64);
            }
            let at = others[draw(others.len() as u64) as usize];
            let directories = tree.iter().filter(|(_, is)| **is).map(|(path, _)| path.clone());
            let directories: Vec<_> = directories.collect();
            if at == out || made > 20 || directories.is_empty() {
                return;
            }
            let above = &directories[draw(directories.len() as u64) as usize];
            let path = [&above[..], format!("/of{out}.{made}").as_bytes()].concat();
            let is_directory = draw(3) == 0;
            match is_directory {
                true => peers.make_directory(at, &path).expect("made"),
                false => peers.create(at, &path).expect("created"),
            }
            tree.insert(path, is_directory);
            made += 1;
        });
        others.retain(|at| *at != out);
        peers.is_seen_as(&tree, &others);
        // What it had is moved, and removed, as all else.
        let files: Vec<Vec<u8>> =
            tree.iter().filter(|(_, is)| !**is).map(|it| it.0.clone()).collect();
        for path in files {
            let at = others[draw(others.len() as u64) as usize];
            let shown = String::from_utf8_lossy(&path).into_owned();
            match draw(4) {
                0 => {
                    let to = [&path[..], b"-"].concat();
                    let (from, how) = (&path[..], RenameHow::Replace);
                    let moved = peers.ask(at, Request::Rename { from, to: &to, how });
                    moved.unwrap_or_else(|why| panic!("{at} {shown}: {why}"));
                    tree.remove(&path);
                    tree.insert(to, false);
                }
                1 => {
                    let gone = peers.ask(at, Request::Unlink(&path));
                    gone.unwrap_or_else(|why| panic!("{at} {shown}: {why}"));
                    tree.remove(&path);
                }
                _ => {}
            }
        }
        peers.is_seen_as(&tree, &others);
    }
    peers.bring_all(&[0]);
    assert_eq!(there(&peers), tree);
    assert_eq!(peers.losses(0), 0);
    tree.len()
}

fn all_walk(most: u64, kills: bool) {
    let [left] = walk_all(most, |seed| [walk(seed, 80, kills) as u64]);
    assert!(left > 0, "something is left");
}

#[test]
fn while_members_leave_others_work_and_all_is_there() {
    all_walk(20, false);
}

#[test]
fn so_it_is_if_they_are_killed_while_they_leave() {
    all_walk(20, true);
}

#[test]
fn who_has_left_is_not_removed_again() {
    let mut peers = three(5);
    peers.leaves(1, |_| ());
    let again = peers.sims[0].with(|server| {
        let mut state = server.lock();
        [Verdict::Fenced, Verdict::Dead, Verdict::Left]
            .map(|verdict| control::remove(&mut state, member(1), verdict).is_err())
    });
    assert_eq!(again, Some([true; 3]));
    peers.sims[0].with(|server| linking::removed(&mut server.lock(), member(1)));
    have_all(&mut peers);
}

#[test]
fn one_server_uses_an_invitation_and_nobody_does_after_an_hour() {
    let mut peers = Peers::new(6, 2);
    peers.are_in();
    let invited = peers.sims[0].with(|server| {
        let mut state = server.lock();
        let [used, unused] = [(); 2].map(|()| control::invite(&mut state).expect("invited").me);
        assert_eq!([1, 1].map(|it| control::claims(&mut state, used, it)), [Ok(()), Ok(())]);
        let why = control::claims(&mut state, used, 2).expect_err("it is another one");
        assert!(why.contains("used by another server, which is member 2"), "{why}");
        carrying::resume(&mut state).expect("it is logged");
        (used, unused)
    });
    let (used, unused) = invited.expect("it lives");
    peers.sims[0].kill();
    for minutes in [1, 58, 2] {
        let is_in = |server: &Shared| control::claims(&mut server.lock(), used, 1).is_ok();
        assert_eq!(peers.sims[0].with(is_in), Some(true), "{minutes}");
        peers.pass(Duration::from_secs(60 * minutes));
    }
    peers.pass(Duration::from_secs(1));
    let why = peers.sims[0].with(|server| control::claims(&mut server.lock(), unused, 3));
    let why = why.expect("it lives").expect_err("it is too late");
    assert!(why.contains("has expired"), "{why}");
    assert_eq!(peers.losses(0), 0);
    let again = peers.sims[0].with(|server| control::claims(&mut server.lock(), used, 2));
    assert!(again.expect("it lives").is_err(), "that is written down");
}
