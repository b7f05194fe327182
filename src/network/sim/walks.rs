//! Long walks through all that can go wrong, by a seed: whatever it is, no endpoint says anything
//! that it may not, and when everything is healed everybody reaches everybody.
//! `TERRAL_SEED=N` walks one.

use std::time::Duration;

use super::tests::{DOUBLED, Simulated};
use super::{Faults, Net};
use crate::chance::Chance;
use crate::conformance::crowd::{Crowd, member, server};
use crate::endpoint::{Endpoint, Timing};
use crate::seeds::seeds;

/// How many members there are.
const MEMBERS: u64 = 4;
/// Steps of a walk.
const STEPS: u32 = 300;

/// Kills a member, with or without its machine, and starts it again.
fn start_again(crowd: &mut Crowd<Simulated>, number: u16, is_machine_there: bool) {
    if !is_machine_there {
        crowd.stage.net.lose_machine(member(number));
    }
    crowd.start(number, server(number));
    for other in (1..=MEMBERS as u16).filter(|other| *other != number) {
        crowd.admit(number, other, server(other));
    }
}

/// Sends what the receiver can tell from all else that was sent.
fn send(crowd: &mut Crowd<Simulated>, one: u16, other: u16, step: u32) {
    let Some(session) = crowd.session(one, other) else { return };
    for part in 0..20u32 {
        let frame = [step.to_le_bytes(), part.to_le_bytes()].concat();
        _ = crowd.endpoint(one).send(session, &frame);
    }
}

fn step(crowd: &mut Crowd<Simulated>, chance: &mut Chance, step: u32) {
    let mut number = || chance.between(1, MEMBERS) as u16;
    let (one, other) = (number(), number());
    if one == other {
        return;
    }
    let (from, to) = (member(one), member(other));
    let net = crowd.stage.net.clone();
    match chance.between(0, 60) {
        0 => net.cut_link(from, to),
        1 => net.clog_link(from, to),
        2..=7 => net.heal_link(from, to),
        8 => net.freeze(from, Duration::from_secs(chance.between(1, 40))),
        9 => start_again(crowd, one, true),
        10 => start_again(crowd, one, false),
        11..=13 => {
            if let Some(session) = crowd.session(one, other) {
                crowd.endpoint(one).cut(session);
            }
        }
        14 => crowd.endpoint(one).expel(to),
        15..=18 => crowd.admit(one, other, server(other)),
        19..=28 => crowd.endpoint(one).reach(to),
        29..=32 => net.pass(Duration::from_millis(chance.between(1, 9000))),
        33..=45 => send(crowd, one, other, step),
        _ => crowd.turn(),
    }
}

/// Of all that came in a session, what was sent later came later, and nothing twice.
fn is_in_order(crowd: &Crowd<Simulated>) -> bool {
    (1..=MEMBERS as u16).all(|number| {
        let mut latest = std::collections::BTreeMap::new();
        crowd.heard(number).frames.iter().all(|(session, frame)| {
            let (step, part) = frame.split_at(4);
            let half = |half: &[u8]| half.try_into().map(u32::from_le_bytes).expect("four bytes");
            let this = (half(step), half(part));
            latest.insert(*session, this).is_none_or(|before| before < this)
        })
    })
}

fn walk(seed: u64) {
    let mut chance = Chance::new(seed);
    let faults = Faults { loss_per_million: 2000, delay_ns: (1000, 3_000_000), ..DOUBLED };
    let net = Net::new(seed, Timing::USUAL, faults);
    let mut crowd = Crowd::of(Simulated { net, started: 0 }, MEMBERS as u16);
    (0..STEPS).for_each(|at| step(&mut crowd, &mut chance, at));
    crowd.stage.net.set_faults(Faults::NONE);
    let pairs = (1..=MEMBERS as u16).flat_map(|one| (1..=MEMBERS as u16).map(move |to| (one, to)));
    let pairs: Vec<_> = pairs.filter(|(one, other)| one != other).collect();
    for (one, other) in &pairs {
        crowd.stage.net.heal_link(member(*one), member(*other));
        crowd.admit(*one, *other, server(*other));
    }
    // What has been lost before is heard of by then.
    crowd.pass(Timing::USUAL.silence * 3);
    for (one, other) in pairs.into_iter().filter(|(one, other)| one < other) {
        if crowd.session(one, other).is_none() {
            crowd.endpoint(one).reach(member(other));
        }
        crowd.until_connected(one, other);
    }
    assert!(is_in_order(&crowd));
}

#[test]
fn whatever_goes_wrong_nothing_is_said_that_may_not_be_and_it_heals() {
    for seed in seeds(100) {
        let walked = std::panic::catch_unwind(|| walk(seed));
        assert!(walked.is_ok(), "TERRAL_SEED={seed}");
    }
}
