//! Bounds: who takes nothing fills nobody's memory, and who says much keeps nobody waiting.

use crate::endpoint::{FRAME_BYTES, IN_FLIGHT_BYTES, Refused};

use super::Stage;
use super::crowd::Crowd;

/// More than the two sides and the network between them hold.
const MUCH_BYTES: usize = 64 << 20;

/// While the other side takes nothing; and once for all that was refused.
pub fn who_sends_without_end_is_told_full_and_then_room<S: Stage>(stage: S) {
    let mut crowd = Crowd::of(stage, 2);
    crowd.connect(1, 2);
    let frame = vec![7; FRAME_BYTES / 4];
    let mut sent = 0;
    while crowd.send(1, 2, &frame).is_ok() {
        sent += 1;
        assert!(sent * frame.len() < MUCH_BYTES, "there is no bound");
    }
    assert!(sent * frame.len() >= IN_FLIGHT_BYTES - 2 * frame.len());
    (0..10).for_each(|_| assert_eq!(crowd.send(1, 2, &frame), Err(Refused::Full)));
    crowd.until("there is room", |crowd| !crowd.heard(1).rooms.is_empty());
    crowd.until("all have come", |crowd| crowd.heard(2).frames.len() == sent);
    crowd.pass(crowd.stage.timing().beat());
    assert_eq!(crowd.heard(1).rooms.len(), 1);
    crowd.send(1, 2, b"more").expect("room");
    let empty = (0..=IN_FLIGHT_BYTES).find(|_| crowd.send(1, 2, b"").is_err());
    assert!(empty.is_some(), "there is no bound for empty frames");
}

/// However much of what is long there is to send: no more than one of it waits.
pub fn who_sends_what_goes_now_leaves_room_for_what_is_short<S: Stage>(stage: S) {
    let mut crowd = Crowd::of(stage, 2);
    crowd.connect(1, 2);
    let long = vec![7; FRAME_BYTES - 10];
    let mut sent = 0;
    while crowd.send_now((1, 2), &[b"beginning:", &long]).is_ok() {
        sent += 1;
        assert!(sent * FRAME_BYTES < MUCH_BYTES, "there is no bound");
    }
    assert!(sent > 0, "nothing waits at first");
    (0..10).for_each(|_| assert_eq!(crowd.send_now((1, 2), &[b"1"]), Err(Refused::Full)));
    for _ in 0..1000 {
        crowd.send(1, 2, &[1; 1000]).expect("there is room for what is short");
    }
    crowd.until("there is room", |crowd| !crowd.heard(1).rooms.is_empty());
    assert_eq!(crowd.send_now((1, 2), &[b"goes now"]), Ok(()));
    crowd.until("all have come", |crowd| crowd.heard(2).frames.len() == sent + 1001);
    crowd.pass(crowd.stage.timing().beat());
    assert_eq!(crowd.heard(1).rooms.len(), 1);
}

/// It has its turn after at most one of each other's, once it has come.
pub fn a_busy_peer_does_not_starve_another<S: Stage>(stage: S) {
    let mut crowd = Crowd::of(stage, 3);
    crowd.connect(1, 2);
    crowd.connect(1, 3);
    crowd.away = vec![1];
    for _ in 0..1000 {
        crowd.send(2, 1, &[2; 500]).expect("room");
    }
    crowd.send(3, 1, &[3; 500]).expect("room");
    crowd.pass(crowd.stage.timing().beat() / 4);
    let taken = (1..=20).find(|_| {
        assert!(crowd.take(1), "something waits");
        !crowd.frames(1, 3).is_empty()
    });
    assert!(taken.is_some(), "20 of the busy one come first");
    crowd.away.clear();
    crowd.until("all have come", |crowd| crowd.frames(1, 2).len() == 1000);
}
