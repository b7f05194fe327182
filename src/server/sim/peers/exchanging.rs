//! Names that change places, of things that different servers have made, in directories that
//! different ones have: with what is below them, with who has them open, and whoever dies then.

use std::collections::BTreeSet;
use std::time::Duration;

use terral_format::ErrorKind;
use terral_format::wire::message::{Kind, OpenHow, RenameHow, Request};
use terral_format::wire::moving::Moving;
use terral_store::backing::scripted::Body;

use super::further::{asks, goes_on, link, makes, rest, says, some};
use super::{OF_MOVES, Peers, Result, dir};
use crate::core::state::State;
use crate::sim::client::CREATE;

/// Whether what is owed here is by names as they will be only once another member is through.
fn is_ahead(state: &State) -> bool {
    let known = |moving: &Moving| moving.back.as_ref().is_some_and(|back| back.is_known);
    state.names.resting().values().any(known)
}

fn exchange(peers: &mut Peers, at: usize, from: &[u8], to: &[u8]) -> Result<()> {
    peers.ask(at, Request::Rename { from, to, how: RenameHow::Exchange }).map(drop)
}

/// Two directories of different servers, each with a file of the third one's.
fn begin(with_dir: bool, seed: u64) -> Peers {
    let mut peers = some(with_dir, seed);
    for (at, path) in [(0, &b"d"[..]), (1, b"e"), (2, b"d/sub"), (0, b"e/sub")] {
        peers.make_directory(at, path).expect("made");
    }
    makes(&mut peers, 1, b"d/a", b"born on one");
    makes(&mut peers, 2, b"e/b", b"born on two, and longer");
    makes(&mut peers, 2, b"d/sub/in", b"below d");
    makes(&mut peers, 1, b"e/sub/in", b"below e");
    peers
}

/// Who exchanges what, and whether it is in the store before.
fn cases() -> impl Iterator<Item = (bool, bool, usize)> {
    let stores = [(false, false), (true, false), (true, true)].into_iter();
    stores.flat_map(|(with_dir, there)| (0..3).map(move |at| (with_dir, there, at)))
}

fn arrives(peers: &mut Peers) {
    rest(peers);
    if peers.dir.is_some() {
        assert!(!dir::owes(peers), "they owe it for ever");
    }
}

/// What the store has under a name, if there is one.
fn is_there(peers: &Peers, path: &[u8], is: &[u8]) -> bool {
    let tree = peers.dir.as_ref().map(|store| store.tree());
    tree.is_none_or(|tree| tree[path].body == Body::File(is.to_vec()))
}

#[test]
fn files_of_two_machines_change_places_and_who_has_them_open_goes_on() {
    for (with_dir, there, at) in cases() {
        let mut peers = begin(with_dir, 41);
        if there {
            rest(&mut peers);
        }
        let how = OpenHow { create: false, ..CREATE };
        let opens = [(0, b"d/a"), (1, b"e/b")].map(|(at, path)| {
            let open = peers.open(at, path, how).expect("it is there");
            peers.write(open, Some(0), b"BORN").expect("written");
            open
        });
        exchange(&mut peers, at, b"d/a", b"e/b").expect("done");
        for (open, says) in opens.into_iter().zip([&b"is here"[..], b"is gone"]) {
            peers.write(open, Some(0), says).expect("written");
            peers.close(open).expect("closed");
        }
        for _ in 0..2 {
            for at in 0..3 {
                assert_eq!(says(&mut peers, at, b"e/b"), b"is here one", "{with_dir} {there}");
                assert_eq!(says(&mut peers, at, b"d/a"), b"is gone two, and longer");
            }
            arrives(&mut peers);
        }
        assert!(is_there(&peers, b"e/b", b"is here one"));
        assert!(is_there(&peers, b"d/a", b"is gone two, and longer"));
        exchange(&mut peers, 2, b"d/a", b"e/b").expect("done");
        arrives(&mut peers);
        assert_eq!(says(&mut peers, 0, b"d/a"), b"is here one");
        assert!(is_there(&peers, b"d/a", b"is here one"));
    }
}

