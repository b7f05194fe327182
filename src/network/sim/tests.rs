//! The suite over many seeds; the same seed gives the same; and what goes wrong does.

use std::time::Duration;

use terral_format::ids::{Member, ServerId};

use super::{Drift, Faults, NO_KEY, Net, Sim};
use crate::conformance::Stage;
use crate::endpoint::{Endpoint, Event, Loss, Peer, Session, Timing};
use crate::seeds::seeds;

fn member(number: u16) -> Member {
    Member::new(number).expect("14 bits")
}

/// A simulation is a stage; clocks differ by the most that a partition bears.
pub(super) struct Simulated {
    pub(super) net: Net,
    pub(super) started: i32,
}

pub(super) const DOUBLED: Faults = Faults { doubled_per_million: 500_000, ..Faults::NONE };

fn stages() -> Vec<Simulated> {
    let net =
        |seed| Net::new(seed, Timing::USUAL, if seed % 2 == 0 { Faults::NONE } else { DOUBLED });
    seeds(20).map(|seed| Simulated { net: net(seed), started: 0 }).collect()
}

impl Stage for Simulated {
    type Endpoint = Sim;

    fn start(&mut self, member: Member, server: ServerId) -> Sim {
        self.started += 1;
        let drift = Drift { start_ns: self.started as u64, per_million: self.started % 3 * 5000 };
        self.net.start(member, server, drift)
    }

    fn peer(&self, member: Member, server: ServerId) -> Peer {
        Peer { member, server, key: NO_KEY, addresses: Vec::new() }
    }

    fn timing(&self) -> Timing {
        Timing::USUAL
    }

    fn freeze(&mut self, member: Member, time: Duration) {
        self.net.freeze(member, time);
    }
}

mod conforms {
    crate::endpoint_conforms!(super::stages());
}

/// Two with a session, and then what a test does to them: 200 portions of time, in each of which
/// the one sends a frame. Gives what both have heard.
fn told(net: &Net, mut act: impl FnMut(u32)) -> [Vec<Event>; 2] {
    let drift = |per_million| Drift { start_ns: 5, per_million };
    let mut ends = [1, 2].map(|at| net.start(member(at), ServerId(at.into()), drift(0)));
    for (at, other) in [(0, 2u16), (1, 1)] {
        let peer = Peer {
            member: member(other),
            server: ServerId(other.into()),
            key: NO_KEY,
            addresses: vec![],
        };
        ends[at].admit(peer);
    }
    ends[0].reach(member(2));
    let mut heard = [Vec::new(), Vec::new()];
    let mut session = None;
    for turn in 0..200u32 {
        act(turn);
        if let Some(session) = session {
            _ = ends[0].send(session, &turn.to_le_bytes());
        }
        net.pass(Duration::from_millis(500));
        for (end, heard) in ends.iter_mut().zip(&mut heard) {
            while let Some(event) = end.next(Default::default()) {
                heard.push(event);
            }
        }
        session = heard[0].iter().rev().find_map(|event| match event {
            Event::Connected(session) => Some(*session),
            _ => None,
        });
        let is_over =
            |of: &Session| heard[0].iter().any(|e| matches!(e, Event::Lost(s, _) if s == of));
        if session.is_none_or(|session| is_over(&session)) {
            ends[0].reach(member(2));
        }
    }
    heard
}

fn losses(heard: &[Event]) -> Vec<Loss> {
    let loss = |event: &Event| match event {
        Event::Lost(_, why) => Some(*why),
        _ => None,
    };
    heard.iter().filter_map(loss).collect()
}

/// What was sent in each portion of time and has come.
fn frames(heard: &[Event]) -> Vec<u32> {
    let turn = |event: &Event| match event {
        Event::Frame(_, bytes) => bytes[..].try_into().ok().map(u32::from_le_bytes),
        _ => None,
    };
    heard.iter().filter_map(turn).collect()
}

