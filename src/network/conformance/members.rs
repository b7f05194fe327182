//! Members: who may have a session, and who may not.

use terral_format::ids::ServerId;

use crate::endpoint::{Endpoint, Loss};

use super::Stage;
use super::crowd::{Crowd, member, server};

/// Nobody has one with it, whoever wants it.
pub fn who_was_not_admitted_gets_no_session<S: Stage>(stage: S) {
    let mut crowd = Crowd::of(stage, 2);
    crowd.start(3, server(3));
    crowd.admit(3, 1, server(1));
    crowd.admit(3, 2, server(2));
    crowd.endpoint(3).reach(member(1));
    crowd.endpoint(3).reach(member(2));
    crowd.endpoint(1).reach(member(3));
    crowd.connect(1, 2);
    crowd.pass(crowd.stage.timing().silence);
    assert_eq!([1, 2, 3].map(|number| crowd.heard(number).open.len()), [1, 1, 0]);
    crowd.admit(2, 3, server(3));
    crowd.until_connected(3, 2);
}

/// Whoever tells it that it is one of its others.
pub fn nobody_has_a_session_with_itself<S: Stage>(stage: S) {
    let mut crowd = Crowd::of(stage, 2);
    crowd.admit(1, 1, server(1));
    crowd.endpoint(1).reach(member(1));
    crowd.connect(1, 2);
    crowd.pass(crowd.stage.timing().silence);
    assert!(crowd.heard(1).open.len() == 1 && crowd.heard(1).losses.is_empty());
}

/// It says that it is the member, and knows all that members know, but for that one's memory.
pub fn another_server_in_a_members_place_gets_no_session<S: Stage>(stage: S) {
    let mut crowd = Crowd::of(stage, 3);
    crowd.start(3, ServerId(66));
    for other in [1, 2] {
        crowd.admit(3, other, server(other));
        crowd.admit(other, 3, server(3));
        crowd.endpoint(3).reach(member(other));
        crowd.endpoint(other).reach(member(3));
    }
    crowd.connect(1, 2);
    crowd.pass(crowd.stage.timing().silence);
    assert_eq!([1, 2, 3].map(|number| crowd.heard(number).open.len()), [1, 1, 0]);
}

/// Until it is admitted again.
pub fn who_is_expelled_is_lost_and_stays_out<S: Stage>(stage: S) {
    let mut crowd = Crowd::of(stage, 3);
    crowd.connect(1, 2);
    crowd.connect(1, 3);
    crowd.endpoint(1).expel(member(2));
    crowd.until("both have lost it", |crowd| {
        crowd.session(1, 2).is_none() && crowd.session(2, 1).is_none()
    });
    assert!(matches!(crowd.heard(1).losses[..], [(_, Loss::Expelled)]));
    crowd.endpoint(2).reach(member(1));
    crowd.endpoint(1).reach(member(2));
    crowd.pass(crowd.stage.timing().silence);
    assert!(crowd.session(1, 2).is_none() && crowd.session(2, 1).is_none());
    assert!(crowd.session(1, 3).is_some() && crowd.heard(3).losses.is_empty());
    crowd.admit(1, 2, server(2));
    crowd.until_connected(2, 1);
}

/// As after a machine was lost and another one has its number.
pub fn a_members_new_server_takes_the_place_of_the_old<S: Stage>(stage: S) {
    let mut crowd = Crowd::of(stage, 2);
    let session = crowd.connect(1, 2);
    crowd.admit(1, 2, ServerId(7));
    crowd.until("the old one is lost", |crowd| {
        crowd.session(1, 2).is_none() && crowd.session(2, 1).is_none()
    });
    assert_eq!(crowd.heard(1).losses, [(session, Loss::Expelled)]);
    crowd.endpoint(2).reach(member(1));
    crowd.pass(crowd.stage.timing().silence);
    assert!(crowd.session(1, 2).is_none());
    crowd.start(2, ServerId(7));
    crowd.admit(2, 1, server(1));
    crowd.admit(1, 2, ServerId(7));
    crowd.connect(2, 1);
}
