//! Frames that no member sends: whoever sends them harms nobody but itself.

use terral_format::ids::{Epoch, Loan, Member, Operation, ServerId, Wish};
use terral_format::moment::Moment;
use terral_format::wire::body::Body;
use terral_format::wire::peers::{Answer, Failure, Frame, Holding, Message, Work};

use crate::effect::{Access, Effect, Input};
use crate::members::Verdict;

use super::server::{Server, member, table, thing};
use super::skipped;

pub(super) fn frame(from: Member, server: u64, messages: Vec<Message>) -> Frame {
    let (taken, before, sent) = (0, 0, Moment(1));
    let (epoch, server) = (Epoch(1), ServerId(server));
    Frame { from, server, epoch, taken, before, messages, sent, renewed: None, renew: false }
}

/// Member 1's messages that are none of its business, or about nothing.
fn nonsense() -> Vec<Message> {
    let (by, operation) = (member(1), Operation { by: member(1), number: 1 });
    let loan = Loan { by, number: 7 };
    let (body, look) = (Some(Body::default()), Body::default());
    let mut all = Vec::new();
    for thing in [thing(0), super::server::thing(1)] {
        let work = Work::Change(Body::default());
        let stolen = Operation { by: member(2), number: 1 };
        all.extend([
            Message::Want { operation: stolen, thing, work: work.clone() },
            Message::Return { thing, loan, body: Body::default(), in_use: true },
            Message::Dropped { thing, loan },
            Message::Looked { operation, thing, answer: Body::default() },
            Message::Done { operation, answer: Ok(Body::default()) },
            Message::Holds { removed: member(2), held: Vec::new(), more: false },
        ]);
        if thing == super::server::thing(0) {
            all.extend([
                Message::Lend { operation, thing, loan, body: body.clone() },
                Message::Show { operation, thing, loan, body: body.clone() },
                Message::Recall { thing, loan },
                Message::Ask { operation, thing, loan, look: look.clone() },
            ]);
        } else {
            all.push(Message::Want { operation, thing, work });
        }
    }
    all
}

#[test]
fn messages_that_are_none_of_their_senders_business_do_nothing() {
    for message in nonsense() {
        let mut server = Server::new(0);
        let effects = server.handle(Moment(2), Input::Frame(frame(member(1), 1, vec![message])));
        let only_sends = effects.iter().all(|effect| matches!(effect, Effect::Send { .. }));
        assert!(only_sends, "{effects:?}");
        let access = server.machine().map(|m| m.access(thing(0), Moment(2), &server.in_use));
        assert_eq!(access, Some(Access::Change));
    }
}

#[test]
fn frames_of_strangers_and_absurd_counts_are_as_if_they_were_lost() {
    let recall = || Message::Recall { thing: thing(1), loan: Loan { by: member(1), number: 0 } };
    let good = || frame(member(1), 1, vec![recall()]);
    let stranger = Member::new(99).expect("14 bits");
    let strange = [
        frame(stranger, 1, vec![recall()]),
        frame(member(0), 0, vec![recall()]),
        frame(member(1), 2, vec![recall()]),
        Frame { epoch: Epoch(u64::MAX), ..good() },
        Frame { before: u64::MAX, ..good() },
    ];
    for frame in strange {
        let mut server = Server::new(0);
        server.handle(Moment(2), Input::Frame(frame.clone()));
        let effects = server.handle(Moment(2), Input::Connected(member(1)));
        let taken = effects.iter().find_map(|effect| match effect {
            Effect::Send { frame, .. } => Some(frame.taken),
            _ => None,
        });
        assert_eq!(taken, Some(0), "{frame:?}");
    }
}

#[test]
fn who_says_to_an_heir_that_it_has_the_heirs_own_things_is_not_believed() {
    let mut server = Server::new(0);
    server.handle(Moment(2), Input::Table(table(&[(2, Verdict::Dead)])));
    let whole = Holding::Whole(Loan { by: member(2), number: 7 });
    let holds = Message::Holds { removed: member(2), held: vec![(thing(0), whole)], more: false };
    let frame = Frame { epoch: Epoch(2), ..frame(member(1), 1, vec![holds]) };
    server.handle(Moment(2), Input::Frame(frame));
    let work = Work::Change(Body::default());
    let operation = Operation { by: member(1), number: 1 };
    let want = Message::Want { operation, thing: thing(0), work };
    let frame = Frame { epoch: Epoch(2), before: 1, ..self::frame(member(1), 1, vec![want]) };
    let effects = server.handle(Moment(2), Input::Frame(frame));
    assert!(effects.contains(&Effect::Recall(vec![thing(0)])), "it is its own: {effects:?}");
}

/// What a look at member 2's thing comes to, once 0, its heir, has heard both members of this.
fn seen_of_a_dead_ones(claims: [Option<Holding>; 2]) -> Option<Answer> {
    let removed = skipped::table(2, &[0, 1, 3], Some(0));
    let (mut heir, _) = skipped::member_told(0, &[skipped::table(1, &[0, 1, 2, 3], None), removed]);
    let of_it = thing(2);
    let mut effects = Vec::new();
    for (from, claim) in [1, 3].into_iter().zip(claims) {
        let held = claim.map(|holding| (of_it, holding)).into_iter().collect();
        let holds = Message::Holds { removed: member(2), held, more: false };
        let frame = Frame { epoch: Epoch(2), ..frame(member(from), from as u64, vec![holds]) };
        heir.handle(skipped::NOW, &skipped::Idle, Input::Frame(frame));
        let work = Work::Look(Body::default());
        let wish = Input::Wish { wish: Wish(1), thing: of_it, work };
        effects.extend(heir.handle(skipped::NOW, &skipped::Idle, wish));
    }
    effects.into_iter().find_map(|effect| match effect {
        Effect::Answer { answer, .. } => Some(answer),
        _ => None,
    })
}

#[test]
fn of_two_who_say_that_they_alone_may_change_a_dead_ones_thing_neither_is_believed() {
    let whole = |by| Some(Holding::Whole(Loan { by: member(2), number: by }));
    let kept = Some(Holding::Kept(Loan { by: member(2), number: 9 }));
    let lost = Some(Err(Failure::Removed(member(2))));
    assert_eq!(seen_of_a_dead_ones([whole(1), whole(2)]), lost);
    assert_eq!(seen_of_a_dead_ones([whole(1), kept]), None, "who has it is asked");
    assert_eq!(seen_of_a_dead_ones([None, None]), lost);
}

#[test]
fn who_says_that_it_has_taken_more_than_was_said_is_told_again() {
    let mut server = Server::new(0);
    let work = Work::Look(Body::default());
    server.handle(Moment(2), Input::Wish { wish: Wish(1), thing: thing(1), work });
    let absurd = Frame { taken: u64::MAX, ..frame(member(1), 1, Vec::new()) };
    server.handle(Moment(2), Input::Frame(absurd));
    let effects = server.handle(Moment(2), Input::Connected(member(1)));
    let is_told = |effect: &Effect| match effect {
        Effect::Send { frame, .. } => matches!(frame.messages[..], [Message::Want { .. }]),
        _ => false,
    };
    assert!(effects.iter().any(is_told), "{effects:?}");
}
