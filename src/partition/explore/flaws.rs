//! Rules that are left out, one at a time: the search finds what breaks, and says the shortest way
//! to it.

use crate::fitting::tests::with_at_most;
use crate::left_out::Rule;
use crate::left_out::tests::without;

use super::bounds::{Bounds, UNIT_NS};
use super::search::search;
use super::server::{show, shown_and_removed};
use super::step::Step;
use super::world::World;

/// States within which a flaw is found, or it counts as not found.
const MOST: usize = 1_500_000;

/// Leaves a rule out, and gives what was found.
#[allow(clippy::print_stdout)] // What breaks, and how.
fn breaks_after(steps: &[Step], rule: Rule, bounds: Bounds) -> String {
    let found = without(rule, || search(steps, bounds, MOST));
    let broken = found.expect_err("nothing is missed without this rule");
    println!("without {rule:?}: {broken}");
    broken.what
}

fn breaks(rule: Rule, bounds: Bounds) -> String {
    breaks_after(&[], rule, bounds)
}

#[track_caller]
fn says(what: &str, part: &str) {
    assert!(what.contains(part), "{what}");
}

#[test]
fn a_loan_that_ends_by_a_clock_gives_a_thing_two_changers() {
    let bounds = Bounds { changes: 2, time: 3, ..Bounds::NONE };
    says(&breaks(Rule::LoansOutliveClocks, bounds), "thing 0 is changed while [0, 1] may use it");
}

#[test]
fn a_deadline_moved_on_before_things_are_taken_away_shows_what_was_changed() {
    let bounds = Bounds { things: 2, changes: 1, looks: 1, time: 2, ..Bounds::NONE };
    says(
        &breaks_after(&show(0), Rule::TakeAwayFirst, bounds),
        "thing 0 is changed while [0, 2] may use it",
    );
}

#[test]
fn an_answer_that_is_forgotten_when_it_is_sent_is_lost_with_the_session() {
    let bounds = Bounds { changes: 2, cuts: 1, is_calm: true, ..Bounds::NONE };
    says(&breaks(Rule::KeepUntilTaken, bounds), "Silent(Member(0)) on a calm day");
}

#[test]
fn a_message_that_is_taken_again_is_done_again() {
    let bounds = Bounds { changes: 3, in_use: true, doubles: 1, ..Bounds::NONE };
    says(&breaks(Rule::TakeOnce, bounds), "is done twice");
}

#[test]
fn copies_that_are_not_recalled_show_what_was_before() {
    let bounds = Bounds { changes: 1, looks: 1, ..Bounds::NONE };
    says(&breaks(Rule::RecallCopies, bounds), "thing 0 is changed while [1, 2] may use it");
}

#[test]
fn what_a_lost_machine_had_is_not_answered_from_before() {
    let bounds = Bounds { changes: 2, deaths: 1, ..Bounds::NONE };
    says(&breaks(Rule::LostIsLost, bounds), "shows 0 of thing 0, not 1");
}

#[test]
fn a_loan_given_back_before_its_request_has_run_is_changed_afterwards() {
    let bounds = Bounds { changes: 2, is_calm: true, ..Bounds::NONE };
    says(&breaks(Rule::RunOnce, bounds), "shows 0 of thing 0, not 1");
}

#[test]
fn a_server_that_forgets_its_promises_with_its_process_breaks_them() {
    let bounds = Bounds { changes: 1, looks: 1, crashes: 1, ..Bounds::NONE };
    says(&breaks(Rule::PromiseAfterRestart, bounds), "thing 0 is changed while [1, 2] may use it");
}

#[test]
fn an_heir_that_does_not_ask_around_reports_as_lost_what_is_there() {
    let bounds = Bounds { changes: 1, looks: 1, deaths: 1, ..Bounds::NONE };
    says(&breaks(Rule::GatherFirst, bounds), "thing 0 is said to be lost: 2 has it");
}