#[test]
fn directories_change_places_with_all_that_is_below_and_with_files() {
    for (with_dir, there, at) in cases() {
        let mut peers = begin(with_dir, 42);
        if there {
            rest(&mut peers);
        }
        exchange(&mut peers, at, b"d/sub", b"e/sub").expect("done");
        makes(&mut peers, (at + 1) % 3, b"d/sub/new", b"new below d");
        exchange(&mut peers, (at + 1) % 3, b"d/sub", b"e/b").expect("done");
        exchange(&mut peers, (at + 2) % 3, b"d", b"e").expect("done");
        let expected: [(&[u8], &[u8]); 5] = [
            (b"e/a", b"born on one"),
            (b"e/sub", b"born on two, and longer"),
            (b"d/b/in", b"below e"),
            (b"d/b/new", b"new below d"),
            (b"d/sub/in", b"below d"),
        ];
        for _ in 0..2 {
            for ((path, is), at) in expected.iter().flat_map(|of| (0..3).map(move |at| (of, at))) {
                assert_eq!(says(&mut peers, at, path), *is, "{with_dir} {there}");
            }
            arrives(&mut peers);
        }
        assert!(expected.iter().all(|(path, is)| is_there(&peers, path, is)));
        assert_eq!(peers.stat(at, b"d/b").expect("it is there").kind, Kind::Directory);
    }
}

#[test]
fn one_of_several_names_changes_places_and_links_too() {
    for (with_dir, there, at) in cases() {
        let mut peers = begin(with_dir, 43);
        link(&mut peers, 0, b"d/a", b"e/further").expect("linked");
        let (path, target) = (&b"link"[..], &b"d/a"[..]);
        peers.ask(2, Request::MakeLink { path, target }).expect("made");
        if there {
            rest(&mut peers);
        }
        exchange(&mut peers, at, b"e/further", b"e/b").expect("done");
        exchange(&mut peers, at, b"link", b"d/a").expect("done");
        exchange(&mut peers, at, b"link", b"e/b").expect("two names of one file stay");
        arrives(&mut peers);
        for at in 0..3 {
            assert_eq!(says(&mut peers, at, b"e/further"), b"born on two, and longer");
            assert_eq!(says(&mut peers, at, b"e/b"), b"born on one");
            assert_eq!(peers.stat(at, b"link").expect("it is there").links, 2);
        }
        if with_dir {
            dir::are_links_there(&peers, [vec![&b"link"[..], b"e/b"]].iter());
        }
        peers.ask(2, Request::Unlink(b"link")).expect("removed");
        arrives(&mut peers);
        assert_eq!(peers.stat(0, b"e/b").expect("it is there").links, 1);
    }
}

/// Two names, and what is said of them.
type Wrong<'n> = (&'n [u8], &'n [u8], ErrorKind);

#[test]
fn what_is_wrong_is_said_as_on_one_machine() {
    for with_dir in [false, true] {
        let mut peers = begin(with_dir, 44);
        let cases: [Wrong<'_>; 6] = [
            (b"d/a", b"e/none", ErrorKind::NotFound),
            (b"d/none", b"e/b", ErrorKind::NotFound),
            (b"d", b"d/sub", ErrorKind::Invalid),
            (b"d/a", b"d", ErrorKind::Invalid),
            (b"d/a", b"e/b/in", ErrorKind::NotDirectory),
            (b"d/a", b"none/b", ErrorKind::NotFound),
        ];
        for ((from, to, is), at) in cases.iter().flat_map(|case| (0..3).map(move |at| (case, at))) {
            let refused = exchange(&mut peers, at, from, to).map_err(|error| error.kind);
            assert_eq!(refused, Err(*is), "{at}");
        }
    }
}

/// Both names are there, for all the same, and each content once; whether they have changed places.
fn are_swapped(peers: &mut Peers, names: [&[u8]; 2], below: &[u8]) -> bool {
    arrives(peers);
    let says = |peers: &mut Peers, at| names.map(|name| says(peers, at, &[name, below].concat()));
    let all: Vec<_> = (0..3).map(|at| says(peers, at)).collect();
    assert!(all.iter().all(|says| *says == all[0]), "{all:?}");
    let contents: BTreeSet<_> = all[0].iter().collect();
    assert_eq!(contents.len(), 2, "{all:?}");
    for (name, is) in names.iter().zip(&all[0]) {
        assert!(is_there(peers, &[name, below].concat(), is));
    }
    all[0][0].starts_with(b"born on two") || all[0][0].starts_with(b"below e")
}

