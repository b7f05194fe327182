//! Transactions that set extended attributes of other machines' files, in two phases: whichever
//! server dies, or session is cut, at whatever step, all see all of one, or nothing, nobody waits
//! for ever, and nothing is kept of it in the end.

use std::time::Duration;

use terral_format::disk::partition::Verdict;
use terral_format::ids::SessionSlot;
use terral_format::wire::message::{Reply, Request, Target, XattrHow};
use terral_format::wire::things::Outcome;
use terral_format::wire::transactions::{InDoubt, Operation, TransactionId};
use terral_format::{ErrorKind, Result, frame};
use terral_transport::requests::Taken;

use super::further::{asks, makes, rest, some};
use super::transacting::{Step, moved, transact, ways};
use super::{Handled, Peers};
use crate::authority::audit::Who;
use crate::sharing::{carrying, transacting};

pub(super) const NAME: &[u8] = b"user.a";

pub(super) const fn set<'a>(path: &'a [u8], value: &'a [u8]) -> Step<'a> {
    let (name, value, how) = (NAME, Some(value), XattrHow::Any);
    Operation::SetXattr { path, name, value, how }
}

/// Files of all three, in directories of all three, each with an attribute.
fn begun(with_dir: bool, seed: u64) -> Peers {
    let mut peers = some(with_dir, seed);
    for (at, path) in [(2, &b"a"[..]), (1, b"b"), (0, b"c")] {
        peers.make_directory(at, path).expect("made");
    }
    for (at, path) in [(0, &b"a/0"[..]), (1, b"c/1"), (2, b"b/2")] {
        makes(&mut peers, at, path, path);
        transact(&mut peers, at, &[set(path, b"before")]).expect("its own");
    }
    peers
}

/// What is done to them by the first server.
const STEPS: [Step<'static>; 5] = [
    set(b"a/0", b"after"),
    set(b"c/1", b"between"),
    set(b"b/2", b"after"),
    Operation::MakeDirectory { path: b"c/new", mode: 0o755 },
    set(b"c/1", b"after"),
];

pub(super) fn value(peers: &mut Peers, at: usize, path: &[u8]) -> Vec<u8> {
    let target = Target::Path(path);
    match peers.ask(at, Request::Xattr { target, name: NAME }).expect("it has one") {
        Reply::Xattr(value) => value,
        other => panic!("{other:?}"),
    }
}

/// Whether all of it is there, as a server sees it; nothing is, else.
fn is_done(peers: &mut Peers, at: usize) -> bool {
    let is = peers.stat(at, b"c/new").is_ok();
    let expected = if is { &b"after"[..] } else { b"before" };
    for path in [&b"a/0"[..], b"c/1", b"b/2"] {
        let seen = value(peers, at, path);
        assert_eq!(seen, expected, "{}, on {at}", String::from_utf8_lossy(path));
    }
    is
}

/// Nothing of any transaction is kept, nor anything that was said of one.
pub(super) fn nothing_is_kept(peers: &mut Peers) {
    rest(peers);
    for at in 0..peers.sims.len() {
        let kept = peers.sims[at].with(|server| {
            let state = server.lock();
            let members = state.members.as_ref().expect("a member");
            (members.untold(), members.doubts().map(|(_, doubt)| doubt.of).collect::<Vec<_>>())
        });
        assert_eq!(kept.expect("it lives"), Default::default(), "on {at}");
    }
}

pub(super) type Asked = (usize, SessionSlot, Taken);

/// It is carried out so far. Whether it was done.
pub(super) fn is_through(peers: &mut Peers, at: usize, of: &Asked, steps: u64) -> bool {
    for _ in 0..steps {
        if let Some(Handled::Answer(reply)) = peers.handle(at, of.1, &of.2) {
            assert_eq!(frame::decode::<Reply>(&reply).expect("an answer"), Reply::Done);
            return true;
        }
        if !peers.carry() {
            peers.pass(Duration::from_millis(100));
        }
    }
    false
}

/// Who asked for it ends after so many steps, and the server with him, if it dies.
pub(super) fn is_given_up(peers: &mut Peers, of: &Asked, (steps, dies): (u64, bool)) {
    is_through(peers, 0, of, steps);
    if dies {
        peers.sims[0].kill();
        peers.reconnect();
    }
    peers.sims[0].end(of.0);
    peers.collect(0);
}

/// What happens to one that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    Dies(usize),
    AllDie,
    Cut(usize),
}

pub(super) fn happens(peers: &mut Peers, trouble: Trouble) {
    match trouble {
        Trouble::Dies(at) => peers.sims[at].kill(),
        Trouble::AllDie => peers.sims.iter_mut().for_each(|sim| sim.kill()),
        Trouble::Cut(with) => peers.cut(0, with),
    }
    peers.reconnect();
}

pub(super) const TROUBLES: [Trouble; 6] = [
    Trouble::Dies(0),
    Trouble::Dies(1),
    Trouble::Dies(2),
    Trouble::AllDie,
    Trouble::Cut(1),
    Trouble::Cut(2),
];

