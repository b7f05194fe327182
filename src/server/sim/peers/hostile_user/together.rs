//! What a user has under way at a server is counted for all his servers together: on many machines
//! he has no more than on one, and who is beside him has his own.

use terral_format::ErrorKind;
use terral_format::ids::{Operation, ServerId, Thing};
use terral_format::moment::Moment;
use terral_format::wire::body::Body;
use terral_format::wire::far::{Act, Answer, Done};
use terral_format::wire::peers::{Frame, Message, Work};
use terral_format::wire::person::Person;
use terral_format::wire::things::{By, Look};

use super::super::users::{ALICE, BOB, house_for, put, roots};
use super::super::{Peers, member};
use super::{frame, questions};
use crate::core::world::Tick;
use crate::far::desk::{Admitted, Desk, Heard};
use crate::sharing::{carrying, users};
use terral_partition::effect::Input;

/// Bob is on two machines, and alice on one.
const USERS: [Option<u32>; 4] = [None, Some(ALICE), Some(BOB), Some(BOB)];

/// A frame of one of them.
fn said(from: u16, messages: Vec<Message>) -> Frame {
    Frame { from: member(from.into()), server: ServerId(from.into()), ..frame(messages) }
}

/// Something that one of them wants, and what he has done.
fn want(peers: &mut Peers, from: u16, number: u64, what: Look) -> Message {
    let thing = Thing::Directory(peers.stat(0, b"all").expect("there").number);
    let look = By { person: Person::default(), what }.body().expect("fits");
    let operation = Operation { by: member(from.into()), number };
    Message::Want { operation, thing, work: Work::Look(look) }
}

fn done() -> Message {
    let operation = Operation { by: member(0), number: 1 };
    Message::Done { operation, answer: Ok(Body::default()) }
}

/// How many of these are heard.
fn heard_of(peers: &mut Peers, from: u16, messages: Vec<Message>) -> usize {
    let heard = roots(peers, |state| users::admit(state, said(from, messages)));
    heard.expect("no garbage").messages.len()
}

/// How many of so many things that one of them wants are heard.
fn heard(peers: &mut Peers, from: u16, number: u64) -> usize {
    let want = want(peers, from, number, Look::Attributes);
    heard_of(peers, from, vec![want; 1000])
}

#[test]
fn he_has_no_more_on_many_machines() {
    let mut peers = house_for(51, &USERS);
    let his = (0..40).map(|number| heard(&mut peers, 2 + number as u16 % 2, number));
    let his: Vec<usize> = his.collect();
    // All that there may be, and what the other one is short of its half.
    assert_eq!((his[15], his[16], his[17], his[18]), (1000, 384, 192, 0), "{his:?}");
    assert_eq!(his.iter().sum::<usize>(), 16_576, "{his:?}");
    assert_eq!(heard(&mut peers, 1, 30), 1000, "she has her own");
    // What is done does not count, on whichever it was.
    peers.pass(std::time::Duration::from_secs(1));
    assert_eq!((heard(&mut peers, 3, 31), heard(&mut peers, 2, 32)), (1000, 1000));
}

#[test]
fn who_waits_for_what_is_his_is_answered_however_much_he_wants() {
    let mut peers = house_for(53, &USERS);
    // One of his wants all that he may: the other one has its half.
    let all: usize = (0..20).map(|number| heard(&mut peers, 3, number)).sum();
    assert_eq!(all, 16_384);
    let wants = want(&mut peers, 2, 40, Look::Attributes);
    assert_eq!(heard_of(&mut peers, 2, vec![wants.clone(), done()]), 2);
    let all: usize = (0..20).map(|number| heard(&mut peers, 2, 50 + number)).sum();
    assert_eq!(all, 8_191);
    // What has been done is heard, and nothing behind what is wanted too much.
    assert_eq!(heard_of(&mut peers, 2, vec![done(), done(), wants, done()]), 2);
    let renews = Frame { renewed: Some(Moment(1)), ..said(2, vec![done()]) };
    let heard = |peers: &mut Peers, frame: Frame| {
        let heard = roots(peers, |state| users::admit(state, frame)).expect("no garbage");
        heard.renewed
    };
    assert_eq!(heard(&mut peers, renews.clone()), Some(Moment(1)));
    let wants = want(&mut peers, 2, 90, Look::Attributes);
    let cut = Frame { messages: vec![done(), wants], ..renews };
    assert_eq!(heard(&mut peers, cut), None, "not all of it is taken");
}