/// An exchange is interrupted after so many steps.
fn interrupted((with_dir, there): (bool, bool), of: [&[u8]; 2], (steps, dies): (u64, usize)) {
    let mut peers = begin(with_dir, 45);
    if there {
        rest(&mut peers);
    }
    peers.pass(Duration::from_secs(3));
    let request = Request::Rename { from: of[0], to: of[1], how: RenameHow::Exchange };
    let asked = asks(&mut peers, 0, request);
    let mut done = goes_on(&mut peers, 0, &asked, steps);
    match dies {
        0..3 => peers.sims[dies].kill(),
        3 => peers.cut(0, 1),
        _ => {}
    }
    if dies < 4 && steps % 2 == 0 {
        done = done || goes_on(&mut peers, 0, &asked, 1000);
        assert!(done, "it waits for ever");
    }
    peers.sims[0].end(asked.0);
    peers.collect(0);
    let below = if of[0] == b"d/a" { &b""[..] } else { b"/in" };
    let swapped = are_swapped(&mut peers, of, below);
    assert!(swapped || !done, "it was done, and is undone");
}

fn all_interrupted(of: [&[u8]; 2]) {
    for store in [(false, false), (true, false), (true, true)] {
        for at in (0..24).flat_map(|steps| (0..5).map(move |dies| (steps, dies))) {
            let done = || interrupted(store, of, at);
            std::panic::catch_unwind(done).unwrap_or_else(|_| panic!("{store:?} {at:?}"));
        }
    }
}

#[test]
fn who_dies_as_two_files_change_places_leaves_both_once() {
    all_interrupted([b"d/a", b"e/b"]);
}

#[test]
fn who_dies_as_two_directories_change_places_leaves_both_once() {
    all_interrupted([b"d/sub", b"e/sub"]);
}

/// A server dies at one of its records while two machines do the same at once, in both orders.
fn at_once(with_dir: bool, (dies, record): (usize, i64)) {
    let mut peers = begin(with_dir, 46);
    peers.pass(Duration::from_secs(3));
    peers.sims[dies].kill_at(record);
    let how = RenameHow::Exchange;
    let (a, b) = (&b"d/a"[..], &b"e/b"[..]);
    let asked = [(0, a, b), (2, b, a)]
        .map(|(at, from, to)| (at, asks(&mut peers, at, Request::Rename { from, to, how })));
    let mut open: Vec<_> = asked.iter().collect();
    for _ in 0..2000 {
        open.retain(|(at, one)| !goes_on(&mut peers, *at, one, 1));
    }
    assert!(open.is_empty(), "they wait for ever");
    for (at, one) in asked {
        peers.sims[at].end(one.0);
        peers.collect(at);
    }
    assert!(!are_swapped(&mut peers, [a, b], b""), "done twice, all is as it was");
}

#[test]
fn two_machines_that_let_the_same_change_places_do_so_one_after_the_other() {
    for with_dir in [false, true] {
        for at in (0..3).flat_map(|dies| (1..16).map(move |record| (dies, record))) {
            let done = || at_once(with_dir, at);
            std::panic::catch_unwind(done).unwrap_or_else(|_| panic!("{with_dir} {at:?}"));
        }
    }
}

