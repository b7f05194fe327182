//! Who is told when the drain rests.

use std::sync::atomic::Ordering;

use super::Sim;
use crate::core::workers::Next;
use crate::shell::draining::Drainer;
use crate::shell::workers::Worker;

#[test]
fn who_waits_for_the_end_is_told_when_the_drain_finds_nothing_to_do() {
    let mut sim = Sim::new(1);
    let dir = sim.dir.clone();
    let told = sim.with(|server| {
        let rings = || server.bell().rings.load(Ordering::SeqCst);
        let mut drainer = Drainer { backing: &dir, nice: false };
        let mut state = server.lock();
        state.finishing = true;
        assert!(!state.debts.is_settled(), "nobody has looked yet");
        let before = rings();
        let mut next = Next::Busy;
        while next == Next::Busy {
            (state, next) = drainer.turn(server, state);
        }
        assert!(state.debts.is_settled());
        let first = rings();
        (state, next) = drainer.turn(server, state);
        assert!(next != Next::Busy && state.debts.is_settled());
        (before, first, rings())
    });
    let (before, first, second) = told.expect("the server lives");
    assert!(first > before, "the requests' thread looks whether that is the end");
    assert_eq!(second, first, "and is told once");
}