#[test]
fn what_is_not_taken_by_one_of_his_keeps_no_other_of_his_silent() {
    let mut peers = house_for(54, &USERS);
    // One of his asks, and takes no answer.
    for number in 0..200 {
        let want = want(&mut peers, 3, number, Look::Attributes);
        let asks = Frame { before: number, ..said(3, vec![want]) };
        peers.sims[0].with(|server| {
            carrying::hear(&mut server.lock(), Input::Frame(asks.clone())).expect("it is logged");
        });
    }
    let told = |peers: &mut Peers, at: usize, most: usize| {
        roots(peers, |state| {
            let members = state.members.as_ref().expect("one of several");
            members.is_told_enough(member(at), most)
        })
    };
    let is_told = [1, 2, 3].map(|at| told(&mut peers, at, 4096));
    assert_eq!(is_told, [false, false, true], "his other one goes on");
    assert!(!told(&mut peers, 3, 1 << 20), "it may have so much");
}

#[test]
fn nor_does_he_ask_more_of_files_there() {
    let mut peers = house_for(52, &USERS);
    put(&mut peers, 0, b"all/file", b"root's");
    let file = peers.stat(0, b"all/file").expect("there").number;
    let act = Act::Read { at: 0, bytes: 1, kept: false, direct: false };
    let mut desk = Desk::new(1);
    let mut is_heard = |from: u16, user: u32, sequence: u64| {
        let from = member(from.into());
        let question = questions(from, file, act, sequence);
        let admitted = Admitted { user: Some(user), ..Admitted::whole(question) };
        let heard = desk.hear((member(0), from), admitted, Tick(0)).expect("a question");
        matches!(heard, Heard::Job(_))
    };
    let asked = (0..20_000).take_while(|it| is_heard(2 + *it as u16 % 2, BOB, *it)).count();
    assert_eq!(asked, 16_384);
    assert!(!is_heard(2, BOB, 30_000) && !is_heard(3, BOB, 30_001));
    assert!(is_heard(1, ALICE, 30_002), "she has her own");
}

#[test]
fn what_one_of_his_asks_of_files_keeps_no_other_of_his_from_them() {
    let mut peers = house_for(55, &USERS);
    put(&mut peers, 0, b"all/file", b"root's");
    let file = peers.stat(0, b"all/file").expect("there").number;
    let mut desk = Desk::new(1);
    let hears = |desk: &mut Desk, from: u16, act: Act, sequence: u64| {
        let from = member(from.into());
        let question = questions(from, file, act, sequence);
        let admitted = Admitted { user: Some(BOB), ..Admitted::whole(question) };
        desk.hear((member(0), from), admitted, Tick(0)).expect("a question")
    };
    let read = Act::Read { at: 0, bytes: 1, kept: false, direct: false };
    let write = Act::Write { at: Some(0), strips: true, token: 0 };
    let Heard::Job(written) = hears(&mut desk, 2, write, 1) else { panic!("few") };
    desk.done(&written, Ok((Done::Written(3), Vec::new())), Tick(0));
    assert!(matches!(hears(&mut desk, 2, Act::Open, 2), Heard::Job(_)));
    let is_job = |heard: Heard| matches!(heard, Heard::Job(_));
    let asked = (10..20_000).take_while(|it| is_job(hears(&mut desk, 3, read, *it))).count();
    assert!(asked > 16_000, "{asked}");
    // The other one has its half.
    let asked = (10..20_000).take_while(|it| is_job(hears(&mut desk, 2, read, *it))).count();
    assert_eq!(asked, 8_191);
    // Of what has been done, and is under way, that is said; and what was opened is closed.
    let result = |heard: Heard| match heard {
        Heard::Answer(answer) => Answer::read(&answer.whole()).expect("an answer").0.result,
        other => panic!("{other:?}"),
    };
    assert_eq!(result(hears(&mut desk, 2, write, 1)), Ok(Done::Written(3)));
    assert!(matches!(hears(&mut desk, 2, read, 10), Heard::Nothing));
    let Heard::Job(close) = hears(&mut desk, 2, Act::Close, 20_000) else { panic!("closed") };
    assert!(matches!(hears(&mut desk, 2, Act::Close, 20_000), Heard::Nothing));
    desk.done(&close, Ok((Done::Done, Vec::new())), Tick(0));
    // Asked again it has been done, and what was never open takes nothing.
    assert_eq!(result(hears(&mut desk, 2, Act::Close, 20_000)), Ok(Done::Done));
    assert_eq!(result(hears(&mut desk, 2, Act::Close, 20_001)), Ok(Done::Done));
    // What is not heard is not open.
    let refused = result(hears(&mut desk, 2, Act::Open, 20_002)).expect_err("too many");
    assert_eq!(refused.kind, ErrorKind::TooMany);
    desk.take_open();
    assert_eq!(desk.take_open(), None);
}