fn interrupted(with_dir: bool, trouble: Trouble, steps: u64) -> bool {
    let mut peers = begun(with_dir, steps);
    let encoded = frame::encode(&&STEPS[..]).expect("it is short");
    let of = asks(&mut peers, 0, Request::Transact(&encoded));
    let through = is_through(&mut peers, 0, &of, steps);
    happens(&mut peers, trouble);
    // Else it is being decided, and who looks waits.
    for at in (1..3).filter(|_| matches!(trouble, Trouble::Dies(0) | Trouble::AllDie)) {
        let done = is_done(&mut peers, at);
        assert!(!through || done, "{trouble:?} after {steps}: it was answered");
    }
    assert!(through || is_through(&mut peers, 0, &of, 2000), "{trouble:?} after {steps}");
    (0..3).for_each(|at| assert!(is_done(&mut peers, at), "{trouble:?} after {steps}, on {at}"));
    nothing_is_kept(&mut peers);
    through
}

#[test]
fn all_of_it_or_nothing_is_there_whichever_server_dies_or_session_is_cut() {
    for (with_dir, trouble) in [false, true]
        .into_iter()
        .flat_map(|with_dir| TROUBLES.into_iter().map(move |trouble| (with_dir, trouble)))
    {
        let all: Vec<bool> = (0..30).map(|at| interrupted(with_dir, trouble, at)).collect();
        assert!(all.contains(&true) && all.contains(&false), "{trouble:?}: {all:?}");
    }
}

#[test]
fn who_asked_and_died_has_done_all_of_it_or_nothing_and_leaves_nobody_waiting() {
    let mut seen = [0; 2];
    for (steps, dies) in (0..30).flat_map(|steps| [false, true].map(|dies| (steps, dies))) {
        let mut peers = begun(false, steps);
        let encoded = frame::encode(&&STEPS[..]).expect("it is short");
        let of = asks(&mut peers, 0, Request::Transact(&encoded));
        is_given_up(&mut peers, &of, (steps, dies));
        let done = is_done(&mut peers, 1);
        assert_eq!(is_done(&mut peers, 2), done, "after {steps}");
        seen[usize::from(done)] += 1;
        // Others set them at once.
        transact(&mut peers, 2, &[set(b"c/1", b"2"), set(b"a/0", b"2")]).expect("they are free");
        nothing_is_kept(&mut peers);
    }
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
}

#[test]
fn what_a_home_cannot_set_fails_all_of_it() {
    for with_dir in [false, true] {
        let mut peers = begun(with_dir, 3);
        let new = Operation::SetXattr {
            path: &b"b/2"[..],
            name: b"user.a",
            value: Some(b"x"),
            how: XattrHow::Create,
        };
        let none = Operation::SetXattr {
            path: &b"c/1"[..],
            name: b"user.none",
            value: None,
            how: XattrHow::Any,
        };
        for (at, fails, kind) in [(1, new, ErrorKind::Exists), (2, none, ErrorKind::NoData)] {
            let mut steps = STEPS.to_vec();
            steps.insert(at, fails);
            let error = transact(&mut peers, 0, &steps).expect_err("it cannot be done");
            assert_eq!(error.kind, kind, "{error}");
            assert!(error.context.starts_with(&format!("operation {at}: ")), "{error}");
            assert!(!is_done(&mut peers, 1) && !is_done(&mut peers, 2));
        }
        // What one operation has set the next one finds.
        let again = [
            set(b"c/1", b"1"),
            Operation::SetXattr {
                path: b"c/1",
                name: b"user.a",
                value: None,
                how: XattrHow::Replace,
            },
        ];
        transact(&mut peers, 0, &again).expect("they can be done");
        let target = Target::Path(b"c/1");
        let gone = peers.ask(2, Request::Xattr { target, name: b"user.a" });
        assert_eq!(gone.expect_err("it is gone").kind, ErrorKind::NoData);
        nothing_is_kept(&mut peers);
    }
}

#[test]
fn a_commit_with_one_other_home_takes_less_than_five_round_trips_and_less_with_the_directories() {
    let mut peers = begun(false, 1);
    rest(&mut peers);
    let steps = [Operation::MakeDirectory { path: &b"c/one"[..], mode: 0o755 }, set(b"c/1", b"1")];
    let first = ways(&mut peers, 0, &steps);
    rest(&mut peers);
    let steps = [Operation::RemoveDirectory(&b"c/one"[..]), set(b"c/1", b"2")];
    let later = ways(&mut peers, 0, &steps);
    eprintln!("{first} ways the first time, {later} later");
    assert!(first < 10, "{first} ways");
    assert_eq!(later, 2, "it is prepared, and decided");
    nothing_is_kept(&mut peers);
}

/// What a server says is in doubt, and who says so to it.
pub(super) fn in_doubt(peers: &mut Peers, at: usize) -> Vec<InDoubt> {
    peers.sims[at].with(|server| transacting::here(&server.lock())).expect("it lives")
}

