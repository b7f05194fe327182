//! The searches: small ones in every build, all of them within ten seconds; with `TERRAL_EXPLORE=1`
//! larger ones beside them, which take many minutes.

use super::bounds::{Bounds, UNIT_NS};
use super::search::search;
use super::server::{show, shown_and_removed};
use super::step::Step;

/// States of one search, at most. The small ones have fewer.
const MOST: usize = 2_000_000;

fn is_large() -> bool {
    std::env::var_os("TERRAL_EXPLORE").is_some()
}

/// Runs searches, the small one and the larger ones; says what they were.
#[allow(clippy::print_stdout)] // How many states it was.
fn explore(name: &str, before: &[Step], small: Bounds, larger: &[Bounds]) {
    for bounds in [small].iter().chain(larger.iter().filter(|_| is_large())) {
        let report = search(before, *bounds, MOST)
            .unwrap_or_else(|broken| panic!("{name} ({bounds}): {broken}"));
        let (states, steps, took) = (report.states, report.steps, report.took);
        let all = if states < MOST { "all" } else { "the first" };
        println!("{name}: {all} {states} states, {steps} steps, {took:.1?} ({bounds})");
        assert!(states < MOST || *bounds != small, "{name}: not all states were looked at");
    }
}

/// Nothing goes wrong: then nothing fails.
const CALM: Bounds = Bounds { is_calm: true, ..Bounds::NONE };
/// Two things, each of another server.
const TWO: Bounds = Bounds { things: 2, ..Bounds::NONE };

#[test]
fn a_thing_has_one_changer_and_all_get_their_turn() {
    explore("changes", &[], Bounds { changes: 3, ..CALM }, &[Bounds { changes: 4, ..CALM }]);
}

#[test]
fn what_is_changed_together_with_another_thing_comes_to_who_changes_both() {
    let small = Bounds { changes: 2, looks: 1, takes: true, in_use: true, ..CALM };
    explore("takes", &[], small, &[Bounds { changes: 3, ..small }]);
}

#[test]
fn who_waits_for_something_else_holds_up_nobody_and_gets_his_turn() {
    let small = Bounds { changes: 3, in_use: true, delays: 1, ..CALM };
    let crashes = Bounds { changes: 2, crashes: 1, halts: true, is_calm: false, ..small };
    let looks = Bounds { looks: 1, changes: 2, ..small };
    let larger = [Bounds { delays: 2, ..small }, looks, Bounds { delays: 2, ..crashes }];
    explore("delays", &[], small, &larger);
    explore("delays, crashes", &[], crashes, &[Bounds { deaths: 1, crashes: 0, ..crashes }]);
}

#[test]
fn what_is_too_large_to_be_given_away_is_used_where_it_is() {
    let small = Bounds { changes: 2, looks: 1, in_use: true, larges: 1, ..CALM };
    let takes = Bounds { takes: true, ..small };
    let larger = [Bounds { larges: 2, ..small }, Bounds { changes: 3, ..takes }];
    explore("too large", &[], small, &larger);
    explore("too large, takes", &[], takes, &[]);
}

#[test]
fn who_looks_sees_all_that_was_acknowledged() {
    let small = Bounds { changes: 2, looks: 1, in_use: true, ..CALM };
    let larger = [Bounds { things: 2, in_use: false, ..small }, Bounds { looks: 2, ..small }];
    explore("looks", &[], small, &larger);
}

#[test]
fn who_finds_what_no_copy_says_is_answered_while_others_have_copies() {
    let small = Bounds { changes: 1, looks: 2, finds: true, ..CALM };
    let crashes = Bounds { crashes: 1, looks: 1, is_calm: false, ..small };
    let delays = Bounds { delays: 1, ..small };
    let more = [Bounds { changes: 2, in_use: true, ..small }, Bounds { looks: 3, ..small }];
    explore("finds", &[], small, &more);
    explore("finds, crashes", &[], crashes, &[Bounds { looks: 2, halts: true, ..crashes }]);
    explore("finds, delays", &[], delays, &[Bounds { changes: 2, ..delays }]);
}

#[test]
fn what_is_given_back_unasked_is_there_for_the_next() {
    let small = Bounds { changes: 1, looks: 1, in_use: true, returns: 1, ..CALM };
    let later = Bounds { time: 2, is_calm: false, ..small };
    explore("returns", &[], small, &[Bounds { changes: 2, ..small }, later]);
}

#[test]
fn who_stops_for_longer_than_any_term_finds_what_it_had_or_that_it_is_gone() {
    let small = Bounds { changes: 1, looks: 1, time: 1, ..TWO };
    let longer = Bounds { things: 1, changes: 2, looks: 0, time: 4, ..TWO };
    explore("freezes", &[], small, &[Bounds { time: 2, ..small }, longer]);
}

#[test]
fn what_is_shown_is_gone_before_it_is_changed_though_its_holder_has_stopped() {
    let small = Bounds { changes: 1, time: 2, ..Bounds::NONE };
    explore("copies", &show(0), small, &[Bounds { time: 3, ..small }]);
}