#[test]
fn the_same_seed_gives_the_same_and_another_one_does_not() {
    let trace = |seed| {
        let faults = Faults { loss_per_million: 50_000, ..DOUBLED };
        let net = Net::new(seed, Timing::USUAL, faults);
        let heard = told(&net, |turn| match turn {
            20 => net.freeze(member(1), Duration::from_secs(30)),
            100 => net.cut_link(member(2), member(1)),
            120 => net.heal_link(member(2), member(1)),
            _ => {}
        });
        (net.trace(), heard)
    };
    (0..10).for_each(|seed| assert!(trace(seed) == trace(seed), "seed {seed}"));
    assert_ne!(trace(1).0, trace(2).0);
}

#[test]
fn a_lost_frame_is_a_lost_session_and_nothing_comes_twice_or_late() {
    let mut lost = 0;
    let seeds = seeds(50);
    for seed in seeds.clone() {
        let faults = Faults { loss_per_million: 20_000, ..Faults::NONE };
        let [one, other] = told(&Net::new(seed, Timing::USUAL, faults), |_| {});
        let came = frames(&other);
        assert!(came.is_sorted_by(|one, other| one < other), "seed {seed}");
        // What is between two that came in one session has come.
        let mut last = None;
        for event in &other {
            match event {
                Event::Frame(_, bytes) => {
                    let turn = bytes[..].try_into().map(u32::from_le_bytes).expect("four bytes");
                    assert!(last.is_none_or(|last: u32| last + 1 == turn), "seed {seed}: a gap");
                    last = Some(turn);
                }
                _ => last = None,
            }
        }
        assert!(losses(&one).len().abs_diff(losses(&other).len()) <= 1);
        lost += losses(&other).len();
    }
    assert!(lost as u64 > seeds.end - seeds.start, "{lost}");
}

#[test]
fn a_frame_is_lost_without_a_word_only_where_a_test_wants_that() {
    let faults = Faults { loss_per_million: 200_000, loss_is_silent: true, ..Faults::NONE };
    let [one, other] = told(&Net::new(3, Timing::USUAL, faults), |_| {});
    assert!((losses(&one).is_empty(), losses(&other).is_empty()) == (true, true));
    let came = frames(&other).len();
    assert!((120..190).contains(&came), "{came}");
}

#[test]
fn a_link_that_is_cut_one_way_ends_the_session_on_both_sides() {
    for (from, to) in [(1, 2), (2, 1)] {
        let net = Net::new(4, Timing::USUAL, Faults::NONE);
        let [one, other] = told(&net, |turn| match turn {
            50 => net.cut_link(member(from), member(to)),
            100 => net.heal_link(member(from), member(to)),
            _ => {}
        });
        assert_eq!((losses(&one).len(), losses(&other).len()), (1, 1), "{from} to {to}");
        let silent = if to == 1 { &one } else { &other };
        assert_eq!(losses(silent), [Loss::Silent]);
        let came = frames(&other);
        assert!(came.contains(&40) && !came.contains(&80) && came.contains(&150));
    }
}

#[test]
fn a_link_that_is_clogged_for_a_while_loses_nothing() {
    let net = Net::new(5, Timing::USUAL, Faults::NONE);
    let [one, other] = told(&net, |turn| match turn {
        50 => net.clog_link(member(1), member(2)),
        60 => net.heal_link(member(1), member(2)),
        _ => {}
    });
    assert!(losses(&one).is_empty() && losses(&other).is_empty());
    assert_eq!(frames(&other), (1..200).collect::<Vec<_>>());
}

#[test]
fn a_link_that_is_clogged_for_long_lets_nothing_go_into_the_next_session() {
    let net = Net::new(6, Timing::USUAL, Faults::NONE);
    let [one, other] = told(&net, |turn| match turn {
        50 => net.clog_link(member(1), member(2)),
        120 => net.heal_link(member(1), member(2)),
        _ => {}
    });
    assert_eq!((losses(&one).len(), losses(&other).len()), (1, 1));
    let came = frames(&other);
    assert!(!came.contains(&60) && came.contains(&150), "{came:?}");
}

#[test]
fn who_loses_his_machine_says_nothing_and_is_silent() {
    let net = Net::new(7, Timing::USUAL, Faults::NONE);
    let [one, other] = told(&net, |turn| {
        if turn == 50 {
            net.lose_machine(member(2));
        }
    });
    assert_eq!((losses(&one), losses(&other).len()), (vec![Loss::Silent], 0));
}
