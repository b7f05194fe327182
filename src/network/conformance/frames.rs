//! Frames: what comes is the beginning of what was sent.

use crate::endpoint::{Endpoint, FRAME_BYTES, Refused};

use super::Stage;
use super::crowd::{Crowd, Sent};

/// A frame that differs from all others in every part.
fn frame(number: u32, bytes: usize) -> Vec<u8> {
    (0..bytes as u32).map(|at| (number.wrapping_mul(31) + at + (at >> 8)) as u8).collect()
}

/// Lets everybody take what came until there is room for what is sent.
fn until_sent<S: Stage>(crowd: &mut Crowd<S>, mut send: impl FnMut(&mut Crowd<S>) -> Sent) {
    for _ in 0..1_000_000 {
        match send(crowd) {
            Ok(()) => return,
            Err(refused) => assert_eq!(refused, Refused::Full),
        }
        crowd.turn();
    }
    panic!("there is never room");
}

fn send_all<S: Stage>(crowd: &mut Crowd<S>, (one, other): (u16, u16), frames: &[Vec<u8>]) {
    for frame in frames {
        until_sent(crowd, |crowd| crowd.send(one, other, frame));
    }
}

/// In both directions at once.
pub fn frames_come_in_order_once_and_unchanged<S: Stage>(stage: S) {
    let mut crowd = Crowd::of(stage, 2);
    crowd.connect(2, 1);
    let lengths = [0, 1, 7, 100, 1000, 5000, 66_000];
    let frames = |from: u32| -> Vec<Vec<u8>> {
        (0..400).map(|n| frame(from + n, lengths[n as usize % lengths.len()])).collect()
    };
    let (one, other) = (frames(0), frames(1000));
    for (one, other) in one.chunks(10).zip(other.chunks(10)) {
        send_all(&mut crowd, (1, 2), one);
        send_all(&mut crowd, (2, 1), other);
    }
    crowd.until("all have come", |crowd| {
        crowd.heard(1).frames.len() >= 400 && crowd.heard(2).frames.len() >= 400
    });
    crowd.pass(crowd.stage.timing().beat());
    assert!(crowd.frames(2, 1) == one, "what came is what was sent");
    assert!(crowd.frames(1, 2) == other, "what came is what was sent");
}

/// Nothing of those that are refused is sent, and the session goes on.
pub fn frames_of_any_length_come_and_longer_ones_are_refused<S: Stage>(stage: S) {
    let mut crowd = Crowd::of(stage, 2);
    crowd.connect(1, 2);
    let long = frame(1, FRAME_BYTES + 1);
    assert_eq!(crowd.send(1, 2, &long), Err(Refused::TooLong));
    let frames = [FRAME_BYTES, 0, FRAME_BYTES - 1, 1, FRAME_BYTES].map(|bytes| frame(9, bytes));
    send_all(&mut crowd, (1, 2), &frames);
    crowd.until("all have come", |crowd| crowd.heard(2).frames.len() >= frames.len());
    assert!(crowd.frames(2, 1) == frames, "what came is what was sent");
    assert!(crowd.heard(1).losses.is_empty());
}

/// However many there are, and in order with those that do not.
pub fn a_frame_that_lies_in_parts_comes_whole<S: Stage>(stage: S) {
    let mut crowd = Crowd::of(stage, 2);
    let session = crowd.connect(1, 2);
    let long = frame(1, FRAME_BYTES);
    assert_eq!(crowd.send_now((1, 2), &[&long, b"1"]), Err(Refused::TooLong));
    let mut sent = Vec::new();
    for (number, part) in [1, 11, 300, 5000, 100_000, FRAME_BYTES].into_iter().enumerate() {
        let bytes = [30_000, FRAME_BYTES][usize::from(part >= 300)];
        let (whole, last) = (frame(number as u32, bytes), frame(77, number));
        let mut parts: Vec<&[u8]> = whole.chunks(part).collect();
        parts.insert(parts.len() / 2, b"");
        until_sent(&mut crowd, |crowd| crowd.send_now((1, 2), &parts));
        crowd.send(1, 2, &last).expect("room");
        sent.extend([whole, last]);
    }
    until_sent(&mut crowd, |crowd| crowd.send_now((1, 2), &[]));
    sent.push(Vec::new());
    crowd.until("all have come", |crowd| crowd.frames(2, 1).len() == sent.len());
    assert!(crowd.frames(2, 1) == sent, "what came is what was sent");
    crowd.endpoint(1).cut(session);
    assert_eq!(crowd.endpoint(1).send_now(session, &[b"late"]), Err(Refused::Over));
}

/// And nothing of it comes once it is lost, which the crowd holds against all.
pub fn what_comes_of_a_cut_session_is_its_beginning<S: Stage>(stage: S) {
    let mut crowd = Crowd::of(stage, 2);
    for round in 0..10u32 {
        let session = crowd.connect(1, 2);
        let before = crowd.heard(2).frames.len();
        let frames: Vec<_> = (0..40).map(|n| frame(round * 100 + n, 20_000)).collect();
        for frame in &frames {
            crowd.send(1, 2, frame).expect("room");
            if round % 2 == 0 {
                crowd.turn();
            }
        }
        crowd.endpoint(1).cut(session);
        crowd.until("it is lost", |crowd| {
            crowd.session(1, 2).is_none() && crowd.session(2, 1).is_none()
        });
        let came = &crowd.frames(2, 1)[before..];
        assert!(came.len() <= frames.len() && came == &frames[..came.len()], "its beginning");
    }
}