#[test]
fn a_lease_renewed_ahead_of_a_recall_is_believed_too_long() {
    let pass = Step::Pass { ns: UNIT_NS };
    let shown_late = [&show(0)[..3], &[pass, pass]].concat();
    let bounds = Bounds { changes: 1, looks: 1, swaps: 2, ..Bounds::NONE };
    says(
        &breaks_after(&shown_late, Rule::RenewInOrder, bounds),
        "thing 0 is changed while [0, 2] may use it",
    );
}

#[test]
fn a_lease_renewed_with_the_first_part_of_what_is_said_is_believed_without_the_rest() {
    let pass = Step::Pass { ns: UNIT_NS };
    let shown_late = [&show(0)[..3], &[pass, pass]].concat();
    let bounds = Bounds { changes: 1, looks: 1, cuts: 1, ..Bounds::NONE };
    let broken = with_at_most(1, || breaks_after(&shown_late, Rule::RenewWithTheLast, bounds));
    says(&broken, "thing 0 is changed while [0, 2] may use it");
}

#[test]
fn a_copy_kept_for_an_heir_though_its_lease_was_over_undoes_a_change() {
    let pass = Step::Pass { ns: UNIT_NS };
    let shown = [&show(0)[..], &[pass, pass]].concat();
    let bounds = Bounds { changes: 1, looks: 1, deaths: 1, ..Bounds::NONE };
    says(&breaks_after(&shown, Rule::KeepWhatIsGood, bounds), "shows 0 of thing 0, not 1");
}

#[test]
fn a_copy_kept_for_an_heir_though_its_decider_lives_undoes_a_change() {
    let pass = Step::Pass { ns: UNIT_NS };
    let heard = [Step::Remove { server: 0 }, Step::Tell { server: 2 }, pass, pass];
    let removed = [&show(0)[..], &heard].concat();
    let bounds = Bounds { changes: 1, looks: 1, returns: 1, ..Bounds::NONE };
    says(&breaks_after(&removed, Rule::KeepOfTheDead, bounds), "of thing 0, not 1");
}

#[test]
fn a_copy_of_who_is_removed_alive_shows_what_was_before_if_it_is_not_waited_for() {
    let bounds = Bounds { changes: 1, ..Bounds::NONE };
    let removed = [&show(0)[..], &[Step::Remove { server: 2 }]].concat();
    says(
        &breaks_after(&removed, Rule::WaitForTheFenced, bounds),
        "thing 0 is changed while [0, 2] may use it",
    );
}

#[test]
fn a_copy_that_a_dead_member_has_shown_to_one_that_is_removed_alive_is_waited_for_by_the_heir() {
    let bounds = Bounds { changes: 1, ..Bounds::NONE };
    says(
        &breaks_after(&shown_and_removed(), Rule::WaitForTheFenced, bounds),
        "thing 0 is changed while [1, 2] may use it",
    );
}

/// Server 2 is shown thing 0, and a client there stops while it is to leave it: what becomes of a
/// change that server 0 waits to make.
fn change_beside_a_stopped_client() -> Result<bool, String> {
    let bounds = Bounds { changes: 1, looks: 1, time: 9, ..Bounds::NONE };
    let mut world = World::new(bounds);
    let change = Step::Begin { server: 0, thing: 0, changes: true };
    let recall = Step::Deliver { from: 0, to: 2 };
    let looks = Step::Run { server: 2, request: 160 };
    for step in show(0).into_iter().chain([looks, change, recall]) {
        world = world.after(step, false)?;
    }
    for _ in 0..3 {
        world = world.after(Step::Pass { ns: UNIT_NS - 1 }, false)?;
        for (from, to) in [(2, 0), (0, 2)] {
            world = world.after(Step::Tick { server: from }, false)?;
            while !world.wire(from, to).is_empty() {
                world = world.after(Step::Deliver { from, to }, false)?;
            }
        }
    }
    Ok(world.server(0).ready.contains(&0))
}

#[test]
fn a_lease_renewed_while_its_copy_is_awaited_lets_a_stopped_client_hold_up_everybody() {
    assert_eq!(change_beside_a_stopped_client(), Ok(true));
    assert_eq!(without(Rule::WithholdRenewal, change_beside_a_stopped_client), Ok(false));
}
