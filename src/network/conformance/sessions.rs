//! Sessions: how they begin and end, and that both sides hear of it.

use crate::endpoint::{Endpoint, Loss, Refused};

use super::Stage;
use super::crowd::{Crowd, member, server};

/// One session comes of it, and stays, if both sides want it at once.
pub fn two_who_want_each_other_get_one_session<S: Stage>(stage: S) {
    let mut crowd = Crowd::of(stage, 2);
    crowd.endpoint(1).reach(member(2));
    crowd.endpoint(2).reach(member(1));
    let session = crowd.until_connected(1, 2);
    crowd.pass(crowd.stage.timing().silence);
    assert_eq!(crowd.session(1, 2), Some(session));
    assert!(crowd.heard(1).losses.is_empty() && crowd.heard(2).losses.is_empty());
}

/// Whoever of the two it is.
pub fn one_who_wants_gets_a_session<S: Stage>(stage: S) {
    let mut crowd = Crowd::of(stage, 4);
    crowd.connect(1, 2);
    crowd.connect(4, 3);
    crowd.connect(4, 1);
    let open = [1, 2, 3, 4].map(|number| crowd.heard(number).open.len());
    assert_eq!(open, [2, 1, 1, 2], "nobody has a session that nobody wanted");
}

/// However long nobody sends anything.
pub fn an_idle_session_stays<S: Stage>(stage: S) {
    let mut crowd = Crowd::of(stage, 2);
    let session = crowd.connect(1, 2);
    crowd.pass(crowd.stage.timing().silence * 3);
    assert_eq!(crowd.session(1, 2), Some(session));
    assert_eq!(crowd.session(2, 1).map(|at| at.number), Some(session.number));
}

/// Both, once, and nothing can be sent in it any more.
pub fn who_cuts_a_session_and_who_is_cut_hear_it_once<S: Stage>(stage: S) {
    let mut crowd = Crowd::of(stage, 3);
    let session = crowd.connect(1, 2);
    crowd.connect(1, 3);
    crowd.endpoint(1).cut(session);
    crowd.endpoint(1).cut(session);
    assert_eq!(crowd.endpoint(1).send(session, b"late"), Err(Refused::Over));
    crowd.until("both have lost it", |crowd| {
        crowd.heard(1).losses.len() == 1 && crowd.heard(2).losses.len() == 1
    });
    crowd.pass(crowd.stage.timing().silence);
    assert_eq!(crowd.heard(1).losses, [(session, Loss::Cut)]);
    assert_eq!(crowd.heard(2).losses.iter().map(|(_, why)| *why).next(), Some(Loss::Closed));
    assert_eq!((crowd.heard(2).losses.len(), crowd.heard(3).losses.len()), (1, 0));
    assert!(crowd.session(1, 2).is_none() && crowd.session(1, 3).is_some());
}

/// And frames of the old one are neither sent nor do they come.
pub fn a_new_session_has_a_greater_number_and_nothing_of_the_old<S: Stage>(stage: S) {
    let mut crowd = Crowd::of(stage, 2);
    let mut numbers = Vec::new();
    for round in 0..5u8 {
        let session = crowd.connect(1, 2);
        numbers.push(session.number);
        (0..20).for_each(|_| crowd.send(1, 2, &[round; 900]).expect("room"));
        crowd.endpoint(1).cut(session);
        crowd.until("it is lost", |crowd| {
            crowd.heard(1).losses.len() == numbers.len() && crowd.session(2, 1).is_none()
        });
        assert_eq!(crowd.endpoint(1).send(session, &[round]), Err(Refused::Over));
    }
    assert!(numbers.is_sorted_by(|one, other| one < other), "{numbers:?}");
    for (session, frame) in &crowd.heard(2).frames {
        assert_eq!(numbers[usize::from(frame[0])], session.number);
    }
}

/// Nobody takes one for the other.
pub fn who_dies_is_lost_and_the_next_process_gets_a_session<S: Stage>(stage: S) {
    let mut crowd = Crowd::of(stage, 3);
    for dies in [1, 3] {
        let session = crowd.connect(dies, 2);
        crowd.kill(dies);
        crowd.until("it is lost", |crowd| crowd.session(2, dies).is_none());
        crowd.start(dies, server(dies));
        crowd.admit(dies, 2, server(2));
        crowd.admit(2, dies, server(dies));
        let next = crowd.connect(dies, 2);
        assert!(next.number > session.number);
        crowd.send(2, dies, b"again").expect("room");
        crowd.until("a frame", |crowd| crowd.frames(dies, 2) == [b"again"]);
    }
    assert_eq!(crowd.heard(2).losses.len(), 2);
}

/// A process that stops for longer than any time-out, and goes on.
pub fn who_is_frozen_is_lost_and_comes_again<S: Stage>(stage: S) {
    let mut crowd = Crowd::of(stage, 3);
    let session = crowd.connect(1, 2);
    crowd.connect(2, 3);
    let long = crowd.stage.timing().silence * 3;
    crowd.stage.freeze(member(1), long);
    crowd.away = vec![1];
    crowd.pass(long);
    assert!(crowd.session(2, 1).is_none(), "it has been silent for {long:?}");
    assert!(matches!(crowd.heard(2).losses[..], [(_, Loss::Silent)]));
    assert!(crowd.session(2, 3).is_some(), "nobody else is");
    crowd.away.clear();
    crowd.until("it hears that, too", |crowd| !crowd.heard(1).losses.is_empty());
    assert!(crowd.connect(2, 1).number > session.number);
}

/// And not before, where nothing comes.
pub fn next_ends_at_its_time<S: Stage>(stage: S) {
    let mut crowd = Crowd::of(stage, 2);
    let silence = crowd.stage.timing().silence;
    let endpoint = crowd.endpoint(1);
    let (begin, end) = (endpoint.now(), endpoint.now() + silence / 8);
    assert_eq!(endpoint.next(begin), None);
    assert_eq!(endpoint.next(end), None);
    assert!(endpoint.now() >= end);
}