/// A server lets two names of other servers' directories change places, and gives that up; the
/// directories are back before one of the others, which decides them, hears of that. It shows them
/// by then, or changes them for others. `files`: one of the two is a file of its own.
fn given_up(with_dir: bool, files: bool) {
    let mut peers = some(with_dir, 47);
    let names = [&b"d/x"[..], b"e/y"];
    for directory in [b"d", b"e"] {
        peers.make_directory(0, directory).expect("made");
    }
    for (at, name) in [(1, names[0]), (0, names[1])] {
        match files {
            true => makes(&mut peers, at, name, name),
            false => {
                peers.make_directory(at, name).expect("made");
                makes(&mut peers, at, &[name, b"/in"].concat(), name);
            }
        }
    }
    rest(&mut peers);
    let request = Request::Rename { from: names[0], to: names[1], how: RenameHow::Exchange };
    let asked = asks(&mut peers, 1, request);
    let ahead = |peers: &mut Peers| peers.sims[0].with(|server| is_ahead(&server.lock()));
    let has_begun = (0..300).any(|_| {
        assert!(!goes_on(&mut peers, 1, &asked, 1), "it is not to be done yet");
        ahead(&mut peers) == Some(true)
    });
    assert!(has_begun);
    peers.sims[1].end(asked.0);
    peers.collect(1);
    let link = peers.links.entry((1, 0)).or_default();
    let (late, now) = link.drain(..).partition::<Vec<_>, _>(|said| said.starts_with(OF_MOVES));
    link.extend(now);
    for at in [0, 2] {
        for directory in [&b"d/new"[..], b"e/new"] {
            peers.make_directory(at, &[directory, &[b'0' + at as u8]].concat()).expect("made");
        }
    }
    peers.pass(Duration::from_secs(3));
    for directory in [b"d", b"e"] {
        peers.list(2, directory).expect("listed");
    }
    assert!(!late.is_empty() || ahead(&mut peers) == Some(false), "it has not heard yet");
    late.iter().for_each(|said| peers.arrive((1, 0), said));
    for _ in 0..2 {
        for (name, at) in names.iter().flat_map(|name| (0..3).map(move |at| (name, at))) {
            let path = [*name, if files { &b""[..] } else { b"/in" }].concat();
            assert_eq!(says(&mut peers, at, &path), *name, "{with_dir} {files} {at}");
            assert_eq!(peers.stat(at, &path).expect("it is there").links, 1);
            assert!(peers.list(at, &name[..1]).expect("listed").len() == 3);
        }
        arrives(&mut peers);
    }
}

#[test]
fn who_has_directories_back_before_he_hears_that_nothing_changes_places_keeps_their_names() {
    given_up(false, false);
    given_up(true, false);
    given_up(true, true);
}

/// A file is created, where its directory is another server's, under the name that a directory had
/// here, of which nobody has said that it is gone: while a third server moves another one, so that
/// nothing is brought and no directory loses its place by a look. If who removed the first one has
/// begun to take it away in the store, he goes on with that (`begun`); else the file waits until
/// the third server is through.
fn created_meanwhile(how: RenameHow, begun: bool) {
    let mut peers = begin(true, 48);
    for path in [&b"b"[..], b"b/b"] {
        peers.make_directory(2, path).expect("made");
    }
    rest(&mut peers);
    assert_eq!(peers.stat(1, b"b/b").expect("it is there").kind, Kind::Directory);
    peers.ask(2, Request::RemoveDirectory(b"b/b")).expect("removed");
    if begun {
        // As if the store had not answered.
        peers.sims[2].with(|server| server.lock().names.may_be_begun());
    }
    let to = if how == RenameHow::Exchange { &b"e/sub"[..] } else { b"e/new" };
    let asked = asks(&mut peers, 0, Request::Rename { from: b"d/sub", to, how });
    let rests = |peers: &mut Peers| {
        let rests = |state: &State| !state.names.resting().is_empty();
        peers.sims[1].with(|server| rests(&server.lock())) == Some(true)
    };
    let mut done = false;
    while !rests(&mut peers) {
        done = done || goes_on(&mut peers, 0, &asked, 1);
    }
    if begun {
        peers.create(1, b"b/b").expect("the name is free");
        assert!(rests(&mut peers), "it was created while directories were on their way");
    }
    let exclusive = OpenHow { exclusive: true, ..CREATE };
    let opened = asks(&mut peers, 1, Request::Open { path: b"b/b", how: exclusive });
    let mut open = begun;
    let through = (0..2000).any(|_| {
        open = open || goes_on(&mut peers, 1, &opened, 1);
        done = done || goes_on(&mut peers, 0, &asked, 1);
        open && done
    });
    assert!(through, "they wait for ever");
    peers.sims[1].end(opened.0);
    peers.collect(1);
    for _ in 0..2 {
        for at in 0..3 {
            assert_eq!(peers.stat(at, b"b/b").expect("it is there").kind, Kind::File, "{how:?}");
        }
        arrives(&mut peers);
    }
    assert!(is_there(&peers, b"b/b", b""), "{how:?}");
}

#[test]
fn what_is_created_where_a_directory_was_arrives_though_others_are_on_their_way() {
    for how in [RenameHow::Exchange, RenameHow::Replace] {
        created_meanwhile(how, true);
        created_meanwhile(how, false);
    }
}