#[test]
fn one_deadline_is_right_for_what_two_have_shown() {
    let before = [show(0), show(1)].concat();
    let small = Bounds { changes: 1, time: 1, ..TWO };
    explore("deadline", &before, small, &[]);
    if is_large() {
        let later = [&before[..], &[Step::Pass { ns: UNIT_NS }]].concat();
        explore("deadline, later", &later, small, &[]);
    }
}

#[test]
fn a_process_that_dies_anywhere_loses_nothing_and_does_nothing_twice() {
    let small = Bounds { changes: 2, crashes: 1, halts: true, ..TWO };
    let looks = Bounds { changes: 1, looks: 1, ..small };
    let larger = [looks, Bounds { time: 1, ..looks }, Bounds { things: 1, looks: 1, ..small }];
    explore("crashes", &[], small, &larger);
}

#[test]
fn what_is_lost_doubled_or_overtaken_on_the_way_is_done_once() {
    let small = Bounds { changes: 1, looks: 1, cuts: 1, doubles: 1, swaps: 1, ..CALM };
    let two = Bounds { things: 2, changes: 2, looks: 0, ..small };
    explore("sessions", &[], small, &[two, Bounds { changes: 2, ..small }]);
}

#[test]
fn a_lost_machine_takes_only_what_nobody_else_has_and_it_is_said_by_name() {
    let small = Bounds { changes: 1, looks: 1, deaths: 1, ..Bounds::NONE };
    let two = Bounds { things: 2, ..small };
    let (fenced, crashes) = (Bounds { fences: 1, ..small }, Bounds { crashes: 1, ..small });
    let larger = [two, Bounds { changes: 2, looks: 0, ..two }, crashes, fenced];
    explore("deaths", &[], small, &larger);
}

#[test]
fn who_is_removed_alive_does_no_harm_to_the_others() {
    let small = Bounds { changes: 2, fences: 1, ..Bounds::NONE };
    let looks = Bounds { changes: 1, looks: 1, ..small };
    let larger = [looks, Bounds { time: 1, ..small }, Bounds { crashes: 1, ..looks }];
    explore("fences", &[], small, &larger);
}

#[test]
fn a_copy_outlives_its_decider_only_while_it_was_good() {
    let small = Bounds { looks: 1, deaths: 1, time: 1, ..Bounds::NONE };
    let changed = Bounds { changes: 1, looks: 0, ..small };
    let fenced = Bounds { deaths: 0, fences: 1, ..small };
    explore("inheriting", &show(0), small, &[changed, fenced, Bounds { time: 2, ..small }]);
    let pass = Step::Pass { ns: UNIT_NS };
    let later = [&show(0)[..], &[pass, pass]].concat();
    let change = Step::Begin { server: 0, thing: 0, changes: true };
    let changed = [&later[..], &[change, Step::Run { server: 0, request: 0 }]].concat();
    let recall = [Step::Run { server: 2, request: 160 }, change, Step::Deliver { from: 0, to: 2 }];
    let recalled = [&show(0)[..], &recall].concat();
    let died = Bounds { time: 0, ..small };
    explore("inheriting, recalled", &recalled, died, &[Bounds { deaths: 0, fences: 1, ..died }]);
    let both = Bounds { changes: 1, time: 0, ..small };
    explore("inheriting, changed", &changed, Bounds { changes: 0, ..both }, &[]);
    if is_large() {
        explore("inheriting, later", &later, both, &[Bounds { fences: 1, deaths: 0, ..both }]);
    }
}

#[test]
fn what_who_is_removed_alive_does_until_it_knows_is_not_undone() {
    let pass = Step::Pass { ns: UNIT_NS };
    let heard = [Step::Remove { server: 0 }, Step::Tell { server: 2 }, pass, pass];
    let has_shown = [&show(0)[..], &heard].concat();
    let small = Bounds { changes: 1, looks: 1, ..Bounds::NONE };
    let larger = [Bounds { returns: 1, ..small }, Bounds { time: 1, ..small }];
    explore("fenced, has shown", &has_shown, small, &larger);
    let was_shown = [&show(0)[..], &[Step::Remove { server: 2 }]].concat();
    let timed = Bounds { looks: 0, time: 1, ..small };
    explore("fenced, was shown", &was_shown, timed, &[small]);
    let restarts = Bounds { changes: 1, crashes: 1, ..Bounds::NONE };
    explore("fenced, restarted", &was_shown, restarts, &[Bounds { halts: true, ..restarts }]);
}

#[test]
fn an_heir_is_inherited_from_in_its_turn() {
    let small = Bounds { looks: 1, fences: 2, ..Bounds::NONE };
    let larger = [Bounds { looks: 2, ..small }, Bounds { changes: 1, ..small }];
    explore("heirs", &show(0), small, &larger);
    let died = Bounds { deaths: 1, fences: 1, ..small };
    explore("heirs of the dead", &show(0), died, &[Bounds { changes: 1, ..died }]);
    let small = Bounds { changes: 1, looks: 1, time: 1, ..Bounds::NONE };
    explore("heirs, shown to two", &shown_and_removed(), small, &[Bounds { time: 2, ..small }]);
}
