//! Transactions of which a second server knows, beside the one that decides: also if that one is
//! lost for good at whatever step, its homes do the same, as who asked was told, nobody has to say,
//! and nothing is kept of it in the end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use terral_format::disk::membership::Membership;
use terral_format::disk::partition::Verdict;
use terral_format::ids::Ino;
use terral_format::wire::message::{Reply, Request, Target};
use terral_format::wire::things::Outcome;
use terral_format::wire::transactions::{Operation, Trouble as Doubted};
use terral_format::{Error, ErrorKind, frame};

use super::further::{asks, makes, rest};
use super::preparing::{Asked, NAME, in_doubt, resolved, set, value};
use super::transacting::{Step, transact, ways};
use super::{Handled, Peers, member};
use crate::core::left_out::Step as Left;
use crate::core::left_out::tests::without;

/// Who decides it; 0 and 2 are homes, and, with four, 3 is the witness.
const DECIDES: usize = 1;
const WITNESS: usize = 3;

const STEPS: [Step<'static>; 3] =
    [set(b"a/0", b"after"), set(b"c/2", b"after"), Operation::Copies(2)];

/// So many servers, with files of the first, and, if there are so many, of the third.
fn begun(count: usize, seed: u64) -> Peers {
    begun_in(Peers::new(seed, count))
}

fn begun_in(mut peers: Peers) -> Peers {
    let count = peers.sims.len();
    for (at, directory, path) in [(0, &b"a"[..], &b"a/0"[..]), (2 % count, b"c", b"c/2")] {
        peers.make_directory(at, directory).expect("made");
        makes(&mut peers, at, path, path);
        transact(&mut peers, at, &[set(path, b"before")]).expect("its own");
    }
    peers
}

fn begins(peers: &mut Peers, steps: &[Step<'_>]) -> Asked {
    let encoded = frame::encode(&steps).expect("it is short");
    asks(peers, DECIDES, Request::Transact(&encoded))
}

/// It is carried out so far. What it came to, if it is through.
fn goes_on(peers: &mut Peers, of: &Asked, steps: u64) -> Option<Result<(), Error>> {
    for _ in 0..steps {
        if let Some(Handled::Answer(reply)) = peers.handle(DECIDES, of.1, &of.2) {
            return Some(match frame::decode::<Reply>(&reply).expect("an answer") {
                Reply::Done => Ok(()),
                Reply::Failed(error) => Err(error),
                other => panic!("{other:?}"),
            });
        }
        if !peers.carry() {
            peers.pass(Duration::from_millis(100));
        }
    }
    None
}

/// Whether it has come to be, as all these see it; it never does, else.
fn is_done(peers: &mut Peers, all: &[usize], when: &str) -> bool {
    let mut seen = Vec::new();
    for (at, path) in all.iter().flat_map(|at| [(*at, &b"a/0"[..]), (*at, b"c/2")]) {
        seen.push(value(peers, at, path));
    }
    assert!(seen.iter().all(|one| *one == seen[0]), "{when}: {seen:?}");
    seen[0] == b"after"
}

/// The same, as their homes have it, soon: the directories may be lost with who had them.
fn is_set(peers: &mut Peers, homes: [(usize, Ino); 2], when: &str) -> bool {
    let mut waits = 0;
    while homes.iter().any(|(at, _)| !in_doubt(peers, *at).is_empty()) {
        peers.pass(Duration::from_millis(100));
        waits += 1;
        assert!(waits < 50, "{when}: it stays in doubt");
    }
    let seen = homes.map(|(at, ino)| {
        let values = peers.sims[at].with(|server| server.lock().xattrs.of(ino).cloned());
        values.flatten().and_then(|values| values.get(NAME).cloned()).expect("it has one")
    });
    assert_eq!(seen[0], seen[1], "{when}");
    seen[0] == b"after"
}

/// Where both files are, by their homes, of which there is one if there are two servers.
fn homes(peers: &mut Peers, count: usize) -> [(usize, Ino); 2] {
    [(0, &b"a/0"[..]), (2 % count, b"c/2")].map(|(at, path)| {
        let number = peers.stat(at, path).expect("it is there").number;
        let place = peers.sims[at].with(|server| {
            let state = server.lock();
            state.members.as_ref().and_then(|members| members.place(number))
        });
        (at, place.flatten().expect("its own"))
    })
}

/// No log says anything of any transaction.
fn nothing_is_kept(peers: &mut Peers, all: &[usize], when: &str) {
    rest(peers);
    for at in all {
        let kept = peers.sims[*at].with(|server| {
            let state = server.lock();
            let of = |record: &Membership| matches!(record, Membership::Transacts(_));
            let members = state.members.as_ref().expect("a member");
            members.snapshot().filter(of).collect::<Vec<_>>()
        });
        assert_eq!(kept, Some(vec![]), "{when}: on {at}");
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    Dies(usize),
    AllDie,
    Cut(usize),
    /// One does not hear who decides any more.
    Deaf(usize),
}

/// The second home does not hear what is decided.
const DEAF: Trouble = Trouble::Deaf(2);

fn happens(peers: &mut Peers, trouble: Trouble) {
    match trouble {
        Trouble::Dies(at) => peers.sims[at].kill(),
        Trouble::AllDie => peers.sims.iter_mut().for_each(|sim| sim.kill()),
        Trouble::Cut(with) => peers.cut(DECIDES, with),
        Trouble::Deaf(at) => _ = peers.unheard.insert((at, DECIDES)),
    }
    peers.reconnect();
}

fn is_interrupted(with_dir: bool, trouble: Trouble) {
    let mut seen = [0; 2];
    for steps in 0..40 {
        let when = format!("{trouble:?} after {steps}, with DIR: {with_dir}");
        let peers = if with_dir { Peers::with_dir(steps, 4) } else { Peers::new(steps, 4) };
        let mut peers = begun_in(peers);
        let of = begins(&mut peers, &STEPS);
        let through = goes_on(&mut peers, &of, steps);
        happens(&mut peers, trouble);
        seen[usize::from(through.is_none())] += 1;
        let done = through.or_else(|| goes_on(&mut peers, &of, 2000));
        assert_eq!(done, Some(Ok(())), "{when}");
        assert!(is_done(&mut peers, &[0, 1, 2, 3], &when), "{when}");
        nothing_is_kept(&mut peers, &[0, 1, 2, 3], &when);
    }
    assert!(seen[0] > 0 && seen[1] > 0, "{trouble:?}: {seen:?}");
}

#[test]
fn it_comes_to_be_whichever_process_dies_or_session_is_cut_at_whatever_step() {
    let deaths = (0..4).map(Trouble::Dies).chain([Trouble::AllDie]);
    let cuts = [0, 2, 3].map(Trouble::Cut);
    for trouble in deaths.chain(cuts) {
        for with_dir in [false, true] {
            is_interrupted(with_dir, trouble);
        }
    }
}

/// Who decides it is removed at each step, just after one of these has happened.
fn is_lost(count: usize, verdict: Verdict, troubles: &[Option<Trouble>]) {
    let others: Vec<usize> = (0..count).filter(|at| *at != DECIDES).collect();
    // Before its witness knew of it, after that, and after who asked was told.
    let mut seen = [0; 3];
    for (steps, also) in (0..40).flat_map(|steps| troubles.iter().map(move |at| (steps, *at))) {
        let when = format!("{verdict:?} of {count} after {steps}, {also:?}");
        let mut peers = begun(count, steps);
        let files = homes(&mut peers, count);
        let of = begins(&mut peers, &STEPS);
        let mut done = goes_on(&mut peers, &of, steps);
        let before = done.is_some();
        also.into_iter().for_each(|trouble| happens(&mut peers, trouble));
        if let Some(Trouble::Deaf(_)) = also {
            done = done.or_else(|| goes_on(&mut peers, &of, 40));
            // All others are told.
            (0..5).for_each(|_| peers.pass(Duration::from_millis(100)));
        }
        peers.remove(DECIDES, verdict, 2);
        if verdict == Verdict::Fenced {
            done = done.or_else(|| goes_on(&mut peers, &of, 300));
        }
        let is = is_set(&mut peers, files, &when);
        assert!(done != Some(Ok(())) || is, "{when}: who asked was told that it came to be");
        seen[usize::from(is) + usize::from(before)] += 1;
        nothing_is_kept(&mut peers, &others, &when);
    }
    assert!(seen.iter().all(|count| *count > 0), "{verdict:?} of {count}: {seen:?}");
}

#[test]
fn its_homes_agree_and_nobody_has_to_say_at_whatever_step_its_machine_is_lost() {
    let home = Some(Trouble::Dies(0));
    is_lost(4, Verdict::Dead, &[None, home, Some(Trouble::Dies(WITNESS)), Some(DEAF)]);
    is_lost(4, Verdict::Fenced, &[None, home, Some(Trouble::Dies(WITNESS)), Some(DEAF)]);
    // Of two the home is the witness.
    is_lost(2, Verdict::Dead, &[None, home]);
}

/// Who asked for it dies at each step, and then who decides it is lost: after so many frames, or
/// after a while in which neither the witness nor the second home has heard of it.
fn who_asked_dies(frames: &[Option<u64>]) {
    let mut seen = [0; 2];
    for (steps, more) in (0..40).flat_map(|steps| frames.iter().map(move |more| (steps, *more))) {
        let when = format!("after {steps}, and {more:?}");
        let mut peers = begun(4, steps);
        let files = homes(&mut peers, 4);
        let of = begins(&mut peers, &STEPS);
        let through = goes_on(&mut peers, &of, steps).is_some();
        if more.is_none() {
            peers.unheard.extend([(WITNESS, DECIDES), (2, DECIDES), (DECIDES, 2)]);
        }
        peers.sims[DECIDES].end(of.0);
        peers.collect(DECIDES);
        match more {
            Some(more) => (0..more).for_each(|_| _ = peers.carry()),
            None => (0..20).for_each(|_| peers.pass(Duration::from_millis(100))),
        }
        peers.remove(DECIDES, Verdict::Dead, 2);
        let is = is_set(&mut peers, files, &when);
        assert!(is || !through, "{when}");
        seen[usize::from(is)] += 1;
        nothing_is_kept(&mut peers, &[0, 2, 3], &when);
    }
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
}

#[test]
fn who_asked_and_died_has_done_all_of_it_or_nothing_whoever_is_lost_then() {
    who_asked_dies(&[Some(0), Some(1), Some(3), Some(6), None]);
}

#[test]
fn what_leaves_a_step_out_is_caught() {
    let lost = || is_lost(4, Verdict::Dead, &[None]);
    let dies = || is_interrupted(false, Trouble::Dies(DECIDES));
    let deaf = || is_lost(4, Verdict::Dead, &[Some(DEAF)]);
    let asked = || who_asked_dies(&[None]);
    let ways: [(Left, &dyn Fn()); 5] = [
        (Left::AskWitness, &lost),
        (Left::NoteWitness, &dies),
        (Left::ReleaseWitness, &asked),
        (Left::KeepWitness, &deaf),
        (Left::TellAsWitness, &lost),
    ];
    for (step, way) in ways {
        let fails = without(step, || catch_unwind(AssertUnwindSafe(way)).is_err());
        assert!(fails, "{step:?}");
    }
}

#[test]
fn if_its_witness_is_lost_another_one_is_asked_at_whatever_step() {
    for steps in 0..40 {
        let when = format!("after {steps}");
        let mut peers = begun(4, steps);
        let of = begins(&mut peers, &STEPS);
        let through = goes_on(&mut peers, &of, steps);
        peers.remove(WITNESS, Verdict::Dead, 2);
        let done = through.or_else(|| goes_on(&mut peers, &of, 2000));
        assert_eq!(done, Some(Ok(())), "{when}");
        assert!(is_done(&mut peers, &[0, 1, 2], &when), "{when}");
        nothing_is_kept(&mut peers, &[0, 1, 2], &when);
    }
}

#[test]
fn who_leaves_in_order_meanwhile_has_told_all_that_was_decided_and_all_is_as_it_was_told() {
    for (steps, leaves) in (0..40).step_by(2).flat_map(|at| [(at, WITNESS), (at, DECIDES)]) {
        let when = format!("{leaves} leaves after {steps}");
        let mut peers = begun_in(Peers::with_dir(steps, 4));
        peers.are_in();
        let of = begins(&mut peers, &STEPS);
        let mut done = goes_on(&mut peers, &of, steps);
        if leaves == DECIDES {
            peers.sims[DECIDES].end(of.0);
            peers.collect(DECIDES);
            peers.leaves(DECIDES, |_| {});
        } else {
            peers.leaves(WITNESS, |peers| done = done.take().or_else(|| goes_on(peers, &of, 5)));
            done = done.or_else(|| goes_on(&mut peers, &of, 2000));
            assert_eq!(done, Some(Ok(())), "{when}");
        }
        let others: Vec<usize> = (0..4).filter(|at| *at != leaves).collect();
        assert!(is_done(&mut peers, &others, &when) || done.is_none(), "{when}");
        nothing_is_kept(&mut peers, &others, &when);
    }
}

/// Until all homes have prepared it, as their servers say.
fn prepared(peers: &mut Peers, of: &Asked) {
    let mut turns = 0;
    while in_doubt(peers, 0).is_empty() || in_doubt(peers, 2).is_empty() {
        assert!(goes_on(peers, of, 1).is_none() && turns < 1000);
        turns += 1;
    }
}

#[test]
fn if_both_are_lost_somebody_has_to_say_and_while_one_is_in_nobody_else_does() {
    for (is, first) in [(false, DECIDES), (true, WITNESS)] {
        let mut peers = begun(4, 7);
        let of = begins(&mut peers, &STEPS);
        prepared(&mut peers, &of);
        let doubt = in_doubt(&mut peers, 2).remove(0);
        assert_eq!(doubt.witness, Some(member(WITNESS)));
        if first == DECIDES {
            // The witness knows, and is not asked before it stops.
            peers.dies(WITNESS);
            peers.remove(DECIDES, Verdict::Dead, 2);
            let error = resolved(&mut peers, 2, (doubt.of, is)).expect_err("the witness is in");
            assert!(error.context.contains("terral fence 3"), "{error}");
            peers.remove_too(WITNESS, Verdict::Dead, (3, [(DECIDES, Verdict::Dead)].into()));
        } else {
            peers.dies(DECIDES);
            peers.remove(WITNESS, Verdict::Dead, 2);
            let error = resolved(&mut peers, 2, (doubt.of, is)).expect_err("who decides it is in");
            assert!(error.context.contains("terral fence 1"), "{error}");
            peers.remove_too(DECIDES, Verdict::Dead, (3, [(WITNESS, Verdict::Dead)].into()));
        }
        for (at, path) in [(0, &b"a/0"[..]), (2, b"c/2")] {
            let asked =
                peers.ask(at, Request::Xattr { target: Target::Path(path), name: b"user.a" });
            let error = asked.expect_err("it is in doubt");
            let names = error.context.contains(&format!("terral txn resolve {}", doubt.of));
            assert!(names && error.to_errno() == 5, "{error}");
            peers.sims[at].kill();
            assert_eq!(in_doubt(&mut peers, at)[0].witness, Some(member(WITNESS)), "in its log");
            let said = resolved(&mut peers, at, (doubt.of, is));
            assert!(matches!(said, Ok(Outcome::Doubts(all)) if all.len() == 1));
        }
        assert_eq!(is_done(&mut peers, &[0, 2], "resolved"), is);
    }
}

#[test]
fn a_witness_that_does_not_answer_is_named_and_what_was_to_be_is_undone_once_it_does() {
    let mut peers = begun(4, 5);
    let of = begins(&mut peers, &STEPS);
    prepared(&mut peers, &of);
    peers.stopped = Some((WITNESS, Duration::from_secs(400)));
    let error = goes_on(&mut peers, &of, 5000).expect("bounded").expect_err("nobody knows of it");
    let names = error.context.contains("member 3") && error.to_errno() == 5;
    assert!(names && error.context.contains("does not answer"), "{error}");
    // Who wants the attributes meanwhile waits, and hears why he cannot have them.
    let target = Target::Path(b"c/2");
    let asked = peers.ask(2, Request::Xattr { target, name: b"user.a" });
    let error = asked.expect_err("it is in doubt");
    assert!(error.context.contains("member 3") && error.to_errno() == 5, "{error}");
    assert_eq!(in_doubt(&mut peers, 2)[0].trouble, Some(Doubted::Witness));
    // Others are asked from then on.
    transact(&mut peers, 0, &STEPS[..1]).expect_err("its file is in doubt, too");
    while peers.stopped.is_some() {
        peers.pass(Duration::from_secs(1));
    }
    rest(&mut peers);
    assert!(!is_done(&mut peers, &[0, 1, 2, 3], "it was undone"));
    transact(&mut peers, DECIDES, &STEPS).expect("it answers");
    assert!(is_done(&mut peers, &[0, 1, 2, 3], "done"));
    nothing_is_kept(&mut peers, &[0, 1, 2, 3], "in the end");
}

#[test]
fn where_no_other_server_is_it_is_refused_and_so_is_any_other_number() {
    let mut peers = begun(2, 3);
    for copies in [0, 3] {
        let error = transact(&mut peers, 0, &[set(b"a/0", b"x"), Operation::Copies(copies)]);
        assert_eq!(error.expect_err("not so many").kind, ErrorKind::Invalid);
    }
    transact(&mut peers, 0, &[set(b"a/0", b"x"), Operation::Copies(1)]).expect("as without");
    peers.remove(DECIDES, Verdict::Dead, 2);
    let error = transact(&mut peers, 0, &[set(b"a/0", b"y"), Operation::Copies(2)]);
    let error = error.expect_err("there is none");
    assert_eq!(error.kind, ErrorKind::Unsupported);
    assert!(error.context.contains("two servers know: the run has no other one"), "{error}");
    let mut alone = crate::sim::Sim::without_dir(1);
    let client = alone.connect();
    let encoded = frame::encode(&&[Operation::Copies::<&[u8]>(2)][..]).expect("short");
    let asked = alone.ask(client, Request::Transact(&encoded));
    assert_eq!(asked.expect_err("there is none").kind, ErrorKind::Unsupported);
}

#[test]
fn it_costs_a_round_trip_more_and_nothing_where_nothing_is_set_elsewhere() {
    let mut peers = begun(4, 1);
    rest(&mut peers);
    transact(&mut peers, DECIDES, &STEPS).expect("done");
    rest(&mut peers);
    let plain = ways(&mut peers, DECIDES, &STEPS[..2]);
    rest(&mut peers);
    let copied = ways(&mut peers, DECIDES, &STEPS);
    rest(&mut peers);
    eprintln!("{plain} ways without a witness, {copied} with one");
    assert_eq!(copied, plain + 2);
    let own = [Operation::MakeDirectory { path: &b"c/new"[..], mode: 0o755 }, STEPS[2]];
    assert_eq!(ways(&mut peers, DECIDES, &own), ways(&mut peers, DECIDES, &[]));
    nothing_is_kept(&mut peers, &[0, 1, 2, 3], "in the end");
}
