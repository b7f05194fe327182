//! What takes more than one message, or more than one frame.

use terral_format::ids::{Loan, Number, Operation, Thing, Wish};
use terral_format::wire::body::Body;
use terral_format::wire::peers::{Frame, HOLDS_MAX, Holding, Message, Work};

use crate::effect::{Effect, Input};
use crate::machine::{Machine, WINDOW};

use super::bytes::{carried, written};
use super::hostile::frame;
use super::server::member;
use super::skipped::{Idle, NOW, member_told, said_to, table};

/// Things of member 2, one more than a message says of.
fn things() -> impl Iterator<Item = (Thing, Loan)> {
    (1..=HOLDS_MAX as u64 + 1).map(|number| {
        let thing = Thing::File(Number::new(member(2), number).expect("50 bits"));
        (thing, Loan { by: member(2), number })
    })
}

/// What member 1, which has borrowed them all, says to the heir when 2 is removed.
fn said_of_all() -> Vec<Message> {
    let (mut machine, _) = member_told(1, &[table(1, &[0, 1, 2], None)]);
    let lend = |(thing, loan)| {
        let operation = Operation { by: member(1), number: 0 };
        Message::Lend { operation, thing, loan, body: Some(Body::default()) }
    };
    let lent = frame(member(2), 2, things().map(lend).collect());
    machine.handle(NOW, &Idle, Input::Frame(lent));
    let removed = Input::Table(table(2, &[0, 1], Some(0)));
    said_to(0, &machine.handle(NOW, &Idle, removed))
}

#[test]
fn who_has_more_than_fits_a_message_says_so_in_several() {
    let said = said_of_all();
    let [Message::Holds { held, more: true, .. }, Message::Holds { held: rest, more, .. }] =
        &said[..]
    else {
        panic!("{} messages", said.len());
    };
    assert_eq!((held.len(), rest.len(), *more), (HOLDS_MAX, 1, false));
    let all = held.iter().chain(rest).copied();
    assert!(all.eq(things().map(|(thing, loan)| (thing, Holding::Whole(loan)))));
}

#[test]
fn an_heir_waits_for_the_last_part_of_what_a_member_has() {
    let removed = table(2, &[0, 1], Some(0));
    let (mut heir, _) = member_told(0, &[table(1, &[0, 1, 2], None), removed]);
    let (first, _) = things().next().expect("one at least");
    let work = Work::Change(Body::default());
    heir.handle(NOW, &Idle, Input::Wish { wish: Wish(1), thing: first, work });
    let mut recalled = Vec::new();
    for (before, message) in (0..).zip(said_of_all()) {
        let part = Frame {
            before,
            epoch: heir.durable().table.epoch,
            ..frame(member(1), 1, vec![message])
        };
        let said = said_to(1, &heir.handle(NOW, &Idle, Input::Frame(part)));
        recalled.push(said.iter().any(|message| matches!(message, Message::Recall { .. })));
    }
    assert_eq!(recalled, [false, true]);
}

/// Wishes for things of member 0 whose messages take several frames.
const LONG: u64 = 40;
/// Such whose messages are more than a network takes at once: 60 MiB.
const TOO_LONG: u64 = 1024;

fn frames(effects: Vec<Effect>) -> Vec<Frame> {
    let sent = effects.into_iter().filter_map(|effect| match effect {
        Effect::Send { frame, .. } => Some(frame),
        _ => None,
    });
    sent.collect()
}

/// Member 1 wants much, and nothing of it arrives.
fn who_wants(count: u64) -> Machine {
    let (mut machine, _) = member_told(1, &[table(1, &[0, 1], None)]);
    for number in 1..=count {
        let thing = Thing::File(Number::new(member(0), number).expect("50 bits"));
        let work = Work::Change(Body::new(vec![number as u8; 60_000]).expect("not too long"));
        machine.handle(NOW, &Idle, Input::Wish { wish: Wish(number), thing, work });
    }
    machine
}

#[test]
fn what_was_kept_for_long_goes_in_frames_that_can_be_written_and_are_taken_in_order() {
    let mut machine = who_wants(LONG);
    let sent = frames(machine.handle(NOW, &Idle, Input::Connected(member(0))));
    assert!(sent.len() > 2, "{} frames", sent.len());
    let (mut decider, _) = member_told(0, &[table(1, &[0, 1], None)]);
    for frame in &sent {
        assert!(written(frame).len() < 980 << 10);
        decider.handle(NOW, &Idle, Input::Frame(carried(frame)));
    }
    let answer = frames(decider.handle(NOW, &Idle, Input::Connected(member(1))));
    assert_eq!(answer.first().map(|frame| frame.taken), Some(LONG));
    assert!(frames(machine.handle(NOW, &Idle, Input::Tick)).is_empty(), "all has been sent");
}

#[test]
fn who_has_more_to_say_than_a_network_takes_says_it_as_it_is_taken() {
    let mut machine = who_wants(TOO_LONG);
    let (mut decider, _) = member_told(0, &[table(1, &[0, 1], None)]);
    decider.handle(NOW, &Idle, Input::Connected(member(1)));
    let mut under_way = frames(machine.handle(NOW, &Idle, Input::Connected(member(0))));
    assert_eq!(under_way.len(), WINDOW, "no more until something is taken");
    assert!(frames(machine.handle(NOW, &Idle, Input::Tick)).is_empty());
    for _ in 0..1000 {
        let Some(next) = under_way.first().cloned() else { break };
        under_way.remove(0);
        for answer in frames(decider.handle(NOW, &Idle, Input::Frame(carried(&next)))) {
            under_way.extend(frames(machine.handle(NOW, &Idle, Input::Frame(carried(&answer)))));
        }
        // What went before it was heard by which table the other one goes goes once more.
        assert!(under_way.len() <= 2 * WINDOW, "{} frames", under_way.len());
    }
    let answer = frames(decider.handle(NOW, &Idle, Input::Connected(member(1))));
    assert_eq!(answer.first().map(|frame| frame.taken), Some(TOO_LONG));
}

#[test]
fn who_may_send_no_more_still_says_what_it_has_taken() {
    let mut machine = who_wants(TOO_LONG);
    machine.handle(NOW, &Idle, Input::Connected(member(0)));
    machine.handle(NOW, &Idle, Input::Frame(frame(member(0), 0, Vec::new())));
    let (thing, loan) = things().next().expect("one at least");
    let recall = |before| {
        let said = frame(member(0), 0, vec![Message::Recall { thing, loan }]);
        Input::Frame(Frame { before, ..said })
    };
    let mut says = |input| {
        let said = frames(machine.handle(NOW, &Idle, input)).into_iter();
        said.map(|frame| (frame.taken, frame.messages.len())).collect::<Vec<_>>()
    };
    assert_eq!(says(recall(0)), [], "it may have more to say soon");
    assert_eq!((says(Input::Tick), says(Input::Tick)), (vec![(1, 0)], vec![]));
    assert_eq!(says(recall(1)), []);
    assert_eq!(says(recall(2)), [(3, 0)], "nobody waits for that who sends on");
    assert_eq!(says(Input::Tick), []);
}
