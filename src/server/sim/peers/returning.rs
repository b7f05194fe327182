//! Names of other machines' files that were delegated for a transaction, and come back once the
//! permanent store has what that makes of them: what happens just then. Not here: the transaction
//! itself (`delegating`).

use std::time::Duration;

use terral_format::disk::partition::Verdict;
use terral_format::frame;
use terral_format::wire::message::{Change, RenameHow, Request, Target};
use terral_store::backing::scripted::Body;

use super::Peers;
use super::delegating::{AFTER, BEFORE, STEPS, are_there, begins, begun, exchanged};
use super::dir::there;
use super::further::{asks, goes_on, rest, says};
use super::giving::given;
use super::preparing::{in_doubt, is_through, nothing_is_kept, set};
use super::transacting::{Step, moved, transact};
use crate::sim::client::CREATE;

/// Just after it was answered: the home changes attributes of a file, and moves a directory that
/// has something of all; who decided it moves the one that it has made.
fn moved_after(steps: u64, made: bool) {
    let when = format!("after {steps}, {made}");
    let mut peers = begun(true, steps);
    let open = peers.open(1, b"a/1", CREATE).expect("it is there");
    let of = begins(&mut peers, 0, &STEPS);
    assert!(is_through(&mut peers, 0, &of, 2000), "{when}");
    let change = Change { mode: Some(0o640), ..Change::default() };
    peers.ask(1, Request::Change { target: Target::File(open.file), change }).expect("changed");
    let how = RenameHow::Replace;
    let (by, from, to) = match made {
        true => (0, &b"c/new"[..], &b"c/final"[..]),
        false => (1, &b"b"[..], &b"e"[..]),
    };
    for _ in 0..steps {
        peers.carry();
    }
    peers.ask(by, Request::Rename { from, to, how }).expect("moved");
    peers.write(open, Some(3), b" more").expect("it is open");
    peers.close(open).expect("closed");
    rest(&mut peers);
    let now = |path: &str| match (made, path.strip_prefix("b/")) {
        (true, _) => path.replace("c/new", "c/final"),
        (false, Some(rest)) => format!("e/{rest}"),
        (false, None) => path.to_owned(),
    };
    let says = |said: &'static str| if said == "a/1" { "a/1 more" } else { said };
    let mut files: Vec<(String, &str)> =
        AFTER.iter().map(|(path, said)| (now(path), says(said))).collect();
    files.sort();
    let files: Vec<(&str, &str)> = files.iter().map(|(path, said)| (&path[..], *said)).collect();
    nothing_is_kept(&mut peers);
    are_there(&mut peers, &files, &when);
    let path = now("c/new/1");
    assert_eq!(peers.stat(2, path.as_bytes()).expect("it is there").mode & 0o777, 0o640, "{when}");
}

#[test]
fn directories_that_move_just_after_it_keep_nobody_waiting_and_nothing_in_the_wrong_place() {
    (0..12).for_each(|steps| [false, true].into_iter().for_each(|made| moved_after(steps, made)));
}