/// Somebody says to one what is to be.
pub(super) fn resolved(
    peers: &mut Peers,
    at: usize,
    (of, is): (TransactionId, bool),
) -> Result<Outcome> {
    let said = peers.sims[at].with(|server| {
        let mut state = server.lock();
        let said = transacting::resolve_here(&mut state, Who { pid: 1, user: 0 }, of, is);
        carrying::resume(&mut state).expect("the log has room");
        said
    });
    peers.collect(at);
    said.expect("it lives")
}

#[test]
fn what_is_in_doubt_as_its_machine_is_lost_is_an_error_that_names_it_until_somebody_says() {
    for is in [false, true] {
        let (mut peers, mut turns) = (begun(false, 7), 0);
        makes(&mut peers, 2, b"c/2", b"of the third");
        transact(&mut peers, 2, &[set(b"c/2", b"before")]).expect("its own");
        let steps = [set(b"a/0", b"between"), set(b"c/2", b"after")];
        let encoded = frame::encode(&&steps[..]).expect("it is short");
        let of = asks(&mut peers, 1, Request::Transact(&encoded));
        while in_doubt(&mut peers, 0).is_empty() || in_doubt(&mut peers, 2).is_empty() {
            assert!(!is_through(&mut peers, 1, &of, 1) && turns < 1000);
            turns += 1;
        }
        let doubt = in_doubt(&mut peers, 2).remove(0);
        assert_eq!((&doubt.path[..], &doubt.names[..]), (&b"c/2"[..], &[NAME.to_vec()][..]));
        let says = |peers: &mut Peers, at: usize| resolved(peers, at, (doubt.of, is));
        let error = says(&mut peers, 0).expect_err("who decides it is in");
        let fence = format!("terral fence {}", doubt.of.by.number());
        assert!(error.context.contains(&fence), "{error}");
        peers.remove(1, Verdict::Dead, 2);
        for (at, path) in [(0, &b"a/0"[..]), (2, b"c/2")] {
            let target = Target::Path(path);
            let asked = peers.ask(at, Request::Xattr { target, name: NAME });
            let error = asked.expect_err("it is in doubt");
            let names = error.context.contains(&format!("terral txn resolve {}", doubt.of));
            assert!(names && error.to_errno() == 5, "{error}");
            peers.sims[at].kill();
            assert_eq!(in_doubt(&mut peers, at).len(), 1, "its log has it");
            assert!(matches!(says(&mut peers, at), Ok(Outcome::Doubts(all)) if all.len() == 1));
            let expected = match (is, at) {
                (false, _) => &b"before"[..],
                (true, 0) => b"between",
                (true, _) => b"after",
            };
            assert_eq!(value(&mut peers, at, path), expected);
            assert!(in_doubt(&mut peers, at).is_empty());
        }
    }
}

/// So many that want the same files, in different orders, on all three at once, are carried out.
#[test]
fn those_that_want_the_same_files_at_once_all_come_to_be_one_after_the_other() {
    let paths = [&b"a/0"[..], b"c/1", b"b/2"];
    for seed in 0..12 {
        let mut peers = begun(false, seed);
        let values: Vec<Vec<u8>> = (0..9).map(|which| format!("{which}").into()).collect();
        let mut left: Vec<(usize, Asked)> = Vec::new();
        for (which, value) in values.iter().enumerate() {
            let mut steps: Vec<Step<'_>> = paths.map(|path| set(path, value)).into();
            steps.rotate_left((which + seed as usize) % 3);
            if which % 2 == 0 {
                steps.reverse();
            }
            if which % 3 == 1 {
                steps.push(moved(b"a/0", b"b/0"));
                steps.push(moved(b"b/0", b"a/0"));
            }
            let encoded = frame::encode(&steps).expect("it is short");
            let at = which % 3;
            left.push((at, asks(&mut peers, at, Request::Transact(&encoded))));
        }
        let mut turns = 0;
        while !left.is_empty() {
            left.retain(|(at, of)| match peers.handle(*at, of.1, &of.2) {
                Some(Handled::Answer(reply)) => {
                    let reply = frame::decode::<Reply>(&reply).expect("an answer");
                    assert_eq!(reply, Reply::Done, "{seed}");
                    false
                }
                _ => true,
            });
            turns += 1;
            if seed % 3 == 2 && turns % 17 == 0 && turns < 300 {
                happens(&mut peers, TROUBLES[turns / 17 % TROUBLES.len()]);
            }
            if !peers.carry() {
                peers.pass(Duration::from_millis(100));
            }
            assert!(turns < 4000, "{seed}: they wait for ever");
        }
        let seen: Vec<Vec<u8>> = paths.iter().map(|path| value(&mut peers, 1, path)).collect();
        assert!(seen.iter().all(|one| *one == seen[0]), "{seed}: {seen:?}");
        nothing_is_kept(&mut peers);
    }
}