/// Two have names of each other's files, and attributes of these change before that is over.
#[test]
fn two_that_have_names_of_each_others_files_do_not_wait_for_each_other() {
    for steps in (0..60).step_by(3) {
        let mut peers = begun(true, steps);
        let files = [(0, b"a/0"), (1, b"b/1")];
        let opens = files.map(|(at, path)| peers.open(at, path, CREATE).expect("it is there"));
        let encoded = |steps: &[Step<'_>]| frame::encode(&steps).expect("it is short");
        let (one, other) = (encoded(&[moved(b"b/1", b"b/8")]), encoded(&[moved(b"a/0", b"a/8")]));
        let one = asks(&mut peers, 0, Request::Transact(&one));
        let other = asks(&mut peers, 1, Request::Transact(&other));
        let mut left = [goes_on(&mut peers, 0, &one, steps), goes_on(&mut peers, 1, &other, steps)];
        for open in opens {
            let change = Change { mode: Some(0o640), ..Change::default() };
            let target = Target::File(open.file);
            peers.ask(open.at, Request::Change { target, change }).expect("changed");
        }
        for turns in 0.. {
            left[0] = left[0] || goes_on(&mut peers, 0, &one, 1);
            left[1] = left[1] || goes_on(&mut peers, 1, &other, 1);
            if left == [true, true] {
                break;
            }
            assert!(turns < 4000, "after {steps}: they wait for ever: {left:?}");
        }
        opens.into_iter().for_each(|open| peers.close(open).expect("closed"));
        nothing_is_kept(&mut peers);
        let mut files = BEFORE.map(|path| (path, path)).to_vec();
        files.retain(|(path, _)| !["a/0", "b/1"].contains(path));
        files.extend([("a/8", "a/0"), ("b/8", "b/1")]);
        files.sort_unstable();
        are_there(&mut peers, &files, &format!("after {steps}"));
    }
}

/// Its home has the names of a file back, and who decided it has not heard so, as it died; then it
/// changes them again.
#[test]
fn who_has_not_heard_that_names_have_come_back_forgets_nothing_of_the_next() {
    for steps in 0..40 {
        let mut peers = begun(true, steps);
        let of = begins(&mut peers, 0, &[moved(b"b/1", b"c/x")]);
        assert!(is_through(&mut peers, 0, &of, 2000), "after {steps}");
        for _ in 0..steps {
            if !peers.carry() {
                peers.pass(Duration::from_millis(20));
            }
        }
        peers.sims[0].kill();
        peers.reconnect();
        transact(&mut peers, 0, &[moved(b"c/x", b"b/y")]).expect("it can be done");
        nothing_is_kept(&mut peers);
        let mut files = BEFORE.map(|path| (path, path)).to_vec();
        files.retain(|(path, _)| *path != "b/1");
        files.push(("b/y", "b/1"));
        files.sort_unstable();
        are_there(&mut peers, &files, &format!("after {steps}"));
    }
}

/// Who decides it is lost once the store has what it makes of a file that only the store has, and
/// before its home has heard so. With attributes somebody has to say of these alone.
fn lost_late(sets: bool) {
    let mut peers = Peers::with_dir(9, 3);
    peers.make_directory(1, b"b").expect("made");
    peers.dir.as_ref().expect("a store").put(b"s/x", b"only there").expect("written");
    peers.stat(0, b"s/x").expect("it is there");
    rest(&mut peers);
    let attribute = sets.then_some(set(b"b/x", b"after"));
    let steps: Vec<Step<'_>> = [moved(b"s/x", b"b/x")].into_iter().chain(attribute).collect();
    let of = begins(&mut peers, 1, &steps);
    assert!(is_through(&mut peers, 1, &of, 2000), "{sets}");
    peers.unheard.insert((0, 1));
    (0..20).for_each(|_| peers.pass(Duration::from_secs(1)));
    assert!(there(&peers).contains_key(&b"b/x"[..]), "{sets}: the store has it");
    peers.unheard.clear();
    peers.dies(1);
    peers.remove(1, Verdict::Dead, 2);
    (0..10).for_each(|_| peers.pass(Duration::from_secs(1)));
    let doubts = in_doubt(&mut peers, 0);
    assert_eq!(doubts.len(), usize::from(sets), "{doubts:?}");
    rest(&mut peers);
    let open = peers.open(0, b"b/x", CREATE).expect("it is there");
    assert_eq!(peers.read(open, 0, 100).expect("it is there"), b"only there", "{sets}");
    peers.write(open, Some(10), b" more").expect("it is open");
    peers.close(open).expect("closed");
    assert!(peers.stat(2, b"s/x").is_err(), "{sets}: it is not in two places");
    rest(&mut peers);
    is_as_seen(&mut peers, 0, &["b/x"], &format!("{sets}"));
}

/// The store has these files, and with the bytes that a server sees.
fn is_as_seen(peers: &mut Peers, at: usize, paths: &[&str], when: &str) {
    let tree = peers.dir.as_ref().expect("a store").tree();
    for path in paths {
        let said = says(peers, at, path.as_bytes());
        let there = tree.get(path.as_bytes()).map(|seen| seen.body.clone());
        assert_eq!(there, Some(Body::File(said)), "{when}: {path}");
    }
}

/// Two files of one home change places, and who decided it is lost before the home has heard that
/// of both.
fn lost_between(operations: &[Step<'_>], brought: bool, steps: u64) {
    let when = format!("{operations:?}, {brought}, after {steps}");
    let mut peers = begun(brought, steps);
    let of = begins(&mut peers, 2, operations);
    assert!(is_through(&mut peers, 2, &of, 2000), "{when}");
    for _ in 0..steps {
        if !peers.carry() {
            peers.pass(Duration::from_millis(20));
        }
    }
    peers.dies(2);
    peers.remove(2, Verdict::Dead, 2);
    (0..10).for_each(|_| peers.pass(Duration::from_secs(1)));
    rest(&mut peers);
    assert!(in_doubt(&mut peers, 1).is_empty(), "{when}");
    let paths = ["b/1", "c/1"];
    let mut said = paths.map(|path| says(&mut peers, 1, path.as_bytes()));
    is_as_seen(&mut peers, 1, &paths, &when);
    said.sort();
    assert_eq!(said, [b"b/1", b"c/1"], "{when}");
}

#[test]
fn files_that_change_places_are_both_there_at_whatever_step_who_decided_it_is_lost() {
    let by_a_third = [moved(b"b/1", b"b/x"), moved(b"c/1", b"b/1"), moved(b"b/x", b"c/1")];
    for (brought, steps) in (0..40).flat_map(|steps| [(false, steps), (true, steps)]) {
        lost_between(&[exchanged(b"b/1", b"c/1")], brought, steps);
        lost_between(&by_a_third, brought, steps);
    }
}

#[test]
fn what_only_the_store_has_is_read_and_written_though_who_moved_it_there_is_lost() {
    [false, true].into_iter().for_each(lost_late);
}

#[test]
fn how_many_names_a_file_has_all_see_at_once() {
    for brought in [false, true] {
        let mut peers = begun(brought, 4);
        transact(&mut peers, 0, &[given(b"c/2", b"b/9"), moved(b"a/1", b"c/x")]).expect("given");
        for at in 0..3 {
            assert_eq!(peers.stat(at, b"b/9").expect("it is there").links, 2, "{brought}, on {at}");
            assert_eq!(peers.stat(at, b"c/x").expect("it is there").links, 1, "{brought}, on {at}");
        }
        nothing_is_kept(&mut peers);
    }
}
